"""A signal that is known as samples, from a file, and where in it a frame begins.

The reference x (P,) is taken to repeat. A frame y begins anywhere in it. The products of neighbours do not see a
carrier offset but as a common phase, so with z[n] = Σ_a y_a[n] y_a*[n−1] and r[n] = x[n] x*[n−1]

    c[d] = Σ_n (z[n] − z̄) (r[n + d] − r̄)*,    d̂ = argmax |c[d]|,    f̂ ≈ f_s ∠c[d̂] / 2π

which the spectrum of y_a[n] x*[n + d̂] then refines. What is left of timing, a fraction of a sample or an echo, is in
the taps of the channel that `FlawEstimator` fits.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.fft import fft, ifft, next_fast_len

from pisa_capc.core.errors import DataError
from pisa_capc.signal.waveforms.base import Waveform

PART = 5000  # samples of a frame at most: what is measured together, for which a channel stands still
FEWEST, MOST = 256, 1 << 24  # samples of a reference; of a frame at least as many
OVER_CHANCE = 8.0  # by which the largest |c| has to stand above the root mean square of all
REFERENCE = "reference"  # begins the name of such a waveform

Complex = NDArray[np.complexfloating[Any, Any]]


class SentReference(Waveform):
    """What was sent, from a file; it repeats. Frames are pieces of it, of `stored_samples`, or begin anywhere.

    samples: (P,) complex64. Their SHA-256 is in the name, so that a model says which waveform it knows.
    """

    name: ClassVar[str] = REFERENCE
    title = "reference"
    occupied = 0.99
    taps: ClassVar[tuple[int, int]] = (4, 8)
    ridge: ClassVar[float] = 1e-6

    def __init__(self, sent: Complex, sample_rate_hz: float) -> None:
        power = np.mean(np.abs(sent) ** 2, dtype=np.float64) if sent.ndim == 1 and len(sent) <= MOST else np.nan
        if len(sent) < FEWEST or not np.isfinite(power) or not power > 0:
            raise DataError(
                f"a reference {sent.shape}: expected {FEWEST} to {MOST:,} samples of one antenna, neither silent nor "
                "NaN. Cut out of the file what was sent."
            )
        self.samples = np.ascontiguousarray(sent, dtype=np.complex64)
        digest = hashlib.sha256(np.float64(sample_rate_hz).tobytes() + self.samples.tobytes()).hexdigest()
        self.name = f"{REFERENCE}:{digest[:16]}"  # type: ignore[misc]
        self.sample_rate_hz = sample_rate_hz  # type: ignore[misc]
        self.longest_samples = len(sent) // self.pieces  # type: ignore[misc]
        self._sent = np.asarray(sent / np.sqrt(power), dtype=np.complex128)

    @property
    def pieces(self) -> int:
        """Into how many pieces it is cut; what is left over at its end is in none."""
        return -(-len(self.samples) // PART)

    def preamble(self) -> NDArray[np.complex128]:
        """The first piece."""
        return self.segment(0, self.longest_samples)

    def segment(self, first: int, count: int) -> NDArray[np.complex128]:
        """(count,) samples from `first` on, which may lie before the beginning or behind the end."""
        return self._sent[np.arange(first, first + count) % len(self._sent)]

    @cached_property
    def products(self) -> NDArray[np.complex128]:
        """(P,) the spectrum of r − r̄."""
        r = self._sent * np.roll(self._sent, 1).conj()
        return np.asarray(fft(r - r.mean()))


@dataclass(frozen=True)
class Alignment:
    """Where in the reference a frame begins, its carrier offset in cycles a sample, and how far the match stands out,
    in root mean squares of all others."""

    at: int
    offset: float
    over_chance: float


def align(reference: SentReference, y: Complex) -> Alignment:
    """A frame (T,) or (A, T), by the equation above.

    >>> x = np.random.default_rng(0).normal(size=(4000, 2)) @ [1, 1j]
    >>> found = align(SentReference(x, 1e6), np.roll(x, -700)[:1000] * np.exp(2j * np.pi * 0.01 * np.arange(1000)))
    >>> found.at, round(found.offset, 4)
    (700, 0.01)
    """
    y = np.atleast_2d(y)
    whole, length = len(reference.samples), y.shape[1]
    z = np.sum(y[:, 1:] * y[:, :-1].conj(), axis=0)
    z = np.concatenate([[0], z - z.mean()])  # a signal that leaves some of its band free has a mean
    folded = np.pad(z, (0, -length % whole)).reshape(-1, whole).sum(axis=0)
    matched = ifft(reference.products * fft(folded).conj()).conj()
    strength = np.abs(matched)
    at = int(strength.argmax())
    coarse = float(np.angle(matched[at])) / (2 * np.pi)
    tone = y * (reference.segment(at, length).conj() * np.exp(-2j * np.pi * coarse * np.arange(length)))
    bins = next_fast_len(4 * length)
    peak = int(np.sum(np.abs(fft(tone, bins)) ** 2, axis=0).argmax())
    fine = (peak - bins * (peak > bins // 2)) / bins
    typical = float(np.sqrt(np.mean(strength**2)))
    return Alignment(at, coarse + fine, float(strength[at]) / typical if typical > 0 else 0.0)
