"""Inverses of many small matrices at once, by plain elimination: no solver, so it exports, and no call for each."""

from __future__ import annotations

import torch
from torch import Tensor


def inverse(matrices: Tensor) -> Tensor:
    """(…, J, J) the inverses of Hermitian positive definite matrices; NaN or infinite where one is singular.

    Gauss–Jordan, which needs no choice of pivots here. For each k, with pivot p = a_kk, row r and column c:
    a ← a − c rᵀ/p, r ← r/p, c ← −c/p, p ← 1/p.
    """
    found, size = matrices, matrices.shape[-1]
    for k in range(size):
        others = torch.arange(size, device=matrices.device) != k
        column, row = found[..., :, k : k + 1], found[..., k : k + 1, :]
        scaled = torch.where(others, row, 1) / column[..., k : k + 1, :]
        found = torch.where(others[:, None], torch.where(others, found, 0) - column * scaled, scaled)
    return found
