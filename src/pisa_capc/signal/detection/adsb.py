"""ADS-B squitters in a stream, by the envelope of their preamble.

The power of 20 samples, 8 µs, is correlated with that of the four pulses. Where it is alike, loud enough and more alike
than around it, all 112 bits are decided (`waveforms.adsb.decide`). A squitter is what then explains half of the energy,
and says that it is one; the parity tells whether its bits are right.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from pisa_capc.signal.detection.base import Detector, FoundFrame
from pisa_capc.signal.detection.finders import Finder, History, register_finder
from pisa_capc.signal.phy.adsb import parse
from pisa_capc.signal.recordings import About
from pisa_capc.signal.recordings.encoding import Encoding
from pisa_capc.signal.waveforms.adsb import FIRST_SLOT, LEAD, PULSES, RATE_HZ, SAMPLES, SLOT_S, decide, pulses

SCREENED = LEAD + round(FIRST_SLOT * SLOT_S * RATE_HZ)  # samples of the preamble
ALIKE = 0.6  # correlation of its power, at least
LOUD = 2.0  # its mean power over the noise
EXPLAINED = 0.5  # of a frame's energy
WINDOW = 1 << 16  # samples that are looked at together
AT_ONCE = 64  # candidates that are decided together
NEAR = 6  # samples within which there is only one preamble
FAINTEST = 1e-3  # SNR that is reported
MARGIN = 1  # samples before the best place, where another may be better


class AdsbDetector:
    """Finds extended squitters at 2.5 MS/s; of each, its frame and what follows it up to 320 samples are handed on."""

    def __init__(self, samples: int = 320) -> None:
        self._samples = max(samples, SAMPLES)
        envelope = pulses()[:SCREENED, list(PULSES)].sum(1) ** 2
        self._template = ((envelope - envelope.mean()) / np.linalg.norm(envelope - envelope.mean())).astype(np.float32)
        self._history = History()
        self._position, self._resume = 0, 0

    def wanted(self, received: int) -> int:
        """Until a window is whole, with the frames that begin in it."""
        return max(1, self._position + WINDOW + self._ahead - received)

    @property
    def _ahead(self) -> int:
        return self._samples + NEAR

    def push(self, block: NDArray[np.complex64]) -> list[FoundFrame]:
        self._history.append(block)
        done = []
        while self._position + WINDOW + self._ahead <= self._history.end:
            done += self._window(WINDOW)
        return done

    def finish(self) -> list[FoundFrame]:
        done = []
        while self._history.antennas and self._position < self._history.end:
            done += self._window(min(WINDOW, self._history.end - self._position))
        return done

    def _window(self, count: int) -> list[FoundFrame]:
        first = self._position
        x = self._history.read(first - NEAR, first + count + self._ahead)
        starts = self._candidates(np.nan_to_num(x, posinf=0, neginf=0), count)
        done: list[FoundFrame] = []
        for group in np.array_split(starts, -(-len(starts) // AT_ONCE) or 1):
            if len(group):
                done += self._decided(x, group, first - NEAR)
        self._position += count
        self._history.drop(self._position - NEAR)
        return done

    def _candidates(self, x: NDArray[np.complex64], count: int) -> NDArray[np.intp]:
        """Where in x a preamble may begin: number NEAR … NEAR + count − 1."""
        power = x.real**2 + x.imag**2
        floor = np.maximum(np.median(power, axis=1, keepdims=True) / np.log(2), np.finfo(np.float32).tiny)
        level = (power / floor).mean(0)
        level = level[: count + 2 * NEAR + SCREENED - 1]
        mean, square = (_sums(own) / SCREENED for own in (level, level**2))
        spread = np.sqrt(SCREENED * np.maximum(square - mean**2, 1e-6 * square + 1e-12))
        alike = np.correlate(level, self._template) / spread
        alike[mean < LOUD] = 0
        best = sliding_window_view(np.pad(alike, NEAR), 2 * NEAR + 1).max(1)
        found = np.flatnonzero((alike >= ALIKE) & (alike == best))
        return found[(found >= NEAR) & (found < NEAR + count)]

    def _decided(self, x: NDArray[np.complex64], starts: NDArray[np.intp], base: int) -> list[FoundFrame]:
        """The squitters among candidates; where one lies within another, the first is taken."""
        begins = np.maximum(starts[:, None] + np.arange(-MARGIN, MARGIN + 1), 0).ravel()
        got = decide(np.stack([x[:, begin : begin + SAMPLES] for begin in begins.tolist()]))
        done = []
        for one in np.split(np.arange(len(begins)), len(starts)):
            row = int(one[np.argmax(got.quality[one])])
            at = base + round(begins[row] + got.late[row])
            header = parse(np.packbits(got.bits[row]).tobytes())
            whole = at >= 0 and at + SAMPLES <= self._history.end
            if at < self._resume or not whole or got.quality[row] < EXPLAINED or header is None:
                continue
            self._resume = at + SAMPLES - SCREENED
            last = min(at + self._samples, self._history.end)
            done.append(
                FoundFrame(
                    at,
                    self._history.read(at, last),
                    np.where(got.snr[row] > 0, got.offset[row] * RATE_HZ, np.nan),
                    10 * np.log10(np.maximum(got.snr[row], FAINTEST)),
                    float(got.quality[row]),
                    SAMPLES,
                    header,
                )
            )
        return done


def _sums(values: NDArray[np.float32]) -> NDArray[np.float64]:
    """Of SCREENED values from each on."""
    total = np.cumsum(np.concatenate([[0.0], values]))
    return np.asarray(total[SCREENED:] - total[:-SCREENED])


@register_finder("adsb")
class AdsbFinder(Finder):
    """Bits are decided as frames are found."""

    def detector(
        self, about: About, encoding: Encoding | None = None, first: int = 0, end: int | None = None
    ) -> Detector:
        return AdsbDetector()
