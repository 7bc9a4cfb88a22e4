"""The examples in the documentation of the package run, and give what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pisa_capc


def test_examples_run() -> None:
    found: list[str] = []
    attempted = 0
    for module in pkgutil.walk_packages(pisa_capc.__path__, "pisa_capc."):
        if module.name.endswith(("__main__", ".fused")) or ".kernels" in module.name:  # a program, and code for a GPU
            continue
        failed, tried = doctest.testmod(importlib.import_module(module.name))
        attempted += tried
        found += [module.name] * bool(failed)
    assert not found
    assert attempted > 40
