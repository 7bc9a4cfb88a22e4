"""LoRa frames in a stream."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainccinv

from pisa_capc.signal.detection.base import Detector, FoundFrame
from pisa_capc.signal.detection.finders import Finder, History, register_finder
from pisa_capc.signal.phy.lora import LoraHeader, Modulation, rebuild
from pisa_capc.signal.phy.lora.coding import HEADER_SYMBOLS
from pisa_capc.signal.phy.lora.despread import correlate, normalised_power
from pisa_capc.signal.phy.lora.modulation import DOWNCHIRPS, SPREADING_FACTORS, SYNC_SYMBOLS
from pisa_capc.signal.phy.lora.reception import receive_frame
from pisa_capc.signal.phy.lora.synchronise import LOOK_AHEAD, Preamble, synchronise
from pisa_capc.signal.recordings import About
from pisa_capc.signal.recordings.encoding import Encoding
from pisa_capc.signal.waveforms.lora import SPREADING_FACTOR

RUN = 6  # symbols in a row that must have their peak in the same bin
TRIGGERS_PER_S = 0.1  # how often noise may look like such a run
BATCH_SAMPLES = 1 << 16  # searched at once
MARGIN = 4  # symbols that a start may lie further back than counted
TWICE = 2.0  # the power of the noise in a bin, which a chirp must have there


class LoraDetector:
    """Finds LoRa frames of one spreading factor, or of all.

    Every window of one symbol is correlated with the chirps of all symbols (`despread.correlate`). Upchirps have their
    peak in the same bin in each, wherever the windows begin. The power in a bin over its mean over all bins, added up
    over A antennas and six windows in a row, is Gamma(6A) distributed under noise. There are two tests a chip; the
    threshold is where noise would pass once in ten seconds (`TRIGGERS_PER_S`) if all were independent. A window counts
    for a fifth of it at most, so that one loud symbol is no run; a carrier fills all bins alike and triggers nothing.
    Downchirps must follow, for which noise passes once in a thousand (`synchronise.MISTAKEN_DOWNCHIRPS`): no more than
    one false alarm in two hours and three quarters of noise, for each spreading factor. Chirps of one spreading factor
    leave traces in the spectra of the others, which do not last: over the whole preamble the chirp must stand out of
    the noise by as much as the run had to, and have twice its power. What has less cannot be read anyway.

    A frame's `iq` goes to its end where its explicit header tells it, else to where the header ends. The SNR is that
    within the bandwidth. Frames come in the order of their starts. What is found does not depend on how the stream is
    cut into blocks.

    spreading_factor: 7 … 12; None looks for all. sample_rate_hz: a whole multiple of bandwidth_hz. carrier_hz: where
    it is known, the sampling offset is taken out by it, which SF11 and SF12 need for more than a few ppm. preamble:
    upchirps that frames begin with; of a longer preamble the last ones are taken.
    """

    def __init__(
        self,
        spreading_factor: int | None = None,
        *,
        sample_rate_hz: float = 1e6,
        bandwidth_hz: float = 125e3,
        carrier_hz: float | None = None,
        preamble: int = 8,
    ) -> None:
        factors = SPREADING_FACTORS if spreading_factor is None else [spreading_factor]
        self._history = History()
        self._searches = [
            _Search(Modulation(factor, bandwidth_hz, sample_rate_hz), preamble, carrier_hz) for factor in factors
        ]
        self._ready: list[FoundFrame] = []

    def wanted(self, received: int) -> int:
        """Any number will do."""
        return 1

    def push(self, block: NDArray[np.complex64]) -> list[FoundFrame]:
        """The frames that are complete with these (A, n) further samples."""
        self._history.append(block)
        return self._advance(ended=False)

    def finish(self) -> list[FoundFrame]:
        """Frames that the end of the stream cuts off, from their complete preamble on."""
        return self._advance(ended=True)

    def _advance(self, ended: bool) -> list[FoundFrame]:
        for search in self._searches:
            self._ready += search.advance(self._history, ended)
        settled = math.inf if ended else min(search.earliest for search in self._searches)
        self._ready.sort(key=lambda found: found.at)
        count = sum(found.at < settled for found in self._ready)
        done, self._ready = self._ready[:count], self._ready[count:]
        if not ended:
            self._history.drop(int(settled))
        return done


@register_finder("lora")
class LoraFinder(Finder):
    """Headers are read as frames are found: they say how long these are."""

    def detector(
        self, about: About, encoding: Encoding | None = None, first: int = 0, end: int | None = None
    ) -> Detector:
        return LoraDetector(carrier_hz=about.carrier_hz)

    def sent(self, found: Sequence[FoundFrame], about: About) -> list[NDArray[np.complex128] | None]:
        """Of frames at the spreading factor of the known preamble."""
        own = Modulation(SPREADING_FACTOR)
        return [
            rebuild(one.iq, one.cfo_hz, own, carrier_hz=about.carrier_hz)
            if isinstance(one.header, LoraHeader) and one.header.spreading_factor == SPREADING_FACTOR
            else None
            for one in found
        ]


@dataclass
class _Pending:
    """A frame that was found and is not complete yet."""

    start: int
    preamble: Preamble
    end: int  # as far as it is known: the header's, until that tells more
    turn_hz: float  # as of `FoundFrame`


@cache
def _run_threshold(antennas: int, bandwidth_hz: float) -> float:
    """What noise passes `TRIGGERS_PER_S` times a second: two tests a chip of what is Gamma(RUN · A) distributed."""
    return float(gammainccinv(RUN * antennas, TRIGGERS_PER_S / (2 * bandwidth_hz)))


class _Search:
    """Frames of one spreading factor in a stream whose last samples are at hand."""

    def __init__(self, modulation: Modulation, upchirps: int, carrier_hz: float | None) -> None:
        self._modulation, self._upchirps, self._carrier_hz = modulation, upchirps, carrier_hz
        self._position = 0  # where the next window begins
        self._resume = 0  # a run of upchirps must begin here or later
        self._recent = np.zeros((RUN - 1, 2 * modulation.chips), np.float32)
        self._pending: list[_Pending] = []

    @property
    def earliest(self) -> int:
        """Where a frame that is still to come can begin."""
        back = self._upchirps + SYNC_SYMBOLS + MARGIN
        return min([self._position - back * self._modulation.symbol_samples, *(frame.start for frame in self._pending)])

    def advance(self, history: History, ended: bool) -> list[FoundFrame]:
        """The frames that are complete with what has come."""
        if not history.antennas:
            return []
        self._search(history, ended)
        return self._complete(history, ended)

    def _search(self, history: History, ended: bool) -> None:
        """Look at as many batches of windows as have enough samples after them; at the end, at all whole windows."""
        size = self._modulation.symbol_samples
        batch = max(BATCH_SAMPLES // size, 1)
        ahead = 0 if ended else (LOOK_AHEAD + MARGIN) * size
        while (windows := min(batch, (history.end - self._position - ahead) // size)) == batch or (
            ended and windows > 0
        ):
            for at, chips in self._runs(history, windows):
                if at - (RUN - 1) * size >= self._resume:
                    self._synchronise(history, at, chips)
            self._position += windows * size

    def _runs(self, history: History, windows: int) -> list[tuple[int, float]]:
        """Windows that end a run of upchirps, and the bin the run is in."""
        size = self._modulation.symbol_samples
        samples = history.read(self._position, self._position + windows * size).reshape(-1, windows, size)
        threshold = _run_threshold(len(samples), self._modulation.bandwidth_hz)
        power = np.concatenate([self._recent, normalised_power(correlate(samples, self._modulation))])
        self._recent = power[-(RUN - 1) :]
        limited = np.minimum(power, threshold / (RUN - 1))
        runs = sum((limited[i : i + windows] for i in range(1, RUN)), start=limited[:windows])
        hits = np.flatnonzero(runs.max(axis=1) > threshold)
        bins = [int(np.argmax(np.median(power[hit : hit + RUN], axis=0))) for hit in hits]
        return [(self._position + int(hit) * size, half_bin / 2) for hit, half_bin in zip(hits, bins, strict=True)]

    def _synchronise(self, history: History, at: int, chips: float) -> None:
        """Remember the frame whose upchirps are in bin `chips` of the window at `at`, if its preamble is whole."""
        size = self._modulation.symbol_samples
        first = at - (self._upchirps + SYNC_SYMBOLS + MARGIN) * size
        samples = history.read(first, at + (LOOK_AHEAD + MARGIN) * size)
        found = synchronise(samples, at - first, chips, self._modulation, self._upchirps, self._carrier_hz)
        threshold = _run_threshold(len(samples), self._modulation.bandwidth_hz)
        if found is None or found.stands_out < max(threshold / (RUN * len(samples)) - 1, TWICE):
            return
        start = first + round(found.start)
        late_s = (found.start - round(found.start)) / self._modulation.sample_rate_hz
        turn_hz = -late_s * self._modulation.bandwidth_hz * self._modulation.bin_hz  # the slope of the chirp
        data = start + round((self._upchirps + SYNC_SYMBOLS + DOWNCHIRPS) * size)
        self._resume = data
        if start > -self._modulation.oversampling and data <= history.end:
            self._pending.append(_Pending(max(start, 0), found, data + HEADER_SYMBOLS * size, turn_hz))

    def _complete(self, history: History, ended: bool) -> list[FoundFrame]:
        """The pending frames whose end has come, or the stream's."""
        done: list[FoundFrame] = []
        waiting: list[_Pending] = []
        for frame in self._pending:
            found = self._look(frame, history, ended)
            if found is None:
                waiting.append(frame)
            else:
                done.append(found)
        self._pending = waiting
        return done

    def _look(self, frame: _Pending, history: History, ended: bool) -> FoundFrame | None:
        """The frame, if all of it that is known of is there; its header may tell that there is more."""
        if history.end < frame.end and not ended:
            return None
        iq = history.read(frame.start, min(frame.end, history.end))
        found = frame.preamble
        header = receive_frame(iq, found.cfo_hz, self._modulation, self._upchirps, self._carrier_hz)
        if header.samples and frame.start + header.samples > frame.end:
            frame.end = frame.start + header.samples
            return self._look(frame, history, ended)
        snr_db = found.snr_db(self._modulation)
        measured = found.cfo_hz, snr_db, found.quality
        return FoundFrame(frame.start, iq, *measured, header.samples, header, turn_hz=frame.turn_hz)
