"""Devices of on-off keyed frames are told in closed form, and `pisa train` recommends it for them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pisa_capc import Frames
from pisa_capc.core.errors import ConfigError, DataError, ModelError
from pisa_capc.data.protocol import split
from pisa_capc.data.scores import macro_f1
from pisa_capc.decide.identification import observe
from pisa_capc.model.edge.export import expressible
from pisa_capc.model.inference import embed, load_model
from pisa_capc.model.methods.recommend import recommended
from pisa_capc.model.training import Run, fit
from pisa_capc.model.training.fitting import setup_for
from pisa_capc.signal.detection import detect
from tests.cli.test_model_commands import Command, pisa  # noqa: F401  (fixture)
from tests.signal.measurement.keyed_frames import RATE_HZ, messages
from tests.signal.recordings.tools import InMemory

HOW = {"method": "closed-form", "device": "cpu", "threads": 1, "show": False}
SENSORS = {  # by name: offset, chirp, relative length of a pulse
    "A": (-8e3, 60.0, 1.0),
    "B": (3e3, 240.0, 0.97),
    "C": (6e3, 100.0, 1.02),
}


@pytest.fixture(scope="module")
def frames() -> Frames:
    iq, device, environment = [], [], []
    for k, (name, (offset, chirp, pulse)) in enumerate(SENSORS.items()):
        for j, (place, drift) in enumerate({"warm": 0.0, "cool": 300.0}.items()):
            own = messages(24, 10 * k + j, offset_hz=offset + drift, chirp_hz=chirp, pulse_s=0.6e-3 * pulse)
            iq.append(own)
            device += [name] * len(own)
            environment += [place] * len(own)
    return Frames.from_arrays(
        np.concatenate(iq), device=device, environment=environment, sample_rate_hz=RATE_HZ, carrier_hz=433.92e6
    )


def runs(frames: Frames) -> Run:
    return Run(split(frames, ["warm"], ["cool"], 2026, few_shot=0), 2026)


def test_sensors_are_told_and_a_model_is_kept(frames: Frames, tmp_path: Path) -> None:
    setup = setup_for(runs(frames).split, "cnn", 320)
    method, why = recommended(frames.where(environment="warm"), setup)
    assert (method, "on-off keyed" in why) == ("closed-form", True)
    [trained] = fit(runs(frames), out=tmp_path / "run", **HOW)
    assert trained.run.samples == frames.samples
    there = frames.where(environment="cool")
    for model in (trained, load_model(tmp_path / "run")):
        outputs = embed(model, there, "cpu")
        assert macro_f1(there.device, outputs.logits.argmax(1), 3) > 0.95


def test_bursts_of_a_recording_are_identified_with_their_offset(frames: Frames) -> None:
    [trained] = fit(runs(frames), **HOW)
    for number, (offset, chirp, pulse) in enumerate(SENSORS.values()):
        own = messages(4, 70 + number, samples=50_000, offset_hz=offset, chirp_hz=chirp, pulse_s=0.6e-3 * pulse)
        noise = np.random.default_rng(1).normal(scale=0.12, size=(1, 60_000, 2)) @ [1, 1j]
        x = np.concatenate([noise, *own, noise], axis=1).astype(np.complex64)
        x[np.abs(x) == 0] = noise[0, : np.count_nonzero(x == 0)]
        found = detect(InMemory(x, RATE_HZ), "burst:min=0.05,gap=6e-3,max=1")
        seen = observe(trained, [found]).frames
        assert len(seen) >= 3
        assert (embed(trained, seen, "cpu").logits.argmax(1) == number).all()


def test_without_the_offset_that_moved_it_has_the_others(frames: Frames) -> None:
    [trained] = fit(runs(frames), settings={"waveform": "keyed:without=offset"}, **HOW)
    there = frames.where(environment="cool")
    assert trained.model.mean.shape == (3, 5)
    assert macro_f1(there.device, embed(trained, there, "cpu").logits.argmax(1), 3) > 0.9


def test_frames_without_pulses_are_refused_with_advice(frames: Frames) -> None:
    rng = np.random.default_rng(1)
    noise = Frames.from_arrays(
        rng.normal(size=(60, 1, 4000, 2)) @ [1, 1j],
        device=["A", "B"] * 30,
        environment=["warm"] * 30 + ["cool"] * 30,
        sample_rate_hz=RATE_HZ,
        carrier_hz=433.92e6,
    )
    with pytest.raises(DataError, match=r"100% of the frames do not hold 8 on-off keyed pulses.*pisa import iq"):
        fit(runs(noise), **HOW)
    assert recommended(noise, setup_for(runs(noise).split, "cnn", 320)).method == "pisa"


@pytest.mark.parametrize("waveform", ["keyed:offset", "keyed:without=colour", "burst"])
def test_settings_that_make_no_sense_are_refused(waveform: str, frames: Frames) -> None:
    with pytest.raises(ConfigError, match=r"waveform|quantity"):
        fit(runs(frames), settings={"waveform": waveform}, **HOW)


def test_it_cannot_be_written_as_onnx(frames: Frames) -> None:
    [trained] = fit(runs(frames), **HOW)
    with pytest.raises(ModelError, match="on-off keyed pulses cannot be written as ONNX"):
        expressible(trained)


def test_pulses_are_measured_by_a_command(pisa: Command, frames: Frames, tmp_path: Path) -> None:  # noqa: F811
    frames.save(tmp_path / "sensors")
    done = pisa("measure", tmp_path / "sensors", "--waveform", "keyed", "--json", "--csv", tmp_path / "pulses.csv")
    assert done.code == 0, done.err
    found = {own["sender"]: own["carrier offset (Hz)"] for own in json.loads(done.out)["senders"]}
    for name, (offset, _, _) in SENSORS.items():
        mean, half = found[name]
        assert abs(mean - offset - 150) < half  # half of the frames are 300 Hz off
    assert len((tmp_path / "pulses.csv").read_text().splitlines()) == 1 + len(frames)
    assert pisa("measure", tmp_path / "sensors", "--waveform", "keyed", "--card", tmp_path / "card.json").code == 2
