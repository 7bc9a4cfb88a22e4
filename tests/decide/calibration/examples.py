"""Small made-up classification problems whose captures are shifted, each in its own way."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pisa_capc.core.randomness import generator


class Example(NamedTuple):
    embedding: np.ndarray  # (N, D)
    logits: np.ndarray  # (N, C)
    capture: np.ndarray  # (N,)
    label: np.ndarray  # (N,)
    weight: np.ndarray  # (C, D) the classifier's rows


def shifted_captures(
    sizes: tuple[int, ...] = (90, 60, 75), classes: int = 4, features: int = 6, noise: float = 0.5, seed: int = 0
) -> Example:
    """Classes around random directions; every capture moves all of its frames by one offset."""
    draw = generator(seed, "calibration-example", classes, features)
    weight = draw.normal(size=(classes, features))
    capture = np.repeat(np.arange(len(sizes)), sizes)
    label = np.concatenate([np.arange(size) % classes for size in sizes])
    offset = draw.normal(scale=0.7, size=(len(sizes), features))
    embedding = weight[label] + offset[capture] + noise * draw.normal(size=(len(label), features))
    shuffled = draw.permutation(len(label))
    return Example(embedding[shuffled], (embedding @ weight.T)[shuffled], capture[shuffled], label[shuffled], weight)
