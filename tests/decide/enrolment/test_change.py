"""A model with a device more or one less is a model like any other."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pisa_capc.core.errors import ConfigError, DataError, ModelError, PisaError
from pisa_capc.data.frames import Frames
from pisa_capc.data.geometry import linear
from pisa_capc.decide.calibration import Careful, OpenSet
from pisa_capc.decide.enrolment import enrol, remove, sounds_like
from pisa_capc.decide.enrolment.mixed import second_sender
from pisa_capc.evidence.evaluation import evaluate
from pisa_capc.model.inference import TrainedModel, embed, load_model
from pisa_capc.model.training import fit
from tests.decide.enrolment.conftest import FRAMES, heard
from tests.problems import runs, small_frames, tones


def test_the_device_is_recognised_where_it_was_not_enrolled_and_the_others_still_are(
    trained: TrainedModel, larger: TrainedModel
) -> None:
    there = FRAMES.where(environment="E1")
    known = there.where(device=["D1", "D2", "D3"])
    assert larger.devices == ("D1", "D2", "D3", "D4")
    assert larger.score(there, "cpu") > 0.95
    assert larger.score(known, "cpu") >= trained.score(known, "cpu") - 0.02


def test_a_frame_stays_with_whom_it_was_given_to_or_goes_to_the_new_device(
    trained: TrainedModel, larger: TrainedModel
) -> None:
    before, after = (embed(model, FRAMES.unlabelled(), "cpu") for model in (trained, larger))
    np.testing.assert_allclose(after.logits[:, :3], before.logits, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(after.embedding, before.embedding)
    decided = after.logits.argmax(axis=1)
    np.testing.assert_array_equal(decided[decided < 3], before.logits.argmax(axis=1)[decided < 3])


def test_it_is_saved_loaded_calibrated_and_scored_like_any_other(larger: TrainedModel, tmp_path: Path) -> None:
    larger.save(tmp_path)
    again = load_model(tmp_path)
    scores = embed(again, FRAMES.where(environment="E1").unlabelled(), "cpu")
    np.testing.assert_array_equal(scores.logits, embed(larger, FRAMES.where(environment="E1").unlabelled()).logits)
    result = OpenSet(Careful(), "knn", alpha=0.05).calibrate(
        scores.embedding, scores.logits, scores.capture, scores.statistics
    )
    assert result.probability.shape == (320, 4)
    assert set(np.asarray(result.prediction).tolist()) <= {-1, 0, 1, 2, 3}
    [found] = evaluate([(tmp_path, again)], FRAMES, ["E1"], show=False)
    assert found.stages["direct"].per_device["D4"] > 0.9


def test_the_description_says_what_was_done_to_which_weights(
    trained: TrainedModel, larger: TrainedModel, tmp_path: Path
) -> None:
    trained.save(tmp_path / "before")
    was = json.loads((tmp_path / "before" / "model.json").read_text())
    [change] = larger.run.changes
    assert change["enrolled"] == "D4"
    assert change["frames"] == 30
    assert change["from"] == [{"name": "a test"}]
    assert change["sha256"] == was["sha256"]
    assert not trained.run.changes
    fewer = remove(larger, "D1")
    assert [next(iter(c.items())) for c in fewer.run.changes] == [("enrolled", "D4"), ("removed", "D1")]
    assert fewer.devices == ("D2", "D3", "D4")


def test_scores_are_by_name_and_leave_out_whom_the_model_does_not_know(larger: TrainedModel, tmp_path: Path) -> None:
    fewer = remove(larger, "D2")
    order = np.array([3, 1, 0, 2])  # another order of names than the model's
    named = replace(FRAMES, device=np.argsort(order)[FRAMES.device], devices=tuple(FRAMES.devices[i] for i in order))
    [found] = evaluate([(tmp_path, fewer)], named, ["E1"], show=False)
    direct = found.stages["direct"]
    assert list(direct.per_device) == ["D1", "D3", "D4"]
    assert direct.confusion.sum() == 3 * 64  # 16 of each device are the few-shot subset
    assert direct.macro_f1 > 0.95


@pytest.mark.parametrize("method", ["difex", "pisa-equalised"])
def test_parts_that_only_training_uses_are_made_to_fit(method: str, tmp_path: Path) -> None:
    frames = small_frames(devices=3, frames=40, samples=320 if method == "pisa-equalised" else 32)
    settings = {"waveform": "wifi"} if method == "pisa-equalised" else None
    [model] = fit(
        runs(frames), method=method, encoder="cnn", epochs=1, batch=16, settings=settings, device="cpu", show=False
    )
    own = frames.where(environment="E2", device="D1").unlabelled()
    more = enrol(model, "D4", own, anyway=True, device="cpu")
    remove(more, "D2").save(tmp_path)
    assert load_model(tmp_path).devices == ("D1", "D3", "D4")


def test_a_device_that_is_there_is_recognised_in_another_place(trained: TrainedModel) -> None:
    for k, name in enumerate(("D1", "D2", "D3")):
        found = sounds_like(trained.statistics, embed(trained, heard(name, "E1", 30), "cpu").embedding)
        assert (found.device, found.alike) == (k, True)
    assert not sounds_like(trained.statistics, embed(trained, heard("D4", "E1", 30), "cpu").embedding).alike
    with pytest.raises(DataError, match="sound like D2, which is enrolled"):
        enrol(trained, "D9", heard("D2", "E1"), device="cpu")
    assert "D9" in enrol(trained, "D9", heard("D2", "E1"), anyway=True, device="cpu").devices


def test_frames_of_two_senders_are_refused_and_named(trained: TrainedModel) -> None:
    both = FRAMES.where(environment="E2", device=["D1", "D4"]).unlabelled()  # 80 of each
    for foreign in (8, 20):
        rows = np.append(np.arange(foreign), 80 + np.arange(40 - foreign))
        with pytest.raises(DataError, match=f"D4: {foreign} of 40 frames are not of .* .numbers 0, 1, 2, 3, 4, 5, …"):
            enrol(trained, "D4", both.select(rows), device="cpu")
    assert "D4" in enrol(trained, "D4", both.select(rows), anyway=True, device="cpu").devices
    for place in ("E1", "E2", "E3"):
        for device in FRAMES.devices:
            own = embed(trained, heard(device, place, 40), "cpu").embedding.astype(np.float64)
            assert not second_sender(trained.statistics, own, np.zeros(40, dtype=np.int64)).any()


def test_few_frames_are_warned_about_and_fewer_refused(trained: TrainedModel) -> None:
    with pytest.warns(UserWarning, match="10 frames are too few to reject"):
        enrol(trained, "D4", heard("D4", "E2", 10), device="cpu")
    for count in (0, 9):
        with pytest.raises(DataError, match=f"{count} frames; expected at least 10"):
            enrol(trained, "D4", heard("D4", "E2", count), device="cpu")


@pytest.mark.parametrize(
    ("name", "says"), [("D1", "already"), ("../D4", "file name"), ("", "file name"), ("unlabelled", "unknown origin")]
)
def test_names_that_cannot_be_are_refused(name: str, says: str, trained: TrainedModel) -> None:
    with pytest.raises(PisaError, match=says):
        enrol(trained, name, heard("D4", "E2"), device="cpu")


def test_frames_of_another_receiver_are_refused(trained: TrainedModel) -> None:
    other = Frames.from_arrays(tones(3, 1, 20, antennas=3), device="D4", geometry=linear(3)).unlabelled()
    with pytest.raises(ModelError, match="2 antennas, these frames have 3"):
        enrol(trained, "D4", other, device="cpu")
    wider = replace(heard("D4", "E2"), geometry=linear(2, spacing_wavelengths=0.7))
    with pytest.raises(ModelError, match="stand otherwise"):
        enrol(trained, "D4", wider, device="cpu")
    slower = replace(heard("D4", "E2"), sample_rate_hz=1e6)
    with pytest.raises(ModelError, match="samples/s"):
        enrol(trained, "D4", slower, device="cpu")


def test_a_device_that_is_not_there_cannot_be_removed_and_two_must_be_left(larger: TrainedModel) -> None:
    with pytest.raises(ConfigError, match="Did you mean"):
        remove(larger, "D5")
    pair = remove(remove(larger, "D1"), "D2")
    with pytest.raises(ConfigError, match="two at least"):
        remove(pair, "D3")
