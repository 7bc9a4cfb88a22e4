"""Wi-Fi frames are found where they are, and nothing is found where there is none."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.signal.detection import FoundFrame, WifiDetector, with_headers
from pisa_capc.signal.detection.wifi.background import Powers, without_background
from pisa_capc.signal.detection.wifi.chunk import PART, Plain
from pisa_capc.signal.detection.wifi.detector import CHUNK
from pisa_capc.signal.detection.wifi.screen import block_products, coherence_threshold, over_window
from pisa_capc.signal.phy.wifi import mac, transmit, transmit_ht
from pisa_capc.signal.recordings.encoding import Encoding
from pisa_capc.signal.waveforms.wifi import preamble
from tests.signal.detection.air import RATE_HZ, Air, sent
from tests.signal.recordings.tools import encoded


def detect(iq: NDArray[np.complex64], cuts: list[int] | None = None) -> list[FoundFrame]:
    detector = WifiDetector(len(iq))
    found = [one for block in np.split(iq, cuts or [], axis=1) for one in detector.push(block)]
    return found + detector.finish()


def starts(found: list[FoundFrame]) -> list[int]:
    return [one.at for one in found]


def busy(antennas: int, snr_db: float, count: int = 40, seed: int = 0, **how: object) -> tuple[Air, list[int]]:
    """A stream of frames some 1,000 samples apart."""
    air = Air(antennas, 3200 * count, seed)
    where = [3200 * k + int(air.rng.integers(100, 1000)) for k in range(count)]
    for start in where:
        air.add(sent(air.rng), start, snr_db, air.rng.uniform(-233e3, 233e3), **how)  # type: ignore[arg-type]
    return air, where


@pytest.mark.parametrize(("antennas", "snr_db"), [(1, 5.0), (4, 0.0), (4, 3.0), (4, 30.0)])
def test_every_frame_is_found_at_its_first_sample(antennas: int, snr_db: float) -> None:
    air, where = busy(antennas, snr_db)
    found = starts(detect(air.iq))
    assert len(found) == len(where)
    assert np.abs(np.subtract(found, where)).max() <= 1


@pytest.mark.parametrize(("antennas", "snr_db"), [(1, -4.0), (4, -4.0)])
def test_frames_at_the_limit_are_found_as_if_all_was_looked_at(antennas: int, snr_db: float) -> None:
    air, where = busy(antennas, snr_db, count=60)
    found = starts(detect(air.iq))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Powers, "loud", lambda self: np.ones(len(self.level), dtype=bool))
        assert found == starts(detect(air.iq))
    assert 0 < len(found) < len(where)


@pytest.mark.parametrize("received", [0, 300, 50_000])
def test_a_chunk_is_looked_at_when_what_was_wanted_is_there(received: int) -> None:
    detector, air = WifiDetector(1), Air(1, 3 * CHUNK)
    for start in (5000, CHUNK + 5000):
        air.add(sent(air.rng), start, 20.0)
    assert not detector.push(air.iq[:, :received])
    for start in (5000, CHUNK + 5000):
        enough = received + detector.wanted(received)
        assert not detector.push(air.iq[:, received : enough - 1])
        assert starts(detector.push(air.iq[:, enough - 1 : enough])) == [start]
        received = enough


def test_noise_is_hardly_looked_at() -> None:
    chunk = Plain(Air(4, 512 * PART).iq)
    assert without_background(chunk)[2].mean() < 0.1


def test_a_frame_fainter_than_the_noise_before_is_found() -> None:
    air = Air(2, 60_000)
    air.add(sent(air.rng), 50_000, 10.0)
    air.samples[:, 45_000:] *= 0.05  # a receiver that turns down its gain
    assert starts(detect(air.iq)) == [50_000]


@pytest.mark.parametrize("name", ["cs16", "cs8", "cf32"])
def test_bytes_give_the_frames_of_their_samples(name: str) -> None:
    air, where = busy(4, 20.0)
    encoding, scale = Encoding.named(name), 3.0
    data = np.frombuffer(encoded(scale * air.iq, name), dtype=np.uint8)
    detector = WifiDetector(4, encoding=encoding)
    size = 16 * 12_345 if name == "cs8" else 16 * 24_690
    found = [one for at in range(0, len(data), size) for one in detector.push(data[at : at + size])] + detector.finish()
    decoded = encoding.decode(data, 4)
    assert np.abs(np.subtract(starts(found), where)).max() <= 1
    for one, same in zip(found, detect(decoded), strict=True):
        assert np.array_equal(one.iq, same.iq)
        assert np.allclose(one.cfo_hz, same.cfo_hz, atol=20)


def test_bytes_without_a_zero_are_refused() -> None:
    with pytest.raises(ConfigError, match="Decode them first"):
        WifiDetector(4, encoding=Encoding.named("cu8"))


def test_the_start_is_the_first_path_not_the_strongest() -> None:
    air, where = busy(4, 20.0, paths=((0, 0.6), (3, 1.0), (7, 0.5)))
    assert np.abs(np.subtract(starts(detect(air.iq)), where)).max() <= 1


def test_the_samples_are_those_that_were_received() -> None:
    air, _ = busy(2, 15.0, count=5)
    for one in detect(air.iq):
        assert one.samples == len(sent(air.rng))
        assert np.array_equal(one.iq, air.iq[:, one.at : one.at + one.samples])


def test_of_a_frame_whose_length_cannot_be_read_some_samples_are_given() -> None:
    air = Air(2, 20_000)
    air.add(preamble(), 5000, 20.0)
    [one] = detect(air.iq)
    assert one.samples is None
    assert one.iq.shape == (2, 800)


def test_frames_know_whom_they_claim_to_be_from() -> None:
    air = Air(2, 20_000)
    sender, receiver = "02:00:00:00:00:01", "02:00:00:00:00:02"
    air.add(transmit(mac.data(receiver, sender, receiver, bytes(100)), 12, 77), 5000, 20.0, 120e3)
    [one] = with_headers(detect(air.iq))
    assert (one.header.transmitter, one.header.receiver) == (sender, receiver)
    assert one.header.fcs


@pytest.mark.parametrize("cfo_hz", [-233e3, -160e3, -1e3, 90e3, 233e3])
def test_the_frequency_is_unwrapped_over_forty_parts_in_a_million(cfo_hz: float) -> None:
    air = Air(2, 20_000)
    own = cfo_hz + np.array([0.0, 2500.0])
    air.add(sent(air.rng), 5000, 25.0, own)
    [one] = detect(air.iq)
    assert np.abs(one.cfo_hz - own).max() < 5 * bound_hz(25.0)


def bound_hz(snr_db: float, samples: int = 320) -> float:
    """Cramér–Rao bound of the frequency of known samples with an unknown phase."""
    return RATE_HZ / (2 * np.pi) * np.sqrt(6 / (10 ** (snr_db / 10) * samples * (samples**2 - 1)))


def test_the_frequency_of_each_antenna_is_as_good_as_the_bound_allows() -> None:
    air = Air(4, 3200 * 40)
    own = air.rng.uniform(-200e3, 200e3, (40, 1)) + air.rng.uniform(-3e3, 3e3, (40, 4))
    for k in range(40):
        air.add(sent(air.rng), 3200 * k + 500, 10.0, own[k])
    error = np.array([one.cfo_hz for one in detect(air.iq)]) - own
    assert np.sqrt((error**2).mean()) < 1.15 * bound_hz(10.0)


def test_snr_and_quality_are_those_of_the_stream() -> None:
    for snr_db in (5.0, 15.0, 25.0):
        air, _ = busy(2, snr_db, count=20)
        found = detect(air.iq)
        assert np.mean([one.snr_db for one in found], axis=0) == pytest.approx([snr_db, snr_db], abs=0.7)
        share = 10 ** (snr_db / 10) / (1 + 10 ** (snr_db / 10))
        assert np.mean([one.quality for one in found]) == pytest.approx(share, abs=0.05)


def test_how_the_stream_is_cut_changes_nothing() -> None:
    air, _ = busy(2, 8.0, count=60)
    iq = air.iq
    whole = detect(iq)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        found = detect(iq, sorted(rng.integers(0, iq.shape[1], 3**seed * 5).tolist()))
        assert starts(found) == starts(whole)
        for one, other in zip(found, whole, strict=True):
            assert np.array_equal(one.iq, other.iq)
            assert np.array_equal(one.cfo_hz, other.cfo_hz)
            assert np.array_equal(one.snr_db, other.snr_db)
            assert one.quality == other.quality


def test_frames_at_the_border_of_chunks_are_found_once() -> None:
    for offset in (-400, -200, -20, -1, 0, 1, 15, 40, 200):
        air = Air(1, 2 * CHUNK)
        air.add(sent(air.rng), CHUNK + offset, 15.0, 50e3)
        assert starts(detect(air.iq)) == [CHUNK + offset]


def test_only_frames_with_a_whole_preamble_are_reported() -> None:
    frame = sent(np.random.default_rng(0))
    for start, whole in ((-len(frame) // 2, False), (-40, False), (0, True), (3, True)):
        air = Air(2, 10_000)
        air.add(frame, start, 20.0)
        assert starts(detect(air.iq)) == [start] * whole
    for left, whole in ((len(frame) - 1, True), (330, True), (320, True), (300, False), (100, False)):
        air = Air(2, 10_000)
        air.add(frame, 10_000 - left, 20.0)
        found = detect(air.iq)
        assert starts(found) == [10_000 - left] * whole
        assert all(one.iq.shape == (2, left) for one in found)


def background(kind: str, length: int) -> NDArray[np.complex128]:
    n = np.arange(length)
    carrier = np.exp(2j * np.pi * 0.0703 * n)
    return {
        "dc": np.ones(length, dtype=complex),
        "carrier": carrier,
        "tone of the L-STF": np.exp(2j * np.pi * n / 16),
        "two carriers": carrier + 0.5 * np.exp(-2j * np.pi * 0.211 * n),
        "bursts": carrier * (n // 3000 % 2),
        "short bursts": carrier * (n // 400 % 2),
    }[kind]


KINDS = ["dc", "carrier", "tone of the L-STF", "two carriers", "bursts", "short bursts"]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_found_in_carriers_and_dc(kind: str) -> None:
    for level_db in (-3.0, 10.0, 40.0):
        air = Air(2, 2 * CHUNK)
        air.samples += 10 ** (level_db / 20) * background(kind, air.length)
        assert not detect(air.iq)


@pytest.mark.parametrize("kind", KINDS[:4])
@pytest.mark.parametrize("level_db", [5.0, 20.0])
def test_frames_are_found_under_a_carrier_that_is_always_on(kind: str, level_db: float) -> None:
    air, where = busy(4, 10.0)
    air.samples += 10 ** (level_db / 20) * background(kind, air.length)
    found = starts(detect(air.iq))
    assert len(found) == len(where)
    assert np.abs(np.subtract(found, where)).max() <= 2


@pytest.mark.parametrize("iq", [np.zeros((2, 3 * CHUNK), np.complex64), np.full((1, CHUNK), 0.3 + 0.1j, np.complex64)])
def test_nothing_is_found_in_silence(iq: NDArray[np.complex64]) -> None:
    assert not detect(iq)


def test_nothing_is_found_in_noise_nor_in_the_data_of_a_frame() -> None:
    assert not detect(Air(4, 1_000_000).iq)
    air = Air(4, 400_000)
    air.add(np.concatenate([sent(air.rng, 1500)[400:] for _ in range(9)]), 1000, 25.0, 100e3)
    assert not detect(air.iq)


@pytest.mark.parametrize("dead", [0.0, 0.4 + 0.1j])
def test_a_dead_antenna_does_no_harm(dead: complex) -> None:
    air, where = busy(3, 10.0)
    iq = air.iq
    iq[1] = dead
    found = detect(iq)
    assert starts(found) == where
    assert all(one.snr_db[1] == -30.0 and abs(one.cfo_hz[1] - one.cfo_hz[0]) < 3000 for one in found)


def test_antennas_of_different_gain_count_by_their_noise() -> None:
    air, where = busy(4, 3.0)
    iq = air.iq * np.array([[1], [30], [0.03], [1]], dtype=np.complex64)
    iq[3] = 100 * Air(1, air.length, seed=7).iq
    assert starts(detect(iq)) == where


def test_what_is_not_a_number_stays_where_it_is() -> None:
    air, where = busy(1, 15.0)
    iq = air.iq
    iq[0, where[5] + 100] = np.nan
    assert starts(detect(iq)) == where[:5] + where[6:]


def test_a_stronger_frame_is_found_in_the_middle_of_another() -> None:
    air = Air(4, 30_000)
    air.add(sent(air.rng, 400), 2000, 10.0, 50e3)
    air.add(sent(air.rng, 400), 7000, 20.0, -80e3)
    assert starts(detect(air.iq)) == [2000, 7000]


def test_ht_fields_are_not_another_frame() -> None:
    air = Air(2, 40_000)
    for start, snr_db in ((5000, 30.0), (20_000, 8.0)):
        psdu = mac.data("02:00:00:00:00:02", "02:00:00:00:00:01", "02:00:00:00:00:02", air.rng.bytes(300))
        air.add(transmit_ht(psdu, 3, 91), start, snr_db, 20e3)
    assert starts(detect(air.iq)) == [5000, 20_000]


def test_frames_that_a_squelch_has_pushed_together_are_found() -> None:
    """Between the frames nothing is left but a few zeros, and of some the first samples are gone."""
    air = Air(1, 200_000)
    frames = [sent(air.rng, 20 + k) for k in range(30)]
    where = np.cumsum([100] + [len(frame) + 60 for frame in frames])[:-1]
    for k, (frame, start) in enumerate(zip(frames, where, strict=True)):
        air.add(frame, start, 20.0 + 10 * (k % 2), 30e3)
    iq = np.zeros_like(air.iq)
    for k, (frame, start) in enumerate(zip(frames, where, strict=True)):
        on_air = slice(start + 50 * (k % 3 == 0), start + len(frame))
        iq[:, on_air] = air.iq[:, on_air]
    found = detect(iq)
    assert len(found) == len(frames)
    assert np.abs(np.subtract(starts(found), where)).max() <= 1


def test_the_screen_passes_noise_as_often_as_its_threshold_says() -> None:
    """For independent samples: with an L of WINDOW · BLOCK · antennas the chance is (1 − t)^(L−1)."""
    products, powers = block_products(Air(1, 16 * 200_001).iq)
    c, p = over_window(products[0]), over_window(powers[0])
    squared = np.abs(c) ** 2 / (p[:-1] * p[1:])
    t = coherence_threshold(0.05)
    assert np.mean(squared > t) == pytest.approx((1 - t) ** 127, rel=0.15)


def test_errors_say_what_was_expected() -> None:
    with pytest.raises(ConfigError, match="at 20 MS/s, not at 25"):
        WifiDetector(1, 25e6)
    with pytest.raises(DataError, match=r"complex128 \(1, 5\); expected complex64 \(2, n\)"):
        WifiDetector(2).push(np.zeros((1, 5)).astype(complex))  # type: ignore[arg-type]
