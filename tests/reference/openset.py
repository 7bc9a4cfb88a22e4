"""Rejection scores and open-set metrics as their equations read, one frame at a time."""

from __future__ import annotations

import math

import numpy as np
import scipy.linalg
from scipy.stats import multivariate_normal


def msp(logits: np.ndarray) -> float:
    return 1 - max(math.exp(a) / sum(math.exp(b) for b in logits) for a in logits)


def energy(logits: np.ndarray, temperature: float = 1.0) -> float:
    return -temperature * math.log(sum(math.exp(a / temperature) for a in logits))


def knn(z: np.ndarray, bank: np.ndarray, neighbour: int) -> float:
    distances = [np.linalg.norm(z / np.linalg.norm(z) - b / np.linalg.norm(b)) for b in bank]
    return sorted(distances)[neighbour - 1]


def mahalanobis(z: np.ndarray, means: np.ndarray, covariance: np.ndarray) -> float:
    inverse = np.linalg.inv(covariance)
    return min((z - m) @ inverse @ (z - m) for m in means)


def vim(
    z: np.ndarray, logits: np.ndarray, bank: np.ndarray, weight: np.ndarray, bias: np.ndarray, dimension: int
) -> float:
    origin = -np.linalg.pinv(weight) @ bias
    # The principal space by singular vectors, the residual by subtracting the projection.
    principal = np.linalg.svd(bank - origin, full_matrices=True)[2][:dimension]

    def residual(x: np.ndarray) -> float:
        centred = x - origin
        return float(np.linalg.norm(centred - principal.T @ (principal @ centred)))

    alpha = np.mean([max(weight @ b + bias) for b in bank]) / np.mean([residual(b) for b in bank])
    return alpha * residual(z) + energy(logits)


def sessions(
    z: np.ndarray,
    frames: int,
    means: np.ndarray,
    label: np.ndarray,
    count: np.ndarray,
    within: np.ndarray,
    moved: float,
) -> np.ndarray:
    """Squared distances to sessions along the discriminant axes, which a generalised eigenproblem gives."""

    def shrunk(matrix: np.ndarray, share: float) -> np.ndarray:
        return (1 - share) * matrix + share * np.trace(matrix) / len(matrix) * np.eye(len(matrix))

    kinds = sorted(set(label.tolist()))
    classes = np.array([np.mean([m for m, k in zip(means, label, strict=True) if k == kind], axis=0) for kind in kinds])
    spread = shrunk(within, 0.1)
    off = [m - classes[kinds.index(k)] for m, k in zip(means, label.tolist(), strict=True)]
    moves = sum(np.outer(d, d) for d in off) / (len(means) - len(kinds)) - spread * np.mean(1 / count)
    variance, axes = np.linalg.eigh(moves)
    moves = sum(max(0, v) * np.outer(a, a) for v, a in zip(variance, axes.T, strict=True))
    together = shrunk(moved * moves + spread / frames, 0.003)
    between = np.cov(classes.T)
    basis = scipy.linalg.eigh(between, together)[1][:, ::-1][:, : len(kinds) - 1]  # unit variance within
    return np.array([np.sum(((z - m) @ basis) ** 2) for m in means])


def carriers(
    carrier_hz: float,
    frames: int,
    means: np.ndarray,
    label: np.ndarray,
    count: np.ndarray,
    within: float,
    moved: float,
) -> np.ndarray:
    """Squared distances to the carriers of sessions, in standard deviations of how they move and spread."""
    own = {k: np.mean([m for m, kind in zip(means, label, strict=True) if kind == k]) for k in set(label.tolist())}
    scatter = sum((m - own[k]) ** 2 for m, k in zip(means, label.tolist(), strict=True)) / (len(means) - len(own))
    moves = max(0.0, scatter - within * np.mean(1 / count))
    return np.array([(carrier_hz - m) ** 2 / (moved * moves + within / frames) for m in means])


def auroc(known: np.ndarray, unknown: np.ndarray) -> float:
    return oscr(known, np.ones(len(known), dtype=bool), unknown)


def oscr(known: np.ndarray, correct: np.ndarray, unknown: np.ndarray) -> float:
    """P(a known frame is rightly named and scores below an unknown one), ties counted half."""
    wins = [c * ((k < u) + (k == u) / 2) for k, c in zip(known, correct, strict=True) for u in unknown]
    return float(np.mean(wins))


def gaussian(z: np.ndarray, means: np.ndarray, errors: np.ndarray, frame: np.ndarray, place: np.ndarray) -> float:
    """ln p(z | a device nobody knows) − ln p(z | one of the known); the devices are a sample of all that there are."""
    count, size = means.shape
    spread = sum(np.outer(m - means.mean(axis=0), m - means.mean(axis=0)) for m in means) / (count - 1)
    spread = (count * spread + size * np.diag(np.diag(spread))) / (count + size) * (1 + 1 / count)
    stranger = multivariate_normal.pdf(z, means.mean(axis=0), spread + place + frame)
    known = [multivariate_normal.pdf(z, m, v + place + frame) for m, v in zip(means, errors, strict=True)]
    return math.log(stranger) - math.log(sum(known) / count)
