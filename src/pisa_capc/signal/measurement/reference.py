"""Frames of a signal that is known as samples, from a file: aligned with it, and measured part by part.

A frame begins anywhere in the reference (`signal.waveforms.reference.align`), so each has an x of its own. Of a part of
a frame the first and the last samples only say what echoes in the others: what was sent before it and behind it need
not be known, whether the reference repeats or not.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.data.frames import UnlabelledFrames
from pisa_capc.data.store.dataset import TIME
from pisa_capc.signal.measurement.estimator import OFFSET, FlawEstimator, Measurement
from pisa_capc.signal.measurement.senders import Measured, carrier_offset, senders_of
from pisa_capc.signal.waveforms.reference import FEWEST, OVER_CHANCE, PART, SentReference, align

KEPT = 64  # estimators of places that were seen lately

Complex = NDArray[np.complexfloating[Any, Any]]


class ReferenceEstimator(FlawEstimator):
    """`FlawEstimator` with an x for each frame: the reference from where the frame begins in it.

    samples: of the frames. They are measured in parts of up to `PART` samples; of one frame the parts are averaged by
    their certainty, without what changes from part to part.
    """

    own_x = True

    def __init__(self, waveform: SentReference, samples: int) -> None:
        if samples < FEWEST:
            raise DataError(f"frames of {samples} samples; expected {FEWEST} or more to align with a reference.")
        self.reference, self.stored = waveform, samples
        self.parts = max(1, samples // PART)
        self.length = samples // self.parts
        super().__init__(waveform, sent=waveform.segment(0, self.length), lead=waveform.taps[1])
        self._known: OrderedDict[int, FlawEstimator | None] = OrderedDict()

    def measure(
        self, iq: Complex, mask: NDArray[np.bool_] | None = None, sender: NDArray[np.int64] | None = None
    ) -> Measurement:
        """Measure frames (N, A, T or more), see `FlawEstimator.measure`; `sender` changes nothing."""
        there = np.broadcast_to(True if mask is None else mask, iq.shape[:2])
        rows = [self.in_parts(y, own) for y, own in zip(iq, there, strict=True)]
        silent = super().measure(np.zeros((1, iq.shape[1], self.samples), dtype=np.complex64))
        every = [silent if parts is None else _together(parts) for parts in rows]
        return every[0].joined(every[1:]) if every else silent.select([])

    def in_parts(self, y: Complex, there: NDArray[np.bool_] | None = None) -> Measurement | None:
        """A row for each part of a frame (A, T); None where the reference does not stand out in it."""
        good = np.asarray(np.isfinite(y).all(axis=1))
        if there is not None:
            good = np.logical_and(good, there)
        y = np.where(good[:, None], y, 0)[:, : self.stored]
        found = align(self.reference, y)
        if found.over_chance < OVER_CHANCE:
            return None
        y = y * np.exp(-2j * np.pi * found.offset * np.arange(y.shape[1]))
        before, after = self.taps
        rows = []
        for first in range(0, self.parts * self.length, self.length):
            estimator = self._estimator((found.at + first) % len(self.reference.samples))
            if estimator is not None:
                rows.append(estimator.measure(y[None, :, first + after : first + self.length - before]))
        if not rows:
            return None
        every = rows[0].joined(rows[1:])
        return replace(every, offset=every.offset + found.offset)

    def constants(self) -> dict[str, Tensor]:
        raise ConfigError(
            "a waveform from a file: what a frame is measured against depends on where it begins, so it is no fixed "
            "graph. Use the model itself."
        )

    def _estimator(self, at: int) -> FlawEstimator | None:
        """Of parts that begin there; None where the reference does not show all of the flaws."""
        if at not in self._known:
            sent = self.reference.segment(at, self.length)
            found = FlawEstimator(self.reference, flaws=self.flaws, sent=sent, lead=self.taps[1])
            self._known[at] = found if found.flaws == self.flaws else None
            if len(self._known) > KEPT:
                self._known.popitem(last=False)
        self._known.move_to_end(at)
        return self._known[at]


def _together(parts: Measurement) -> Measurement:
    """One row of several that were measured on the same flaws: θ̂ = (Σ G_k)⁻¹ Σ G_k θ̂_k.

    An offset is each part's own: G_k is the information about the others where it is not known.
    """
    if not parts.measured.any():
        return parts.select([0])
    parts = parts.select(parts.measured)
    row = parts.select([0])
    own = [column for column, name in enumerate(parts.flaws) if name != OFFSET]
    information = np.linalg.inv(parts.covariance[:, own][:, :, own])
    covariance = np.linalg.inv(information.sum(axis=0))
    row.value[0, own] = covariance @ np.einsum("kij,kj->i", information, parts.value[:, own])
    row.covariance[0] = np.diag(np.diag(row.covariance[0]))
    row.covariance[0][np.ix_(own, own)] = covariance
    return replace(
        row,
        noise=parts.noise.mean(axis=0, keepdims=True),
        snr_db=parts.snr_db.mean(axis=0, keepdims=True),
        offset=parts.offset.mean(keepdims=True),
        misfit=np.average(parts.misfit, weights=parts.freedom[:, 0], keepdims=True),
        freedom=parts.freedom.sum(axis=0, keepdims=True),
    )


def measure_against(frames: UnlabelledFrames, reference: SentReference) -> Measured:
    """Measure frames (N, A, T) of a dataset, each in parts of up to `PART` samples."""
    check_against(frames, reference)
    estimator = ReferenceEstimator(reference, frames.samples)
    found: list[Measurement] = []
    rows: list[int] = []
    for n in range(len(frames)):
        parts = estimator.in_parts(frames.select(np.array([n])).iq[0])
        if parts is not None:
            found.append(parts)
            rows += [n] * len(parts)
    if not found:
        raise DataError(
            f"none of {len(frames):,} frames holds the reference: expected frames in which it repeats, at the same "
            "sample rate. See that it is what was sent."
        )
    chosen = np.array(rows)
    names, sender = senders_of(frames, None)
    places, place = np.unique(frames.capture_key, return_inverse=True)
    measurement = found[0].joined(found[1:])
    cfo_hz, cfo_std_hz = carrier_offset(frames.select(chosen), measurement, estimator.samples)
    return Measured(
        reference,
        measurement,
        sender[chosen],
        names,
        place[chosen].astype(np.int64),
        tuple(map(str, places)),
        cfo_hz,
        cfo_std_hz,
        frames.carrier_hz,
        np.full(len(chosen), estimator.samples),
        np.full(len(chosen), np.nan),
        measurement.suspicion,
    )


def check_against(frames: UnlabelledFrames, reference: SentReference) -> None:
    """Refuse frames that cannot hold the reference: of another kind, or at another rate."""
    if frames.domain != TIME or frames.sample_rate_hz != reference.sample_rate_hz:
        raise DataError(
            f"frames of {frames.domain} at {frames.sample_rate_hz:g} samples/s; the reference has "
            f"{reference.sample_rate_hz:g}. Resample one of them, or correct its --sample-rate."
        )
