"""Senders of samples, as GNU Radio and others send them."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from pisa_capc.live.listen.ring import Ring
from pisa_capc.live.listen.sources import Source


def wait_until(true: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


def header(offset: int, *tags: bytes) -> bytes:
    """What a sink that passes tags puts before its items. tags: each its offset, key, value and source, serialised."""
    return struct.pack("<HBQQ", 0x5FF0, 1, offset, len(tags)) + b"".join(tags)


def symbol(text: str) -> bytes:
    return b"\x02" + struct.pack(">H", len(text)) + text.encode()


class Publisher:
    """A ZMQ PUB sink at a port of its own."""

    def __init__(self, address: str | None = None) -> None:
        import zmq

        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.XPUB)  # a PUB that knows when somebody listens
        self._socket.setsockopt(zmq.SNDHWM, 0)
        if address is None:
            port = self._socket.bind_to_random_port("tcp://127.0.0.1")
            address = f"tcp://127.0.0.1:{port}"
        else:
            self._socket.bind(address)
        self.address = address

    def wait(self) -> None:
        """Until somebody listens."""
        assert self._socket.poll(20_000)
        self._socket.recv()

    def send(self, *parts: bytes) -> None:
        self._socket.send_multipart(parts)

    def close(self) -> None:
        self._context.destroy(linger=1000)


@contextmanager
def publisher(address: str | None = None) -> Iterator[Publisher]:
    own = Publisher(address)
    try:
        yield own
    finally:
        own.close()


class Reading:
    """A source being read into a ring, and what it said."""

    def __init__(self, source: Source, sample_bytes: int, samples: int = 1 << 16) -> None:
        self.source, self.notes = source, list[str]()
        self.ring = Ring(samples, sample_bytes, wait=source.patient)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read)

    def _read(self) -> None:
        try:
            self.source.read_into(self.ring, self._stop, self.notes.append)
        finally:
            self.ring.end()

    def __enter__(self) -> Reading:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self.ring.end()
        self._thread.join(10)
        assert not self._thread.is_alive()

    def wait_for(self, samples: int) -> None:
        """Until so many were received, those that were missed counted."""
        wait_until(lambda: self.ring.received >= samples)

    def taken(self) -> list[tuple[int, NDArray[np.uint8]]]:
        """What waits, in pieces with the numbers of their first samples."""
        found = []
        while (piece := self.ring.take(1, 1 << 20, 0.0)) is not None:
            if len(piece.data):
                found.append((piece.first, piece.data.copy()))
            self.ring.free(len(piece.data))
        return found
