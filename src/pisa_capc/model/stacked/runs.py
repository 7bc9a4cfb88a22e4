"""The runs of a stack one after the other, as blocks on a CPU take them. A run that is alone is not copied for it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def split_runs(stacked: Tensor) -> Sequence[Tensor]:
    """(R, …) as R times (…)."""
    return [stacked.squeeze(0)] if len(stacked) == 1 else stacked.unbind()


def join_runs(runs: Sequence[Tensor]) -> Tensor:
    """R times (…) as (R, …)."""
    return runs[0][None] if len(runs) == 1 else torch.stack(list(runs))
