"""Whether frames that are to be a new device's sound like a device that is there already.

Most of them are given to one device k. Each frame's distance from the training embeddings (`knn` of
`decide.calibration.openset`) has among those of the n_k validation frames of k the rank

    p = (1 + #{validation frames of k that are at least as far}) / (n_k + 1),

uniform where the frames are k's and the place is the source's: ½ in the mean. A new device is farther off in nearly
every frame, and k itself in a new place in some. Frames whose mean p is above `ALIKE` sound like k.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from pisa_capc.decide.calibration.openset import score_frames, unknown_score
from pisa_capc.decide.enrolment.row import Array
from pisa_capc.model.inference import SourceStatistics

ALIKE = 0.2  # chosen on source environments: studies/enrolment.py


class Likeness(NamedTuple):
    """Whom frames sound like most. device: its number. share: of the frames, given to it. p: their mean rank."""

    device: int
    share: float
    p: float

    @property
    def alike(self) -> bool:
        return self.p > ALIKE


def sounds_like(source: SourceStatistics, own: Array) -> Likeness:
    """Whom frames with embeddings `own` (n, D) sound like most, and how much."""
    weight, label = np.asarray(source.weight, dtype=np.float64), np.asarray(source.validation_label)
    decided = np.bincount((own @ weight.T + np.asarray(source.bias)).argmax(axis=1), minlength=len(weight))
    k = int(decided.argmax())
    reference = np.sort(_distance(source, np.asarray(source.validation)[label == k]))
    nearer = np.searchsorted(reference, _distance(source, own), side="left")
    p = (1 + len(reference) - nearer) / (len(reference) + 1)
    return Likeness(k, float(decided[k] / len(own)), float(p.mean()))


def _distance(source: SourceStatistics, embedding: np.ndarray) -> Array:
    z = torch.from_numpy(embedding.astype(np.float64))
    logits = z.new_zeros(len(z), len(np.asarray(source.weight)))  # of no use to distances
    function = unknown_score("knn")().fit(source, logits.shape[1], z)
    return score_frames(function, z, logits).numpy()
