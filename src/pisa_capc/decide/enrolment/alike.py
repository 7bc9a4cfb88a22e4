"""Whether frames that are to be a new device's sound like a device that is there already.

Most of them are given to one device k. Each frame's distance from the training embeddings (`knn` of
`decide.calibration.openset`) has among those of the n_k validation frames of k the rank

    p = (1 + #{validation frames of k that are at least as far}) / (n_k + 1),

uniform where the frames are k's and the place is the source's: ½ in the mean. A new device is farther off in nearly
every frame, and k itself in a new place in some. Frames whose mean p is above `ALIKE` sound like k.

Where embeddings have error bars (`model.gaussian`) the two means are compared instead, each with its own error: for two
recordings of one device (m − m_k)ᵀ (V + V_k)⁻¹ (m − m_k) is χ², and p its upper tail. Frames of two senders show as
frames that lie outside the error bars of the others: see `outsiders`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import chi2

from pisa_capc.decide.calibration.openset import score_frames, unknown_score
from pisa_capc.decide.enrolment.row import Array
from pisa_capc.model.gaussian import Device, GaussianBackend, Observations
from pisa_capc.model.gaussian.algebra import gaussians
from pisa_capc.model.inference import SourceStatistics

ALIKE = 0.2  # chosen on source environments: studies/enrolment.py
SAME = 0.01  # part of second recordings of an enrolled device that are taken for a new one
OUTSIDE = 1e-3  # part of a sender's own frames that lie outside
MIXED = 0.1  # part of frames outside from which on they are taken to be of two senders
ROUNDS = 10


class Likeness(NamedTuple):
    """Whom frames sound like most. device: its number. share: of the frames, given to it. p: their mean rank."""

    device: int
    share: float
    p: float
    limit: float = ALIKE

    @property
    def alike(self) -> bool:
        return self.p > self.limit


def sounds_like(source: SourceStatistics, own: Array) -> Likeness:
    """Whom frames with embeddings `own` (n, D) sound like most, and how much."""
    weight, label = np.asarray(source.weight, dtype=np.float64), np.asarray(source.validation_label)
    decided = np.bincount((own @ weight.T + np.asarray(source.bias)).argmax(axis=1), minlength=len(weight))
    k = int(decided.argmax())
    reference = np.sort(_distance(source, np.asarray(source.validation)[label == k]))
    nearer = np.searchsorted(reference, _distance(source, own), side="left")
    p = (1 + len(reference) - nearer) / (len(reference) + 1)
    return Likeness(k, float(decided[k] / len(own)), float(p.mean()))


def measured_like(backend: GaussianBackend, observed: Observations, new: Device) -> Likeness:
    """Whom a new device, learnt from these frames, sounds like most: the device whose mean is nearest."""
    known = list(backend.devices.values())
    off = new.mean - np.stack([device.mean for device in known])
    error = new.error + np.stack([device.error for device in known])
    distance = np.einsum("ki,ki->k", off, np.linalg.solve(error, off[..., None])[..., 0])
    nearest = int(distance.argmin())
    share = np.mean(backend.log_likelihood(observed).argmax(axis=1) == nearest)
    device = int(list(backend.devices)[nearest])
    return Likeness(device, float(share), float(chi2.sf(distance[nearest], len(new.mean))), SAME)


def outsiders(observed: Observations) -> NDArray[np.bool_]:
    """Which frames (N,) lie outside the error bars of the others: those of another sender, where there are two.

    The centre is that of the frames inside, found from their median on, so a minority does not move it.
    """
    centre, inside = np.median(observed.value, axis=0), np.ones(len(observed), dtype=bool)
    limit = chi2.isf(OUTSIDE, observed.value.shape[1])
    for _ in range(ROUNDS):
        distance, _ = gaussians(observed.value, observed.own, centre[None], observed.frame[None])
        before, inside = inside, distance[:, 0] <= limit
        if not inside.any() or np.array_equal(before, inside):
            break
        centre = observed.select(inside).pooled(np.zeros(inside.sum(), dtype=np.int64)).value[0]
    return ~inside


def _distance(source: SourceStatistics, embedding: np.ndarray) -> Array:
    z = torch.from_numpy(embedding.astype(np.float64))
    logits = z.new_zeros(len(z), len(np.asarray(source.weight)))  # of no use to distances
    function = unknown_score("knn")().fit(source, logits.shape[1], z)
    return score_frames(function, z, logits).numpy()
