"""Where the arithmetic must not be in half precision, and where it may."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor


def full_precision(x: Tensor) -> torch.autocast:
    """A context in which products of `x` are not taken in half precision: for moments, distances and transforms."""
    return torch.autocast(x.device.type, enabled=False)


def product_dtype(x: Tensor) -> torch.dtype:
    """The type in which products of `x` are to be taken: what autocast chose, or that of `x`."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def at_least_float32(x: Tensor) -> Tensor:
    """`x` itself in float32 or float64, else in float32: for softmaxes, logarithms and losses."""
    return x if x.dtype == torch.float64 else x.float()


@contextmanager
def quick_float32() -> Iterator[None]:
    """Have oneDNN take a CPU's products of float32 where it is as exact: MKL takes twice as long on some processors.

    PyTorch leaves them to oneDNN where bfloat16 is allowed. oneDNN takes float32 all the same on processors without
    matrix units for bfloat16 (AMX).
    """
    with _bfloat16_allowed() if _stays_float32() else nullcontext():
        yield


@contextmanager
def _bfloat16_allowed() -> Iterator[None]:
    matmul: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before, matmul.fp32_precision = matmul.fp32_precision, "bf16"
    try:
        yield
    finally:
        matmul.fp32_precision = before


@cache
def _stays_float32() -> bool:
    """Whether products are taken in float32 where bfloat16 is allowed."""
    if not torch.backends.mkldnn.is_available():
        return False
    x = torch.arange(4 * 48 * 48).view(4, 48, 48).sin()
    with torch.no_grad(), _bfloat16_allowed():
        error = torch.bmm(x, x) - torch.bmm(x.double(), x.double())
    return bool(error.abs().max() < 1e-4)  # in bfloat16 it is 0.02
