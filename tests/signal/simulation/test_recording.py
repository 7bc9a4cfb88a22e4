"""Recordings: what the annotations say is in the samples, and the same bytes whoever computes them."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from pisa_capc.cli import app
from pisa_capc.cli import simulate as _registers_the_command  # noqa: F401
from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.data.frames import load
from pisa_capc.data.store.native import CaptureSpec
from pisa_capc.signal.formats import ImportOptions, import_dataset
from pisa_capc.signal.phy.lora import lorawan
from pisa_capc.signal.phy.wifi import mac, receive
from pisa_capc.signal.simulation import numerics
from pisa_capc.signal.simulation import recording as module
from pisa_capc.signal.simulation.capture import device_profile, prepare, render
from pisa_capc.signal.simulation.hardware import Spread
from pisa_capc.signal.simulation.networks import NETWORKS, Message, Station
from pisa_capc.signal.simulation.numerics import delay_kernel, resample, tabulated_kernel
from pisa_capc.signal.simulation.recording import record
from pisa_capc.signal.simulation.scene import Scene, load_scene
from pisa_capc.signal.simulation.stream import Reception, quantised
from pisa_capc.signal.simulation.traffic import Spoof, Traffic, Transmission
from pisa_capc.signal.waveforms.lora import upchirps
from pisa_capc.signal.waveforms.wifi import preamble

NONE = Spread(0.0, 0.0, 0.0, 0.0)
Note = dict[str, Any]


class Made:
    """A recording that was written, read the plainest way."""

    def __init__(self, folder: Path, kind: str, seconds: float, **options: Any) -> None:
        self.summary = record(kind, folder, seconds, workers=1, **options)
        self.path = Path(self.summary.recording)
        self.meta = json.loads(self.path.read_text(encoding="utf-8"))
        self.notes: list[Note] = self.meta["annotations"]
        self.info: Note = self.meta["global"]
        numbers = np.fromfile(self.path.with_suffix(".sigmf-data"), "<i2").astype(np.float32)
        self.iq = (numbers[::2] + 1j * numbers[1::2]).reshape(-1, self.info["core:num_channels"]).T
        self.noise_power = self.info["pisa:simulated"]["noise_rms"] ** 2

    def frame(self, note: Note, samples: int | None = None) -> NDArray[np.complex64]:
        start = note["core:sample_start"]
        return self.iq[:, start : start + (samples or note["core:sample_count"])]

    def alone(self) -> list[Note]:
        return [note for note in self.notes if not note["pisa:collides"]]

    def silence(self) -> NDArray[np.bool_]:
        """Samples that no frame reaches."""
        silent = np.ones(self.iq.shape[1], dtype=bool)
        for note in self.notes:
            start = note["core:sample_start"]
            silent[max(0, start - 64) : start + note["core:sample_count"] + 128] = False
        return silent


@pytest.fixture(scope="module")
def wifi(tmp_path_factory: pytest.TempPathFactory) -> Made:
    options = {"duty": 0.4, "spoof": "D03:D01@0.02", "unknown": 2, "collisions": 0.2, "devices": "D01,D02,D03,D04"}
    return Made(tmp_path_factory.mktemp("wifi"), "wifi", 0.08, **options)


@pytest.fixture(scope="module")
def lora(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("lora"), "lora", 1.5, duty=0.5, rates="7", environment="E2")


@pytest.fixture(params=["wifi", "lora"])
def made(request: pytest.FixtureRequest) -> Made:
    found: Made = request.getfixturevalue(request.param)
    return found


def test_noise_is_everywhere_and_as_strong_as_said(made: Made) -> None:
    power = np.mean(np.abs(made.iq[:, made.silence()]) ** 2, axis=1)
    np.testing.assert_allclose(power, made.noise_power, rtol=0.02)


def test_frames_have_the_power_that_is_said_where_it_is_said(made: Made) -> None:
    for note in made.alone():
        power = np.mean(np.abs(made.frame(note)) ** 2, axis=1) / made.noise_power
        expected = 1 + 10 ** (np.array(note["pisa:snr_db"]) / 10)
        np.testing.assert_allclose(power, expected, rtol=0.1)


@pytest.mark.parametrize(("kind", "known"), [("wifi", preamble()), ("lora", upchirps())])
def test_the_preamble_is_found_where_the_annotation_begins(
    kind: str, known: NDArray[np.complex128], request: pytest.FixtureRequest
) -> None:
    """Correlated around the annotated start, with the annotated offset taken out of each antenna."""
    made: Made = request.getfixturevalue(kind)
    reach, rate_hz = 4, made.info["core:sample_rate"]
    n = np.arange(len(known) + 2 * reach)
    for note in made.alone():
        start = note["core:sample_start"]
        around = made.iq[:, start - reach : start - reach + len(n)]
        around = around * np.exp(-2j * np.pi * np.outer(note["pisa:cfo_hz"], n) / rate_hz)
        peak = [np.sum(np.abs(around[:, i : i + len(known)] @ known.conj()) ** 2) for i in range(2 * reach + 1)]
        assert abs(int(np.argmax(peak)) - reach) <= 1, note


def test_offsets_of_each_antenna_are_the_annotated_ones(tmp_path: Path) -> None:
    """Lag 64 over the long training field, of oscillators without phase noise, which is a frequency of its own over a
    frame: the error is that of the noise (Moose, IEEE Trans. Communications 42(10), 1994)."""
    still = "{mean: 0, std: 0, low: 0, high: 0}"
    (tmp_path / "own.yaml").write_text(f"hardware: {{white_phase_deg: {still}, linewidth_hz: {still}}}\n")
    made = Made(tmp_path, "wifi", 0.03, duty=0.7, scene=tmp_path / "own.yaml")
    scaled = []
    for note in made.notes:
        long = made.frame(note)[:, 184:312]  # a little early: what comes next reaches into the end by the filters
        product = np.sum(long[:, :64].conj() * long[:, 64:], axis=1)
        error_hz = np.angle(product) * 20e6 / (2 * np.pi * 64) - note["pisa:cfo_hz"]
        snr = 10 ** (np.array(note["pisa:snr_db"]) / 10)
        scaled.append(error_hz / (20e6 / (2 * np.pi * 64) / np.sqrt(64 * snr)))
    assert np.std(scaled) == pytest.approx(1, rel=0.3)
    assert np.abs(np.mean(scaled)) < 4 * np.std(scaled) / np.sqrt(np.size(scaled))


def test_antennas_have_offsets_of_their_own_which_are_the_devices(wifi: Made) -> None:
    scene = load_scene("wifi")
    for note in wifi.notes:
        profile = device_profile(scene, 2026, note["signal:emitter"]["label"])
        offset_ppm = np.array(note["pisa:cfo_hz"]) / scene.waveform.carrier_hz * 1e6
        np.testing.assert_allclose(np.diff(offset_ppm), np.diff(profile.antenna_cfo_ppm), atol=1e-5)
        moved = scene.frequency.environment_ppm.high + scene.frequency.capture_ppm.high + 0.03 * 3
        assert abs(offset_ppm[0] - profile.cfo_ppm - profile.antenna_cfo_ppm[0]) < moved


def quiet(scene: Scene) -> Scene:
    """The scene with what differs from frame to frame left out, and the frequency offset left in."""
    hardware = replace(scene.hardware, white_phase_deg=NONE, linewidth_hz=NONE)
    frequency = replace(
        scene.frequency, drift_ppm_per_s=NONE, jitter_hz=NONE, residual_jitter_hz=NONE, residual_fraction=1.0
    )
    captures = {
        name: replace(setting, snr_db=Spread(100.0, 0.0, 100.0, 100.0), moving_fraction=0.0)
        for name, setting in scene.captures.items()
    }
    receiver = replace(scene.receiver, timing_jitter_samples=0.0, equalise_antennas=False)
    return replace(scene, hardware=hardware, frequency=frequency, captures=captures, receiver=receiver)


@pytest.mark.parametrize(("kind", "samples"), [("wifi", 320), ("lora", 8192)])
def test_a_frame_of_a_recording_is_the_datasets_frame_and_goes_on(kind: str, samples: int) -> None:
    """Same device, same place: but for a phase, the preambles are equal."""
    scene = quiet(load_scene(kind, samples=samples))
    heard = Reception(scene, 2026, "E1", "L3", take=0, length=10**6, strongest_db=100.0)
    network = NETWORKS[kind]
    rng = np.random.default_rng(0)
    message = network.exchange(rng, Station("D04", network.address("D04")), ["D02"], network.usual, True)[0]
    arrival = heard.arrival(Transmission(0, 1000, 0.0, message))
    begin = 1000 - arrival.first
    ours = arrival.samples[:, begin : begin + samples].ravel()
    theirs = next(render(prepare(scene, 2026, CaptureSpec("E1", "D04", "L3", 1))))[0].ravel()
    alike = np.abs(np.vdot(ours, theirs)) ** 2 / (np.vdot(ours, ours).real * np.vdot(theirs, theirs).real)
    # What follows the preamble reaches into it by the filters; LoRa's stored frames end with it.
    assert alike > 1 - 1e-4
    assert len(arrival.samples[0]) >= message.samples > samples


def test_a_mobile_device_walks_on_and_its_channel_with_it() -> None:
    scene = quiet(load_scene("wifi"))
    heard = Reception(scene, 2026, "E1", "M", take=0, length=2 * 10**7, strongest_db=100.0)
    message = Message("D01", "ack", None, None, 6.0, mac.ack("02:00:00:00:00:01"), 1120)
    near, then = (heard.arrival(Transmission(0, start, 0.0, message)).samples for start in (100, 10**7))
    again = heard.arrival(Transmission(0, 100, 0.0, message)).samples
    np.testing.assert_array_equal(near, again)
    alike = np.abs(np.vdot(near, then)) / np.linalg.norm(near) / np.linalg.norm(then)
    assert alike < 0.9


def contents(path: Path) -> tuple[bytes, bytes]:
    return path.read_bytes(), path.with_suffix(".sigmf-data").read_bytes()


def test_neither_blocks_nor_workers_change_a_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"duty": 0.7, "collisions": 0.3, "interferer": "pulsed", "capture": "M"}
    first = Path(record("wifi", tmp_path / "one", 0.02, workers=1, **options).recording)
    monkeypatch.setattr(module, "BLOCK_SEGMENTS", 2)
    second = Path(record("wifi", tmp_path / "two", 0.02, workers=2, **options).recording)
    assert contents(first) == contents(second)
    other = Path(record("wifi", tmp_path / "take", 0.02, workers=1, take=1, **options).recording)
    assert contents(first)[1] != contents(other)[1]


def test_the_pair_is_valid_and_matches_its_hash(made: Made) -> None:
    sigmf = pytest.importorskip("sigmf")
    opened = sigmf.fromfile(made.path)
    opened.validate()
    samples = opened.read_samples(1000, 500)
    np.testing.assert_allclose(samples.T * 32768, made.iq[:, 1000:1500], atol=0.01)
    assert opened.get_global_info()["pisa:geometry"]["kind"] == "square"
    assert opened.get_captures()[0]["core:datetime"].startswith("2026-")


def test_the_spoofer_takes_the_address_from_its_moment_on(wifi: Made) -> None:
    address = NETWORKS["wifi"].address
    mine = [note for note in wifi.notes if note["core:label"] == "D03" and note["pisa:address"] is not None]
    assert {note["pisa:spoofed"] for note in mine} == {True, False}
    for note in mine:
        # An exchange that began before goes on as it was.
        early, late = (note["core:sample_start"] < moment for moment in (0.02 * 20e6, 0.02 * 20e6 + 60_000))
        if early or not late:
            assert note["pisa:spoofed"] == (not early)
        assert note["pisa:address"] == address("D01" if note["pisa:spoofed"] else "D03")
    others = [note for note in wifi.notes if note["core:label"] != "D03"]
    assert not any(note["pisa:spoofed"] for note in others)
    assert any(note["pisa:address"] == address("D01") for note in others)
    assert wifi.summary.spoofed == sum(note["pisa:spoofed"] for note in mine)


def test_unknown_devices_are_those_a_larger_scene_would_have(wifi: Made) -> None:
    strangers = {note["core:label"] for note in wifi.notes if not note["pisa:enrolled"]}
    assert strangers == {"D11", "D12"}
    assert {note["core:label"] for note in wifi.notes} == {"D01", "D02", "D03", "D04", *strangers}
    assert wifi.summary.unknown == sum(not note["pisa:enrolled"] for note in wifi.notes)


def test_overlapping_frames_say_so_and_no_others(wifi: Made) -> None:
    spans = [(note["core:sample_start"], note["core:sample_start"] + note["core:sample_count"]) for note in wifi.notes]
    for note, (start, stop) in zip(wifi.notes, spans, strict=True):
        overlaps = sum(a < stop and start < b for a, b in spans) > 1
        assert note["pisa:collides"] == overlaps
    assert spans == sorted(spans, key=lambda span: span[0])
    assert 0 < wifi.summary.collided < len(spans)
    assert wifi.iq.shape[1] >= max(stop for _, stop in spans)


def test_frames_follow_each_other_as_the_standard_says(wifi: Made) -> None:
    """Answers come from the device that was addressed, a SIFS after the frame, and name no transmitter."""
    address = NETWORKS["wifi"].address
    answers = 0
    for before, note in pairwise(wifi.notes):
        if note["pisa:kind"] not in ("ack", "cts"):
            continue
        answers += 1
        assert note["pisa:address"] is None
        assert note["core:sample_start"] - before["core:sample_start"] - before["core:sample_count"] == 320
        assert address(note["core:label"]) == before["pisa:receiver"]
        assert note["pisa:receiver"] == before["pisa:address"]
    assert answers > 3


@pytest.mark.parametrize("kind", ["wifi", "lora"])
def test_messages_say_who_sends_them_and_last_as_long_as_said(kind: str) -> None:
    network, rng = NETWORKS[kind], np.random.default_rng(1)
    rates = [rate for rate in network.rates if kind == "wifi" or rate < 10]
    seen = set()
    for _ in range(60):
        for message in network.exchange(rng, Station("D01", network.address("D01")), ["D02"], rates, True):
            if (message.kind, message.rate) in seen:
                continue
            seen.add((message.kind, message.rate))
            base = network.waveform(message)
            assert len(base) == message.samples
            assert np.mean(np.abs(base) ** 2) == pytest.approx(1, rel=0.05)
            said = mac.parse(message.octets) if kind == "wifi" else lorawan.parse(message.octets)
            assert said is not None
            assert (said.kind, said.transmitter) == (message.kind, message.transmitter)
    assert {rate for _, rate in seen} == set(rates)


def test_a_receiver_reads_from_the_frames_what_the_annotations_say(wifi: Made) -> None:
    notes = [note for note in wifi.alone() if note["pisa:rate_mbps"] <= 36 and min(note["pisa:snr_db"]) > 20]
    headers = receive([wifi.frame(note) for note in notes], [np.array(note["pisa:cfo_hz"]) for note in notes])
    assert len(notes) > 20
    for note, header in zip(notes, headers, strict=True):
        assert header.fcs
        assert (header.kind, header.transmitter) == (note["pisa:kind"], note["pisa:address"])
        assert (header.rate_mbps, header.length) == (note["pisa:rate_mbps"], note["pisa:length"])


@pytest.mark.parametrize(("kind", "length"), [("wifi", 10**8), ("lora", 10**9)])
@pytest.mark.parametrize("duty", [0.05, 0.5])
def test_somebody_sends_the_asked_part_of_the_time(kind: str, length: int, duty: float) -> None:
    network, devices = NETWORKS[kind], [f"D{i:02d}" for i in range(1, 11)]
    sent = Traffic(network, devices, network.usual, (), np.random.default_rng(2)).plan(length, duty, 0.0)
    assert sum(one.message.samples for one in sent) / length == pytest.approx(duty, rel=0.2)
    assert {one.message.device for one in sent} == set(devices)
    assert not any(one.collides for one in sent)


def test_one_device_alone_sends_what_nobody_answers() -> None:
    traffic = Traffic(NETWORKS["wifi"], ["D01"], (6.0,), (Spoof("D01", "D02", 0),), np.random.default_rng(3))
    sent = traffic.plan(10**7, 0.1, 0.0)
    assert {one.message.kind for one in sent} <= {"qos-data", "beacon"}
    assert {one.message.transmitter for one in sent} == {NETWORKS["wifi"].address("D02")}


@pytest.mark.parametrize(("kind", "frequency_known"), [("carrier", False), ("dc", True)])
def test_an_interferer_is_a_line_of_its_level(kind: str, frequency_known: bool, tmp_path: Path) -> None:
    made = Made(tmp_path, "wifi", 0.01, duty=0, interferer=f"{kind}:20")
    said = made.info["pisa:simulated"]["interferer"]
    assert made.notes == []
    assert (said["frequency_hz"] == 0) == frequency_known
    n = np.arange(made.iq.shape[1])
    tone = np.exp(-2j * np.pi * said["frequency_hz"] * n / 20e6)
    level_db = 20 * np.log10(np.abs(made.iq @ tone) / len(n)) - 10 * np.log10(made.noise_power)
    np.testing.assert_allclose(level_db, 20, atol=0.1)


def test_a_pulsed_interferer_is_off_most_of_the_time(tmp_path: Path) -> None:
    made = Made(tmp_path, "wifi", 0.02, duty=0, interferer="pulsed:20")
    power = np.mean(np.abs(made.iq) ** 2, axis=0) / made.noise_power
    on = np.convolve(power, np.ones(100) / 100, mode="same") > 10
    assert np.mean(on) == pytest.approx(0.1, abs=0.01)


def test_what_is_beyond_full_scale_is_cut_and_counted() -> None:
    stored, clipped = quantised(np.array([[1e5 + 3j, -1e5 - 1e5j, 32767 - 32768j]], dtype=np.complex64))
    assert stored.tolist() == [[[32767, 3], [-32768, -32768], [32767, -32768]]]
    assert clipped == 3


def test_nothing_is_clipped_with_the_usual_headroom(made: Made) -> None:
    assert made.summary.clipped == made.info["pisa:simulated"]["clipped"] == 0
    assert np.abs(made.iq.real).max() > 32768 / 20


def test_truth_cuts_the_recording_into_a_dataset(wifi: Made, tmp_path: Path) -> None:
    pytest.importorskip("sigmf")
    import_dataset("sigmf", wifi.path, tmp_path / "cut", ImportOptions(samples=320))
    frames = load(tmp_path / "cut")
    assert len(frames) == len(wifi.notes)
    assert frames.devices == ("D01", "D02", "D03", "D04", "D11", "D12")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"recording": 0.0}, r"recording: expected 0\.001 to 86400 seconds, found 0"),
        ({"environment": "E9"}, "unknown environment 'E9'"),
        ({"capture": "L9"}, "unknown capture 'L9'"),
        ({"devices": "D01,D77"}, "unknown device 'D77'"),
        ({"devices": ","}, "devices: expected names separated by commas"),
        ({"unknown": -1}, "unknown: expected 0 to 1000 devices, found -1"),
        ({"duty": 1.0}, "duty: expected a number from 0 on and below 1, found 1"),
        ({"collisions": -0.1}, "collisions: expected a number from 0 on"),
        ({"collisions": 0.1, "devices": "D01"}, "collisions: D01 is the only sender"),
        ({"rates": "6,7"}, "unknown rate '7'"),
        ({"spoof": "D03"}, "spoof: expected SPOOFER:DEVICE@SECONDS"),
        ({"spoof": "D03:D01@soon"}, "found 'D03:D01@soon'"),
        ({"spoof": "D03:D01@9"}, r"within the 0\.01 s of the recording"),
        ({"spoof": "D03:D03"}, "D03 cannot take its own address"),
        ({"spoof": "D11:D01"}, "unknown device 'D11'"),
        ({"interferer": "radar"}, "unknown interferer 'radar'"),
        ({"interferer": "dc:loud"}, "interferer: expected a level of -60 to 60 dB"),
        ({"take": -1}, "take: expected a number from 0 on"),
        ({"workers": 0}, "workers: expected at least 1"),
    ],
)
def test_bad_options_are_named_and_leave_nothing_behind(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        record("wifi", tmp_path / "out", **{"recording": 0.01, **options})
    assert not (tmp_path / "out").exists()


def test_a_scene_of_another_sample_rate_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("waveform: {sample_rate_hz: 40.0e+6}\n")
    with pytest.raises(ConfigError, match="wifi frames are made at 2e"):
        record("wifi", tmp_path / "out", 0.01, scene=tmp_path / "own.yaml")


def test_a_recording_that_is_there_is_not_replaced(tmp_path: Path) -> None:
    first = record("wifi", tmp_path, 0.001, workers=1, duty=0)
    before = contents(Path(first.recording))
    with pytest.raises(DataError, match="exists"):
        record("wifi", tmp_path, 0.001, workers=1, duty=0.5)
    assert contents(Path(first.recording)) == before


def test_the_command_makes_one_or_the_other(tmp_path: Path) -> None:
    def run(*options: str) -> Any:
        return CliRunner().invoke(app, ["simulate", "wifi", "--out", str(tmp_path / "out"), *options])

    result = run("--recording", "0.002", "--capture", "L2", "--workers", "1", "--json")
    assert result.exit_code == 0
    summary = json.loads(result.stdout)
    assert summary["recording"].endswith("E1-L2-0.sigmf-meta")
    assert summary["bytes_written"] == 40_000 * 4 * 4
    assert "antennas × samples" in run("--recording", "0.002", "--workers", "1").stdout
    for options, message in (
        (["--duty", "0.3"], "--duty needs --recording"),
        (["--recording", "1", "--scale", "0.1"], "--scale does not go with --recording"),
    ):
        refused = run(*options)
        assert isinstance(refused.exception, ConfigError)
        assert message in str(refused.exception)


@pytest.mark.parametrize("occupied", [0.125, 0.8125])
def test_tabulated_kernels_are_those_of_the_formula(occupied: float) -> None:
    delay = np.random.default_rng(4).uniform(-0.5, 0.5, 1000)
    exact, quick = (kernel(delay, 16, 33, occupied) for kernel in (delay_kernel, tabulated_kernel))
    assert np.abs(quick - exact).max() < 7e-6


def test_long_signals_are_resampled_in_pieces_without_seams(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    x = rng.standard_normal((2, 3000)) + 1j * rng.standard_normal((2, 3000))
    whole = resample(x, 1 + 1e-5, 0.8)
    monkeypatch.setattr(numerics, "LONG_SAMPLES", 700)
    np.testing.assert_array_equal(resample(x, 1 + 1e-5, 0.8), whole)
