"""All Sinkhorn iterations of a batch of groups in one GPU launch.

At the paper's size an iteration is four launches of microseconds each, and launching is what takes the time. Here one
program walks over one group for all iterations and reads each frame once per iteration. Large groups would leave the
rest of the GPU idle, and are quicker as matrix products over all of it.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_FRAMES_AT_MOST = 20_000  # where, on an H200, matrix products over the whole GPU draw level
_CLASSES_AT_MOST = 64
_TILE = 8192  # classes × frames a program holds; with eight warps the quickest of those tried


def suits(scores: Tensor) -> bool:
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
