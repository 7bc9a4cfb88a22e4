"""How many programs a kernel is launched with, and in which types they compute."""

from __future__ import annotations

import torch
from torch import Tensor

ROWS = 128  # rows of a tile; a tile of 128 × 32 channels fills a warp group without spilling
MULTIPROCESSORS = 132  # of a Hopper GPU
PROGRAMS = 8 * MULTIPROCESSORS
REGISTERS = 128  # of a thread, where more programs at a time are worth a few spilled values


def precision(x: Tensor) -> str:
    """How the products of tensors of this type are computed.

    Those of float32 in three parts, which keeps all but its last bits: as they are ("ieee"), they could not have the
    matrix units, and would be up to 18 times slower.
    """
    return "tf32x3" if x.dtype == torch.float32 else "tf32"


def programs(count: int, runs: int, each: int) -> int:
    """How many programs share the tiles of a run, where each multiprocessor has room for `each` of them."""
    return max(1, min(count, MULTIPROCESSORS * each // runs))


def low_precision(x: Tensor) -> Tensor:
    """x in the type that autocast chose, or as it is."""
    if x.is_cuda and torch.is_autocast_enabled("cuda"):
        x = x.to(torch.get_autocast_dtype("cuda"))
    return x.contiguous()
