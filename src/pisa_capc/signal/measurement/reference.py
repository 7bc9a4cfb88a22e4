"""Frames of a signal that is known as samples, from a file: aligned with it, and measured part by part.

The reference x (P,) is taken to repeat. A frame y begins anywhere in it. The products of neighbours do not see a
carrier offset but as a common phase, so with z[n] = y[n] y*[n−1] and r[n] = x[n] x*[n−1]

    c[d] = Σ_n (z[n] − z̄) (r[n + d] − r̄)*,    d̂ = argmax |c[d]|,    f̂ ≈ f_s ∠c[d̂] / 2π

which the spectrum of y[n] x*[n + d̂] then refines. What is left of timing, a fraction of a sample or an echo, is in the
taps of the channel that `FlawEstimator` fits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.fft import fft, ifft, next_fast_len

from pisa_capc.core.errors import DataError
from pisa_capc.data.frames import UnlabelledFrames
from pisa_capc.data.store.dataset import TIME
from pisa_capc.signal.measurement.estimator import FlawEstimator, Measurement
from pisa_capc.signal.measurement.senders import Measured, senders_of
from pisa_capc.signal.waveforms import Waveform

PART = 5000  # samples that are measured together, for which a channel stands still
FEWEST = 256  # samples of a reference, and of a frame
OVER_CHANCE = 8.0  # by which the largest |c| has to stand above the root mean square of all

Complex = NDArray[np.complexfloating[Any, Any]]


class SentReference(Waveform):
    """What was sent, from a file; it repeats."""

    name: ClassVar[str] = "reference"
    title = "reference"
    occupied = 0.99
    taps: ClassVar[tuple[int, int]] = (4, 8)
    ridge: ClassVar[float] = 1e-6

    def __init__(self, sent: Complex, sample_rate_hz: float) -> None:
        power = np.mean(np.abs(sent) ** 2) if sent.ndim == 1 else np.nan
        if len(sent) < FEWEST or not np.isfinite(power) or not power > 0:
            raise DataError(
                f"a reference {sent.shape}: expected {FEWEST} samples or more of one antenna, neither silent nor NaN."
            )
        self._sent = np.asarray(sent / np.sqrt(power), dtype=np.complex128)
        self.sample_rate_hz = sample_rate_hz  # type: ignore[misc]
        self.longest_samples = len(sent)  # type: ignore[misc]

    def preamble(self) -> NDArray[np.complex128]:
        return self._sent

    def segment(self, first: int, count: int) -> NDArray[np.complex128]:
        """(count,) samples from `first` on, which may lie before the beginning or behind the end."""
        return self._sent[np.arange(first, first + count) % len(self._sent)]


@dataclass(frozen=True)
class Alignment:
    """Where in the reference a frame begins, its carrier offset in cycles a sample, and how far the match stands out,
    in root mean squares of all others."""

    at: int
    offset: float
    over_chance: float


def align(reference: SentReference, y: Complex) -> Alignment:
    """A frame (T,), by the equation above.

    >>> x = np.random.default_rng(0).normal(size=(4000, 2)) @ [1, 1j]
    >>> found = align(SentReference(x, 1e6), np.roll(x, -700)[:1000] * np.exp(2j * np.pi * 0.01 * np.arange(1000)))
    >>> found.at, round(found.offset, 4)
    (700, 0.01)
    """
    sent = reference.preamble()
    whole = np.tile(sent, 1 + -(-len(y) // len(sent)))[: len(sent) + len(y) - 1]
    size = next_fast_len(len(whole) + len(y))
    z, r = y[1:] * y[:-1].conj(), whole[1:] * whole[:-1].conj()
    z, r = z - z.mean(), r - r.mean()  # which a signal has that leaves some of its band free
    matched = ifft(fft(r, size) * fft(z, size).conj())[: len(sent)].conj()
    strength = np.abs(matched)
    at = int(strength.argmax())
    coarse = float(np.angle(matched[at])) / (2 * np.pi)
    tone = y * reference.segment(at, len(y)).conj() * np.exp(-2j * np.pi * coarse * np.arange(len(y)))
    bins = next_fast_len(4 * len(y))
    peak = int(np.abs(fft(tone, bins)).argmax())
    fine = (peak - bins * (peak > bins // 2)) / bins
    return Alignment(at, coarse + fine, float(strength[at] / np.sqrt(np.mean(strength**2))))


def measure_against(frames: UnlabelledFrames, reference: SentReference) -> Measured:
    """Measure frames (N, A, T) of a dataset, each in parts of up to `PART` samples."""
    if frames.domain != TIME or frames.sample_rate_hz != reference.sample_rate_hz:
        raise DataError(
            f"frames of {frames.domain} at {frames.sample_rate_hz:g} samples/s; the reference has "
            f"{reference.sample_rate_hz:g}. Resample one of them, or correct its --sample-rate."
        )
    if frames.samples < FEWEST:
        raise DataError(f"frames of {frames.samples} samples; expected {FEWEST} or more to align with a reference.")
    parts = max(1, frames.samples // PART)
    length = frames.samples // parts
    found: list[Measurement] = []
    rows: list[int] = []
    offsets: list[float] = []
    for n in range(len(frames)):
        y = frames.select(np.array([n])).iq[0]
        power = np.einsum("at,at->a", y, y.conj()).real
        alignment = align(reference, y[int(np.nan_to_num(power).argmax())])
        if alignment.over_chance < OVER_CHANCE:
            continue
        y = y * np.exp(-2j * np.pi * alignment.offset * np.arange(frames.samples))
        for k in range(parts):
            found.append(_part(reference, alignment.at + k * length, y[None, :, k * length : (k + 1) * length]))
            rows.append(n)
            offsets.append(alignment.offset)
    if not found:
        raise DataError(
            f"none of {len(frames):,} frames holds the reference: expected frames in which it repeats, at the same "
            "sample rate. See that it is what was sent."
        )
    chosen = np.array(rows)
    names, sender = senders_of(frames, None)
    places, place = np.unique(frames.capture_key, return_inverse=True)
    measurement = found[0].joined(found[1:])
    rate = frames.sample_rate_hz
    own = measurement.flaws.index("offset") if "offset" in measurement.flaws else None
    std = np.full(len(chosen), np.nan)
    if own is not None:
        std = np.sqrt(measurement.covariance[:, own, own].real / 2) / (2 * np.pi * length) * rate
    return Measured(
        reference,
        measurement,
        sender[chosen],
        names,
        place[chosen].astype(np.int64),
        tuple(map(str, places)),
        (measurement.offset + np.array(offsets)) * rate,
        std,
        frames.carrier_hz,
        np.full(len(chosen), length),
        np.full(len(chosen), np.nan),
        measurement.suspicion,
    )


def _part(reference: SentReference, at: int, y: Complex) -> Measurement:
    """A part (1, A, T) that begins at sample `at` of the reference."""
    before, after = reference.taps
    sent = reference.segment(at - after, after + y.shape[2] + before)
    return FlawEstimator(reference, y.shape[2], sent=sent, lead=after).measure(y)
