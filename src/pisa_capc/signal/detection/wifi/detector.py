"""The detector: chunks of a stream, each examined by itself, and the frames that are still coming in."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.signal.detection.base import FoundFrame
from pisa_capc.signal.detection.wifi.background import without_background
from pisa_capc.signal.detection.wifi.chunk import PART, Chunk, Coded, Plain, Room
from pisa_capc.signal.detection.wifi.preamble import EXCERPT, SEARCH, PreambleFit, fit
from pisa_capc.signal.detection.wifi.screen import BLOCK, block_products, candidates
from pisa_capc.signal.phy.wifi import Front, fronts
from pisa_capc.signal.recordings.encoding import Encoding
from pisa_capc.signal.waveforms.wifi import PREAMBLE_SAMPLES, SYMBOL_SAMPLES

CHUNK = 131072  # samples examined at a time, 6.6 ms: what background is, is decided for each
AHEAD = 128  # samples before a chunk that are examined with it, and
BEHIND = 640  # after it: a preamble that begins in it with its L-SIG, and where it is looked for
BORDER = 16  # samples outside a chunk where a frame may still be its own
HEAD = PREAMBLE_SAMPLES + SYMBOL_SAMPLES  # a frame's preamble and L-SIG
LONGEST = HEAD + SYMBOL_SAMPLES * -(-(16 + 8 * 4095 + 6) // 24)  # samples of a frame: 4,095 octets at 6 Mb/s


@dataclass(frozen=True)
class FoundPreamble:
    """A preamble in the stream: its first sample, its measurements, and its L-SIG."""

    start: int
    cfo_hz: NDArray[np.float64]
    snr_db: NDArray[np.float64]
    quality: float
    front: Front | None = None

    @property
    def samples(self) -> int | None:
        """Of the whole frame."""
        return None if self.front is None or self.front.signal is None else self.front.signal.samples


@dataclass(frozen=True)
class Looks:
    """Where preambles may be in some samples: K excerpts of them.

    first: (K,) where they begin. excerpt, raw: (K, A, EXCERPT) without and with the background; the same where there is
    nothing to take off. angles: (K,) of their lag-16 correlation. weights: (K, A) one over the noise.
    """

    first: NDArray[np.intp]
    excerpt: NDArray[np.complex64]
    raw: NDArray[np.complex64]
    angles: NDArray[np.float64]
    weights: NDArray[np.float64]


def look(chunk: Chunk) -> Looks | None:
    """Where a preamble may begin in AHEAD + CHUNK + BEHIND samples; None: nowhere."""
    still, weights, loud = without_background(chunk)
    blocks, angles = screened(still, weights, loud)
    inside = (blocks * BLOCK >= AHEAD - 2 * BORDER) & (blocks * BLOCK < AHEAD + CHUNK + 2 * BORDER)
    if not inside.any():
        return None
    first = blocks[inside] * BLOCK - BLOCK // 2 - SEARCH
    excerpt = still.cut(first, EXCERPT)
    raw = excerpt if still is chunk else chunk.cut(first, EXCERPT)
    return Looks(first, excerpt, raw, angles[inside], np.broadcast_to(weights, excerpt.shape[:2]))


def screened(
    chunk: Chunk, weights: NDArray[np.float64], loud: NDArray[np.bool_]
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """`candidates` of the parts that are loud, put one after the other: where they meet there is only noise."""
    if not loud.any():
        return np.empty(0, dtype=np.intp), np.empty(0)
    iq = chunk.parts(np.flatnonzero(loud)).reshape(len(weights), -1)
    found, angles = candidates(*block_products(iq), weights)
    return np.flatnonzero(np.repeat(loud, PART // BLOCK))[found], angles


def examine(chunks: Sequence[Looks | None], sample_rate_hz: float) -> list[list[FoundPreamble]]:
    """Preambles that begin in each chunk, in order, counted from its first; those of all are fitted together."""
    looks = [one for one in chunks if one is not None]
    if not looks:
        return [[] for _ in chunks]
    excerpt = np.concatenate([one.excerpt for one in looks])
    raw = excerpt if all(one.raw is one.excerpt for one in looks) else np.concatenate([one.raw for one in looks])
    angles, weights = (np.concatenate([getattr(one, name) for one in looks]) for name in ("angles", "weights"))
    got = fit(excerpt, raw, angles, weights, sample_rate_hz)
    results, row = [], 0
    for one in chunks:
        count = 0 if one is None else len(one.first)
        results.append([] if one is None else _kept(got, one.first - AHEAD, slice(row, row + count)))
        row += count
    return results


def _kept(got: PreambleFit, first: NDArray[np.intp], rows: slice) -> list[FoundPreamble]:
    """Those of a chunk that are its own; of those that overlap, the one that fits best."""
    start = first + got.start[rows]
    own = (got.good[rows] & (start >= -BORDER) & (start < CHUNK + BORDER)).tolist()
    starts, kept = start.tolist(), list[int]()
    for k in np.argsort(-got.quality[rows], kind="stable").tolist():
        if own[k] and all(abs(starts[k] - starts[other]) >= PREAMBLE_SAMPLES for other in kept):
            kept.append(k)
    kept.sort(key=starts.__getitem__)
    return [
        FoundPreamble(starts[k], got.cfo_hz[row], got.snr_db[row], float(got.quality[row]))
        for k, row in ((k, rows.start + k) for k in kept)
    ]


class WifiDetector:
    """Finds 802.11 frames with a legacy preamble in a stream at 20 MS/s.

    The stream is examined in chunks that begin at multiples of CHUNK, whatever the blocks it comes in. A frame is
    handed on up to the end that its L-SIG says, or `samples` of it where that cannot be read. encoding: of blocks that
    are given as bytes, antennas interleaved; most of them need not be decoded. The chunks of one block are read
    together, which costs less for each. There are no threads: the work is many small arrays, and two threads would
    wait for each other more than they gain.

    first, end: multiples of CHUNK between which frames are looked for, as by one of several detectors that share a
    stream; it is then given from AHEAD samples before `first` on, and LONGEST beyond `end`.
    """

    def __init__(
        self,
        antennas: int,
        sample_rate_hz: float = 20e6,
        *,
        samples: int = 800,
        encoding: Encoding | None = None,
        first: int = 0,
        end: int | None = None,
    ) -> None:
        if sample_rate_hz != 20e6:
            raise ConfigError(f"Wi-Fi is detected at 20 MS/s, not at {sample_rate_hz / 1e6:g}. Resample it first.")
        if encoding is not None and encoding.kind == "u":
            raise ConfigError(f"samples as {encoding.name} have no zero. Decode them first.")
        self.antennas, self.sample_rate_hz, self.samples, self.encoding = antennas, sample_rate_hz, samples, encoding
        self._room = Room(self._silence(0 if first else AHEAD), first - AHEAD, 4 * CHUNK)  # samples still needed
        self._received = self._room.end
        self._next, self._end = first, end  # where the next chunk begins, and the first that is another's
        self._last = -PREAMBLE_SAMPLES  # where the frame found last does
        self._coming: deque[FoundPreamble] = deque()

    def wanted(self, received: int) -> int:
        """Until a chunk is whole. Two together cost less than twice one, but their frames wait for longer."""
        whole = max(received - BEHIND, 0) // CHUNK
        return (whole + 1) * CHUNK + BEHIND - received

    def push(self, block: NDArray[np.complex64] | NDArray[np.uint8]) -> list[FoundFrame]:
        """The frames that are complete with these (A, n) further samples, as far as chunks are; bytes if encoded."""
        rows = self._rows(block)
        self._room.append(rows)
        self._received += rows.shape[1]
        self._examine()
        done = self._complete(self._received)
        self._room.drop(min([self._next - AHEAD, *(found.start for found in self._coming)]))
        return done

    def finish(self) -> list[FoundFrame]:
        """Frames that the end of the stream cuts off, from their complete preamble on."""
        self._room.append(self._silence(CHUNK + BEHIND))
        self._examine()
        return self._complete(None)

    @property
    def _instant(self) -> np.dtype[np.void]:
        """What the encoded samples of all antennas at one time are."""
        assert self.encoding is not None
        return np.dtype((np.void, self.antennas * self.encoding.sample_bytes))

    def _silence(self, samples: int) -> NDArray[Any]:
        """As `Room` has them: a row for each antenna, or one of instants."""
        if self.encoding is None:
            return np.zeros((self.antennas, samples), dtype=np.complex64)
        return np.zeros((1, samples), dtype=self._instant)

    def _rows(self, block: NDArray[Any]) -> NDArray[Any]:
        if self.encoding is not None:
            return block.view(self._instant)[None]
        if block.ndim != 2 or len(block) != self.antennas or block.dtype != np.complex64:
            raise DataError(
                f"a block of {block.dtype} {block.shape}; expected complex64 ({self.antennas}, n), one row per antenna."
            )
        return block

    def _chunk(self, first: int, end: int) -> Chunk:
        span = self._room.span(first, end)
        return Plain(span) if self.encoding is None else Coded(span[0], self.antennas, self.encoding)

    def _examine(self) -> None:
        """Look at all chunks that are whole, and remember their frames."""
        last = self._room.end - CHUNK - BEHIND + 1
        firsts = range(self._next, last if self._end is None else min(last, self._end), CHUNK)
        looks = [look(self._chunk(first - AHEAD, first + CHUNK + BEHIND)) for first in firsts]
        results = examine(looks, self.sample_rate_hz)
        found = []
        for first, one in ((first, one) for first, result in zip(firsts, results, strict=True) for one in result):
            start = max(first + one.start, 0) if first + one.start >= -1 else -1
            if max(self._last + PREAMBLE_SAMPLES, 0) <= start <= self._received - PREAMBLE_SAMPLES:
                found.append(replace(one, start=start))
                self._last = start
        self._coming += self._with_fronts(found)
        self._next += CHUNK * len(firsts)

    def _with_fronts(self, found: list[FoundPreamble]) -> list[FoundPreamble]:
        """The same with what each L-SIG says; all of a block are read together, which costs little more than one."""
        if not found:
            return []
        first = self._room.first
        cut = self._chunk(first, self._room.end).cut([one.start - first for one in found], HEAD)
        heads = [head[:, : self._received - one.start] for head, one in zip(cut, found, strict=True)]
        read = fronts(heads, [one.cfo_hz for one in found])
        return [replace(one, front=front) for one, front in zip(found, read, strict=True)]

    def _complete(self, end: int | None) -> list[FoundFrame]:
        """The frames that are whole, in order; all of them where the stream has ended."""
        done = []
        while self._coming:
            found = self._coming[0]
            last = found.start + (found.samples or self.samples)
            if end is not None and last > end:
                break
            iq = self._chunk(found.start, min(last, self._received)).whole()
            measured = found.cfo_hz, found.snr_db, found.quality
            done.append(FoundFrame(found.start, iq, *measured, found.samples, front=found.front))
            self._coming.popleft()
        return done
