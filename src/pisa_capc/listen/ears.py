"""The thread that finds frames, beside the one that decides them."""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pisa_capc.listen.hearing import Heard, Hearing
from pisa_capc.listen.ring import Ring

POLL_S = 0.1  # how soon an end is noticed
SNIPPET = 65536  # samples that show trouble with the receiver
WAITING = 2  # parts that may wait to be decided; then samples wait in the ring


@dataclass(frozen=True, eq=False)
class Part:
    """The frames that samples from number `first` on complete. shown: (A, n) of them, where they show trouble."""

    heard: list[Heard]
    shown: NDArray[np.complex64]
    first: int


class Ears:
    """Takes samples from a ring and finds the frames in them, in a thread of its own."""

    def __init__(self, ring: Ring, hearing: Hearing, most: int) -> None:
        self._ring, self._hearing, self._most = ring, hearing, most
        self._parts: queue.Queue[Part | None] = queue.Queue(WAITING)
        self._closed = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="ears", daemon=True)
        self._thread.start()

    def parts(self) -> list[Part] | None:
        """What was heard meanwhile, in order; nothing after `POLL_S` without a sample, None after the end."""
        try:
            found = [self._parts.get(timeout=POLL_S)]
            while not self._parts.empty() and found[-1] is not None:
                found.append(self._parts.get_nowait())
        except queue.Empty:
            return []
        heard = [part for part in found if part is not None]
        if found[-1] is None:
            self._parts.put(None)  # for when it is asked again
            if not heard and self._failed is not None:
                raise self._failed
        return heard or None

    def close(self) -> None:
        """End the thread; what waits is left."""
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._closed.is_set():
                piece = self._ring.take(self._hearing.wanted, self._most, POLL_S)
                if piece is not None:
                    heard = self._hearing.push(piece.data, piece.first, piece.fresh)
                    shown = self._hearing.shown(piece.data, SNIPPET)
                    self._ring.free(piece)
                    self._put(Part(heard, shown, piece.first))
                elif self._ring.ended:
                    break
            self._put(Part(self._hearing.finish(), np.empty((0, 0), dtype=np.complex64), self._ring.received))
        except BaseException as error:
            self._failed = error
        finally:
            self._put(None)

    def _put(self, part: Part | None) -> None:
        while not self._closed.is_set():
            try:
                return self._parts.put(part, timeout=POLL_S)
            except queue.Full:
                continue
