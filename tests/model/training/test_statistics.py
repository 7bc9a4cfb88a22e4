"""What a trained model keeps for rejecting unknown devices reaches the calibration, and older models still work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pisa_capc.core.errors import DataError
from pisa_capc.decide.calibration import UCAPC, OpenSet, unknown_scores
from pisa_capc.model.inference import TrainedModel, embed, load_model
from pisa_capc.model.training import TrainingConfig, fit
from tests.problems import runs, small_frames

FRAMES = small_frames(devices=2, environments=2)
LATER = ("covariance", "bank", "validation", "validation_logits", "validation_label", "session_mean")


@pytest.fixture(scope="module")
def trained() -> TrainedModel:
    training = TrainingConfig(epochs=1, batch=16)
    [model] = fit(runs(FRAMES, (3, 4)), encoder="cnn", training=training, device="cpu", show=False)
    return model


def test_the_kept_frames_are_source_frames_seen_through_the_model(trained: TrainedModel) -> None:
    part = runs(FRAMES, (3, 4))[0].split
    train, validation = embed(trained, part.train.unlabelled()), embed(trained, part.validation.unlabelled())
    source = embed(trained, part.target).statistics
    within = np.concatenate([z - z.mean(0) for z in (train.embedding[part.train.device == c] for c in range(2))])
    np.testing.assert_allclose(source.covariance, within.T @ within / len(within), rtol=1e-3, atol=1e-5)
    for z in source.bank:
        assert np.abs(train.embedding - z).max(axis=1).min() < 1e-4
    order = np.argsort(part.validation.device, kind="stable")  # fewer than are kept of each class: all of them
    np.testing.assert_array_equal(source.validation_label, part.validation.device[order])
    np.testing.assert_allclose(source.validation, validation.embedding[order], atol=1e-4)
    np.testing.assert_allclose(source.validation_logits, validation.logits[order], atol=1e-4)


@pytest.mark.parametrize("name", sorted(set(unknown_scores()) - {"gaussian"}))  # which networks have no errors for
def test_a_saved_model_can_reject_and_an_older_one_says_why_it_cannot(
    name: str, trained: TrainedModel, tmp_path: Path
) -> None:
    target = runs(FRAMES, (3, 4))[0].split.target
    calibration = OpenSet(UCAPC(), name, alpha=0.3)
    trained.save(tmp_path / "now")
    scores = embed(load_model(tmp_path / "now"), target)
    frames = (scores.embedding, scores.logits, scores.capture)
    seen = {"carrier_hz": scores.cfo_hz}
    assert calibration.calibrate(*frames, scores.statistics, **seen).known.shape == (len(target),)
    replace(trained, statistics=replace(trained.statistics, **dict.fromkeys(LATER))).save(tmp_path / "older")
    older = embed(load_model(tmp_path / "older"), target)
    np.testing.assert_array_equal(older.logits, scores.logits)
    with pytest.raises(DataError, match="Train the model again"):
        calibration.calibrate(*frames, older.statistics, **seen)
