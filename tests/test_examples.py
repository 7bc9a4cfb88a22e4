"""The examples in the documentation of the package run, and give what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pisa_capc


def test_examples_run() -> None:
    found: list[str] = []
    attempted = 0
    for module in pkgutil.walk_packages(pisa_capc.__path__, "pisa_capc."):
        if (
            module.name.endswith(("__main__", ".fused", ".sinkhorn_kernel")) or ".kernels" in module.name
        ):  # a program, and code for a GPU
            continue
        failed, tried = doctest.testmod(importlib.import_module(module.name))
        attempted += tried
        found += [module.name] * bool(failed)
    assert not found
    assert attempted > 40


def test_the_example_of_the_readme_runs(tmp_path: Path) -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    example = readme.split("```python\n")[1].split("```")[0]
    short = example.replace("scale=0.1", "scale=0.005").replace('encoder="cnn"', 'encoder="cnn", epochs=1, show=False')
    assert short.count("epochs=1") == short.count("scale=0.005") == 1
    (tmp_path / "example.py").write_text(short, encoding="utf-8")
    ran = subprocess.run([sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert 0 <= float(ran.stdout) <= 1
