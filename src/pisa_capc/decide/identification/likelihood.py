r"""Evidence for and against a claimed device by the Gaussian back-end, frame by frame, for models that have one.

Frames of one track are pooled, z̄ with error Λ⁻¹, and with everything that they have in common,

    against   M = ½ (mean_{j ≠ k} p(z̄ | j) + p(z̄ | an unknown device)) / p(z̄ | k)
    for       M = p(z̄ | k) / max(max_{j ≠ k} p(z̄ | j), p(z̄ | an unknown device)),

the ratio for all frames together. More frames of one place do not raise it without end: u of `model.gaussian` is common
to them. Under the device in the denominator M is a martingale with mean one, so M ≥ 1/α has a chance of at most α,
however often one looks. It needs no reference frames: a device enrolled from three is verified at once.

Every other frame goes into a second pool, and the lower M of the two counts, so that no single frame decides. The i-th
track of an address has a share of 1/(i (i + 1)) of the stake: a spoofer under the address is at another carrier.

Where two send at one carrier in turn z̄ lies between them. So half of the stake against is on successive pairs of
frames: those of one sender in one place differ by more than χ² at `APART` allows in a part of `USUAL` at most, which
leaves room for frames that something has disturbed. M = Π (q/p if they do, else (1 − q)/(1 − p)), with q = `MIXED`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, logsumexp
from scipy.stats import chi2

from pisa_capc.core.errors import DataError
from pisa_capc.model.gaussian import GaussianBackend
from pisa_capc.model.gaussian.algebra import inverse_of
from pisa_capc.model.inference import Embedding
from pisa_capc.model.methods.closed_form import NEVER

TRACKS = 16  # of an address; of more, those with fewest frames go
APART, USUAL, MIXED = 1e-3, 0.05, 0.3
OFTEN, SELDOM = 16, 8  # frames of a track after each of which the ratio is taken; later after so many

Real = NDArray[np.floating[Any]]


@cache  # a listener makes one for every sender
def _apart(size: int) -> float:
    """χ² of `size` dimensions that is exceeded with a chance of `APART`."""
    return float(chi2.isf(APART, size))


class _Track:
    """Two pools of frames, their log ratios against and for the claim as of the last look, and log M of pairs."""

    def __init__(self, number: int, size: int) -> None:
        self.stake = -np.log(number * (number + 1.0))
        self.frames = 0
        self.weight, self.sum = np.zeros((2, size, size)), np.zeros((2, size))
        self.ratios, self.apart = np.zeros(2), 0.0
        self.last: tuple[Real, Real] = np.zeros(size), np.eye(size)

    @property
    def log_m(self) -> NDArray[np.float64]:
        """(2,) with its stake: against the claim, and for it."""
        against = np.logaddexp(self.ratios[0], self.apart) - np.log(2)
        return np.array([self.stake + against, self.stake + self.ratios[1]])


class Likelihoods:
    """The evidence on one address, which is that of device number `claimed` of the back-end.

    Without a claim (None): against the sender's being any known device, p(z̄ | an unknown device) / max_k p(z̄ | k),
    and the opposite.
    """

    def __init__(self, backend: GaussianBackend, claimed: int | None) -> None:
        if len(backend.devices) < 2 or (claimed is not None and str(claimed) not in backend.devices):
            raise DataError(
                f"the model knows {len(backend.devices)} devices by their frames; a claim needs the claimed one and "
                "another. Enrol it first."
            )
        self._backend = backend
        self._claimed = None if claimed is None else list(backend.devices).index(str(claimed))
        self._limit = _apart(len(backend.frame))
        self._tracks: dict[int, _Track] = {}
        self._met = 0

    def push(self, track: int, embedding: Real, error: Real) -> NDArray[np.float64]:
        """log M (2,), against and for the claim, with the next frame, embedding (D,) with its error (D, D)."""
        own = self._tracks.get(track)
        if own is None:
            self._met += 1
            own = self._tracks[track] = _Track(self._met, len(embedding))
            if len(self._tracks) > TRACKS:
                del self._tracks[min(self._tracks, key=lambda name: (name == track, self._tracks[name].frames))]
        if np.isfinite(error).all():
            scatter = self._backend.frame + error
            if own.frames % 2 and self._claimed is not None:
                off = embedding - own.last[0]
                differ = off @ np.linalg.solve(scatter + own.last[1], off) > self._limit
                own.apart += np.log(MIXED / USUAL if differ else (1 - MIXED) / (1 - USUAL))
            own.last = embedding, scatter
            pool, weight = own.frames % 2, inverse_of(scatter)
            own.weight[pool] += weight
            own.sum[pool] += weight @ embedding
            own.frames += 1
            if 2 <= own.frames <= OFTEN or own.frames % SELDOM == 0:
                own.ratios = self._ratios(own)
        return self.log_m

    @property
    def log_m(self) -> NDArray[np.float64]:
        """Over all tracks, and the stake that none has had."""
        tracks = list(self._tracks.values())
        each = [one.log_m for one in tracks] + [np.full(2, -np.log(self._met + 1.0))]
        return np.asarray(np.logaddexp.reduce(each, axis=0))

    def _ratios(self, track: _Track) -> NDArray[np.float64]:
        error = inverse_of(track.weight)
        pooled = self._backend.evidence(np.einsum("pij,pj->pi", error, track.sum), error - self._backend.frame)
        known, stranger = self._backend.log_all(pooled)
        if self._claimed is None:
            least = (stranger - known.max(axis=1)).min()
            return np.array([least, -least])
        own, others = known[:, self._claimed], np.delete(known, self._claimed, axis=1)
        mixture = np.logaddexp(stranger, logsumexp(others, axis=1) - np.log(others.shape[1])) - np.log(2)
        best = np.maximum(stranger, others.max(axis=1))
        return np.array([(mixture - own).min(), (own - best).min()])


def pooled_scores(scores: Embedding, group: NDArray[np.int64]) -> Embedding | None:
    """Every frame as its whole group (N,), numbers from 0 on; None for models without error bars.

    z̄ = Λ⁻¹ Σ (S + R_n)⁻¹ z_n, and logits ln N(z̄; m_k, V_k + P + Λ⁻¹): what the frames of a sender share in a place, P,
    counts once, however many there are. Frames that could not be measured go with the others of their group.
    """
    if scores.error is None or scores.statistics.frame_error is None:
        return None
    backend = scores.statistics.backend()
    measured = np.isfinite(scores.error).all(axis=(1, 2))
    numbers, own = np.unique(group[measured], return_inverse=True)
    there = np.isin(group, numbers)
    if not there.any():
        return scores
    together = backend.evidence(scores.embedding[measured].astype(np.float64), scores.error[measured]).pooled(own)
    assert together.own is not None, "pooling gives each group an error"
    row = np.searchsorted(numbers, group[there])
    embedding, logits, error = scores.embedding.copy(), scores.logits.copy(), scores.error.copy()
    embedding[there], error[there] = together.value[row], (together.own - backend.frame)[row]  # S is added again
    known = backend.log_likelihood(together)[row]
    logits[there] = known.min(axis=1, keepdims=True) - NEVER
    logits[np.flatnonzero(there)[:, None], [int(name) for name in backend.devices]] = known
    return replace(scores, embedding=embedding, logits=logits, error=error)


def log10_ratio(scores: Embedding, device: NDArray[np.int64]) -> list[float | None]:
    """Of each frame (N,), log10 of how much likelier it is from device number `device` (N,) than from any other.

    With a Gaussian back-end that is its log-likelihood ratio against the other known devices and unknown ones; else
    p_k against the mean of the other devices' p_j, with p = softmax(ℓ) as the classifier has it. None for a frame that
    could not be measured, and where there is no other device.
    """
    source, classes = scores.statistics, scores.logits.shape[1]
    if classes < 2:
        return [None] * len(device)
    if source.frame_error is None or scores.error is None:
        log_p = log_softmax(scores.logits.astype(np.float64), axis=1)
        others = log_p.copy()
        own = np.arange(len(device)), device
        others[own] = -np.inf
        ratio = log_p[own] - (logsumexp(others, axis=1) - np.log(classes - 1))
        return [float(one) / np.log(10) for one in ratio]
    backend = source.backend()
    measured = np.isfinite(scores.error).reshape(len(scores.error), -1).all(axis=1)
    observed = backend.evidence(scores.embedding[measured].astype(np.float64), scores.error[measured])
    number = {int(name): i for i, name in enumerate(backend.devices)}
    found = np.full(len(device), np.nan)
    found[measured] = backend.ratio(observed, np.array([number[k] for k in device[measured].tolist()], dtype=np.int64))
    return [float(one) / np.log(10) if np.isfinite(one) else None for one in found]


def likelihoods(
    backend: GaussianBackend, claimed: int, track: Sequence[int], embedding: Real, error: Real
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """log M (T,) against and for the claim after each of the frames (T, D), with errors (T, D, D), in time order."""
    test = Likelihoods(backend, claimed)
    steps = [test.push(*frame) for frame in zip(track, embedding, error, strict=True)]
    against, support = np.array(steps).reshape(-1, 2).T
    return against, support
