"""Counter-based random masks for training.

A mask is a hash of (run seed, step, place in the model, element): it does not depend on what else is trained beside
the run, on the device, or on what was drawn before. A killed training therefore has no generator state to restore,
and a run gives the same masks alone and in a stack.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def _mix(x: Tensor) -> Tensor:
    """Two multiply–xorshift rounds on 32 bits, wrapping on overflow; the high bits are the good ones.

    The bit masks make the shift of a signed integer a logical one.
    """
    x = (x ^ ((x >> 16) & 0xFFFF)) * 0x7FEB352D
    return (x ^ ((x >> 15) & 0x1FFFF)) * -0x7B935975


def step_key(seeds: Tensor, step: Tensor) -> Tensor:
    """(R,) int32 key of one training step from the runs' seeds (R,) int32 and the step number, a 0-d int32."""
    return _mix(_mix(seeds * 0x3C6EF35F) + step * 0x61C88647)


def site_key(key: Tensor, site: int) -> Tensor:
    """(R,) key of one place in the model."""
    return _mix(_mix(key) + (site + 1) * 0x9E3779)


def drop_threshold(drop: float) -> int:
    """The hash value under which an element is dropped, with probability `drop`."""
    return -(2**31) + round(drop * 2**32)


def keep_mask(key: Tensor, site: int, shape: Sequence[int], drop: float) -> Tensor:
    """Boolean mask of `shape` = (R, …): true with probability 1 − drop, independently for every element."""
    element = torch.arange(math.prod(shape[1:]), dtype=torch.int32, device=key.device)
    bits = _mix(element ^ site_key(key, site)[:, None])
    return (bits >= drop_threshold(drop)).view(tuple(shape))
