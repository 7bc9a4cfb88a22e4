"""Where samples come from as they are received: a socket, a pipe, a file that grows.

A source writes bytes into a `Ring`, in a thread of its own, and never waits for whoever reads them, unless the source
is one that loses nothing by it. What it has to say goes to `note`.
"""

from __future__ import annotations

import os
import select
import socket
import stat
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.data.store.files import cannot_be_read
from pisa_capc.live.listen.ring import Ring
from pisa_capc.signal.recordings.encoding import ENDINGS, Encoding

PIECE = 1 << 20  # bytes that are read at a time
POLL_S = 0.1  # how soon a stop is noticed
FIRST_WAIT_S, LONGEST_WAIT_S = 0.1, 10.0  # before connecting again
GROWTH_S = 0.02  # before looking whether a file has grown

Note = Callable[[str], None]
KINDS = "zmq:tcp://HOST:PORT, tcp:HOST:PORT, file:PATH or - for standard input"


class Source(Protocol):
    """patient: whether it loses nothing by waiting. connected: whether it is."""

    patient: bool
    connected: bool

    @property
    def name(self) -> str: ...

    def read_into(self, ring: Ring, stop: threading.Event, note: Note) -> None:
        """Write what is received into the ring, until the source ends or `stop` is set."""
        ...


def open_source(text: str, *, antennas: int, encoding: Encoding, follow: bool = False, wait: bool = False) -> Source:
    """The source that a text names; wait: let it wait in the place of missing samples."""
    kind, _, rest = text.partition(":")
    if text == "-":
        return StandardInput(wait)
    if kind == "zmq":
        from pisa_capc.live.listen.zeromq import ZmqSource

        return ZmqSource.named(rest, antennas=antennas, encoding=encoding, wait=wait)
    if kind == "tcp":
        host, _, port = rest.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ConfigError(f"source {text!r}: expected tcp:HOST:PORT.")
        return TcpSource(host.strip("[]"), int(port), wait)
    if kind == "file" and rest:
        return FileSource(Path(rest), follow)
    raise ConfigError(f"source {text!r}: expected {KINDS}.")


def encoding_of(text: str, format: str | None) -> Encoding:
    """As it is named, or as the ending of a file says, or what GNU Radio sends."""
    ending = text.rpartition(".")[2].lower()
    named = format or (ending if text.startswith("file:") and ending in ENDINGS else "cf32")
    return Encoding.named(named)


@dataclass
class TcpSource:
    """Connects to a server that sends samples, and again when it is gone."""

    host: str
    port: int
    patient: bool = False
    connected: bool = False

    @property
    def name(self) -> str:
        return f"tcp:{self.host}:{self.port}"

    def read_into(self, ring: Ring, stop: threading.Event, note: Note) -> None:
        wait_s, before = FIRST_WAIT_S, False
        while not stop.is_set():
            try:
                with socket.create_connection((self.host, self.port), timeout=5) as connection:
                    if before:
                        ring.interrupt()
                    self.connected, before, wait_s = True, True, FIRST_WAIT_S
                    note(f"{self.name}: connected.")
                    self._receive(connection, ring, stop)
                    note(f"{self.name}: the connection has ended; connecting again.")
            except OSError as error:
                note(f"{self.name}: {error.strerror or error}; trying again in {wait_s:.1f} s.")
            self.connected = False
            stop.wait(wait_s)
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    def _receive(self, connection: socket.socket, ring: Ring, stop: threading.Event) -> None:
        connection.settimeout(POLL_S)
        room = memoryview(bytearray(PIECE))
        while not stop.is_set():
            with suppress(TimeoutError):
                received = connection.recv_into(room)
                if not received:
                    return
                ring.write(room[:received])


@dataclass
class StandardInput:
    """A pipe is read as a radio is; a file that is given as standard input has time."""

    patient: bool = False
    connected: bool = False
    name: str = "standard input"

    def __post_init__(self) -> None:
        self._file: BinaryIO = sys.stdin.buffer
        with suppress(OSError, ValueError):
            self.patient = self.patient or stat.S_ISREG(os.fstat(self._file.fileno()).st_mode)

    def read_into(self, ring: Ring, stop: threading.Event, note: Note) -> None:
        self.connected = True
        number = self._file.fileno()
        while not stop.is_set():
            ready, _, _ = select.select([number], [], [], POLL_S)
            if not ready:
                continue
            data = os.read(number, PIECE)
            if not data:
                break
            ring.write(data)
        self.connected = False


@dataclass
class FileSource:
    """A file that another program writes; read at our own pace, from the byte `begin` on.

    follow: wait at its end for more. origin: the number of its first sample in the stream.
    """

    path: Path
    follow: bool = False
    begin: int = 0
    origin: int = 0
    patient: bool = True
    connected: bool = False

    @property
    def name(self) -> str:
        return f"file:{self.path}"

    def read_into(self, ring: Ring, stop: threading.Event, note: Note) -> None:
        file = self._open(stop)
        try:
            while file is not None and not stop.is_set():
                self.connected = True
                if data := file.read(PIECE):
                    ring.write(data)
                elif not self.follow:
                    return
                elif self._replaced(file):
                    note(f"{self.name}: was replaced or cut; reading the new one from its beginning.")
                    file.close()
                    self.begin = 0
                    ring.interrupt()
                    self.origin = ring.received
                    file = self._open(stop)
                else:
                    stop.wait(GROWTH_S)
        except OSError as error:
            raise cannot_be_read(self.path, error) from error
        finally:
            self.connected = False
            if file is not None:
                file.close()

    def _open(self, stop: threading.Event) -> BinaryIO | None:
        """The file, once it is there, or None where listening ended before."""
        while not self.path.exists() and self.follow:
            if stop.wait(POLL_S):
                return None
        if not self.path.is_file():
            raise DataError(f"{self.path}: no such file; expected samples. With --follow it is waited for.")
        try:
            file = self.path.open("rb")
            file.seek(self.begin)
        except OSError as error:
            raise cannot_be_read(self.path, error) from error
        return file

    def _replaced(self, file: BinaryIO) -> bool:
        try:
            there, here = self.path.stat(), os.fstat(file.fileno())
        except OSError:
            return False  # between the old and the new one
        return (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino) or there.st_size < file.tell()
