"""Bursts of any signal are found by their energy, in recordings and in streams."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from pisa_capc.core.errors import ConfigError
from pisa_capc.data.store.origins import read_origins
from pisa_capc.live.listen.hearing import Hearing
from pisa_capc.signal.detection import detect, finder_of
from pisa_capc.signal.detection.burst import CHUNK, CHUNKS, BurstDetector, BurstSettings
from pisa_capc.signal.detection.finding import band_of
from pisa_capc.signal.recordings import About
from pisa_capc.signal.recordings.encoding import Encoding
from tests.cli.test_model_commands import Command, pisa  # noqa: F401  (fixture)
from tests.signal.recordings.tools import InMemory, write_sigmf

RATE_HZ = 1e6
STARTS, LENGTHS, CFO_HZ = (5000, 20_100, 33_003, 70_007), (400, 3000, 1001, 2000), (-90e3, 0.0, 20e3, 120e3)


def noise(samples: int = 100_000, antennas: int = 2, seed: int = 0) -> NDArray[np.complex64]:
    x = np.random.default_rng(seed).normal(size=(antennas, samples, 2)) @ [1, 1j]
    return (x / np.sqrt(2)).astype(np.complex64)


def burst(length: int, cfo_hz: float = 0.0, snr_db: float = 15.0, seed: int = 0) -> NDArray[np.complex64]:
    """Symbols of four phases, eight samples each."""
    symbols = np.random.default_rng(seed).choice([1, -1, 1j, -1j], length // 8 + 1)
    turn = np.exp(2j * np.pi * cfo_hz / RATE_HZ * np.arange(length))
    return (10 ** (snr_db / 20) * np.repeat(symbols, 8)[:length] * turn).astype(np.complex64)


def air(snr_db: float = 15.0) -> NDArray[np.complex64]:
    x = noise()
    for i, (start, length, cfo_hz) in enumerate(zip(STARTS, LENGTHS, CFO_HZ, strict=True)):
        x[:, start : start + length] += burst(length, cfo_hz, snr_db, i)
    return x


@pytest.mark.parametrize("snr_db", [5.0, 15.0, 40.0])
def test_a_burst_becomes_a_frame_with_what_is_known_of_it(snr_db: float) -> None:
    found = detect(InMemory(air(snr_db), RATE_HZ), "burst").frames
    np.testing.assert_allclose([one.start for one in found], STARTS, atol=4)
    np.testing.assert_allclose([one.start + (one.samples or 0) for one in found], np.add(STARTS, LENGTHS), atol=4)
    np.testing.assert_allclose([one.snr_db for one in found], snr_db, atol=0.5)
    np.testing.assert_allclose(np.array([one.cfo_hz for one in found]).mean(axis=1), CFO_HZ, atol=5e3)
    # Of symbols of 8 µs, 99 % of the power is in 10 times their rate; about half of that is above the noise.
    assert all(one.bandwidth_hz and 50e3 < one.bandwidth_hz < 1e6 for one in found)
    assert all(one.quality == pytest.approx(1 / (1 + 10 ** (-snr_db / 10)), abs=0.05) for one in found)


def test_the_blocks_of_a_stream_change_nothing() -> None:
    x, results = air(), []
    for size in (997, 100_000):
        detector = BurstDetector(2, RATE_HZ)
        found = [one for at in range(0, x.shape[1], size) for one in detector.push(x[:, at : at + size])]
        results.append([*found, *detector.finish()])
    assert len(results[0]) == len(results[1]) == 4
    for one, other in zip(*results, strict=True):
        assert (one.at, one.samples) == (other.at, other.samples)
        assert (one.iq == other.iq).all()
        assert (one.iq == x[:, one.at : one.at + one.iq.shape[1]]).all()


def test_the_pulses_of_on_off_keying_are_one_burst_where_gaps_are_given() -> None:
    x = noise()
    for start in range(20_000, 40_000, 2000):
        x[:, start : start + 500] += burst(500)
    assert len(detect(InMemory(x, RATE_HZ), "burst").frames) == 10
    [one] = detect(InMemory(x, RATE_HZ), "burst:gap=2e-3").frames
    assert one.start == pytest.approx(20_000, abs=4)
    assert one.samples == pytest.approx(18_500, abs=8)


def test_what_is_too_short_is_left_out_and_what_is_too_long_is_cut() -> None:
    x = noise()
    x[:, 10_000:10_100] += burst(100)
    x[:, 50_000:62_000] += burst(12_000)
    found = detect(InMemory(x, RATE_HZ), "burst:min=1e-3,max=4e-3").frames
    assert [round(one.start, -2) for one in found[:3]] == [50_000, 54_000, 58_000]
    assert all((one.samples or 0) <= 4000 for one in found)
    assert sum(one.samples or 0 for one in found) == pytest.approx(12_000, rel=0.02)


def test_the_floor_follows_the_noise() -> None:
    chunk = BurstDetector(2, RATE_HZ).block * CHUNK
    x = noise(2 * CHUNKS * chunk)
    step = 4 * chunk
    x[:, step:] *= 10  # by 20 dB, as when somebody turns the gain
    loud = step + (CHUNKS + 1) * chunk
    x[:, loud + 5000 :][:, :1000] += 10 * burst(1000)
    x[:, 5000:6000] += burst(1000)
    found = detect(InMemory(x, RATE_HZ), "burst").frames
    assert found[0].start == pytest.approx(5000, abs=4)
    [late] = [one for one in found if one.start > loud]
    assert late.start == pytest.approx(loud + 5000, abs=4)
    np.testing.assert_allclose(late.snr_db, 15, atol=1)


@pytest.mark.filterwarnings("ignore:memory")
def test_noise_and_silence_are_no_bursts_and_an_antenna_may_be_dead() -> None:
    assert not detect(InMemory(noise(1_000_000, 1), RATE_HZ), "burst").frames
    assert not detect(InMemory(np.zeros((2, 100_000), np.complex64), RATE_HZ), "burst").frames
    x = air()
    x[1] = 0
    found = detect(InMemory(x, RATE_HZ), "burst").frames
    assert len(found) == 4
    assert np.isnan([one.cfo_hz[1] for one in found]).all()
    assert json.dumps([one.to_json() for one in found], allow_nan=False)


def test_a_signal_that_never_stops_is_taken_in_windows() -> None:
    x = noise(10_000)
    found = detect(InMemory(x, RATE_HZ), "burst:window=1e-3,hop=2e-3").frames
    assert [(one.start, one.samples) for one in found] == [(start, 1000) for start in range(0, 10_000, 2000)]
    assert len(detect(InMemory(x, RATE_HZ), "burst:window=1e-3").frames) == 10
    hearing = Hearing(About("air", RATE_HZ, 433e6, 2, 0), Encoding.named("cf32"), "burst:window=1e-3,hop=2e-3", 1000)
    raw = np.ascontiguousarray(x.T).view(np.uint8).reshape(-1)
    heard = [one for at in range(0, 10_000, 700) for one in hearing.push(raw[16 * at :][: 16 * 700], at, False)]
    assert [one.start for one in heard] == [one.start for one in found]
    assert (heard[3].iq == x[:, 6000:7000]).all()


@pytest.mark.parametrize("kind", ["cs16", "cu8"])
def test_bursts_are_found_while_they_are_received(kind: str) -> None:
    x, encoding = air() / 64, Encoding.named(kind)
    parts = np.ascontiguousarray(x.T).view(np.float32)
    raw = np.round(parts * 32767 if kind == "cs16" else 127.5 * (parts + 1)).astype(encoding.number).view(np.uint8)
    hearing = Hearing(About("air", RATE_HZ, 433e6, 2, 0), encoding, "burst", kept=512)
    heard, size = [], hearing.sample_bytes
    for first in range(0, x.shape[1], 7000):
        heard += hearing.push(raw.reshape(-1)[size * first : size * (first + 7000)], first, False)
    heard += hearing.finish()
    np.testing.assert_allclose([one.start for one in heard], STARTS, atol=4)
    assert {one.iq.shape for one in heard} == {(2, 512)}  # of the shortest, too


BAND_HZ, CHANNELS_HZ = 4e6, (-1.2e6, 0.3e6, 1.5e6)


def band() -> NDArray[np.complex64]:
    """Bursts in three channels, at the same time in two of them."""
    x, t = 4 * noise(400_000, 1), np.arange(2000)
    for i, channel_hz in enumerate(CHANNELS_HZ):
        for start in (50_000, 200_000 + 70_000 * i):
            turn = np.exp(2j * np.pi * (channel_hz + 10e3) / BAND_HZ * (start + t))
            x[:, start : start + 2000] += 4 * np.repeat(burst(500, seed=i), 4) * turn
    return x.astype(np.complex64)


def test_bursts_of_several_channels_are_found_apart_and_know_their_channel() -> None:
    recording = InMemory(band() / 200, BAND_HZ)
    recording.about = replace(recording.about, carrier_hz=434e6)
    named = "+".join(str(434e6 + channel) for channel in CHANNELS_HZ)
    found = detect(recording, f"burst:channels={named},width=250e3")
    assert len(found.frames) == 6
    for number, channel_hz in enumerate(CHANNELS_HZ):
        own = [frame for frame in found.frames if frame.channel == number]
        np.testing.assert_allclose([frame.start for frame in own], [50_000, 200_000 + 70_000 * number], atol=24)
        assert {frame.channel_hz for frame in own} == {434e6 + channel_hz}
        np.testing.assert_allclose([frame.cfo_hz for frame in own], 10e3, atol=4e3)
        assert all(band_of(found, frame)[0] < 434e6 + channel_hz < band_of(found, frame)[1] for frame in own)
        x = found.read(own[0], 250)
        assert np.mean(np.abs(x) ** 2) > 100 * np.mean(np.abs(found.read(replace(own[0], at=5000), 250)) ** 2)
    # The whole band in channels side by side: each burst once, however close to an edge.
    assert len(detect(recording, "burst:width=250e3").frames) == 6
    hearing = Hearing(recording.about, Encoding.named("cf32"), f"burst:channels={named},width=250e3", kept=256)
    raw = np.ascontiguousarray(recording.read(0, 400_000).T).view(np.uint8).ravel()
    heard = [one for at in range(0, len(raw), 80_000) for one in hearing.push(raw[at:][:80_000], at // 8, False)]
    heard += hearing.finish()
    assert [(one.start, one.channel_hz) for one in heard] == [(one.start, one.channel_hz) for one in found.frames]
    np.testing.assert_array_equal(heard[0].iq[:, :200], found.read(found.frames[0], 200))
    assert not detect(InMemory(noise(1_000_000, 1), BAND_HZ), "burst:width=100e3").frames


SECONDS = ("length=1", "min=nan", "gap=-1", "max=inf", "min", "min=0.1,max=0.01", "hop=1e-3", "max=1e9", "max=0")
HERTZ = ("channels=1e6", "channels=1e6+x,width=1e5", "width=-1", "channels=nan,width=1e5")


@pytest.mark.parametrize("text", [*SECONDS, *HERTZ])
def test_settings_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"expected|need a width"):
        BurstSettings.named(text)
    with pytest.raises(ConfigError, match="wifi:gap=1: has no settings"):
        finder_of("wifi:gap=1")


def test_a_dataset_keeps_what_is_known_of_a_burst(pisa: Command, tmp_path: Path) -> None:  # noqa: F811
    np.save(tmp_path / "air.npy", air()[0] / 64)
    given = ("--sample-rate", RATE_HZ, "--carrier", "433e6", "--waveform", "burst", "--samples", 256)
    assert pisa("import", "iq", tmp_path / "air.npy", "--out", tmp_path / "set", *given).code == 0
    names = ("--out", tmp_path / "found", "--label", "none")
    assert pisa("detect", tmp_path / "air.npy", *given, *names).code == 0
    for folder in ("set", "found"):
        rows = read_origins(tmp_path / folder)
        assert rows is not None
        np.testing.assert_allclose([row.start for row in rows], STARTS, atol=4)
        np.testing.assert_allclose([row.samples for row in rows], LENGTHS, atol=8)
        np.testing.assert_allclose([row.cfo_hz for row in rows], CFO_HZ, atol=5e3)
        np.testing.assert_allclose([row.snr_db for row in rows], 15, atol=0.7)
        assert all(50e3 < row.bandwidth_hz < 1e6 and np.isnan(row.channel_hz) for row in rows)


def test_a_command_stores_bursts_as_frames(pisa: Command, tmp_path: Path) -> None:  # noqa: F811
    pytest.importorskip("sigmf")
    for device in ("D1", "D2"):
        (tmp_path / "roof").mkdir(exist_ok=True)
        write_sigmf(tmp_path / "roof" / device, air() / 64, sample_rate=RATE_HZ)
    metas = [tmp_path / "roof" / f"{device}.sigmf-meta" for device in ("D1", "D2")]
    out = ("--out", tmp_path / "set", "--label", "pattern", "--pattern", "{environment}/{device}.sigmf-data")
    done = pisa("detect", *metas, "--waveform", "burst", *out, "--samples", "256", "--json")
    assert done.code == 0
    said = json.loads(done.out)
    assert said["dataset"]["frames"] == 8
    assert {"samples", "bandwidth_hz", "snr_db", "cfo_hz", "start"} <= said["frames"][0].keys()
    assert "8" in pisa("inspect", tmp_path / "set").out
    assert pisa("detect", metas[0], "--waveform", "burst:gap=much").code == 2
    done = pisa("detect", metas[0], "--waveform", "burst", "--annotate")
    assert done.code == 0
    notes = json.loads((tmp_path / "roof" / "D1.detected.sigmf-meta").read_text())["annotations"]
    edges = [(note["core:freq_lower_edge"] + note["core:freq_upper_edge"]) / 2 - 5.825e9 for note in notes]
    np.testing.assert_allclose(edges, CFO_HZ, atol=5e3)
