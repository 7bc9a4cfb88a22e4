"""Convolutions beside each other, as one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


def joined(weights: Sequence[Tensor]) -> Tensor:
    """Branches (…, C_out, C_in, k) as one kernel of the longest, in which the others have zeros.

    A pass over the activations costs more than that arithmetic.
    """
    if len(weights) == 1:
        return weights[0]
    longest = max(w.shape[-1] for w in weights)
    return torch.cat([F.pad(w, [(longest - w.shape[-1]) // 2] * 2) for w in weights], dim=-3)
