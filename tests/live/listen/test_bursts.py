"""Devices of a signal that nothing describes: from recordings of bursts to a name, from files and live."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from pisa_capc import load
from pisa_capc.core.errors import ModelError
from pisa_capc.decide.enrolment import enrol
from pisa_capc.decide.identification import identify, observe
from pisa_capc.live.listen import Air, Listener
from pisa_capc.model.inference import TrainedModel
from pisa_capc.model.training import fit
from pisa_capc.signal.detection import Found, FoundFrame, detect
from pisa_capc.signal.detection.dataset import DatasetChoices, write_frames
from tests.live.listen.air import CF32, script
from tests.model.training.tools import FAST
from tests.problems import runs
from tests.signal.recordings.tools import InMemory

RATE_HZ, CARRIER_HZ = 1e6, 433.92e6
SAMPLES, EVERY, FIRST = 256, 2000, 1000
DEVIATION_HZ = {"D1": 20e3, "D2": 40e3, "D3": 80e3, "D4": 140e3}  # of frequency shift keying: what tells them apart


def air(devices: list[str], seed: int) -> NDArray[np.complex64]:
    """A burst of each device in turn, of two antennas."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(2, EVERY * len(devices) + 1000, 2)) @ [1, 1j] / np.sqrt(2)
    for i, device in enumerate(devices):
        bits = np.repeat(rng.choice([-1.0, 1.0], 20), 20)
        frequency = rng.uniform(-2e3, 2e3) + DEVIATION_HZ[device] * bits
        phase = 2 * np.pi / RATE_HZ * np.cumsum(frequency)
        x[:, FIRST + EVERY * i :][:, : len(bits)] += 20 * np.exp(1j * (phase + rng.uniform(0, 6, (2, 1))))
    return x.astype(np.complex64)


def found_in(devices: list[str], seed: int, name: str = "air") -> Found:
    recording = InMemory(air(devices, seed), RATE_HZ)
    recording.about = replace(recording.about, name=name, carrier_hz=CARRIER_HZ)
    return detect(recording, "burst")


@pytest.fixture
def trained(tmp_path: Path) -> TrainedModel:
    names = [
        {"environment": environment, "device": device, "capture": "L1"}
        for environment in ("E1", "E2", "E3")
        for device in ("D1", "D2", "D3")
    ]
    found = [found_in([own["device"]] * 24, i, f"{own['environment']}-{own['device']}") for i, own in enumerate(names)]
    out = tmp_path / "set"
    write_frames(out, found, DatasetChoices(label="pattern", samples=SAMPLES), names)
    frames = load(out)
    assert len(frames) == 9 * 24
    [model] = fit(runs(frames), **FAST | {"training": replace(FAST["training"], epochs=8)}, method="single")
    return model


SENT = ["D1", "D2", "D3"] * 20


def test_devices_are_known_by_their_bursts_from_files_and_live(trained: TrainedModel) -> None:
    """One test, so that one model is trained for all of it."""
    identified(trained)
    enrolled(trained)
    listened_to(trained)
    shorter(trained)


def identified(trained: TrainedModel) -> None:
    who = identify(trained, [found_in(SENT, 99)], device="cpu")
    right = np.mean([device == sent for device, sent in zip(who.device, SENT, strict=True)])
    assert right > 0.8  # chance is a third
    with pytest.raises(ModelError, match="the model was trained at 1e"):
        identify(trained, [detect(InMemory(air(SENT, 99), 2 * RATE_HZ), "burst")], device="cpu")


def enrolled(trained: TrainedModel) -> None:
    more = enrol(trained, "D4", observe(trained, [found_in(["D4"] * 30, 7)]).frames, device="cpu")
    who = identify(more, [found_in(["D4"] * 20, 8)], device="cpu")
    assert np.mean([like == "D4" for like in who.like]) > 0.8


def listened_to(trained: TrainedModel) -> None:
    heard: list[FoundFrame] = []
    listen_to = Air(RATE_HZ, 2, CF32, CARRIER_HZ, waveform="burst")
    listener = Listener(trained, script(air(SENT, 99)), listen_to)
    listener.run(lambda event: heard.append(event) if isinstance(event, FoundFrame) else None)
    assert [one.start for one in heard] == pytest.approx([FIRST + EVERY * i for i in range(60)], abs=2)
    assert np.mean([one.who.like == sent for one, sent in zip(heard, SENT, strict=True)]) > 0.8
    assert all(one.bandwidth_hz and one.to_json()["bandwidth_hz"] for one in heard)
    listener.exchange(trained)
    with pytest.raises(ModelError, match="burst frames are found at 2e"):
        Listener(trained, script(), replace(listen_to, sample_rate_hz=2e6))


def shorter(trained: TrainedModel) -> None:
    """Bursts that are shorter than what the model looks at."""
    x = air(["D1"] * 10, 3)
    for i in range(10):  # what is left of each are 100 samples
        x[:, FIRST + EVERY * i + 100 : FIRST + EVERY * i + 400] = x[:, 500:800]
    found = detect(InMemory(x, RATE_HZ), "burst")
    assert all(one.samples is not None and one.samples < SAMPLES for one in found.frames)
    assert len(identify(trained, [found], device="cpu").device) == len(found.frames) == 10
