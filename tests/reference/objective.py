"""The terms of the source objective as loops in float64."""

from __future__ import annotations

import numpy as np

from tests.reference.encoders import Array, softmax


def cross_entropy(logits: Array, label: Array) -> float:
    return float(-np.mean([np.log(softmax(row)[y]) for row, y in zip(logits, label, strict=True)]))


def consistency(clean: Array, perturbed: Array) -> float:
    total = 0.0
    for a, b in zip(clean, perturbed, strict=True):
        p, q = softmax(a), softmax(b)
        total += sum(p[c] * np.log(p[c] / q[c]) for c in range(len(p)))
    return total / len(clean)


def supervised_contrastive(embedding: Array, label: Array, temperature: float) -> float:
    """Khosla et al. (2020), L_out, over the anchors that have a positive."""
    z = [row / np.linalg.norm(row) for row in embedding]
    anchors = []
    for i in range(len(z)):
        positives = [j for j in range(len(z)) if j != i and label[j] == label[i]]
        if not positives:
            continue
        others = sum(np.exp(z[i] @ z[a] / temperature) for a in range(len(z)) if a != i)
        terms = [np.log(np.exp(z[i] @ z[p] / temperature) / others) for p in positives]
        anchors.append(-sum(terms) / len(positives))
    return float(np.mean(anchors)) if anchors else 0.0
