"""The detector: chunks of a stream, each examined by itself, and the frames that are still coming in."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pisa_capc.detect.base import Detection
from pisa_capc.detect.wifi.background import without_background
from pisa_capc.detect.wifi.preamble import SEARCH, fit
from pisa_capc.detect.wifi.screen import BLOCK, candidates
from pisa_capc.errors import ConfigError, DataError
from pisa_capc.waveforms.wifi import PREAMBLE_SAMPLES

CHUNK = 65536  # samples examined at a time, 3.3 ms: what background is, is decided for each
AHEAD = 128  # samples before a chunk that are examined with it, and
BEHIND = 640  # after it: a preamble that begins in it, and where it is looked for
BORDER = 16  # samples outside a chunk where a frame may still be its own
LONGEST = 400 + 80 * 1366  # samples of a frame of 4,095 octets at 6 Mb/s


@dataclass(frozen=True)
class Found:
    """A preamble in the stream: its first sample and what was measured of it."""

    start: int
    cfo_hz: NDArray[np.float64]
    snr_db: NDArray[np.float64]
    quality: float


def examine(iq: NDArray[np.complex64], sample_rate_hz: float) -> list[Found]:
    """Preambles in (A, AHEAD + CHUNK + BEHIND) samples, their first samples counted from the chunk's."""
    still, products, powers, weights = without_background(iq)
    blocks, angles = candidates(products, powers, weights)
    inside = (blocks * BLOCK >= AHEAD - 2 * BORDER) & (blocks * BLOCK < AHEAD + CHUNK + 2 * BORDER)
    if not inside.any():
        return []
    got = fit(still, iq, blocks[inside], angles[inside], weights, sample_rate_hz)
    order = [k for k in np.argsort(-got.quality, kind="stable") if got.good[k]]
    kept: list[int] = []
    for k in order:
        if all(abs(got.start[k] - got.start[other]) >= PREAMBLE_SAMPLES for other in kept):
            kept.append(k)
    return [
        Found(int(got.start[k]) - AHEAD, got.cfo_hz[k], got.snr_db[k], float(got.quality[k]))
        for k in sorted(kept, key=lambda k: got.start[k])
        if -BORDER <= got.start[k] - AHEAD < CHUNK + BORDER
    ]


class WifiDetector:
    """Finds 802.11 frames with a legacy preamble in a stream at 20 MS/s.

    The stream is examined in chunks that begin at multiples of CHUNK, whatever the blocks it comes in. `samples`: of a
    frame, what is handed on. `workers`: threads, which chunks of one block are spread over.
    """

    def __init__(self, antennas: int, sample_rate_hz: float = 20e6, *, samples: int = 800, workers: int = 2) -> None:
        if sample_rate_hz != 20e6:
            raise ConfigError(f"Wi-Fi is detected at 20 MS/s, not at {sample_rate_hz / 1e6:g}. Resample it first.")
        self.antennas, self.sample_rate_hz, self.samples, self.workers = antennas, sample_rate_hz, samples, workers
        self._held = np.zeros((antennas, AHEAD), dtype=np.complex64)
        self._first = -AHEAD  # where what is held begins in the stream
        self._next = 0  # where the next chunk does
        self._last = -PREAMBLE_SAMPLES  # where the frame found last does
        self._coming: deque[Found] = deque()

    def push(self, block: NDArray[np.complex64]) -> list[Detection]:
        """The frames that are complete with these (A, n) further samples."""
        if block.ndim != 2 or len(block) != self.antennas or block.dtype != np.complex64:
            raise DataError(
                f"a block of {block.dtype} {block.shape}; expected complex64 ({self.antennas}, n), one row per antenna."
            )
        self._held = np.concatenate([self._held, block], axis=1)
        self._examine(self._end)
        return self._complete(self._end)

    def finish(self) -> list[Detection]:
        """The frames of which the end of the stream has only a part, from their whole preamble on."""
        end = self._end
        missing = -end % CHUNK + CHUNK + BEHIND
        self._held = np.pad(self._held, ((0, 0), (0, missing)))
        self._examine(end)
        self._held = self._held[:, : end - self._first]
        return self._complete(None)

    @property
    def _end(self) -> int:
        return self._first + self._held.shape[1]

    def _examine(self, end: int) -> None:
        """Examine the chunks that are whole, and remember the frames that lie in the stream, which ends at `end`."""
        firsts = range(self._next, self._end - CHUNK - BEHIND + 1, CHUNK)
        chunks = [self._held[:, first - AHEAD - self._first : first + CHUNK + BEHIND - self._first] for first in firsts]
        if self.workers > 1 and len(chunks) > 1:
            with ThreadPoolExecutor(self.workers) as pool:
                results = list(pool.map(lambda chunk: examine(chunk, self.sample_rate_hz), chunks))
        else:
            results = [examine(chunk, self.sample_rate_hz) for chunk in chunks]
        for first, result in zip(firsts, results, strict=True):
            for found in result:
                start = max(first + found.start, 0) if first + found.start >= -1 else -1
                if start >= max(self._last + PREAMBLE_SAMPLES, 0) and start + PREAMBLE_SAMPLES <= end:
                    self._coming.append(Found(start, found.cfo_hz, found.snr_db, found.quality))
                    self._last = start
        self._next += CHUNK * len(chunks)

    def _complete(self, end: int | None) -> list[Detection]:
        """The frames that are whole, in order; all of them where the stream has ended. The past is forgotten."""
        done = []
        while self._coming and (end is None or self._coming[0].start + self.samples <= end):
            found = self._coming.popleft()
            begin = found.start - self._first
            iq = self._held[:, begin : begin + self.samples].copy()
            done.append(Detection(found.start, iq, found.cfo_hz, found.snr_db, found.quality))
        needed = min([self._next - AHEAD, *(found.start for found in self._coming)])
        if needed > self._first:
            self._held = self._held[:, needed - self._first :].copy()
            self._first = needed
        return done
