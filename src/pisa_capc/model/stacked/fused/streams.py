"""Which streams of two views of a batch differ."""

from __future__ import annotations

import torch
from torch import Tensor

from pisa_capc.model.stacked import kernels


def distinct_streams(mask: Tensor, unchanged: Tensor, size: int, grain: int) -> tuple[Tensor, ...]:
    """first, kind, place, each and used of `model.networks.streams.distinct`, of one size. mask: (R, 2B, A)."""
    runs, total, antennas = len(mask), mask[0].numel(), mask.shape[2]
    # Zeros, so that they are places even where the launch is left out, see `compilers.py`.
    first, place = (mask.new_zeros(runs, count, dtype=torch.int64) for count in (size, total))
    kind, used = (mask.new_zeros(*shape, dtype=torch.int32) for shape in ((runs, size), (runs,)))
    each = mask.new_zeros(runs, size, dtype=torch.float32)
    kernels.distinct_streams[(runs,)](
        mask.contiguous(), unchanged.contiguous(), first, kind, place, each, used, antennas, total, size,
        GRAIN=grain, BLOCK=kernels.power_of_two(max(size, total)), num_warps=8,
    )  # fmt: skip
    return first, kind, place, each, used
