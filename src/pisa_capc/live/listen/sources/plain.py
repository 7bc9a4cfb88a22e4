"""Sources that need no driver: sockets, rtl_tcp, a pipe, and files, those of SigMF with what their metadata says."""

from __future__ import annotations

import ipaddress
import math
import os
import select
import socket
import stat
import struct
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO
from urllib.parse import parse_qsl

import numpy as np

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.data.store.files import cannot_be_read
from pisa_capc.live.listen.ring import Ring
from pisa_capc.live.listen.sources.base import (
    FIRST_WAIT_S,
    LONGEST_WAIT_S,
    POLL_S,
    Note,
    Source,
    SourceKind,
    StreamSettings,
    register_source,
)
from pisa_capc.signal.recordings import open_recording
from pisa_capc.signal.recordings.base import FileRecording
from pisa_capc.signal.recordings.encoding import ENDINGS, Encoding
from pisa_capc.signal.recordings.health import LOOK_BYTES, check_is_samples
from pisa_capc.signal.recordings.sigmf import COLLECTION, DATA, META

PIECE = 1 << 20  # bytes that are read at a time
GROWTH_S = 0.02  # before looking whether a file has grown
DATAGRAM = 1 << 16  # bytes; no datagram is longer
UDP_ROOM = 8 << 20  # bytes of datagrams that the system may hold; it may give less
SILENT_S = 1.0  # after which a sender of datagrams has gone
BLOCK = 1 << 18  # samples of a collection that are read at a time
RTL = b"RTL0"  # what a server of rtl_tcp begins with


def _address(kind: str, text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError(f"source '{kind}:{text}': expected {kind}:HOST:PORT.")
    return host.strip("[]"), int(port)


@register_source("tcp")
class TcpKind(SourceKind):
    shape = "tcp:HOST:PORT"

    def opened(self, rest: str, given: StreamSettings) -> tuple[Source, StreamSettings]:
        return TcpSource(*_address("tcp", rest), given.wait), given


@dataclass
class TcpSource:
    """Connects to a server that sends samples, and again when it is gone."""

    host: str
    port: int
    patient: bool = False
    connected: bool = False
    kind = "tcp"

    @property
    def name(self) -> str:
        return f"{self.kind}:{self.host}:{self.port}"

    def read_into(self, ring: Ring, stop: threading.Event, note: Note) -> None:
        wait_s, before = FIRST_WAIT_S, False
        while not stop.is_set():
            try:
                with socket.create_connection((self.host, self.port), timeout=5) as connection:
                    if before:
                        ring.interrupt()
                    self.connected, before, since_s = True, True, time.monotonic()
                    note(f"{self.name}: connected.")
                    self._receive(connection, ring, stop)
                    # A server that ends connections at once is left alone for longer each time.
                    wait_s = FIRST_WAIT_S if time.monotonic() - since_s > LONGEST_WAIT_S else wait_s
                    note(f"{self.name}: the connection has ended; connecting again.")
            except OSError as error:
                note(f"{self.name}: {error.strerror or error}; trying again in {wait_s:.1f} s.")
            self.connected = False
            stop.wait(wait_s)
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    def _receive(self, connection: socket.socket, ring: Ring, stop: threading.Event) -> None:
        self._begin(connection)
        connection.settimeout(POLL_S)
        room = memoryview(bytearray(PIECE))
        while not stop.is_set():
            with suppress(TimeoutError):
                received = connection.recv_into(room)
                if not received:
                    return
                if not ring.received:
                    self._check(bytes(room[: min(received, LOOK_BYTES)]))
                ring.write(room[:received])

    def _begin(self, connection: socket.socket) -> None:
        """The exchange before the first sample."""

    def _check(self, head: bytes) -> None:
        if head.startswith(RTL):
            raise DataError(f"{self.name}: is a server of rtl_tcp. Give rtl_tcp:{self.host}:{self.port}.")
        check_is_samples(head, self.name)


@register_source("rtl_tcp")
class RtlTcpKind(SourceKind):
    shape = "rtl_tcp:HOST:PORT"

    def opened(self, rest: str, given: StreamSettings) -> tuple[Source, StreamSettings]:
        stream = given.with_what_is_said(f"rtl_tcp:{rest}", StreamSettings(antennas=1, encoding=Encoding.named("cu8")))
        place, _, options = rest.partition("?")
        said = dict(parse_qsl(options, keep_blank_values=True))
        source = f"source 'rtl_tcp:{rest}'"
        if unknown := said.keys() - {"gain", "ppm"}:
            raise ConfigError(f"{source}: {min(unknown)!r} is no setting; expected gain (in dB) or ppm, as ?gain=30.")
        try:
            gain_db = None if "gain" not in said else float(said["gain"])
            ppm = int(said.get("ppm", 0))
        except ValueError as error:
            raise ConfigError(f"{source}: expected numbers, as ?gain=30&ppm=1.") from error
        if not (gain_db is None or abs(gain_db) < 1000) or abs(ppm) > 1000:
            raise ConfigError(f"{source}: expected a gain in dB and at most 1000 ppm.")
        if stream.encoding != Encoding.named("cu8"):
            raise ConfigError(f"{source}: sends samples as cu8. Leave --format out.")
        if stream.sample_rate_hz is None or stream.carrier_hz is None:
            raise ConfigError(f"{source}: is tuned from here. Give --sample-rate and --carrier.")
        tuning = {2: stream.sample_rate_hz, 1: stream.carrier_hz, 5: ppm, 3: gain_db is not None}
        if gain_db is not None:
            tuning[4] = 10 * gain_db  # tenths of a dB
        if max(stream.sample_rate_hz, stream.carrier_hz) >= 1 << 32:
            raise ConfigError(
                f"{source}: rtl_tcp has 32 bits for a frequency. Give less than {(1 << 32) / 1e9:.2f} GHz."
            )
        address = _address("rtl_tcp", place)
        return RtlTcpSource(*address, stream.wait, tuning={k: round(v) for k, v in tuning.items()}), stream


@dataclass
class RtlTcpSource(TcpSource):
    """A receiver behind `rtl_tcp`: 12 bytes about the tuner, then samples; commands are a byte and a number.

    tuning: numbers by command: 1 carrier, 2 sample rate, 3 manual gain, 4 gain in tenths of a dB, 5 correction in ppm.
    """

    tuning: dict[int, int] = field(default_factory=dict)
    kind = "rtl_tcp"

    def _begin(self, connection: socket.socket) -> None:
        head = b""
        while len(head) < 12:
            if not (more := connection.recv(12 - len(head))):
                raise ConnectionError("ended before it said what it is")
            head += more
        if not head.startswith(RTL):
            raise ConnectionError("is no server of rtl_tcp; try tcp:")
        for command, number in self.tuning.items():
            connection.sendall(struct.pack(">BI", command, number & 0xFFFFFFFF))

    def _check(self, head: bytes) -> None:
        """A receiver that is quiet may send anything."""


@register_source("udp")
class UdpKind(SourceKind):
    shape = "udp:HOST:PORT"

    def opened(self, rest: str, given: StreamSettings) -> tuple[Source, StreamSettings]:
        host, port = _address("udp", rest)
        antennas, encoding = given.layout
        return UdpSource(host, port, antennas * encoding.sample_bytes), given


@dataclass
class UdpSource:
    """Datagrams of whole samples that are sent to an address of this machine, or to a group. What is lost is not known.

    The first sender is received until it has been silent for `SILENT_S`; datagrams of others are dropped.
    """

    host: str
    port: int
    sample_bytes: int
    patient: bool = False
    connected: bool = False
    refused: int = 0  # datagrams of others, or with parts of samples

    @property
    def name(self) -> str:
        return f"udp:{self.host}:{self.port}"

    def read_into(self, ring: Ring, stop: threading.Event, note: Note) -> None:
        room = memoryview(bytearray(DATAGRAM))
        sender, heard_s = None, -math.inf
        with self._bound() as here:
            while not stop.is_set():
                try:
                    size, by = here.recvfrom_into(room)
                except TimeoutError:
                    size, by = 0, None
                # What others send must not keep a sender that has gone.
                if by != sender and time.monotonic() - heard_s > SILENT_S:
                    if self.connected:
                        self.connected = False
                        note(f"{self.name}: nothing comes any more; waiting.")
                        ring.interrupt()
                    sender = by
                if by is None or sender is None:
                    continue
                if by != sender or size % self.sample_bytes:
                    self._refuse(by, size, sender, note)
                    continue
                if not self.connected:
                    self.connected = True
                    note(f"{self.name}: datagrams from {by[0]}.")
                heard_s = time.monotonic()
                ring.write(room[:size])
        self.connected = False

    def _refuse(self, by: tuple[str, int], size: int, sender: tuple[str, int], note: Note) -> None:
        self.refused += 1
        if self.refused == 1:
            why = (
                f"are from {by[0]} and not from {sender[0]}"
                if by != sender
                else f"of {size:,} bytes hold parts of samples"
            )
            note(f"{self.name}: datagrams that {why} are left out; a sample has {self.sample_bytes} bytes.")

    def _bound(self) -> socket.socket:
        try:
            family, _, _, _, place = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_DGRAM)[0]
            here = socket.socket(family, socket.SOCK_DGRAM)
            here.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, UDP_ROOM)
            here.settimeout(POLL_S)
            here.bind(place)
            group = ipaddress.ip_address(place[0])
            if group.is_multicast and family == socket.AF_INET:
                here.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group.packed + bytes(4))
        except OSError as error:
            raise ConfigError(
                f"source {self.name}: {error.strerror or error}. Expected an address of this machine, as "
                f"udp:0.0.0.0:{self.port}."
            ) from error
        return here


@register_source("stdin")
class StandardInputKind(SourceKind):
    shape = "- for standard input"

    def opened(self, rest: str, given: StreamSettings) -> tuple[Source, StreamSettings]:
        return StandardInput(given.wait), given


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
            if not ring.received:
                check_is_samples(data[:LOOK_BYTES], self.name)
            ring.write(data)
        self.connected = False


@register_source("file")
class FileKind(SourceKind):
    """Plain samples, whose ending says their format, or a SigMF recording, whose metadata says everything."""

    shape = "file:PATH"

    def opened(self, rest: str, given: StreamSettings) -> tuple[Source, StreamSettings]:
        if not rest:
            raise ConfigError("source 'file:': expected file:PATH.")
        path = Path(rest)
        if path.suffix in (META, DATA, COLLECTION):
            return self._sigmf(path, given)
        ending = path.suffix[1:].lower()
        said = StreamSettings(encoding=Encoding.named(ending) if ending in ENDINGS else None)
        return FileSource(path, given.follow), given.with_what_is_said(rest, said)

    def _sigmf(self, path: Path, given: StreamSettings) -> tuple[Source, StreamSettings]:
        """Its hash is not looked at: that would be to read all of it first, and a file that grows has none."""
        format = None if given.encoding is None else given.encoding.name
        recording = open_recording(
            path, format=format, sample_rate_hz=given.sample_rate_hz, carrier_hz=given.carrier_hz, check=False
        )
        about, files = recording.about, recording.files
        encoding = files[0].encoding if len(files) == 1 else Encoding.named("cf32")
        said = StreamSettings(about.sample_rate_hz, about.carrier_hz, about.antennas, encoding)
        stream = replace(given, encoding=None).with_what_is_said(str(path), said)
        if len(files) > 1:
            return CollectionSource(recording), stream
        [file] = files
        end = None if given.follow else file.skip + file.length * file.channels * file.encoding.sample_bytes
        return FileSource(file.path, given.follow, skip=file.skip, end=end), stream


@dataclass
class CollectionSource:
    """A SigMF recording with a file for each antenna, read at our own pace."""

    recording: FileRecording
    patient: bool = True
    connected: bool = False

    @property
    def name(self) -> str:
        return f"file:{self.recording.about.name}{COLLECTION}"

    def read_into(self, ring: Ring, stop: threading.Event, note: Note) -> None:
        self.connected = True
        for block in self.recording.blocks(BLOCK):
            if stop.is_set():
                break
            ring.write(np.ascontiguousarray(block.T).view(np.uint8).reshape(-1))
        self.connected = False


@dataclass
class FileSource:
    """A file that another program writes; read at our own pace, from the byte `begin` on.

    follow: wait at its end for more. origin: the number of its first sample in the stream. skip, end: bytes of the file
    before its first sample and up to its last.
    """

    path: Path
    follow: bool = False
    begin: int = 0
    origin: int = 0
    patient: bool = True
    connected: bool = False
    skip: int = 0
    end: int | None = None

    @property
    def name(self) -> str:
        return f"file:{self.path}"

    def read_into(self, ring: Ring, stop: threading.Event, note: Note) -> None:
        file = self._open(stop)
        try:
            while file is not None and not stop.is_set():
                self.connected = True
                if data := file.read(PIECE if self.end is None else max(0, min(PIECE, self.end - file.tell()))):
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
            check_is_samples(file.read(LOOK_BYTES) if not self.skip else b"", str(self.path))
            file.seek(self.skip + self.begin)
        except OSError as error:
            raise cannot_be_read(self.path, error) from error
        return file

    def _replaced(self, file: BinaryIO) -> bool:
        try:
            there, here = self.path.stat(), os.fstat(file.fileno())
        except OSError:
            return False  # between the old and the new one
        return (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino) or there.st_size < file.tell()
