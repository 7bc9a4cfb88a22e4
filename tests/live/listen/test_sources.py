"""Sources: what is sent arrives, and what is lost on the way is known."""

from __future__ import annotations

import os
import socket
import struct
import threading
from pathlib import Path

import numpy as np
import pytest

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.live.listen.sources import FileSource, StandardInput, encoding_of, open_source
from pisa_capc.live.listen.tags import parse_header
from pisa_capc.signal.recordings.encoding import Encoding
from tests.live.listen.tools import Publisher, Reading, header, publisher, symbol, wait_until

CS16 = Encoding.named("cs16")


def zmq_reading(*addresses: str, antennas: int = 1, samples: int = 1 << 16) -> Reading:
    source = open_source(f"zmq:{','.join(addresses)}", antennas=antennas, encoding=CS16)
    return Reading(source, antennas * CS16.sample_bytes, samples)


def content(number: int, count: int, antennas: int = 1) -> bytes:
    """Samples that hold their own numbers: sample · 16 + antenna."""
    numbers = 16 * np.arange(number, number + count)[:, None] + np.arange(antennas)
    return numbers.astype("<u4").tobytes()


def check(reading: Reading, antennas: int = 1) -> list[int]:
    """The numbers of the samples that are there, each with the content that it should have."""
    numbers: list[int] = []
    for first, data in reading.taken():
        got = data.view("<u4").reshape(-1, antennas)
        own = np.arange(first, first + len(got))
        np.testing.assert_array_equal(got, 16 * own[:, None] + np.arange(antennas))
        numbers += own.tolist()
    return numbers


def test_raw_items_arrive_in_messages_of_any_size() -> None:
    data = content(0, 1000, 4)
    with publisher() as sink, zmq_reading(sink.address, antennas=4) as reading:
        sink.wait()
        for start in range(0, len(data), 1001):
            sink.send(data[start : start + 1001])
        reading.wait_for(1000)
        assert check(reading, 4) == list(range(1000))
        assert any("antennas would change places" in note for note in reading.notes)
        wait_until(lambda: reading.source.connected)


def test_a_key_before_the_samples_is_left_out() -> None:
    with publisher() as sink, zmq_reading(sink.address) as reading:
        sink.wait()
        sink.send(b"rx0", content(0, 10))
        reading.wait_for(10)
        assert check(reading) == list(range(10))


@pytest.mark.parametrize(("antennas", "items"), [(1, 1), (4, 4), (4, 1)])  # samples, interleaved samples, vectors
def test_offsets_tell_what_was_lost(antennas: int, items: int) -> None:
    tag = struct.pack("<Q", 5) + symbol("rx_time") + b"\x0c" + struct.pack(">I", 2) + b"\x0b" + bytes(8) + b"\x04"
    tag += bytes(8) + b"\x06"
    with publisher() as sink, zmq_reading(sink.address, antennas=antennas) as reading:
        sink.wait()
        for first in (0, 100, 200, 400, 500):  # 300 … 399 are lost
            sink.send(header(first * items, tag) + content(first, 100, antennas))
        reading.wait_for(600)
        assert check(reading, antennas) == [*range(300), *range(400, 600)]
        assert (reading.ring.missed, reading.ring.breaks) == (100, 0)


def test_a_sink_that_begins_anew_is_an_interruption() -> None:
    with publisher() as sink, zmq_reading(sink.address) as reading:
        sink.wait()
        for first in (0, 100, 0):
            sink.send(header(first) + content(first, 100))
        reading.wait_for(300)
        pieces = reading.taken()
        assert [first for first, _ in pieces] == [0, 200]
        assert reading.ring.breaks == 1


def test_messages_lost_within_samples_do_not_exchange_antennas() -> None:
    data = content(0, 200, 4)
    with publisher() as sink, zmq_reading(sink.address, antennas=4) as reading:
        sink.wait()
        for first, last in ((0, 400), (400, 500), (513, 702), (702, 800)):  # items: one sample of one antenna
            sink.send(header(first) + data[4 * first : 4 * last])
        reading.wait_for(200)
        assert check(reading, 4) == [*range(125), *range(129, 200)]


def test_ports_with_offsets_are_put_side_by_side() -> None:
    whole = np.frombuffer(content(0, 400, 2), dtype="<u4").reshape(-1, 2)
    with publisher() as one, publisher() as two, zmq_reading(one.address, two.address, antennas=2) as reading:
        for sink in (one, two):
            sink.wait()
        wait_until(lambda: reading.source.connected)
        one.send(header(0) + whole[:150, 0].tobytes())
        two.send(header(0) + whole[:90, 1].tobytes())
        two.send(header(90) + whole[90:200, 1].tobytes())
        one.send(header(250) + whole[250:400, 0].tobytes())  # 150 … 249 are lost
        two.send(header(200) + whole[200:400, 1].tobytes())
        reading.wait_for(400)
        assert check(reading, 2) == [*range(150), *range(250, 400)]
        assert reading.ring.missed == 100


def test_ports_without_offsets_are_put_side_by_side_with_words() -> None:
    whole = np.frombuffer(content(0, 100, 2), dtype="<u4").reshape(-1, 2)
    with publisher() as one, publisher() as two, zmq_reading(one.address, two.address, antennas=2) as reading:
        for sink in (one, two):
            sink.wait()
            sink.send(bytes(400))
        wait_until(lambda: any("as they arrive" in note for note in reading.notes))
        one.send(whole[:, 0].tobytes())
        two.send(whole[:, 1].tobytes())
        reading.wait_for(100)
        assert check(reading, 2) == list(range(100))


def test_a_publisher_that_comes_back_is_heard_again() -> None:
    with publisher() as sink:
        address = sink.address
        with zmq_reading(address) as reading:
            sink.wait()
            sink.send(content(0, 10))
            reading.wait_for(10)
            sink.close()
            wait_until(lambda: not reading.source.connected)
            again = Publisher(address)
            try:
                again.wait()
                again.send(content(10, 10))
                reading.wait_for(20)
                assert check(reading) == list(range(20))
                assert reading.ring.breaks == 1
            finally:
                again.close()


def test_messages_that_are_no_samples_are_left_out() -> None:
    with publisher() as sink, zmq_reading(sink.address) as reading:
        sink.wait()
        sink.send(header(0) + content(0, 10))
        for bad in (b"", b"x", bytes(1000), struct.pack("<HBQQ", 0x5FF0, 1, 10, 2**60), header(10, b"\x02\xff\xff")):
            sink.send(bad)
        sink.send(header(10) + content(10, 10))
        reading.wait_for(20)
        assert check(reading) == list(range(20))
        assert reading.source.refused == 5  # type: ignore[attr-defined]
        assert len(reading.notes) < 5


def test_a_flood_fills_the_ring_and_no_more() -> None:
    with publisher() as sink, zmq_reading(sink.address, samples=1000) as reading:
        sink.wait()
        for first in range(0, 100_000, 10_000):
            sink.send(header(first) + content(first, 10_000))
        reading.wait_for(100_000)
        assert check(reading) == list(range(1000))
        assert reading.ring.missed == 99_000


@pytest.mark.parametrize("depth", [10, 100_000])
def test_headers_are_parsed_without_recursion(depth: int) -> None:
    nested = struct.pack("<Q", 0) + b"\x07" * depth + b"\x06" * (depth + 1) + b"\x06\x06"
    message = memoryview(header(7, nested) + b"data")
    if depth < 1000:
        offset, at = parse_header(message)
        assert (offset, bytes(message[at:])) == (7, b"data")
    else:
        with pytest.raises(DataError, match="parts"):
            parse_header(message)


def test_tcp_is_connected_to_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        source = open_source(f"tcp:127.0.0.1:{port}", antennas=1, encoding=CS16)
        with Reading(source, 4) as reading:
            for first in (0, 10):
                connection, _ = server.accept()
                with connection:
                    connection.sendall(content(first, 10) + b"xy")
                reading.wait_for(first + 10)
            wait_until(lambda: reading.ring.breaks == 1)
            assert check(reading) == list(range(20))


def test_a_file_is_followed_as_it_grows_and_when_it_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "roof.cs16"
    source = open_source(f"file:{path}", antennas=1, encoding=CS16, follow=True)
    with Reading(source, 4) as reading:
        path.write_bytes(content(0, 10) + b"x")
        reading.wait_for(10)
        with path.open("ab") as file:
            file.write(content(10, 10)[1:])
        reading.wait_for(20)
        path.unlink()
        path.write_bytes(content(20, 5))
        reading.wait_for(25)
        assert reading.ring.breaks == 1


def test_a_file_that_is_not_followed_ends(tmp_path: Path) -> None:
    path = tmp_path / "roof.cs16"
    path.write_bytes(content(0, 5000))
    with Reading(FileSource(path), 4, samples=6000) as reading:
        wait_until(lambda: reading.ring.ended)
        assert check(reading) == list(range(5000))


def test_standard_input_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    with os.fdopen(read, "r") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        source = StandardInput()
        assert not source.patient
        with Reading(source, 4) as reading:
            writer = threading.Thread(target=lambda: (os.write(write, content(0, 2000)), os.close(write)))
            writer.start()
            wait_until(lambda: reading.ring.ended)
            writer.join()
            assert check(reading) == list(range(2000))


@pytest.mark.parametrize("text", ["", "zmq:", "zmq:roof", "tcp:roof", "tcp:roof:0", "tcp::80", "file:", "udp:roof:80"])
def test_a_source_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected"):
        open_source(text, antennas=4, encoding=CS16)


def test_ports_must_share_the_antennas() -> None:
    with pytest.raises(ConfigError, match="3 ports for 4 antennas"):
        open_source("zmq:tcp://a:1,tcp://a:2,tcp://a:3", antennas=4, encoding=CS16)


def test_the_format_is_what_is_said_or_what_the_ending_says() -> None:
    assert encoding_of("file:roof.cs16", None) == CS16
    assert encoding_of("zmq:tcp://roof.cs16", None) == Encoding.named("cf32")
    assert encoding_of("file:roof.cs16", "cs8") == Encoding.named("cs8")
