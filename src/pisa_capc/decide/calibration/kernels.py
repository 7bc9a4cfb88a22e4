"""Loops of U-CAPC in one GPU launch each: the Sinkhorn iterations, and which frames a prototype retains.

At the paper's size an iteration is four launches of microseconds each, what a prototype retains some twenty, and
launching is what takes the time. One program walks over one group for all iterations and reads each frame once per
iteration; another has all frames of one class of one group at hand. Large groups would leave the rest of the GPU idle,
and are quicker as matrix products over all of it.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_FRAMES_AT_MOST = 20_000  # where, on an H200, matrix products over the whole GPU draw level
_RETAINED_AT_MOST = 2**14  # frames that a program holds in its registers
_CLASSES_AT_MOST = 64
_TILE = 8192  # classes × frames a program holds; with eight warps the quickest of those tried


def iterates(scores: Tensor) -> bool:
    """Whether scores (G, C, n) are few enough per group for this to be the quicker way."""
    return scores.shape[1] <= _CLASSES_AT_MOST and scores.shape[2] <= _FRAMES_AT_MOST


def potential(scores: Tensor, present: Tensor, iterations: int, epsilon: float) -> Tensor:
    """g (G, C) after `iterations` of r = vK, v = share / K(present / r) with K = exp(S/ε), v = exp(g) and equal shares.

    scores (G, C, n), present (G, 1, n).
    """
    groups, classes, frames = scores.shape
    kernel, result = torch.empty_like(scores, memory_format=torch.contiguous_format), scores.new_empty(groups, classes)
    padded = max(16, triton.next_power_of_2(classes))
    with torch.cuda.device_of(scores):
        _iterate[(groups,)](
            scores.contiguous(),
            present.contiguous(),
            kernel,
            result,
            frames,
            iterations,
            EPSILON=epsilon,
            CLASSES=classes,
            PADDED=padded,
            BLOCK=_TILE // padded,
            num_warps=8,
        )
    return result


@triton.jit
def _iterate(  # type: ignore[no-untyped-def]
    scores,
    present,
    kernel,
    result,
    frames,
    iterations,
    EPSILON: tl.constexpr,
    CLASSES: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    group = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, PADDED)
    offset = tl.arange(0, BLOCK)
    at = (group * CLASSES + k[:, None]) * frames + offset[None, :]
    real = tl.zeros((BLOCK,), tl.float64)
    for start in range(0, frames, BLOCK):
        i = start + offset
        inside = (k[:, None] < CLASSES) & (i[None, :] < frames)
        score = tl.load(scores + at + start, mask=inside, other=0.0)
        highest = tl.max(tl.where(k[:, None] < CLASSES, score, float("-inf")), axis=0)
        tl.store(kernel + at + start, tl.exp(tl.where(inside, score - highest[None, :], 0.0) / EPSILON), mask=inside)
        real += tl.load(present + group * frames + i, mask=i < frames, other=0.0)
    tl.debug_barrier()  # what one thread has written another reads
    target = tl.sum(real) / CLASSES
    v = tl.where(k < CLASSES, 1.0, 0.0).to(tl.float64)
    for _ in range(iterations):
        mass = tl.zeros((PADDED, BLOCK), tl.float64)
        for start in range(0, frames, BLOCK):
            i = start + offset
            inside = (k[:, None] < CLASSES) & (i[None, :] < frames)
            tile = tl.load(kernel + at + start, mask=inside, other=0.0)
            weight = tl.load(present + group * frames + i, mask=i < frames, other=0.0)
            row = tl.sum(tile * v[:, None], axis=0)
            mass += tile * (weight / tl.where(i < frames, row, 1.0))[None, :]
        total = tl.sum(mass, axis=1)
        v = tl.where(k < CLASSES, target / tl.where(k < CLASSES, total, 1.0), 0.0)
    tl.store(result + group * CLASSES + k, tl.log(tl.where(k < CLASSES, v, 1.0)), mask=k < CLASSES)


def retains(assignment: Tensor) -> bool:
    """Whether the frames of a class (G, C, n) fit one program."""
    return assignment.shape[2] <= _RETAINED_AT_MOST


def retained_weights(assignment: Tensor, top: int, tie: float) -> Tensor:
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
