"""Gaussians of many covariances at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

SMALL = 12  # dimensions up to which plain elimination, all matrices at once, is quicker than a factorisation of each
FEW = 256  # matrices for which a call of LAPACK costs less than the steps of an elimination
BLOCK = 8192  # matrices of so many dimensions at a time: they stay in a core's cache

Real = NDArray[np.floating[Any]]


def inverse_of(covariance: Real) -> Real:
    """(…, d, d) inverses of symmetric positive definite matrices."""
    return np.asarray(np.linalg.inv(covariance))


def full(own: Real) -> Real:
    """(N, d, d) covariances; (N, d) is taken as their diagonals."""
    return own if own.ndim == 3 else own[:, :, None] * np.eye(own.shape[1])


def blocks(count: int, size: int, each: int = 1) -> list[slice]:
    """Slices of rows that each have `each` matrices of `size` dimensions."""
    step = max(1, int(BLOCK * min(1.0, (SMALL / size) ** 2)) // max(1, each))
    return [slice(start, start + step) for start in range(0, count, step)]


def sums_by(group: NDArray[np.int64], values: Real, groups: int) -> Real:
    """(groups, …) sums of the rows of each group."""
    count = len(group)
    chosen = csr_array((np.ones(count), (group, np.arange(count))), shape=(groups, count))
    return np.asarray((chosen @ values.reshape(count, -1)).reshape(groups, *values.shape[1:]))


def information(value: Real, own: Real | None, frame: Real, group: NDArray[np.int64], groups: int) -> tuple[Real, Real]:
    """(G, d, d) Λ = Σ (S + R_n)⁻¹ of each group and (G, d) Σ (S + R_n)⁻¹ x_n. own: R_n, or None where it is zero."""
    size = value.shape[1]
    if own is None:
        weight = inverse_of(frame)
        count = np.bincount(group, minlength=groups)
        return count[:, None, None] * weight, sums_by(group, value, groups) @ weight
    total, whole = np.zeros((groups, size, size)), np.zeros((groups, size))
    for rows in blocks(len(value), size):
        weights = inverse_of(frame + full(own[rows]))
        total += sums_by(group[rows], weights, groups)
        whole += sums_by(group[rows], np.einsum("nij,nj->ni", weights, value[rows]), groups)
    return total, whole


def gaussians(value: Real, own: Real | None, mean: Real, spread: Real) -> tuple[Real, Real]:
    """(N, K) squared distances (x_n − m_k)ᵀ C⁻¹ (x_n − m_k) and ln N(x_n; m_k, C), C = own_n + spread_k.

    value (N, d), own (N, d, d), the diagonals (N, d) or None for zero, mean (K, d), spread (K, d, d).
    """
    (count, size), kinds = value.shape, len(mean)
    distance, log = np.empty((count, kinds)), np.empty((count, kinds))
    if own is None:  # one factor for each device
        factor = np.linalg.cholesky(spread)
        off = (value[None] - mean[:, None]).swapaxes(1, 2)  # (K, d, N)
        distance[:] = (np.linalg.solve(factor, off) ** 2).sum(1).T
        log[:] = 2 * np.log(factor.diagonal(0, 1, 2)).sum(1)
    elif count * kinds <= FEW:
        covariance, off = full(own)[:, None] + spread, value[:, None] - mean
        distance[:] = (off * np.linalg.solve(covariance, off[..., None])[..., 0]).sum(-1)
        log[:] = np.linalg.slogdet(covariance)[1]
    else:
        x, m, shared = (torch.from_numpy(np.array(each, dtype=np.float64)) for each in (value, mean, spread))
        whiten = eliminated if size <= SMALL else _factored
        for rows in blocks(count, size, kinds):
            error = torch.from_numpy(np.array(full(own[rows]), dtype=np.float64))
            found = whiten(x[rows, None] - m, error, shared)
            distance[rows], log[rows] = (part.numpy() for part in found)
    return distance, -(distance + log + size * np.log(2 * np.pi)) / 2


def eliminated(off: Tensor, error: Tensor, spread: Tensor) -> tuple[Tensor, Tensor]:
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
    """The same by Cholesky factors, one for each frame and device."""
    factor = torch.linalg.cholesky(error[:, None] + spread)
    white = torch.linalg.solve_triangular(factor, off[..., None], upper=False)[..., 0]
    return white.square().sum(-1), 2 * factor.diagonal(0, -2, -1).log().sum(-1)
