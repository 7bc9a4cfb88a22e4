"""Samples between the thread that receives them and their readers: a ring of fixed size.

Bytes go in as they come, in pieces of any size; whole samples of all antennas come out. Where there is no room, what
comes is missed until half of the ring is free, for one long gap cuts fewer frames than many short ones. It is counted,
and the sample numbers of all that follows are right nevertheless.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from dataclasses import dataclass
from mmap import mmap

import numpy as np
from numpy.typing import NDArray

Bytes = bytes | bytearray | memoryview | NDArray[np.uint8]

ARRIVALS = 4096  # moments that are remembered
RESOLUTION_S = 5e-4  # pieces that come sooner after one another are of one moment
GAP_S, FAST = 60.0, 1.05  # how far a stream may be ahead of the clock, and how much faster than its rate it may come


@dataclass(frozen=True, eq=False)
class Piece:
    """Samples that follow each other. first: the number of the first in the stream.

    data: bytes, still in the ring, from its byte `place` on. fresh: whether the stream is interrupted before them.
    """

    first: int
    data: NDArray[np.uint8]
    fresh: bool
    place: int


@dataclass(frozen=True)
class _Gap:
    """Before the byte `at` of those kept: how many samples were missed."""

    at: int
    missed: int


class Ring:
    """Room for `samples` samples of `sample_bytes` each; written by one thread, read by another.

    wait: let the writer wait for room, for sources that lose nothing by it. first: number of the first sample. memory:
    of as many bytes, where others are to see it too. rate_hz: samples a second, which bound what can have been missed.
    """

    def __init__(
        self,
        samples: int,
        sample_bytes: int,
        *,
        wait: bool = False,
        first: int = 0,
        memory: mmap | None = None,
        rate_hz: float = math.inf,
    ) -> None:
        self.sample_bytes, self.wait, self._rate_hz = sample_bytes, wait, rate_hz
        self._first, self._began_s = first, time.monotonic()
        self._waits_since = math.inf  # since when what is held waits for its end
        self._data = np.frombuffer(bytearray(samples * sample_bytes) if memory is None else memory, dtype=np.uint8)
        self._offered = 0  # bytes since the last interruption, those that found no room among them
        self._ignore = 0  # bytes to come that belong to a sample which was missed
        self._end = self._taken = self._freed = 0  # bytes kept, bytes taken of them and bytes given back, ever
        self._number = first  # of the sample at `_taken`
        self._gaps: deque[_Gap] = deque()
        self._arrivals: deque[tuple[int, float]] = deque(maxlen=ARRIVALS)  # (number after the newest sample, when)
        self._written = first  # number after the newest sample
        self._full = False  # and not half empty since
        self._awaited = 0  # bytes that the reader waits for
        self.missed = self.breaks = 0
        self.ended = False
        self._changed = threading.Condition()

    @property
    def held(self) -> int:
        """Samples that wait to be looked at, or are."""
        return (self._end - self._freed) // self.sample_bytes

    @property
    def received(self) -> int:
        """The number after the newest sample, those that were missed counted."""
        return self._written

    @property
    def stalled_s(self) -> float:
        """How long samples have waited without any being given back."""
        return max(0.0, time.monotonic() - self._waits_since) if self.held else 0.0

    def plausible(self, count: int) -> bool:
        """Whether so many bytes can be missing here: a stream cannot be far ahead of the clock.

        A source that loses nothing by waiting has no clock, and may miss what comes in `GAP_S`.
        """
        ahead = self._first - self._written + self._rate_hz * FAST * (time.monotonic() - self._began_s)
        return count // self.sample_bytes <= self._rate_hz * GAP_S + (0.0 if self.wait else ahead)

    def write(self, data: Bytes) -> None:
        """Take bytes; what finds no room is missed."""
        new = np.frombuffer(data, dtype=np.uint8)
        if self._ignore:
            ignored = min(self._ignore, len(new))
            self._ignore -= ignored
            self._offered += ignored
            new = new[ignored:]
        while len(new):
            with self._changed:
                room = len(self._data) - (self._end - self._freed)
                self._full = self._full and 2 * room < len(self._data)
                room = 0 if self._full else room
                if room < len(new) and self.wait and not self.ended:
                    if room < self.sample_bytes:
                        self._changed.wait(0.1)
                        continue
                elif room < len(new):
                    room = max(0, room - (self._offered + room) % self.sample_bytes)
            self._store(new[:room])
            if room < len(new) and not (self.wait and not self.ended):
                self.skip(len(new) - room)
                self._full = True
                return
            new = new[room:]

    def _store(self, new: NDArray[np.uint8]) -> None:
        place = self._end % len(self._data)
        straight = min(len(new), len(self._data) - place)
        self._data[place : place + straight] = new[:straight]
        self._data[: len(new) - straight] = new[straight:]
        self._offered += len(new)
        whole = self._offered // self.sample_bytes - (self._offered - len(new)) // self.sample_bytes
        with self._changed:
            if self._end == self._freed:
                self._waits_since = time.monotonic()
            self._end += len(new)
            self._written += whole
            self._note_arrival()
            if self._gaps or self._available() >= self._awaited:  # a thread that wakes for less only costs a turn
                self._changed.notify_all()

    def _note_arrival(self) -> None:
        now = time.monotonic()
        if self._arrivals and now - self._arrivals[-1][1] < RESOLUTION_S:
            now = self._arrivals.pop()[1]
        self._arrivals.append((self._written, now))

    def skip(self, count: int) -> None:
        """So many bytes are missing here; incomplete samples are missed as a whole."""
        if self._ignore:  # the sample that they begin in was counted before
            known = min(count, self._ignore)
            self._ignore -= known
            self._offered += known
            count -= known
            if not count:
                return
        size = self.sample_bytes
        before, after = self._offered, self._offered + count
        missed = -(-after // size) - before // size
        self._offered, self._ignore = after, -after % size
        self._interrupt(before % size, missed)

    def interrupt(self) -> None:
        """The source has restarted; the gap is unknown."""
        part = 0 if self._ignore else self._offered % self.sample_bytes
        self._offered = self._ignore = 0
        self.breaks += 1
        self._interrupt(part, 0)

    def _interrupt(self, part: int, missed: int) -> None:
        """Give up the last `part` bytes, of a sample that is not whole, and remember what is missing."""
        with self._changed:
            self._end -= part
            self.missed += missed
            self._written += missed
            if self._gaps and self._gaps[-1].at == self._end:
                missed += self._gaps.pop().missed
            self._gaps.append(_Gap(self._end, missed))

    def end(self) -> None:
        """Nothing more will come, or be looked at."""
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    def release(self) -> None:
        """Let go of the memory once no thread uses it; what was counted stays."""
        self._data = np.empty(0, dtype=np.uint8)

    def take(self, least: int, most: int, timeout_s: float) -> Piece | None:
        """The next samples, at most `most`; waits until there are `least`, or an interruption, or the end."""
        until = time.monotonic() + timeout_s
        with self._changed:
            self._awaited = least * self.sample_bytes
            while self._available() < self._awaited and not self._gaps and not self.ended:
                left = until - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            fresh = bool(self._gaps) and self._gaps[0].at == self._taken
            if fresh:
                self._number += self._gaps.popleft().missed
            place, first = self._taken % len(self._data), self._number
            count = min(self._available(), len(self._data) - place, most * self.sample_bytes)
            if not count and not fresh:
                return None
            self._taken += count
            self._number += count // self.sample_bytes
            return Piece(first, self._data[place : place + count], fresh, place)

    def _available(self) -> int:
        """Bytes of whole samples up to the next interruption."""
        end = self._gaps[0].at if self._gaps and self._gaps[0].at > self._taken else self._end
        return (end - self._taken) // self.sample_bytes * self.sample_bytes

    def free(self, count: int) -> None:
        """So many bytes of those that were taken were looked at: their room is for others."""
        with self._changed:
            self._freed += count
            self._waits_since = time.monotonic()
            if self.wait:  # nobody else waits for room
                self._changed.notify_all()

    def lose(self) -> int:
        """What was taken and not given back will not be looked at: so many samples are missed."""
        with self._changed:
            lost = (self._taken - self._freed) // self.sample_bytes
            self.missed += lost
            self._freed = self._taken
            self._waits_since = time.monotonic()
            if not self._gaps or self._gaps[0].at != self._taken:
                self._gaps.appendleft(_Gap(self._taken, 0))
            self._changed.notify_all()
            return lost

    def arrival(self, number: int) -> float:
        """When the sample was received, on the clock of time.monotonic; as early as is remembered."""
        with self._changed:
            found = self._arrivals[-1][1] if self._arrivals else time.monotonic()
            for written, when in reversed(self._arrivals):  # it is among the newest
                if written <= number:
                    break
                found = when
            return found
