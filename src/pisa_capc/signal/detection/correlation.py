"""Frames of any waveform by its preamble: a matched filter for each frequency offset that crystals may have.

The beginning of the preamble, turned by offsets half a bin apart, is correlated with the stream. What stands out is
compared with the whole preamble. Of the energy E_a of the samples x_a of antenna a, a preamble p of P samples at the
offset f explains

    Q = Σ_a |Σ_n x_a[n] p*[n] exp(−2πi f n / f_s)|² / (P Σ_a E_a),

which noise alone makes Beta(A, A (P − 1)) distributed; so the threshold follows from how often noise may pass it.

A signal that is known from a file may be longer than what is stored of a frame. Then frames are its pieces. The
products of neighbours say where in it the stream is, whatever the offset (`waveforms.reference.align`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.fft import fft, ifft, next_fast_len
from scipy.special import betainccinv

from pisa_capc.signal.detection.base import Detector, FoundFrame
from pisa_capc.signal.detection.finders import Finder, History
from pisa_capc.signal.recordings import About
from pisa_capc.signal.recordings.encoding import Encoding
from pisa_capc.signal.waveforms import Waveform
from pisa_capc.signal.waveforms.reference import OVER_CHANCE, SentReference, align

TOLERANCE = 40e-6  # of the carrier: what two crystals together may be off
UNKNOWN_CARRIER_HZ = 2.45e9  # where nothing says it
MOST_OFFSETS = 16  # that are tried; where there would be more, a shorter beginning of the preamble is looked for
WINDOW = 4096  # samples that are transformed at once, at least
FALSE_PER_S = 0.1  # how often noise may look like a preamble
LEAST_QUALITY, LEAST_PART, PARTS = 0.2, 0.05, 4  # of the preamble, and of each of its parts
BETTER = 0.1  # by how much a mere tone may explain the samples better
REACH = 3  # samples on either side of where the beginning fits best
MOST_AT_ONCE = 64  # of a window: where more stand out, it is something else
PIECES = 8  # that are looked for at once in a long reference
SILENT_DB, LOUD_DB = -30.0, 60.0


class PreambleFinder(Finder):
    """Of waveforms that have no finder of their own; headers are not read."""

    def __init__(self, waveform: Waveform) -> None:
        self._waveform = waveform

    def waveform(self, about: About) -> Waveform:
        return self._waveform

    def detector(
        self, about: About, encoding: Encoding | None = None, first: int = 0, end: int | None = None
    ) -> Detector:
        if isinstance(self._waveform, SentReference) and self._waveform.pieces > 1:
            return PieceDetector(self._waveform, about.antennas, about.carrier_hz)
        return PreambleDetector(self._waveform, about.antennas, about.carrier_hz)


@dataclass(frozen=True)
class _Candidate:
    start: int
    quality: float
    cfo_hz: NDArray[np.float64]
    snr_db: NDArray[np.float64]


class PreambleDetector:
    """Finds the frames of a waveform in a stream at its rate; of each, the longest that is stored is handed on."""

    def __init__(self, waveform: Waveform, antennas: int, carrier_hz: float | None = None) -> None:
        known = waveform.preamble()
        self._known = (known / np.sqrt(np.mean(np.abs(known) ** 2))).astype(np.complex64)
        self._rate_hz, self._longest = waveform.sample_rate_hz, waveform.longest_samples
        widest_hz = min(TOLERANCE * (carrier_hz or UNKNOWN_CARRIER_HZ), self._rate_hz / 4)
        whole = len(known)
        self._beginning = min(whole, max(64, int(MOST_OFFSETS * self._rate_hz / (4 * widest_hz))))
        size = next_fast_len(max(WINDOW, 4 * self._beginning))
        count = math.ceil(widest_hz * 2 * self._beginning / self._rate_hz)
        turns = np.round(np.arange(-count, count + 1) * size / (2 * self._beginning)).astype(int)
        spectrum = np.conj(fft(self._known[: self._beginning], size))
        self._filters = [np.roll(spectrum, turn) for turn in turns]
        self._offsets_hz = turns * self._rate_hz / size
        self._size, self._step = size, size - self._beginning + 1
        chance = FALSE_PER_S / (self._rate_hz * len(turns))
        self._threshold, needed = (
            float(betainccinv(antennas, antennas * (n - 1), chance)) for n in (self._beginning, whole)
        )
        self._least = max(LEAST_QUALITY, needed)
        self._segments = PARTS * max(4, -(-8 * whole // (PARTS * self._beginning)))
        self._history = History()
        self._position = 0  # up to which the stream was searched
        self._waiting: list[_Candidate] = []

    def wanted(self, received: int) -> int:
        """Until a window can be searched, with the whole preamble that may begin at its end."""
        return max(1, self._position + self._ahead - received)

    @property
    def _ahead(self) -> int:
        return self._step + len(self._known) + REACH

    def push(self, block: NDArray[np.complex64]) -> list[FoundFrame]:
        self._history.append(block)
        while self._position + self._ahead <= self._history.end:
            self._search()
        return self._complete(ended=False)

    def finish(self) -> list[FoundFrame]:
        while self._history.antennas and self._position < self._history.end:
            self._search()
        return self._complete(ended=True)

    def _search(self) -> None:
        """Look at the next window."""
        first = self._position
        explained, offset_hz = self._matched(self._history.read(first, first + self._size))
        self._position += self._step
        for _ in range(MOST_AT_ONCE):
            at = int(np.argmax(explained))
            if explained[at] < self._threshold:
                return
            found = self._compared(self._known, first + at, float(offset_hz[at]))
            if found is not None:
                self._waiting.append(found)
            near = self._near
            explained[max(0, at - near) : at + near + 1] = 0

    @property
    def _near(self) -> int:
        """Samples around a place that was looked at, which are not looked at again."""
        return self._beginning // 4

    def _matched(self, x: NDArray[np.complex64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(step,) how well the beginning fits from each sample of a window (A, size) on, and at which offset in Hz."""
        spectrum = fft(x)
        best, which = np.zeros(self._step, np.float32), np.zeros(self._step, np.intp)
        for number, one in enumerate(self._filters):
            matched = ifft(spectrum * one, overwrite_x=True)[:, : self._step]
            parts = matched.view(np.float32).reshape(len(x), self._step, 2)
            power = np.einsum("atp,atp->t", parts, parts)
            np.copyto(which, number, where=power > best)
            np.maximum(best, power, out=best)
        energy = np.cumsum(np.concatenate([[0.0], np.sum(np.abs(x) ** 2, axis=0, dtype=np.float64)]))
        within = energy[self._beginning :] - energy[: self._step]
        explained = np.divide(best, self._beginning * within, out=np.zeros(self._step), where=within > 0)
        return explained, self._offsets_hz[which]

    def _compared(self, known: NDArray[np.complex64], at: int, offset_hz: float) -> _Candidate | None:
        """What the whole preamble says about a place; None: it is not one."""
        whole, segments = len(known), self._segments
        x = self._history.read(at - REACH, at + whole + REACH)
        each = whole // segments or 1
        used = each * (whole // each)
        turned = x * np.exp(-2j * np.pi * offset_hz / self._rate_hz * np.arange(-REACH, whole + REACH))
        shifts = np.stack([turned[:, i : i + used] for i in range(2 * REACH + 1)])
        sums = (shifts * np.conj(known[:used])).reshape(2 * REACH + 1, len(x), -1, each).sum(axis=3)
        bins = next_fast_len(8 * sums.shape[2])
        spectra = np.sum(np.abs(fft(sums, bins)) ** 2, axis=1)
        shift, turn = np.unravel_index(int(np.argmax(spectra)), spectra.shape)
        start, sums = at + int(shift) - REACH, sums[shift]
        if start < 0 or start + whole > self._history.end:
            return None
        per_bin_hz = self._rate_hz / (each * bins)
        fine_hz = (turn - bins * (turn > bins // 2)) * per_bin_hz
        steps = np.arange(sums.shape[1])
        sums = sums * np.exp(-2j * np.pi * fine_hz * each / self._rate_hz * steps)
        slope = _slope(sums)
        sums = sums * np.exp(-1j * slope[:, None] * steps)
        own = x[:, shift : shift + used]
        energy = np.sum(np.abs(own) ** 2, axis=1, dtype=np.float64)
        peak = np.abs(sums.sum(axis=1)) ** 2
        quality = peak.sum() / (used * energy.sum())
        if quality < self._least or not self._fits_throughout(sums, own, each):
            return None
        if np.max(np.sum(np.abs(fft(own, 2 * used)) ** 2, axis=0)) / (used * energy.sum()) > quality + BETTER:
            return None
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.clip(peak / (used * energy), 1e-9, 1 - 1e-9)
            snr_db = np.clip(np.nan_to_num(10 * np.log10(share / (1 - share)), nan=SILENT_DB), SILENT_DB, LOUD_DB)
        cfo_hz = offset_hz + fine_hz + slope * self._rate_hz / (2 * np.pi * each)
        return _Candidate(start, float(quality), np.where(energy > 0, cfo_hz, np.nan), snr_db)

    def _fits_throughout(self, sums: NDArray[np.complex128], own: NDArray[np.complex64], each: int) -> bool:
        """A part of the preamble that is missing, or another frame's, is none."""
        for part in np.array_split(np.arange(sums.shape[1]), PARTS):
            inside = own[:, part[0] * each : (part[-1] + 1) * each]
            explained = np.sum(np.abs(sums[:, part].sum(axis=1)) ** 2)
            if explained < LEAST_PART * inside.shape[1] * np.sum(np.abs(inside) ** 2):
                return False
        return True

    def _complete(self, ended: bool) -> list[FoundFrame]:
        """The candidates whose samples are there; of those that overlap by a preamble, the one that fits best."""
        whole, kept = len(self._known), list[_Candidate]()
        for one in sorted(self._waiting, key=lambda one: -one.quality):
            if all(abs(one.start - other.start) >= whole for other in kept):
                kept.append(one)
        kept.sort(key=lambda one: one.start)
        done = []
        for one in kept:
            last = one.start + self._longest
            if not ended and (last > self._history.end or one.start + whole > self._position):
                break
            iq = self._history.read(one.start, min(last, self._history.end))
            done.append(FoundFrame(one.start, iq, one.cfo_hz, one.snr_db, one.quality))
        if done:
            self._waiting = [one for one in self._waiting if one.start >= done[-1].at + whole]
        needed = [self._position, *(one.start for one in self._waiting)]
        self._history.drop(min(needed) - REACH - whole)
        return done


class PieceDetector(PreambleDetector):
    """Finds the pieces of a long reference. Behind one the next is expected; where none is, the stream is aligned."""

    def __init__(self, reference: SentReference, antennas: int, carrier_hz: float | None = None) -> None:
        super().__init__(reference, antennas, carrier_hz)
        self._reference, self._expected = reference, list[tuple[int, int, float]]()
        # No longer than the reference, so that it holds parts of two that were sent, at most.
        self._window = max(min(len(reference.samples), PIECES * self._longest), 2 * self._longest + reference.pieces)
        self._step = self._window - self._longest - reference.pieces

    @property
    def _ahead(self) -> int:
        return (self._longest if self._expected else self._window) + REACH

    def _search(self) -> None:
        """Look for the piece that is expected, or else for any in the next window."""
        first, length = self._position, self._longest
        places, self._expected = self._expected, []
        if not places:
            self._position += self._step
            found = align(self._reference, self._history.read(first, first + self._window))
            if found.over_chance < OVER_CHANCE:
                return
            places = self._places(first, found.at, found.offset * self._rate_hz)
        for start, number, offset_hz in places:
            one = self._compared(self._piece(number), start, offset_hz)
            if one is not None:
                self._waiting.append(one)
                self._position = one.start + length
                following = (number + 1) % self._reference.pieces
                rest = 0 if following else len(self._reference.samples) - self._reference.pieces * length
                self._expected = [(self._position + rest, following, float(np.nanmedian(one.cfo_hz)))]
                return

    def _piece(self, number: int) -> NDArray[np.complex64]:
        return self._reference.segment(number * self._longest, self._longest).astype(np.complex64)

    def _places(self, first: int, at: int, offset_hz: float) -> list[tuple[int, int, float]]:
        """Where pieces begin in a window that begins at sample `at` of the reference, and their numbers."""
        whole, length = len(self._reference.samples), self._longest
        begins = [
            (begin, number)
            for turn in range(0, at + self._window + 1, whole)
            for number in range(self._reference.pieces)
            if 0 <= (begin := turn + number * length - at) < self._window - length
        ]
        return [(first + begin, number, offset_hz) for begin, number in sorted(begins)]


def _slope(sums: NDArray[np.complex128]) -> NDArray[np.float64]:
    """(A,) phase from one segment to the next, by least squares about their sum's; of an antenna in noise zero."""
    phase = np.angle(sums * np.conj(sums.sum(axis=1, keepdims=True)))
    steps = np.arange(sums.shape[1]) - (sums.shape[1] - 1) / 2
    slope = (phase * steps).sum(axis=1) / (steps**2).sum()
    steady = np.abs(phase).max(axis=1) < np.pi / 2
    return np.where(steady, slope, 0.0)
