"""Where the arithmetic must not be in half precision, and where it may."""

from __future__ import annotations

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
