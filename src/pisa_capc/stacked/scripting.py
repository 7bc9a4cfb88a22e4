"""Functions without the interpreter, for which threads would wait: TorchScript."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import torch


@cache
def scripted(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as a script, made once. It is of tensors, numbers and lists alone."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that TorchScript has successors, which need a compiler
        made: Callable[..., Any] = torch.jit.script(function)
        return made
