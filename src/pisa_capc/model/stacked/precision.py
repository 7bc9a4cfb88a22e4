"""Where the arithmetic must not be in half precision, and where it may."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from threading import Lock
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


def quick_float32() -> AbstractContextManager[None]:
    """Have oneDNN take a CPU's products of float32 where it is as exact: MKL takes twice as long on some processors.

    PyTorch leaves them to oneDNN where bfloat16 is allowed. oneDNN takes float32 all the same on processors without
    matrix units for bfloat16 (AMX).
    """
    return _allowed if _stays_float32() else nullcontext()


class _Bfloat16Allowed:
    """A context in which it is, of which several threads may be in at once: the setting is that of the process."""

    def __init__(self) -> None:
        self._lock, self._inside, self._before = Lock(), 0, ""

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._before = self._own()
                _matmul().fp32_precision = "bf16"
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                _matmul().fp32_precision = self._before

    @staticmethod
    def _own() -> str:
        """The setting of products; none where it is that of all operations, which is what PyTorch says then."""
        matmul = _matmul()
        found: str = matmul.fp32_precision
        matmul.fp32_precision = "none"
        return "none" if matmul.fp32_precision == found else found


_allowed = _Bfloat16Allowed()


def _matmul() -> Any:
    return torch.backends.mkldnn.matmul  # type: ignore[attr-defined]


@cache
def _stays_float32() -> bool:
    """Whether products are taken in float32 where bfloat16 is allowed."""
    if not torch.backends.mkldnn.is_available():
        return False
    x = torch.arange(4 * 48 * 48, dtype=torch.float32, device="cpu").view(4, 48, 48).sin()
    with torch.no_grad(), _allowed:
        error = torch.bmm(x, x) - torch.bmm(x.double(), x.double())
    return bool(error.abs().max() < 1e-4)  # in bfloat16 it is 0.02
