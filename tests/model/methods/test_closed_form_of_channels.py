"""The closed form on channel state: one kind of model for every command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pisa_capc.core.errors import ConfigError, DataError, ModelError
from pisa_capc.data.frames import Frames
from pisa_capc.data.protocol import split
from pisa_capc.decide.enrolment import enrol
from pisa_capc.model.edge import export_model
from pisa_capc.model.inference import TrainedModel, embed, load_model
from pisa_capc.model.methods.closed_form import ChannelInClosedForm
from pisa_capc.model.methods.recommend import recommended
from pisa_capc.model.training import Run, fit
from pisa_capc.model.training.fitting import setup_for
from pisa_capc.signal.measurement.front_end import front_end_for, through
from tests.channels import channel_frames


@pytest.fixture(scope="module")
def frames() -> Frames:
    return channel_frames(devices=4, places=3, frames=40)


def trained_on(frames: Frames, source: str = "E2") -> tuple[TrainedModel, Run]:
    run = Run(split(frames, source, "E1", 1), 1)
    return fit(run, method="closed-form", device="cpu", show=False)[0], run


@pytest.fixture(scope="module")
def trained(frames: Frames) -> TrainedModel:
    return trained_on(frames)[0]


def test_it_tells_devices_in_places_it_has_never_seen(frames: Frames, trained: TrainedModel) -> None:
    there = frames.where(environment=["E1", "E3"])
    assert trained.score(there) > 0.95
    assert isinstance(trained.model, ChannelInClosedForm)
    assert trained.run.to_json()["subcarriers"]["front"] == "none"  # it has a front end of its own


def test_it_is_kept_and_gives_the_same(frames: Frames, trained: TrainedModel, tmp_path: Path) -> None:
    trained.save(tmp_path)
    found = load_model(tmp_path)
    there = frames.where(environment="E1")
    np.testing.assert_array_equal(embed(found, there, "cpu").logits, embed(trained, there, "cpu").logits)
    state = found.model.state_dict()
    with pytest.raises(ModelError, match="numbers that are no covariances"):
        found.model.load_state_dict(state | {"noise": -state["noise"]})


def test_what_a_packet_and_an_antenna_add_changes_nothing(frames: Frames, trained: TrainedModel) -> None:
    there = frames.where(environment="E1")
    sanitised = through(there, front_end_for(there.subcarriers, "common"))
    value, _ = trained.model.measured(trained.seen(there).iq)
    again, _ = trained.model.measured(sanitised.iq)
    np.testing.assert_allclose(value, again, atol=1e-4)


def test_a_silent_antenna_leaves_a_frame_to_the_others(frames: Frames, trained: TrainedModel) -> None:
    there = frames.where(environment="E1")
    logits = embed(trained, there, "cpu", missing=[0]).logits
    assert np.mean(logits.argmax(1) == there.device) > 0.9


def test_a_device_is_enrolled_from_a_few_frames(frames: Frames) -> None:
    model, _ = trained_on(_without(frames, "D4"))
    new = frames.where(environment="E2", device="D4").unlabelled()[:5]
    with pytest.warns(UserWarning, match="5 frames are too few to reject others"):
        larger = enrol(model, "D4", new, anyway=True)
    there = frames.where(environment="E1")
    assert np.mean(larger.predict(there) == np.array(frames.devices)[there.device]) > 0.9


def _without(frames: Frames, device: str) -> Frames:
    kept = [name for name in frames.devices if name != device]
    return replace(frames.where(device=kept), devices=tuple(kept))


def test_it_is_recommended_for_channel_state(frames: Frames) -> None:
    part = split(frames, "E2", "E1", 1)
    method, why = recommended(part.train, setup_for(part, "cnn", 320))
    assert method == "closed-form"
    assert "channel state of 27 subcarriers on 2 antennas, with noise 3" in why
    assert recommended(part.train, setup_for(part, "cnn", 320), network=True).method == "pisa"


def test_what_it_cannot_do_is_said(frames: Frames, trained: TrainedModel, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"channel state behind a front end .* cannot be exported. Use the run itself"):
        export_model(trained, tmp_path / "a.onnx")
    run = Run(split(frames, "E2", "E1", 1), 1)
    with pytest.raises(
        ConfigError, match="front antenna: closed-form takes gain, phase and slope off each antenna itself"
    ):
        fit(run, method="closed-form", front="antenna", device="cpu", show=False)
    few = channel_frames(devices=2, places=2, frames=3)
    part = split(few, "E2", "E1", 1)
    with pytest.raises(DataError, match="three frames or more"):
        fit(Run(part, 1), method="closed-form", device="cpu", show=False)
    assert "cannot measure these frames" in recommended(part.train, setup_for(part, "cnn", 320)).why
