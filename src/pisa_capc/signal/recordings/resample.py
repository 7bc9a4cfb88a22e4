"""Another sample rate: a polyphase filter as one product of matrices.

y[n] = Σ_k x[k] h[n·q − k·p] for a rate of p/q of the recording's, where h is a low-pass filter at p times its rate. A
group of outputs that spans a whole number of q inputs always has the same weights, so groups are rows of a matrix of
overlapping inputs, times one matrix of taps. Groups are computed in tiles that lie at fixed places of the recording: a
sample is the same to the last bit, however much is read with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from pisa_capc.core.errors import DataError
from pisa_capc.signal.recordings.base import About, Annotation, Recording

LARGEST = 512  # p and q: 30.72 MS/s are 192/125 of 20
SAME = 1e-7  # ratio of rates that nobody's clock can tell apart
HALF_WIDTH, BETA = 16, 8.0  # of the Kaiser window, in samples of the slower rate: stop band at −80 dB
PASSED = 0.84  # of the slower rate's band: the filter leaves it as it is
OUTPUTS, GROUPS = 48, 64  # of a group, about; of a tile


def resampled(recording: Recording, rate_hz: float, occupied: float = 0.0) -> Recording:
    """The recording at another rate; itself, where that is its own.

    occupied: part of the new rate's band that the signal fills. A recording that holds less of it is refused.
    """
    ratio = _ratio(recording.about, rate_hz)
    if recording.about.sample_rate_hz * PASSED < rate_hz * occupied and ratio > 1:
        raise DataError(
            f"{recording.about.name}: {recording.about.sample_rate_hz / 1e6:g} MS/s do not hold the "
            f"{rate_hz * occupied / 1e6:g} MHz of the signal. Record with {rate_hz / 1e6:g} MS/s or more."
        )
    return recording if ratio == 1 else Resampled(recording, ratio.numerator, ratio.denominator)


def _ratio(about: About, rate_hz: float) -> Fraction:
    """p/q of the recording's rate; refused where no small numbers give it."""
    exact = Fraction(rate_hz) / Fraction(about.sample_rate_hz)
    near = _simple(exact) if exact <= 1 else 1 / _simple(1 / exact)
    if abs(near / exact - 1) > SAME:
        raise DataError(
            f"{about.name}: {about.sample_rate_hz:,.10g} samples a second are no p/q of {rate_hz:,.10g} with p and q "
            f"up to {LARGEST}. The nearest that is one is {float(rate_hz / near):,.10g}; {rate_hz:,.10g} is best."
        )
    return near


def _simple(ratio: Fraction) -> Fraction:
    """The nearest ratio of small numbers to one of at most 1."""
    return max(ratio.limit_denominator(LARGEST), Fraction(1, LARGEST))


@dataclass(frozen=True)
class Resampled:
    """A `Recording` at p/q of the rate of another."""

    recording: Recording
    p: int
    q: int

    @cached_property
    def about(self) -> About:
        """The rate is what the recording's clock makes of it."""
        about = self.recording.about
        rate = about.sample_rate_hz * self.p / self.q
        return replace(about, sample_rate_hz=rate, length=-(-about.length * self.p // self.q))

    @cached_property
    def annotations(self) -> tuple[Annotation, ...]:
        def here(sample: int) -> int:
            return sample * self.p // self.q

        return tuple(
            replace(note, start=here(note.start), count=None if note.count is None else here(note.count))
            for note in self.recording.annotations
        )

    def read(self, first: int, count: int) -> NDArray[np.complex64]:
        count = max(0, min(count, self.about.length - first))
        if not count:
            return np.empty((self.about.antennas, 0), dtype=np.complex64)
        tile = GROUPS * self._outputs
        tiles = range(first // tile, -(-(first + count) // tile))
        whole = self._compute(tiles)
        return np.ascontiguousarray(whole[:, first - tiles.start * tile :][:, :count])

    def blocks(self, size: int) -> Iterator[NDArray[np.complex64]]:
        for first in range(0, self.about.length, size):
            yield self.read(first, size)

    def complete(self, received: int) -> int:
        """How many outputs, in whole tiles, follow from the first `received` inputs alone."""
        ahead = (GROUPS - 1) * self._span + len(self._taps) - self._before
        tiles = max(0, (received - ahead) // (GROUPS * self._span) + 1)
        return tiles * GROUPS * self._outputs

    def needed(self, first: int) -> int:
        """The first input that outputs from `first` on depend on, where that begins a tile."""
        return max(0, first // (GROUPS * self._outputs) * GROUPS * self._span - self._before)

    @cached_property
    def _span(self) -> int:
        """Inputs from one group to the next."""
        return self.q * max(1, OUTPUTS // self.p)

    @property
    def _outputs(self) -> int:
        """Of a group."""
        return self._span * self.p // self.q

    @cached_property
    def _before(self) -> int:
        """Inputs before a group that its first output needs."""
        return -(-HALF_WIDTH * max(self.p, self.q) // self.p)

    @cached_property
    def _taps(self) -> NDArray[np.float32]:
        """(inputs, outputs) weights of a group: h[j·q − i·p] for output j and input i from the group's first on."""
        from scipy.signal import firwin

        slower = max(self.p, self.q)
        half = HALF_WIDTH * slower
        h = firwin(2 * half + 1, 1 / slower, window=("kaiser", BETA)) * self.p
        last = ((self._outputs - 1) * self.q + half) // self.p
        place = half + np.arange(self._outputs) * self.q - np.arange(-self._before, last + 1)[:, None] * self.p
        inside = (place >= 0) & (place < len(h))
        return np.where(inside, h[np.clip(place, 0, len(h) - 1)], 0).astype(np.float32)

    def _compute(self, tiles: range) -> NDArray[np.complex64]:
        """(A, all outputs of these tiles); beyond the recording's ends it is taken as zero."""
        antennas, taps = self.about.antennas, self._taps
        first = tiles.start * GROUPS * self._span - self._before
        x = self._padded(first, (len(tiles) * GROUPS - 1) * self._span + len(taps))
        parts = np.stack([x.real, x.imag], axis=1)  # (A, 2, inputs)
        windows = sliding_window_view(parts, len(taps), axis=2)[:, :, :: self._span]
        out = np.empty((antennas, len(tiles) * GROUPS * self._outputs), dtype=np.complex64)
        for i in range(len(tiles)):
            rows = np.ascontiguousarray(windows[:, :, i * GROUPS : (i + 1) * GROUPS])
            real, imaginary = np.moveaxis((rows.reshape(-1, len(taps)) @ taps).reshape(antennas, 2, -1), 1, 0)
            here = slice(i * GROUPS * self._outputs, (i + 1) * GROUPS * self._outputs)
            out.real[:, here], out.imag[:, here] = real, imaginary
        return out

    def _padded(self, first: int, count: int) -> NDArray[np.complex64]:
        there = self.recording.read(max(first, 0), count + min(first, 0))
        before = max(-first, 0)
        return np.pad(there, ((0, 0), (before, count - before - there.shape[1])))
