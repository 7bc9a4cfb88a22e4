"""Streams at other sample rates, and the checksums of senders that are new."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from pisa_capc.core.errors import DataError
from pisa_capc.live.listen.finder import parts_of
from pisa_capc.live.listen.hearing import Hearing
from pisa_capc.live.listen.receiver import Health, ReceiverCheck
from pisa_capc.live.listen.ring import Piece
from pisa_capc.signal.detection import detect
from pisa_capc.signal.phy.wifi import mac, transmit
from pisa_capc.signal.recordings import About, resampled
from pisa_capc.signal.recordings.encoding import Encoding
from tests.signal.recordings.tools import InMemory

CF32 = Encoding.named("cf32")
SENDER, RECEIVER = "02:00:00:00:00:01", "02:00:00:00:00:02"


def coded(iq: NDArray[np.complex64]) -> NDArray[np.uint8]:
    """As a source sends them: interleaved."""
    return iq.T.reshape(-1).view(np.uint8)


def stream(frames: int, rate_hz: float = 20e6) -> InMemory:
    """Wi-Fi frames of one sender in noise, two antennas."""
    rng = np.random.default_rng(3)
    iq = 1e-3 * (rng.normal(size=(2, 6000 * frames + 2000, 2)) @ [1, 1j])
    for i in range(frames):
        frame = transmit(mac.data(RECEIVER, SENDER, RECEIVER, rng.bytes(60)), 12.0, 5 + i)
        iq[:, 6000 * i + 500 :][:, : len(frame)] += 0.1 * frame
    own = InMemory(iq.astype(np.complex64), 20e6)
    if rate_hz == 20e6:
        return own
    other = resampled(own, rate_hz)
    return InMemory(other.read(0, other.about.length), rate_hz)


@pytest.mark.parametrize("rate_hz", [20e6, 25e6])
def test_frames_of_a_stream_are_those_of_the_recording(rate_hz: float) -> None:
    recording = stream(6, rate_hz)
    expected = [(f.start, f.header.transmitter) for f in detect(recording).frames]
    hearing = Hearing(replace(recording.about, carrier_hz=5e9), CF32, "wifi")
    whole = recording.read(0, recording.about.length)
    got = []
    for first in range(0, whole.shape[1], 7001):
        got += hearing.push(coded(whole[:, first : first + 7001]), first, False)
    got += hearing.push(np.zeros(2 * 20_000 * 8, np.uint8), whole.shape[1], False) + hearing.finish()
    assert [(one.start, one.header.transmitter) for one in got] == expected
    assert len(expected) == 6


def test_the_checksum_is_asked_for_until_the_sender_is_known() -> None:
    recording = stream(6)
    hearing = Hearing(recording.about, CF32, "wifi")
    whole = recording.read(0, recording.about.length)
    got = hearing.push(coded(whole), 0, False) + hearing.finish()
    assert {one.header.transmitter for one in got} == {SENDER}
    again = hearing.push(coded(whole), 10_000_000, True) + hearing.finish()
    assert [one.start - 10_000_000 for one in again] == [one.start for one in got]
    assert {one.header.transmitter for one in again} == {SENDER}
    assert got[0].header.fcs is True
    assert again[0].header.fcs is None


def test_the_beginning_of_a_frame_is_handed_on_and_its_end_is_known() -> None:
    recording = stream(3)
    whole = recording.read(0, recording.about.length)
    found = {}
    for kept in (500, 1 << 20):
        hearing = Hearing(recording.about, CF32, "wifi", kept)
        found[kept] = hearing.push(coded(whole), 0, False) + hearing.finish()
    for short, long in zip(found[500], found[1 << 20], strict=True):
        assert (short.start, short.end) == (long.start, long.end)
        assert long.end - long.start == long.iq.shape[1] > 500
        np.testing.assert_array_equal(short.iq, long.iq[:, :500])


def test_a_rate_that_does_not_fit_is_refused_at_once() -> None:
    with pytest.raises(DataError, match="MS/s do not hold"):
        Hearing(About("air", 10e6, None, 1, 0), CF32, "wifi")


@pytest.mark.parametrize("name", ["cf32", "cf32_be", "cf64"])
def test_what_is_no_number_is_zero(name: str) -> None:
    encoding = Encoding.named(name)
    values = np.ones((100, 2, 2), dtype=encoding.number)
    values[7, 1, 0], values[9, 0, 1] = np.nan, 1e30
    receiver = ReceiverCheck(2, encoding, 20e6)
    seen = encoding.decode(receiver.look(values.reshape(-1).view(np.uint8)), 2)
    expected = np.full((2, 100), 1 + 1j, np.complex64)
    expected[1, 7] = expected[0, 9] = 0
    assert np.array_equal(seen, expected)
    assert receiver.health.unusable == 2
    assert receiver.health.in_trouble


@pytest.mark.parametrize("piece", [1000, 4096, 200_000])
def test_health_does_not_depend_on_the_pieces_that_samples_come_in(piece: int) -> None:
    rng, encoding = np.random.default_rng(8), Encoding.named("cs16")
    numbers = rng.integers(-2000, 2000, (200_000, 3, 2)).astype("<i2")
    numbers[::7, 1] = 32767
    numbers[:, 2] = 0
    receiver = ReceiverCheck(3, encoding, 100_000.0)
    for first in range(0, len(numbers), piece):
        receiver.look(numbers[first : first + piece].reshape(-1).view(np.uint8))
    assert receiver.health == Health(clipped=(1,), dead=(2,))


def test_samples_of_another_number_of_antennas_are_known_by_their_frames() -> None:
    recording = stream(4)
    whole = coded(recording.read(0, recording.about.length)[:1])  # of one antenna
    count = len(whole) // (4 * CF32.sample_bytes)
    hearing = Hearing(replace(recording.about, antennas=4), CF32, "wifi")
    parts = list(parts_of(hearing, [Piece(0, whole[: count * 32], False, 0)]))
    assert [part.frames for part in parts] == [[], []]
    assert [part.advice.split(". ")[0] for part in parts] == [
        "",
        "memory: no frame is found with 4 antenna(s); read as 1, the same samples hold 4",
    ]
    right = Hearing(replace(recording.about, antennas=1), CF32, "wifi")
    assert not any(part.advice for part in parts_of(right, [Piece(0, whole, False, 0)]))
    noise = np.random.default_rng(0).normal(size=100_000).astype(np.float32).view(np.uint8)
    silent = Hearing(replace(recording.about, antennas=1), CF32, "wifi")
    assert not any(part.advice for part in parts_of(silent, [Piece(0, noise, False, 0)]))
