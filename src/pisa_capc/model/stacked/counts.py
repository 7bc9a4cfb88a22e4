"""Frames that stand for several."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Counts(NamedTuple):
    """How often each frame of a batch counts, where equal ones are computed once.

    Batch normalisation takes its statistics as if each frame were there so often. On the way back the gradient of such
    a frame is the sum of theirs.
    """

    each: Tensor  # (R, N), float32; frames that count nothing come last
    used: Tensor  # (R,), int32: how many come before those; layers may leave out the others
    total: int  # what `each` sums to in every run
    grain: int = 1  # of how many `used` and N are multiples

    @classmethod
    def once(cls, x: Tensor) -> Counts:
        """Each frame of x (R, N, …) for itself."""
        runs, frames = x.shape[:2]
        used = torch.full((runs,), frames, dtype=torch.int32, device=x.device)
        return cls(torch.ones(runs, frames, device=x.device), used, frames, frames)
