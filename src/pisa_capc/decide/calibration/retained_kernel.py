"""Which frames a prototype retains, and with what weight, in one GPU launch.

At the paper's size the comparisons, counts and products of this are some twenty launches of microseconds each. Here one
program has all frames of one class of one group at hand.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_FRAMES_AT_MOST = 2**14  # that a program holds in its registers


def suits(assignment: Tensor) -> bool:
    """Whether the frames of a class (G, C, n) fit one program."""
    return assignment.shape[2] <= _FRAMES_AT_MOST


def weights(assignment: Tensor, top: int, tie: float) -> Tensor:
    """As they enter (G, C, n): those above the `top`-th largest Q_ik whole, those tied with it with their share.

    assignment (G, C, n): float64, not negative. tie: how far apart, relatively, values may be that are tied.
    """
    groups, classes, frames = assignment.shape
    result = torch.empty_like(assignment, memory_format=torch.contiguous_format)
    block = max(16, triton.next_power_of_2(frames))
    with torch.cuda.device_of(assignment):
        _retain[(groups * classes,)](
            assignment.contiguous(), result, frames, top, TIE=tie, BLOCK=block, num_warps=max(1, min(16, block // 512))
        )
    return result


@triton.jit
def _retain(assignment, result, frames, top, TIE: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0).to(tl.int64) * frames + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < frames
    value = tl.load(assignment + at, mask=inside, other=0.0)
    # Numbers that are not negative have the order of their bits, so the top-th largest is found bit by bit.
    bits = value.to(tl.int64, bitcast=True)
    found = tl.full((1,), 0, tl.int64)
    bit = tl.full((1,), 1, tl.int64) << 62
    for _ in range(63):
        reached = tl.sum((bits >= (found | bit)).to(tl.int32), 0)
        found = tl.where(reached >= top, found | bit, found)
        bit = bit >> 1
    last = found.to(tl.float64, bitcast=True)
    low = last - last * TIE
    high = last + last * TIE
    above = tl.sum((value > high).to(tl.int32), 0)
    tied = tl.sum((inside & (value >= low)).to(tl.int32), 0) - above
    share = tl.minimum((top - above).to(tl.float64) / tl.maximum(tied, 1).to(tl.float64), 1.0)
    tl.store(result + at, tl.where(value > high, value, tl.where(value >= low, value * share, 0.0)), mask=inside)
