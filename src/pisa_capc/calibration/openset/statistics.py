"""What rejecting needs of the source, kept with the model: class statistics and a few embeddings of each class."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pisa_capc.calibration.inputs import Array

BANK = 50  # training embeddings of each class
VALIDATION = 100  # validation frames of each class; enough for thresholds at alpha ≥ 0.01


def openset_statistics(
    embedding: Array, label: Array, validation: Array, validation_logits: Array, validation_label: Array
) -> dict[str, Tensor]:
    """Statistics of training frames (N, D) and validation frames (V, D) with logits (V, C), named as in files.

    class_mean (C, D), prior (C,); covariance (D, D) within classes, Σ_i (z_i − μ_{y_i})(z_i − μ_{y_i})ᵀ / N; bank, at
    most 50 training embeddings of each class; validation, validation_logits and validation_label, at most 100 frames
    of each class. Frames are taken evenly over each class in the given order, so every place and time is among them.
    """
    z, y = torch.as_tensor(embedding).double(), torch.as_tensor(label).long()
    held, logits, truth = (torch.as_tensor(a) for a in (validation, validation_logits, validation_label))
    classes = logits.shape[1]
    count = torch.bincount(y, minlength=classes)
    total = torch.zeros(classes, z.shape[1], dtype=z.dtype).index_add_(0, y, z)
    means = total / count.clamp_min(1)[:, None]
    within = z - means[y]
    some = _evenly(truth, VALIDATION)
    return {
        "class_mean": means.float(),
        "prior": (count / count.sum()).float(),
        "covariance": (within.T @ within / len(z)).float(),
        "bank": z[_evenly(y, BANK)].float(),
        "validation": held[some].float(),
        "validation_logits": logits[some].float(),
        "validation_label": truth[some].long(),
    }


def _evenly(label: Tensor, most: int) -> Tensor:
    """Positions of at most `most` frames of each class, evenly over the frames of that class."""
    y = label.numpy()
    chosen = []
    for k in np.unique(y):
        own = np.flatnonzero(y == k)
        count = min(most, len(own))
        chosen.append(own[np.arange(count) * len(own) // count])
    return torch.from_numpy(np.concatenate(chosen))
