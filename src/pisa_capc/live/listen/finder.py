"""What finds frames, beside what decides them: in a thread here, or in a process of its own (`finder_process`)."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import PisaError
from pisa_capc.live.listen.hearing import Hearing
from pisa_capc.live.listen.receiver import Health
from pisa_capc.live.listen.ring import Piece, Ring
from pisa_capc.signal.detection import FoundFrame

POLL_S = 0.1  # how soon an end is noticed
CLOSE_S = 2.0  # that it may take to end
SNIPPET = 65536  # samples that show trouble with the receiver
STUCK_S = 10.0  # after which what finds frames is stuck
WAITING = 2  # parts that may wait to be decided; then samples wait in the ring


@dataclass(frozen=True, eq=False)
class Part:
    """The frames that samples from number `first` on complete. shown: (A, n) of them, where they show trouble.

    taken: bytes of these samples. health: of the receiver, after them. advice: what explains that nothing is found.
    """

    frames: list[FoundFrame]
    shown: NDArray[np.complex64]
    first: int
    taken: int
    health: Health
    advice: str = ""


class FrameFinder(Protocol):
    """Takes samples from a ring and finds the frames in them."""

    def parts(self) -> list[Part] | None:
        """What was heard meanwhile, in order; nothing after `POLL_S` without a sample, None after the end."""
        ...

    def close(self) -> None:
        """End it; what waits is left."""
        ...


class Stalled:
    """Whether samples wait and nothing was heard of them for `STUCK_S`, however often it was asked."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    def of(self, ring: Ring, heard: bool) -> bool:
        if heard or not ring.held:
            self._since = time.monotonic()
        return min(ring.stalled_s, time.monotonic() - self._since) > STUCK_S


def parts_of(hearing: Hearing, pieces: Iterable[Piece]) -> Iterator[Part]:
    """What is heard in pieces of a stream, and at its end."""
    first = 0
    for piece in pieces:
        first = piece.first
        frames = hearing.push(piece.data, first, piece.fresh)
        shown = hearing.shown(piece.data, SNIPPET)
        yield Part(frames, shown, first, len(piece.data), hearing.receiver.health, hearing.advice())
    last = hearing.finish()
    advice = "" if last else hearing.advice(ended=True)
    yield Part(last, np.empty((0, 0), dtype=np.complex64), first, 0, hearing.receiver.health, advice)


class ThreadFinder:
    """In a thread of this process."""

    def __init__(self, ring: Ring, hearing: Hearing, most: int) -> None:
        self._ring, self._hearing, self._most = ring, hearing, most
        self._parts: queue.Queue[Part | None] = queue.Queue(WAITING)
        self._closed, self._stalled = threading.Event(), Stalled()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="finder", daemon=True)
        self._thread.start()

    def parts(self) -> list[Part] | None:
        try:
            found = [self._parts.get(timeout=POLL_S)]
            while not self._parts.empty() and found[-1] is not None:
                found.append(self._parts.get_nowait())
        except queue.Empty:
            if self._stalled.of(self._ring, False):
                raise PisaError(
                    f"the search for frames has done nothing for {STUCK_S:g} s; restart the listener."
                ) from None
            return []
        self._stalled.of(self._ring, True)
        heard = [part for part in found if part is not None]
        if found[-1] is None:
            self._parts.put(None)  # for when it is asked again
            if not heard and self._failed is not None:
                raise self._failed
        return heard or None

    def close(self) -> None:
        self._closed.set()
        self._thread.join(CLOSE_S)

    def _run(self) -> None:
        try:
            for part in parts_of(self._hearing, self._pieces()):
                self._ring.free(part.taken)
                self._put(part)
        except BaseException as error:
            self._failed = error
        finally:
            self._put(None)

    def _pieces(self) -> Iterator[Piece]:
        while not self._closed.is_set():
            piece = self._ring.take(self._hearing.wanted, self._most, POLL_S)
            if piece is not None:
                yield piece
            elif self._ring.ended:
                return

    def _put(self, part: Part | None) -> None:
        while not self._closed.is_set():
            try:
                return self._parts.put(part, timeout=POLL_S)
            except queue.Full:
                continue
