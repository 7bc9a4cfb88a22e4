"""Gaussians of many covariances at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pisa_capc.measurement.elimination import inverse

SMALL = 12  # dimensions up to which plain elimination, all matrices at once, is quicker than a factorisation of each
BLOCK = 8192  # matrices at a time: they stay in a core's cache

Real = NDArray[np.floating[Any]]


def inverse_of(covariance: Real) -> Real:
    """(…, d, d) inverses of symmetric positive definite matrices."""
    given = torch.from_numpy(np.array(covariance))
    small = given.shape[-1] <= SMALL
    return (inverse(given) if small else torch.cholesky_inverse(torch.linalg.cholesky(given))).numpy()


def sums_by(group: NDArray[np.int64], values: Real, groups: int) -> Real:
    """(groups, …) sums of the rows of each group."""
    found = torch.zeros((groups, *values.shape[1:]), dtype=torch.float64)
    found.index_add_(0, torch.from_numpy(group), torch.from_numpy(np.array(values)))
    return found.numpy()


def gaussians(value: Real, error: Real, mean: Real, spread: Real) -> tuple[Real, Real]:
    """(N, K) squared distances (x_n − m_k)ᵀ C⁻¹ (x_n − m_k) and ln N(x_n; m_k, C), C = error_n + spread_k.

    value (N, d), error (N, d, d) or (1, d, d) for all, mean (K, d), spread (K, d, d).
    """
    x, m = torch.from_numpy(np.array(value)), torch.from_numpy(np.array(mean))
    own, shared = torch.from_numpy(np.array(error)), torch.from_numpy(np.array(spread))
    size, step = x.shape[1], max(1, BLOCK // max(1, len(m)))
    whiten = _eliminated if size <= SMALL else _factored
    if len(own) == 1:  # nothing differs from frame to frame: one factor for each device
        step = max(1, len(x))
        whiten = _factored
    found = [
        whiten(x[rows, None] - m, own[rows if len(own) > 1 else slice(None)], shared)
        for rows in (slice(start, start + step) for start in range(0, len(x), step))
    ]
    empty = torch.zeros(0, len(m), dtype=torch.float64)
    distance, log = (torch.cat([empty, *parts]) for parts in (zip(*found, strict=True) if found else ((), ())))
    return distance.numpy(), (-(distance + log + size * np.log(2 * np.pi)) / 2).numpy()


def _eliminated(off: Tensor, error: Tensor, spread: Tensor) -> tuple[Tensor, Tensor]:
    """(n, K) rᵀ C⁻¹ r and ln |C| of off (n, K, d): C = L D Lᵀ entry by entry, of all frames and devices at once."""
    size = off.shape[-1]
    r = [off[..., i].contiguous() for i in range(size)]
    a = [[error[:, i, j, None] + spread[:, i, j] for j in range(i + 1)] for i in range(size)]
    distance, log = torch.zeros_like(r[0]), torch.zeros_like(r[0])
    for k in range(size):
        pivot = a[k][k]
        log += pivot.log()
        distance += r[k] * r[k] / pivot
        for i in range(k + 1, size):
            factor = a[i][k] / pivot
            r[i] -= factor * r[k]
            for j in range(k + 1, i + 1):
                a[i][j] -= factor * a[j][k]
    return distance, log


def _factored(off: Tensor, error: Tensor, spread: Tensor) -> tuple[Tensor, Tensor]:
    """The same by Cholesky factors, of each frame and device or, where all frames have one error, of each device."""
    factor = torch.linalg.cholesky(error[:, None] + spread)  # (n or 1, K, d, d)
    log = 2 * factor.diagonal(0, -2, -1).log().sum(-1)
    if len(factor) == 1:
        white = torch.linalg.solve_triangular(factor[0], off.permute(1, 2, 0), upper=False).square().sum(1).T
        return white, log.expand(len(off), -1)
    white = torch.linalg.solve_triangular(factor, off[..., None], upper=False)[..., 0]
    return white.square().sum(-1), log
