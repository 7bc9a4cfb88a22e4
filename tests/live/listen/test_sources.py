"""Sources: what is sent arrives, and what is lost on the way is known."""

from __future__ import annotations

import os
import socket
import struct
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pisa_capc.cli.listen import SourceName
from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.live.listen import sources
from pisa_capc.live.listen.ring import Ring
from pisa_capc.live.listen.sources import (
    SOURCES,
    FileSource,
    StandardInput,
    StreamSettings,
    encoding_of,
    open_source,
    open_stream,
    plain,
    register_source,
    zeromq,
)
from pisa_capc.live.listen.sources.zeromq import parse_header
from pisa_capc.signal.recordings import open_recording
from pisa_capc.signal.recordings.encoding import Encoding
from pisa_capc.signal.recordings.health import check_is_samples
from tests.live.listen.tools import Publisher, Reading, header, publisher, symbol, wait_until
from tests.signal.recordings.tools import collection, encoded, noise, write_sigmf

CS16, CF32 = Encoding.named("cs16"), Encoding.named("cf32")


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


def test_the_parts_of_a_header_are_bounded_over_all_its_tags() -> None:
    tag = struct.pack("<Q", 0) + b"\x0c" + struct.pack(">I", 30_000) + b"\x06" * 30_002
    assert parse_header(memoryview(header(7, tag, tag))) == (7, 19 + 2 * len(tag))
    with pytest.raises(DataError, match="parts"):
        parse_header(memoryview(header(7, tag, tag, tag)))


def test_a_port_far_ahead_in_tiny_messages_is_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zeromq, "MESSAGES_APART", 20)
    with publisher() as one, publisher() as other, zmq_reading(one.address, other.address, antennas=2) as reading:
        one.wait(), other.wait()
        for number in range(30):
            one.send(header(number) + content(number, 1))
        wait_until(lambda: any("far ahead" in note for note in reading.notes))


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


@pytest.mark.parametrize(
    "text",
    ["", "zmq:", "zmq:roof", "tcp:roof", "tcp:roof:0", "tcp::80", "file:", "udp:roof", "soapy", "pigeon:roof:80"],
)
def test_a_source_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected"):
        open_source(text, antennas=4, encoding=CS16)


def test_ports_must_share_the_antennas() -> None:
    with pytest.raises(ConfigError, match="3 ports for 4 antennas"):
        open_source("zmq:tcp://a:1,tcp://a:2,tcp://a:3", antennas=4, encoding=CS16)


def test_the_format_is_what_is_said_or_what_the_ending_says() -> None:
    for text, given, expected in (
        ("file:roof.cs16", None, CS16),
        ("tcp:roof.cs16:80", None, CF32),
        ("file:roof.cs16", "cs8", Encoding.named("cs8")),
    ):
        asked = StreamSettings(encoding=None if given is None else Encoding.named(given))
        assert open_stream(text, asked)[1].encoding == expected
        with pytest.warns(DeprecationWarning, match="is now open_stream"):
            assert encoding_of(text, given) == expected


@pytest.mark.parametrize("suffix", [".sigmf-meta", ".sigmf-data"])
def test_a_sigmf_file_says_what_its_samples_are(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("sigmf")
    head, tail = 20, 12
    captures = [{"core:sample_start": 0, "core:frequency": 868.1e6, "core:header_bytes": head}]
    x = noise(2, 1000)
    meta = write_sigmf(tmp_path / "roof", x, captures=captures, sample_rate=1e6, trailing_bytes=tail)
    data = meta.with_suffix(".sigmf-data")
    data.write_bytes(b"h" * head + data.read_bytes() + b"t" * tail)
    source, stream = open_stream(f"file:{meta.with_suffix(suffix)}", StreamSettings(assumed_antennas=4))
    assert stream == StreamSettings(1e6, 868.1e6, 2, CS16, assumed_antennas=4)
    with Reading(source, 8) as reading:
        wait_until(lambda: reading.ring.ended)
        got = np.concatenate([samples for _, samples in reading.taken()])
    assert got.tobytes() == encoded(x, "cs16")
    with pytest.raises(ConfigError, match=r"has 2 antenna\(s\); --antennas says 4"):
        open_stream(f"file:{meta}", StreamSettings(antennas=4))


def test_a_sigmf_collection_is_read_antenna_by_antenna(tmp_path: Path) -> None:
    pytest.importorskip("sigmf")
    x = noise(2, 1000)
    for name, row in zip("ab", x, strict=True):
        write_sigmf(tmp_path / name, row[None])
    source, stream = open_stream(f"file:{collection(tmp_path, ['a', 'b'])}", StreamSettings())
    assert stream.layout == (2, CF32)
    with Reading(source, 16) as reading:
        wait_until(lambda: reading.ring.ended)
        got = np.concatenate([samples for _, samples in reading.taken()])
    np.testing.assert_allclose(CF32.decode(got, 2), x, atol=1e-4)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b'{"global": {"core:datatype": "cf32_le"}, "captures": []}', "text"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "PNG"),
        (b"RIFF\x00\x00\x00\x00WAVE" + bytes(100), "WAV"),
        ("Höhe über dem Dach: zwölf Meter und ein bißchen. ".encode() * 200, "text"),
    ],
)
def test_what_holds_no_samples_is_refused(tmp_path: Path, content: bytes, what: str) -> None:
    path = tmp_path / "roof.cs16"
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"is .*{what}"):
        FileSource(path).read_into(Ring(1000, 4, wait=True), threading.Event(), print)
    with pytest.raises(DataError, match=f"is .*{what}"):
        open_recording(path, sample_rate_hz=1e6, format="cs16")


@pytest.mark.parametrize("value", [0, 64, 255])
def test_a_steady_level_is_no_text(value: int) -> None:
    check_is_samples(bytes([value]) * 4096, "roof")


def free_port(kind: socket.SocketKind) -> int:
    with socket.socket(socket.AF_INET, kind) as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_datagrams_of_one_sender_are_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "SILENT_S", 0.2)
    port = free_port(socket.SOCK_DGRAM)
    source = open_source(f"udp:127.0.0.1:{port}", antennas=1, encoding=CS16)
    udp = socket.AF_INET, socket.SOCK_DGRAM
    with socket.socket(*udp) as ours, socket.socket(*udp) as theirs, Reading(source, 4) as reading:
        to = ("127.0.0.1", port)

        def first_is_heard() -> bool:
            ours.sendto(content(0, 1), to)
            return reading.ring.received > 0

        wait_until(first_is_heard)
        theirs.sendto(content(900, 10), to)
        ours.sendto(content(0, 10)[:-1], to)
        ours.sendto(content(1, 10), to)
        wait_until(lambda: not reading.source.connected)  # then somebody else may send
        assert source.refused == 2  # type: ignore[attr-defined]
        before = reading.ring.received
        theirs.sendto(content(11, 10), to)
        reading.wait_for(before + 10)
        assert reading.ring.breaks == 1
        taken = np.concatenate([samples for _, samples in reading.taken()]).view("<u4")
        assert taken[-20:].tolist() == [16 * number for number in range(1, 21)]


def test_datagrams_that_are_refused_hold_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stray datagram before the radio begins, or a radio that begins anew at another port at once."""
    monkeypatch.setattr(plain, "SILENT_S", 0.3)
    port = free_port(socket.SOCK_DGRAM)
    source = open_source(f"udp:127.0.0.1:{port}", antennas=1, encoding=CS16)
    udp = socket.AF_INET, socket.SOCK_DGRAM
    with socket.socket(*udp) as stray, socket.socket(*udp) as radio, Reading(source, 4) as reading:

        def heard(sender: socket.socket, more: bytes) -> bool:
            sender.sendto(more, ("127.0.0.1", port))
            return reading.ring.received > before

        before = 0
        wait_until(lambda: heard(stray, b"x") or source.refused > 0)  # type: ignore[attr-defined]
        for sender in (radio, stray):
            before = reading.ring.received
            wait_until(lambda sender=sender: heard(sender, content(0, 1)))  # type: ignore[misc]


def test_a_group_can_be_joined() -> None:
    source = open_source(f"udp:239.1.2.3:{free_port(socket.SOCK_DGRAM)}", antennas=1, encoding=CS16)
    with Reading(source, 4):
        pass
    with pytest.raises(ConfigError, match="address of this machine"):
        open_source("udp:203.0.113.7:80", antennas=1, encoding=CS16).read_into(None, threading.Event(), print)  # type: ignore[arg-type]


def test_a_server_that_ends_connections_at_once_is_asked_less_and_less_often() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        source = open_source(f"tcp:127.0.0.1:{server.getsockname()[1]}", antennas=1, encoding=CS16)
        server.settimeout(0.5)
        with Reading(source, 4) as reading:
            with suppress(TimeoutError):
                while True:
                    server.accept()[0].close()
            assert 2 <= sum("has ended" in note for note in reading.notes) < 6


def test_a_server_of_rtl_tcp_is_tuned_and_heard() -> None:
    asked = StreamSettings(2.4e6, 868.1e6, assumed_antennas=4)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        source, stream = open_stream(f"rtl_tcp:127.0.0.1:{port}?gain=29.7&ppm=-3", asked)
        assert stream.layout == (1, Encoding.named("cu8"))
        with Reading(source, 2) as reading:
            for first in (0, 100):  # it is tuned again after the connection has ended
                connection, _ = server.accept()
                with connection:
                    connection.sendall(b"RTL0" + struct.pack(">II", 5, 29))
                    commands = b""
                    while len(commands) < 25:
                        commands += connection.recv(100)
                    connection.sendall(bytes(range(first, first + 100)))
                tuned = dict(struct.iter_unpack(">BI", commands))
                assert tuned == {1: 868_100_000, 2: 2_400_000, 3: 1, 4: 297, 5: (1 << 32) - 3}
                reading.wait_for((first + 100) // 2)
            assert np.concatenate([samples for _, samples in reading.taken()]).tolist() == list(range(200))
        plainly = open_source(f"tcp:127.0.0.1:{port}", antennas=1, encoding=CS16)
        connection = threading.Thread(target=lambda: server.accept()[0].sendall(b"RTL0" + bytes(8)))
        connection.start()
        with pytest.raises(DataError, match=r"Give rtl_tcp:127\.0\.0\.1"):
            plainly.read_into(Ring(1000, 4, wait=False), threading.Event(), print)
        connection.join()


def test_what_is_no_server_of_rtl_tcp_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        source, _ = open_stream(f"rtl_tcp:127.0.0.1:{server.getsockname()[1]}", StreamSettings(1e6, 1e8))
        with Reading(source, 2) as reading:
            for greeting in (b"SSH-2.0-server", b"RTL"):
                connection, _ = server.accept()
                with connection:
                    connection.sendall(greeting)
            wait_until(lambda: {"no server", "ended before"} <= {w for n in reading.notes for w in WORDS if w in n})
            assert reading.ring.received == 0


WORDS = ("no server", "ended before")


@pytest.mark.parametrize(
    ("text", "said", "words"),
    [
        ("rtl_tcp:roof:80", {}, "Give --sample-rate and --carrier"),
        ("rtl_tcp:roof:80", {"antennas": 4}, r"has 1 antenna\(s\)"),
        ("rtl_tcp:roof:80", {"encoding": CS16}, "Leave --format out"),
        ("rtl_tcp:roof:80?gain=nan", {"sample_rate_hz": 1e6, "carrier_hz": 1e8}, "a gain in dB"),
        ("rtl_tcp:roof:80?gain=much", {"sample_rate_hz": 1e6, "carrier_hz": 1e8}, "expected numbers"),
        ("rtl_tcp:roof:80?agc=1", {"sample_rate_hz": 1e6, "carrier_hz": 1e8}, "'agc' is no setting"),
        ("rtl_tcp:roof:80", {"sample_rate_hz": 1e6, "carrier_hz": 5.8e9}, "less than 4.29 GHz"),
        ("soapy:driver=mine", {}, "python3-soapysdr"),
    ],
)
def test_settings_that_a_receiver_does_not_have_are_refused(text: str, said: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        open_stream(text, StreamSettings(**said))


class Device:
    """A stand-in for a device of SoapySDR: two antennas that count, and lose something once."""

    def __init__(self, settings: dict[str, str]) -> None:
        if settings.get("driver") != "mine":
            raise RuntimeError("no match")
        self.set: dict[str, list[Any]] = {}
        self._answers = iter([3, -1, -4, 5])
        self._count = 0

    def __getattr__(self, name: str) -> Any:
        if name == "getNumChannels":
            return lambda direction: 2
        if name == "getSampleRate":
            return lambda direction, channel: 1e6
        return lambda *given, **options: self.set.setdefault(name, []).append(given)

    def readStream(self, stream: Any, rooms: list[Any], most: int, timeoutUs: int) -> Any:
        got = next(self._answers, -1)
        for antenna, room in enumerate(rooms):
            room[: max(got, 0)] = self._count + np.arange(max(got, 0)) + 1j * antenna
        self._count += max(got, 0)
        return SimpleNamespace(ret=got)


def test_a_device_of_soapy_is_tuned_and_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    devices: list[Device] = []
    stand_in = SimpleNamespace(
        Device=lambda settings: devices.append(Device(settings)) or devices[-1],
        SOAPY_SDR_RX=1,
        SOAPY_SDR_CF32="CF32",
        errToStr=str,
    )
    monkeypatch.setitem(sys.modules, "SoapySDR", stand_in)
    asked = StreamSettings(1e6, 868.1e6, assumed_antennas=2)
    source, stream = open_stream("soapy:driver=mine,gain=30,port=RX2", asked)
    assert stream.layout == (2, CF32)
    with Reading(source, 16) as reading:
        reading.wait_for(8)
        got = CF32.decode(np.concatenate([samples for _, samples in reading.taken()]), 2)
        assert got.tolist() == [list(range(8)), [n + 1j for n in range(8)]]
        assert reading.ring.breaks == 1
        assert any("too slow" in note for note in reading.notes)
    [device] = devices
    assert device.set["setFrequency"] == [(1, 0, 868.1e6), (1, 1, 868.1e6)]
    assert device.set["setGain"] == [(1, 0, 30.0), (1, 1, 30.0)]
    assert device.set["setAntenna"] == [(1, 0, "RX2"), (1, 1, "RX2")]
    assert {"activateStream", "deactivateStream", "closeStream"} <= device.set.keys()
    for text, given, words in (
        ("soapy:driver=other", asked, "no match"),
        ("soapy:driver=mine", StreamSettings(1e6, 1e8, 4), "has 2 antenna"),
        ("soapy:driver=mine", StreamSettings(2e6, 1e8), "gives 1e.06 samples/s, not 2e.06"),
    ):
        with pytest.raises(DataError, match=words):
            open_stream(text, given)[0].read_into(Ring(1000, 8, wait=False), threading.Event(), print)
    for text in ("soapy:", "soapy:mine", "soapy:driver=mine,gain=high"):
        with pytest.raises(ConfigError, match="expected"):
            open_stream(text, asked)


@pytest.mark.usefixtures("own_parts")
def test_a_source_of_a_plugin_is_found_by_its_name() -> None:
    @register_source("zeros")
    class Zeros(sources.SourceKind):
        shape = "zeros:COUNT"

        def opened(self, rest: str, given: StreamSettings) -> tuple[sources.Source, StreamSettings]:
            return FileSource(Path("/dev/zero")), given.with_what_is_said(
                rest, StreamSettings(sample_rate_hz=float(rest))
            )

    assert open_stream("zeros:1e6", StreamSettings())[1].sample_rate_hz == 1e6
    assert list(SOURCES)[-1] == "zeros"
    with pytest.raises(ConfigError, match="or zeros:COUNT"):
        open_stream("ones:1", StreamSettings())
    with pytest.raises(ConfigError, match="has no shape"):
        register_source("ones")(sources.SourceKind)


def test_the_help_names_every_source() -> None:
    assert SourceName.help is not None
    for kind in SOURCES.parts().values():
        assert kind.shape in SourceName.help
