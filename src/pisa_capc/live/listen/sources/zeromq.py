"""Samples that GNU Radio's ZMQ PUB sinks send: one port with all antennas, or a port for some of them each.

Sinks that pass tags number their items, so messages that are lost on the way are known. Without tags they are not: PUB
drops what a slow receiver leaves, silently. This receiver is never slow to take them. Sinks that pass tags put a header
before the samples of a message:

    magic 0x5FF0 (u16) · version 1 (u8) · offset of the first item (u64) · number of tags (u64)     little-endian
    and for each tag: offset (u64) · key · value · source, serialised PMTs                          PMTs big-endian

The offset is what makes lost messages known. Tags themselves are only skipped.
"""

from __future__ import annotations

import struct
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import ConfigError, DataError, MissingExtraError
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
from pisa_capc.signal.recordings.encoding import Encoding

LARGEST = 1 << 26  # bytes of a message; libzmq ends a connection that sends more
QUEUE = 1000  # messages that libzmq may hold
APART = 1 << 26  # bytes of one port that wait for the others
MESSAGES_APART = 1 << 16  # messages that do: a short one takes far more memory than its samples
TRANSPORTS = ("tcp://", "ipc://", "inproc://")

MAGIC, VERSION = 0x5FF0, 1
FIXED = struct.Struct("<HBQQ")
MOST_TAGS = 4096
MOST_PARTS = 1 << 16  # of all PMTs in a header

# By the first byte of a PMT: how many bytes follow, where that is always the same.
_PLAIN = {0x00: 0, 0x01: 0, 0x03: 4, 0x04: 8, 0x05: 16, 0x06: 0, 0x0B: 8, 0x0D: 8}
_SYMBOL, _PAIR, _VECTOR, _DICT, _UNIFORM, _TUPLE = 0x02, 0x07, 0x08, 0x09, 0x0A, 0x0C
_ELEMENT = (1, 1, 2, 2, 4, 4, 8, 8, 4, 8, 8, 16)  # bytes, by the kind of a uniform vector


def has_header(message: memoryview) -> bool:
    """Whether a message begins as those with a header do."""
    return len(message) >= FIXED.size and FIXED.unpack_from(message)[:2] == (MAGIC, VERSION)


def parse_header(message: memoryview) -> tuple[int, int]:
    """(the offset of the first item, where the items begin); DataError where there is no such header."""
    if not has_header(message):
        raise DataError("a message without the header of a sink that passes tags.")
    _, _, offset, tags = FIXED.unpack_from(message)
    if tags > MOST_TAGS:
        raise DataError(f"a header with {tags:,} tags; expected at most {MOST_TAGS:,}.")
    at, parts = FIXED.size, MOST_PARTS
    try:
        for _ in range(tags):
            at, parts = _after(message, at + 8, 3, parts)
    except (struct.error, IndexError) as error:
        raise DataError("a header that ends within its tags.") from error
    if at > len(message):
        raise DataError("a header that ends within its tags.")
    return offset, at


def _after(data: memoryview, at: int, wanted: int, most: int) -> tuple[int, int]:
    """Where `wanted` PMTs that begin at `at` end, and how many of the `most` parts that they may have are left.

    Lists may be long and deep, so nothing is recursive.
    """
    for left in range(most, -1, -1):
        if not wanted:
            return at, left
        kind, at, wanted = data[at], at + 1, wanted - 1
        if kind in _PLAIN:
            at += _PLAIN[kind]
        elif kind == _SYMBOL:
            at += 2 + struct.unpack_from(">H", data, at)[0]
        elif kind in (_PAIR, _DICT):
            wanted += 2
        elif kind in (_VECTOR, _TUPLE):
            wanted += struct.unpack_from(">I", data, at)[0]
            at += 4
        elif kind == _UNIFORM:
            element, count, padding = struct.unpack_from(">BIB", data, at)
            at += 6 + padding + count * _ELEMENT[element & 0x7F]
        else:
            raise DataError(f"a header with a tag of an unknown kind, {kind}.")
    raise DataError(f"a header whose tags have more than {MOST_PARTS:,} parts.")


def package() -> Any:
    try:
        import zmq
    except ImportError as error:
        raise MissingExtraError("pyzmq", "zmq", "Listening to ZMQ") from error
    return zmq


@register_source("zmq")
class ZmqKind(SourceKind):
    shape = "zmq:tcp://HOST:PORT"

    def opened(self, rest: str, given: StreamSettings) -> tuple[Source, StreamSettings]:
        antennas, encoding = given.layout
        return ZmqSource.named(rest, antennas=antennas, encoding=encoding, wait=given.wait), given


@dataclass
class Port:
    """What is known of one sink. sample_bytes: of its antennas at one instant. one_bytes: of one of them."""

    sample_bytes: int
    one_bytes: int
    tagged: bool | None = None
    item_bytes: int | None = None  # an item is one sample, or one of all antennas: the offsets tell
    last: tuple[int, int] | None = None  # offset and bytes of the message before

    def opened(self, message: memoryview) -> tuple[int | None, memoryview]:
        """The place of the message's first byte in the sink's stream, where it says it, and its samples."""
        if self.tagged is None:
            self.tagged = has_header(message)
        if not self.tagged:
            return None, message
        offset, at = parse_header(message)
        samples = message[at:]
        if self.item_bytes is None and self.last is not None:
            self._learn(offset)
        self.last = offset, len(samples)
        return (None if self.item_bytes is None else offset * self.item_bytes), samples

    def _learn(self, offset: int) -> None:
        before, count = self.last or (0, 0)
        for size in (self.one_bytes, self.sample_bytes):
            if (offset - before) * size == count:
                self.item_bytes = size

    def __post_init__(self) -> None:
        if self.one_bytes == self.sample_bytes:
            self.item_bytes = self.one_bytes


@dataclass
class ZmqSource:
    """Subscribes to one address, or to several whose antennas are one array."""

    addresses: tuple[str, ...]
    ports: tuple[Port, ...]
    patient: bool = False
    connected: bool = False
    refused: int = 0  # messages that are not what they should be
    _alive: set[int] = field(default_factory=set)

    @classmethod
    def named(cls, text: str, *, antennas: int, encoding: Encoding, wait: bool = False) -> ZmqSource:
        """By addresses with commas between them."""
        package()
        addresses = tuple(text.split(","))
        for address in addresses:
            if not address.startswith(TRANSPORTS):
                raise ConfigError(f"source zmq:{address}: expected zmq:tcp://HOST:PORT, or several with commas.")
        if antennas % len(addresses):
            raise ConfigError(
                f"{len(addresses)} ports for {antennas} antennas; expected one for all, or equally many antennas each."
            )
        size = encoding.sample_bytes
        ports = tuple(Port(antennas // len(addresses) * size, size) for _ in addresses)
        return cls(addresses, ports, wait)

    @property
    def name(self) -> str:
        return f"zmq:{','.join(self.addresses)}"

    def read_into(self, ring: Ring, stop: threading.Event, note: Note) -> None:
        zmq = package()
        taker = _Single(ring, note) if len(self.ports) == 1 else _Several(ring, self.ports, note)
        context, poller = zmq.Context(), zmq.Poller()
        wanted = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
        sockets: list[Any] = []
        try:
            sockets += [self._subscribed(context, address) for address in self.addresses]
            monitors = [one.get_monitor_socket(wanted) for one in sockets]
            for one in (*sockets, *monitors):
                poller.register(one, zmq.POLLIN)
            while not stop.is_set():
                for ready, _ in poller.poll(1000 * POLL_S):
                    if ready in sockets:
                        self._take(sockets.index(ready), ready, taker, note)
                    else:
                        self._heed(monitors.index(ready), ready, taker, note)
        finally:
            self.connected = False
            for one in sockets:
                one.disable_monitor()
            context.destroy(linger=0)

    def _subscribed(self, context: Any, address: str) -> Any:
        zmq = package()
        one = context.socket(zmq.SUB)
        one.setsockopt(zmq.MAXMSGSIZE, LARGEST)
        one.setsockopt(zmq.RCVHWM, QUEUE)
        one.setsockopt(zmq.RECONNECT_IVL, int(1000 * FIRST_WAIT_S))
        one.setsockopt(zmq.RECONNECT_IVL_MAX, int(1000 * LONGEST_WAIT_S))
        one.setsockopt(zmq.SUBSCRIBE, b"")
        try:
            one.connect(address)
        except zmq.ZMQError as error:
            raise ConfigError(f"source zmq:{address}: {error}. Expected zmq:tcp://HOST:PORT.") from error
        return one

    def _take(self, port: int, one: Any, taker: _Single | _Several, note: Note) -> None:
        """All messages that wait. A sink with a key sends it as a part before the samples."""
        zmq = package()
        while True:
            try:
                message = one.recv_multipart(zmq.NOBLOCK, copy=False)[-1]
            except zmq.Again:
                return
            try:
                offset, samples = self.ports[port].opened(message.buffer)
            except DataError as error:
                self.refused += 1
                if self.refused == 1:
                    note(f"{self.name}: {error} It is left out, as are others like it.")
                continue
            taker.take(port, offset, samples)

    def _heed(self, port: int, monitor: Any, taker: _Single | _Several, note: Note) -> None:
        from zmq.utils.monitor import recv_monitor_message

        if recv_monitor_message(monitor)["event"] == package().EVENT_DISCONNECTED:
            self._alive.discard(port)
            self.ports[port].last = None
            taker.interrupt(port)
            note(f"{self.addresses[port]}: the connection has ended; waiting for it to come back.")
        else:
            self._alive.add(port)
            note(f"{self.addresses[port]}: connected.")
        self.connected = len(self._alive) == len(self.ports)


class _Single:
    """One port: bytes go into the ring as they are."""

    def __init__(self, ring: Ring, note: Note) -> None:
        self._ring, self._note = ring, note
        self._next: int | None = None  # place in the sink's stream of the byte that should come
        self._said = False

    def take(self, port: int, offset: int | None, samples: memoryview) -> None:
        size = self._ring.sample_bytes
        if offset is None:
            if len(samples) % size and not self._said:
                self._said = True
                self._note(
                    f"messages of {len(samples):,} bytes are no whole samples of {size}, and have no tags: were one "
                    "lost, antennas would change places. Send vectors, or pass tags."
                )
        elif self._next is None or offset < self._next or not self._ring.plausible(offset - self._next):
            if self._next is not None:
                self._ring.interrupt()
            if offset % size:  # within a sample of all antennas
                self._ring.write(bytes(offset % size))
                self._ring.skip(0)
        elif offset > self._next:
            self._ring.skip(offset - self._next)
        self._ring.write(samples)
        self._next = None if offset is None else offset + len(samples)

    def interrupt(self, port: int) -> None:
        self._next = None
        self._ring.interrupt()


class _Lane:
    """One of several ports: its samples by their numbers, as far as they wait for the others."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.begin()

    def begin(self) -> None:
        self.end = 0  # place in the sink's stream of the byte that should come
        self.held = 0
        self._tail = np.empty(0, dtype=np.uint8)  # of a sample whose rest is in the next message
        self.segments: deque[tuple[int, NDArray[np.uint8]]] = deque()  # number of the first sample, (n, size) bytes

    def add(self, offset: int, data: NDArray[np.uint8]) -> None:
        if offset != self.end:  # what lies between is lost, and the samples that it cuts with it
            cut = -offset % self._size
            data, offset, self._tail = data[cut:], offset + min(cut, len(data)), self._tail[:0]
        self.end = offset + len(data)
        joined = np.concatenate([self._tail, data]) if len(self._tail) else data
        whole = len(joined) // self._size * self._size
        first = (self.end - len(joined)) // self._size
        self._tail = joined[whole:].copy()
        if whole:
            self.segments.append((first, joined[:whole].reshape(-1, self._size)))
            self.held += whole

    def drop(self, until: int) -> None:
        """Forget the samples before number `until`."""
        while self.segments and self.segments[0][0] < until:
            first, data = self.segments.popleft()
            kept = data[until - first :]
            self.held -= data.nbytes - kept.nbytes
            if len(kept):
                self.segments.appendleft((until, kept))


class _Several:
    """Ports side by side: by the offsets that their sinks say, or as they arrive."""

    def __init__(self, ring: Ring, ports: tuple[Port, ...], note: Note) -> None:
        self._ring, self._note = ring, note
        self._sizes = [port.sample_bytes for port in ports]
        self._lanes = [_Lane(size) for size in self._sizes]
        self._said = False
        self._heard: set[int] = set()  # ports without offsets that have sent something
        self._next: int | None = None  # number of the sample that should come

    def interrupt(self, port: int) -> None:
        for lane in self._lanes:
            lane.begin()
        self._heard.clear()
        self._next = None
        self._ring.interrupt()

    def take(self, port: int, offset: int | None, samples: memoryview) -> None:
        lane = self._lanes[port]
        if offset is None:
            if len(self._heard) < len(self._lanes):
                self._align(port)
                return
            offset = lane.end
        elif offset < lane.end or (lane.end and not self._plausible((offset - lane.end) // self._sizes[port])):
            self.interrupt(port)
        lane.add(offset, np.frombuffer(samples, dtype=np.uint8))
        self._forward()
        if lane.held > APART or len(lane.segments) > MESSAGES_APART:
            self._note("one port is far ahead of the others; restarting. Do all of them send?")
            self.interrupt(port)

    def _align(self, port: int) -> None:
        """Without offsets samples are put side by side from the moment on when every port has sent something."""
        self._heard.add(port)
        if len(self._heard) == len(self._lanes):
            self._note(
                "the ports say no offsets: their samples are put side by side as they arrive, and may be off by "
                "some. Pass tags, or send vectors through one port."
            )

    def _forward(self) -> None:
        """Put side by side what all ports have."""
        while all(lane.segments for lane in self._lanes):
            heads = [lane.segments[0] for lane in self._lanes]
            first = max(own for own, _ in heads)
            last = min(own + len(data) for own, data in heads)
            if first > last and not self._plausible(first - last):
                return self._disagree(first - last)
            if last > first:
                if self._next is not None and first > self._next:
                    self._ring.skip((first - self._next) * self._ring.sample_bytes)
                self._ring.write(np.concatenate([data[first - own : last - own] for own, data in heads], axis=1))
                self._next = last
            for lane in self._lanes:
                lane.drop(max(first, last))

    def _plausible(self, samples: int) -> bool:
        return self._ring.plausible(samples * self._ring.sample_bytes)

    def _disagree(self, samples: int) -> None:
        """Counters that are further apart than what can have been lost: nothing can be put side by side by them."""
        if not self._said:
            self._said = True
            self._note(f"the counters of the ports are {samples:,} samples apart; restart all their sinks together.")
        for lane in self._lanes:
            lane.begin()
