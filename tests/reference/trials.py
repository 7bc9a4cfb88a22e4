"""Verification, slow and obvious: every threshold, every claim and every pool by itself."""

from __future__ import annotations

from itertools import pairwise
from math import exp, log, log2


def rates(genuine, false, threshold):
    """Misses and false accepts where a claim is accepted above the threshold."""
    miss = sum(s <= threshold for s in genuine) / len(genuine)
    return miss, sum(s > threshold for s in false) / len(false)


def equal_error_rate(genuine, false):
    """The crossing of the two rates: between two thresholds, claims are accepted by a coin in a share λ of cases."""
    thresholds = [float("-inf"), *sorted({*genuine, *false})]
    for low, high in pairwise(thresholds):
        (m0, f0), (m1, f1) = rates(genuine, false, low), rates(genuine, false, high)
        if m1 >= f1:
            coin = (f0 - m0) / ((f0 - m0) + (m1 - f1))
            return m0 + coin * (m1 - m0)
    raise AssertionError("all claims are refused at the last threshold")


def cllr(genuine, false):
    missed = sum(log2(1 + exp(-s)) for s in genuine) / len(genuine)
    accepted = sum(log2(1 + exp(s)) for s in false) / len(false)
    return (missed + accepted) / 2


def min_cllr(genuine, false):
    """By the formula of isotonic regression: p_i = max over j ≤ i, min over k ≥ i, of the share of genuine in j … k."""
    scores = sorted({*genuine, *false})
    g, f = [genuine.count(s) for s in scores], [false.count(s) for s in scores]
    bits = 0.0
    for i in range(len(scores)):
        shares = [
            min(sum(g[j : k + 1]) / (sum(g[j : k + 1]) + sum(f[j : k + 1])) for k in range(i, len(scores)))
            for j in range(i + 1)
        ]
        p = max(shares)
        if g[i]:
            bits += g[i] / len(genuine) * log2(1 + (1 - p) / p * len(genuine) / len(false))
        if f[i]:
            bits += f[i] / len(false) * log2(1 + p / (1 - p) * len(false) / len(genuine))
    return bits / 2


def claim_ratios(labels, probability):
    """Every frame claims every device."""
    genuine, false = [], []
    for label, row in zip(labels, probability, strict=True):
        for k, own in enumerate(row):
            others = [p for j, p in enumerate(row) if j != k]
            (genuine if k == label else false).append(log(own) - log(sum(others) / len(others)))
    return genuine, false
