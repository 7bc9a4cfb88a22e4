"""Functions without the interpreter, for which threads would wait: TorchScript."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from threading import Lock
from typing import Any

import torch

_one_at_a_time = Lock()  # filters of warnings are those of all threads


def scripted(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as a script, made once. It is of tensors, numbers and lists alone."""
    with _one_at_a_time:
        return _scripted(function)


@cache
def _scripted(function: Callable[..., Any]) -> Callable[..., Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that TorchScript has successors, which need a compiler
        made: Callable[..., Any] = torch.jit.script(function)
        return made
