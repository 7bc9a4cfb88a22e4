"""Frames are found in a process of its own: Python computes on one core at a time in each.

The ring of samples lies in memory that both processes see, without a name: it is gone with them, however they end. Over
a socket the listener says where in it the next samples lie, and hears what was found in them. A process that has died
is restarted; the samples it was working on are counted as missed. It ends when its listener does.

    python -P -m pisa_capc.live.listen.finder_process PARENT SOCKET MEMORY      as the listener calls it
"""

from __future__ import annotations

import mmap
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from pisa_capc.core.engines import LOST, begin_worker
from pisa_capc.core.errors import PisaError
from pisa_capc.core.process import collect_only_what_is_new
from pisa_capc.live.listen.finder import CLOSE_S, POLL_S, Part, Stalled, parts_of
from pisa_capc.live.listen.hearing import Hearing
from pisa_capc.live.listen.ring import Piece, Ring

_NOW = getattr(mmap, "MAP_POPULATE", 0)  # pages are there before samples come; of Linux
BEGIN_S = 60.0  # that the process may take to be ready
ROOM = 1 << 20  # bytes of parts on their way: the next samples are looked at while the listener is still busy
_GONE = (EOFError, OSError)  # what a connection raises whose other end is no more


class SharedMemory:
    """Memory for a process and its children."""

    def __init__(self, size: int) -> None:
        self.file: BinaryIO = _unnamed()
        self.file.truncate(size)
        self.memory = mmap.mmap(self.file.fileno(), size, flags=mmap.MAP_SHARED | _NOW)

    def close(self) -> None:
        self.file.close()
        with suppress(BufferError):  # whoever still looks at it keeps it until then
            self.memory.close()


def _unnamed() -> BinaryIO:
    if hasattr(os, "memfd_create"):  # of Linux; in a container /dev/shm may be small
        return os.fdopen(os.memfd_create("pisa-listen"), "w+b")
    return tempfile.TemporaryFile()


class Told(NamedTuple):
    """Where samples lie: the number of the first, the first byte in the ring, bytes, and as of `Piece`."""

    first: int
    place: int
    size: int
    fresh: bool

    def piece(self, memory: NDArray[np.uint8]) -> Piece:
        return Piece(self.first, memory[self.place : self.place + self.size], self.fresh, self.place)


_TOLD = struct.Struct("<qqq?")


class FinderLink(Connection):
    """A connection that is asked many times a second whether something has come: `poll` makes a selector each time."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self._poller = select.poll()
        self._poller.register(number, select.POLLIN)

    def send(self, obj: object) -> None:
        """As of `Connection`, by the newest protocol: the usual one takes three times as long with arrays."""
        self.send_bytes(pickle.dumps(obj, pickle.HIGHEST_PROTOCOL))

    def waits(self, timeout_s: float) -> bool:
        """Whether something has come, or the other end is no more."""
        return bool(self._poller.poll(1000 * timeout_s))


class ProcessFinder:
    """In a process of its own; `note` hears of it when that has died."""

    def __init__(
        self, ring: Ring, shared: SharedMemory, hearing: Hearing, most: int, note: Callable[[str], None]
    ) -> None:
        self._ring, self._shared, self._hearing, self._most, self._note = ring, shared, hearing, most, note
        self._ended = False
        self._lost = 0  # times in a row
        self._failed: BaseException | None = None  # of the feeder
        self._begin()

    def _begin(self) -> None:
        here, there = socket.socketpair()
        there.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ROOM)
        numbers = there.fileno(), self._shared.file.fileno()
        # What is imported is what is imported here, and nothing else that lies where a listener was begun (-P).
        command = [sys.executable, "-P", "-m", __name__, *map(str, (os.getpid(), *numbers))]
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        with there:
            self._child = subprocess.Popen(
                command, pass_fds=numbers, stdin=subprocess.DEVNULL, env=os.environ | {"PYTHONPATH": paths}
            )
        self._link = FinderLink(here.detach())
        self._closed, self._stalled = threading.Event(), Stalled()
        self._feeder = threading.Thread(target=self._feed, name="feeder", daemon=True)
        try:
            self._link.send((self._hearing.settings, self._most))
            if not self._link.waits(BEGIN_S):
                raise TimeoutError  # an OSError
            self._link.recv()  # it is ready: until then samples would only wait
        except _GONE:
            self._end()
            raise PisaError("the process that finds frames does not begin. Is there enough memory?") from None
        self._feeder.start()

    def _feed(self) -> None:
        """Report where samples are, in batches: every wake-up takes time from the deciding thread."""
        told = 0  # samples since the last interruption
        try:
            while not self._closed.is_set():
                piece = self._ring.take(self._hearing.wanted_after(told), self._most, POLL_S)
                if piece is not None:
                    told = len(piece.data) // self._ring.sample_bytes + (0 if piece.fresh else told)
                    self._link.send_bytes(_TOLD.pack(piece.first, piece.place, len(piece.data), piece.fresh))
                elif self._ring.ended:
                    break
            self._link.send_bytes(b"")
        except _GONE:
            return  # whoever asks for parts sees it too
        except BaseException as error:
            self._failed = error  # whoever asks for parts raises it

    def parts(self) -> list[Part] | None:
        found = list[Part]()
        try:
            while not self._ended and self._link.waits(0 if found else POLL_S):
                self._take(self._link.recv(), found)
            if self._failed is not None and not found:
                raise self._failed
            if self._stalled.of(self._ring, bool(found)):
                self._child.kill()
                self._begin_anew()
        except _GONE:
            self._begin_anew()
        return None if self._ended and not found else found

    def _take(self, answer: Part | Exception | None, found: list[Part]) -> None:
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            self._ended = True
            return
        self._lost = 0
        self._ring.free(answer.taken)
        found.append(answer)

    def _begin_anew(self) -> None:
        self._lost += 1
        code = self._end()
        missed = self._ring.lose()
        why = f"the process that finds frames has ended ({code})"
        if self._lost > LOST:
            raise PisaError(f"{why}, {self._lost} times in a row. Is there enough memory?")
        self._note(f"{why}; {missed:,} samples that it had are missed, and another begins.")
        self._begin()

    def _end(self) -> int:
        """Exit status of the process, which ends with its listener; at the latest after `CLOSE_S`."""
        self._closed.set()
        with suppress(OSError), socket.socket(fileno=os.dup(self._link.fileno())) as both:
            both.shutdown(socket.SHUT_RDWR)  # ends a feeder that waits for room, and the process
        if self._feeder.ident is not None:
            self._feeder.join(CLOSE_S)
        self._link.close()
        try:
            return self._child.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            return self._child.wait()

    def close(self) -> None:
        self._end()


# What the process itself does.


def _pieces(link: FinderLink, memory: NDArray[np.uint8], hearing: Hearing, most: int) -> Iterator[Piece]:
    """Pieces as they come.

    Those that follow each other are joined until they are as long as is wanted, and further with those that wait, up to
    about `most` samples.
    """
    held = _next(link)
    while held is not None:
        enough, too_many = (samples * hearing.sample_bytes for samples in (hearing.wanted, most))
        told: Told | None = None
        follows = True
        while follows and held.size < too_many and link.waits(0 if held.size >= enough else POLL_S):
            told = _next(link)
            follows = told is not None and not told.fresh and told.place == held.place + held.size
            if told is not None and follows:
                held = held._replace(size=held.size + told.size)
        yield held.piece(memory)
        held = _next(link) if follows else told


def _next(link: FinderLink) -> Told | None:
    message = link.recv_bytes()
    return Told(*_TOLD.unpack(message)) if message else None


def main(parent: str, socket_number: str, memory_number: str) -> None:
    begin_worker(int(parent))
    for name in ("SIGTERM", "SIGHUP"):  # sent to all processes of a service: the listener heeds them
        if (number := getattr(signal, name, None)) is not None:  # Windows has no SIGHUP
            signal.signal(number, signal.SIG_IGN)
    link = FinderLink(int(socket_number))
    memory = np.frombuffer(mmap.mmap(int(memory_number), 0), dtype=np.uint8)
    try:
        settings, most = link.recv()
        hearing = Hearing(*settings)
        collect_only_what_is_new()
        link.send(None)
        try:
            with threadpool_limits(1):
                for part in parts_of(hearing, _pieces(link, memory, hearing, most)):
                    link.send(part)  # here: a thread would have to wait for its turn while the next one is computed
        except PisaError as error:
            link.send(error)
        link.send(None)
    except _GONE:
        return  # the listener has ended


if __name__ == "__main__":
    main(*sys.argv[1:])
