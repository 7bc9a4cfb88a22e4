"""Terms of the comparison methods as loops in float64, one run at a time."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from tests.reference.encoders import Array, softmax


def groups(z: Array, environment: Array) -> list[Array]:
    return [z[environment == e] for e in np.unique(environment)]


def coral(z: Array, environment: Array) -> float:
    parts = [part for part in groups(z, environment) if len(part) > 1]
    found = []
    for a, b in combinations(parts, 2):
        means = np.mean((a.mean(0) - b.mean(0)) ** 2)
        found.append(means + np.mean((np.cov(a.T) - np.cov(b.T)) ** 2))
    return float(np.mean(found)) if found else 0.0


def mmd(z: Array, environment: Array, gammas: tuple[float, ...]) -> float:
    def kernel(a: Array, b: Array) -> float:
        return float(np.mean([[sum(np.exp(-g * np.sum((x - y) ** 2)) for g in gammas) for y in b] for x in a]))

    pairs = combinations(groups(z, environment), 2)
    found = [kernel(a, a) + kernel(b, b) - 2 * kernel(a, b) for a, b in pairs]
    return float(np.mean(found)) if found else 0.0


def invariance(logits: Array, label: Array, environment: Array) -> float:
    """Slopes of the loss in the scale of the logits, by a central difference, in two halves of each environment."""

    def risk(scale: float, own: Array) -> float:
        return float(-np.mean([np.log(softmax(scale * logits[i])[label[i]]) for i in own]))

    step = 1e-5
    products = []
    for e in np.unique(environment):
        rows = np.flatnonzero(environment == e)
        halves = [rows[rows % 2 == 0], rows[rows % 2 == 1]]
        if all(map(len, halves)):
            products.append(np.prod([(risk(1 + step, h) - risk(1 - step, h)) / (2 * step) for h in halves]))
    return float(np.mean(products)) if products else 0.0


def divergence(score: Array, environment: Array) -> list[float]:
    """Donsker–Varadhan; score (B, E) for environments 0 … E − 1."""
    found = []
    for e in range(score.shape[1]):
        own, others = score[environment == e, e], score[environment != e, e]
        found.append(own.mean() - np.log(np.mean(np.exp(others))) if len(own) and len(others) else 0.0)
    return found


def entropy(logits: Array) -> float:
    return float(np.mean([-np.sum(softmax(row) * np.log(softmax(row))) for row in logits]))


def mixed_cross_entropy(logits: Array, label: Array, partner: Array, share: Array) -> float:
    total = 0.0
    for i, row in enumerate(logits):
        log_p = np.log(softmax(row))
        total -= share[i] * log_p[label[i]] + (1 - share[i]) * log_p[label[partner[i]]]
    return total / len(logits)
