"""The detector: chunks of a stream, each examined by itself, and the frames that are still coming in."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from pisa_capc.detect.base import Detection
from pisa_capc.detect.wifi.background import without_background
from pisa_capc.detect.wifi.preamble import fit
from pisa_capc.detect.wifi.screen import BLOCK, candidates
from pisa_capc.errors import ConfigError, DataError
from pisa_capc.phy.wifi import Front, fronts
from pisa_capc.waveforms.wifi import PREAMBLE_SAMPLES, SYMBOL_SAMPLES

CHUNK = 131072  # samples examined at a time, 6.6 ms: what background is, is decided for each
AHEAD = 128  # samples before a chunk that are examined with it, and
BEHIND = 640  # after it: a preamble that begins in it with its L-SIG, and where it is looked for
BORDER = 16  # samples outside a chunk where a frame may still be its own
HEAD = PREAMBLE_SAMPLES + SYMBOL_SAMPLES  # a frame's preamble and L-SIG


@dataclass(frozen=True)
class Found:
    """A preamble in the stream: its first sample, what was measured of it, and what its L-SIG says."""

    start: int
    cfo_hz: NDArray[np.float64]
    snr_db: NDArray[np.float64]
    quality: float
    front: Front | None = None

    @property
    def samples(self) -> int | None:
        """Of the whole frame."""
        return None if self.front is None or self.front.signal is None else self.front.signal.samples


def examine(iq: NDArray[np.complex64], sample_rate_hz: float) -> list[Found]:
    """Preambles that begin in (A, AHEAD + CHUNK + BEHIND) samples, in order, counted from the chunk's first."""
    still, products, powers, weights = without_background(iq)
    blocks, angles = candidates(products, powers, weights)
    inside = (blocks * BLOCK >= AHEAD - 2 * BORDER) & (blocks * BLOCK < AHEAD + CHUNK + 2 * BORDER)
    if not inside.any():
        return []
    got = fit(still, iq, blocks[inside], angles[inside], weights, sample_rate_hz)
    start = got.start - AHEAD
    own = got.good & (start >= -BORDER) & (start < CHUNK + BORDER)
    kept: list[int] = []
    for k in np.argsort(-got.quality, kind="stable"):
        if own[k] and np.all(np.abs(start[k] - start[kept]) >= PREAMBLE_SAMPLES):
            kept.append(int(k))
    kept.sort(key=start.tolist().__getitem__)
    return [Found(int(start[k]), got.cfo_hz[k], got.snr_db[k], float(got.quality[k])) for k in kept]


class Room:
    """The newest samples of a stream, from its sample `first` on, in memory that is used again and again."""

    def __init__(self, samples: NDArray[np.complex64], first: int) -> None:
        self._data, self._begin, self.first, self.end = samples, 0, first, first + samples.shape[1]

    def append(self, block: NDArray[np.complex64]) -> None:
        place = self._begin + self.end - self.first
        if place + block.shape[1] > self._data.shape[1]:
            place = self._move(block.shape[1])
        self._data[:, place : place + block.shape[1]] = block
        self.end += block.shape[1]

    def _move(self, more: int) -> int:
        """Bring what is held to the beginning, in larger memory if so many more need it; where it ends."""
        held = self.span(self.first, self.end)
        needed = held.shape[1] + 2 * more
        if needed > self._data.shape[1]:
            self._data = np.empty((len(held), max(needed, 4 * CHUNK)), dtype=np.complex64)
        self._data[:, : held.shape[1]] = held
        self._begin = 0
        return held.shape[1]

    def span(self, first: int, end: int) -> NDArray[np.complex64]:
        """(A, end − first) of them, as long as nothing is appended."""
        return self._data[:, self._begin + first - self.first : self._begin + end - self.first]

    def drop(self, before: int) -> None:
        """Let go of what is before `before`."""
        self._begin, self.first = self._begin + before - self.first, before


class WifiDetector:
    """Finds 802.11 frames with a legacy preamble in a stream at 20 MS/s.

    The stream is examined in chunks that begin at multiples of CHUNK, whatever the blocks it comes in. A frame is
    handed on up to the end that its L-SIG says, or `samples` of it where that cannot be read. workers: threads, which
    the chunks of one block are spread over; blocks of several chunks keep them busy.
    """

    def __init__(self, antennas: int, sample_rate_hz: float = 20e6, *, samples: int = 800, workers: int = 2) -> None:
        if sample_rate_hz != 20e6:
            raise ConfigError(f"Wi-Fi is detected at 20 MS/s, not at {sample_rate_hz / 1e6:g}. Resample it first.")
        self.antennas, self.sample_rate_hz, self.samples = antennas, sample_rate_hz, samples
        self._pool = ThreadPoolExecutor(workers)
        self._room = Room(np.zeros((antennas, AHEAD), dtype=np.complex64), -AHEAD)  # samples that are still needed
        self._received = 0
        self._next = 0  # where the next chunk begins
        self._last = -PREAMBLE_SAMPLES  # where the frame found last does
        self._coming: deque[Found] = deque()

    @property
    def wanted(self) -> int:
        """Until two chunks are whole, which are looked at side by side; their frames are read together."""
        return self._next + 2 * CHUNK + BEHIND - self._received

    def push(self, block: NDArray[np.complex64]) -> list[Detection]:
        """The frames that are complete with these (A, n) further samples, as far as chunks are."""
        if block.ndim != 2 or len(block) != self.antennas or block.dtype != np.complex64:
            raise DataError(
                f"a block of {block.dtype} {block.shape}; expected complex64 ({self.antennas}, n), one row per antenna."
            )
        self._room.append(block)
        self._received += block.shape[1]
        self._examine()
        done = self._complete(self._received)
        self._room.drop(min([self._next - AHEAD, *(found.start for found in self._coming)]))
        return done

    def finish(self) -> list[Detection]:
        """The frames of which the end of the stream has only a part, from their whole preamble on."""
        self._room.append(np.zeros((self.antennas, CHUNK + BEHIND), dtype=np.complex64))
        self._examine()
        self._pool.shutdown()
        return self._complete(None)

    def _examine(self) -> None:
        """Look at all chunks that are whole, and remember their frames."""
        firsts = range(self._next, self._room.end - CHUNK - BEHIND + 1, CHUNK)
        chunks = [self._room.span(first - AHEAD, first + CHUNK + BEHIND) for first in firsts]
        each = map if len(chunks) < 2 else self._pool.map  # one needs no other thread
        results = each(partial(examine, sample_rate_hz=self.sample_rate_hz), chunks)
        found = []
        for first, one in ((first, one) for first, result in zip(firsts, results, strict=True) for one in result):
            start = max(first + one.start, 0) if first + one.start >= -1 else -1
            if max(self._last + PREAMBLE_SAMPLES, 0) <= start <= self._received - PREAMBLE_SAMPLES:
                found.append(replace(one, start=start))
                self._last = start
        self._coming += self._with_fronts(found)
        self._next += CHUNK * len(chunks)

    def _with_fronts(self, found: list[Found]) -> list[Found]:
        """The same with what each L-SIG says; all of a block are read together, which costs little more than one."""
        heads = [self._room.span(one.start, min(one.start + HEAD, self._received)) for one in found]
        read = fronts(heads, [one.cfo_hz for one in found])
        return [replace(one, front=front) for one, front in zip(found, read, strict=True)]

    def _complete(self, end: int | None) -> list[Detection]:
        """The frames that are whole, in order; all of them where the stream has ended."""
        done = []
        while self._coming:
            found = self._coming[0]
            last = found.start + (found.samples or self.samples)
            if end is not None and last > end:
                break
            iq = self._room.span(found.start, min(last, self._received)).copy()
            measured = found.cfo_hz, found.snr_db, found.quality
            done.append(Detection(found.start, iq, *measured, found.samples, front=found.front))
            self._coming.popleft()
        return done
