"""Rejected frames do not touch the calibration of the others, and every frame has a decision."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import softmax
from torch import Tensor

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.decide.calibration import UCAPC, OpenSet, SourceStatistics, calibrators, unknown_scores
from pisa_capc.decide.calibration.openset.scores import (
    REJECTIONS,
    Energy,
    ScoreFunction,
    UnknownScore,
    register_rejection,
)
from pisa_capc.decide.calibration.peers import LAME, T3A
from pisa_capc.evidence.figures.calibration import plot_capture
from tests.decide.calibration.openset.examples import World

WORLD = World(features=16)
SOURCE = WORLD.source()
KNOWN, UNKNOWN = WORLD.known(240), WORLD.unknown(60)
EMBEDDING = np.concatenate([KNOWN.embedding, UNKNOWN.embedding])
LOGITS = np.concatenate([KNOWN.logits, UNKNOWN.logits])
CARRIER_HZ = np.concatenate([KNOWN.carrier_hz, UNKNOWN.carrier_hz])
CAPTURE = np.array(["E1/L1", "E1/M", "E1/Z"])[np.r_[np.arange(240) // 4 % 2, np.arange(60) % 3]]


@pytest.mark.parametrize("score", sorted(unknown_scores()))
@pytest.mark.parametrize("calibration", [UCAPC(), UCAPC(group="none"), LAME(group="capture"), T3A()], ids=str)
def test_accepted_frames_are_calibrated_as_if_the_others_were_not_there(score: str, calibration):
    result = OpenSet(calibration, score).calibrate(EMBEDDING, LOGITS, CAPTURE, SOURCE, carrier_hz=CARRIER_HZ)
    known = result.known
    assert 0 < known.sum() < len(known)
    alone = calibration.calibrate(EMBEDDING[known], LOGITS[known], CAPTURE[known], SOURCE)
    np.testing.assert_allclose(result.probability[known], alone.probability, atol=1e-12)
    np.testing.assert_allclose(result.score[known], alone.score, atol=1e-12)
    np.testing.assert_array_equal(result.prediction[known], alone.prediction)
    np.testing.assert_array_equal(result.prediction[~known], -1)
    np.testing.assert_allclose(result.probability[~known], softmax(LOGITS[~known], axis=1), atol=1e-12)
    np.testing.assert_array_equal(result.score[~known], LOGITS[~known])
    assert result.changed == alone.changed
    assert result.unknown_score[known].max() < result.unknown_score[~known].min()
    assert [(s.capture, s.frames) for s in result.captures] == [("E1/L1", 140), ("E1/M", 140), ("E1/Z", 20)]
    for summary in result.captures:
        assert summary.mass_after.sum() == pytest.approx(summary.frames)


def test_prototypes_are_those_of_the_accepted_frames():
    result = OpenSet(UCAPC(), "mahalanobis").calibrate(EMBEDDING, LOGITS, CAPTURE, SOURCE)
    alone = UCAPC().calibrate(EMBEDDING[result.known], LOGITS[result.known], CAPTURE[result.known])
    for summary, prototypes in zip(alone.captures, alone.prototypes, strict=True):
        np.testing.assert_allclose(result.prototypes[result.capture(summary.capture)], prototypes, atol=1e-12)


def test_where_all_is_known_the_calibration_is_what_it_was():
    result = OpenSet(UCAPC(), "energy", threshold=float("inf")).calibrate(EMBEDDING, LOGITS, CAPTURE)
    plain = UCAPC().calibrate(EMBEDDING, LOGITS, CAPTURE)
    assert result.known.all()
    np.testing.assert_array_equal(result.probability, plain.probability)
    np.testing.assert_array_equal(result.prediction, plain.prediction)
    np.testing.assert_array_equal(result.prototypes, plain.prototypes)
    for found, expected in zip(result.captures, plain.captures, strict=True):
        assert (found.capture, found.frames, found.changed) == (expected.capture, expected.frames, expected.changed)
        np.testing.assert_allclose(found.mass_after, expected.mass_after)


def test_where_all_is_unknown_nothing_is_calibrated():
    result = OpenSet(UCAPC(), "energy", threshold=-float("inf")).calibrate(EMBEDDING, LOGITS, CAPTURE)
    assert not result.known.any()
    assert result.changed == 0
    assert result.prototypes is None
    np.testing.assert_array_equal(result.prediction, -1)
    np.testing.assert_allclose(result.probability, softmax(LOGITS, axis=1), atol=1e-12)


def test_results_are_of_the_kind_and_type_of_the_logits():
    given = torch.from_numpy(EMBEDDING).float(), torch.from_numpy(LOGITS).float()
    in_torch = OpenSet(UCAPC(), "knn").calibrate(*given, list(CAPTURE), SOURCE)
    in_numpy = OpenSet(UCAPC(), "knn").calibrate(*(values.numpy() for values in given), CAPTURE, SOURCE)
    assert (in_torch.probability.dtype, in_torch.known.dtype) == (torch.float32, torch.bool)
    assert (in_numpy.probability.dtype, in_numpy.known.dtype) == (np.float32, bool)
    np.testing.assert_array_equal(in_torch.known.numpy(), in_numpy.known)
    np.testing.assert_array_equal(in_torch.probability.numpy(), in_numpy.probability)


def test_results_can_be_written_into_given_arrays():
    out = {name: np.zeros_like(LOGITS) for name in ("probability", "score")}
    result = OpenSet(UCAPC(), "knn").calibrate(EMBEDDING, LOGITS, CAPTURE, SOURCE, out)
    np.testing.assert_array_equal(out["probability"], result.probability)
    assert np.shares_memory(out["score"], result.score)


def test_few_frames_of_known_devices_are_rejected_where_the_source_is_the_target():
    frames = WORLD.known(4000)
    for score in unknown_scores():
        seen = frames.embedding, frames.logits
        result = OpenSet(UCAPC(), score, alpha=0.1).calibrate(*seen, source=SOURCE, carrier_hz=frames.carrier_hz)
        shares = [1 - result.known[frames.label == k].mean() for k in range(4)]
        assert max(shares) < 0.2, score  # alpha, and the spread of a threshold from 50 validation frames


def test_a_class_that_was_never_trained_needs_no_validation_frames():
    source = replace(
        SOURCE, prior=np.array([0.5, 0.3, 0.2, 0]), validation_label=np.minimum(SOURCE.validation_label, 2)
    )
    assert OpenSet(UCAPC(), "energy").calibrate(EMBEDDING, LOGITS, source=source).known.any()
    with pytest.raises(DataError, match="class 3 has 0 validation frames"):
        OpenSet(UCAPC(), "energy").calibrate(EMBEDDING, LOGITS, source=replace(source, prior=None))


def test_the_scores_own_parameters_can_be_set():
    warm, default = (OpenSet(UCAPC(), s).calibrate(EMBEDDING, LOGITS, source=SOURCE) for s in (Energy(9.0), "energy"))
    assert not np.allclose(warm.unknown_score, default.unknown_score)


@pytest.mark.parametrize("missing", ["validation", "validation_logits", "validation_label"])
def test_without_validation_frames_the_threshold_says_what_it_needs(missing: str):
    for source in (replace(SOURCE, **{missing: None}), SourceStatistics(), None):
        with pytest.raises(DataError, match=r"the conformal threshold needs source_validation.*Train the model again"):
            OpenSet(UCAPC(), "energy").calibrate(EMBEDDING, LOGITS, CAPTURE, source)


def test_settings_out_of_range_are_refused():
    for alpha in (0.0, 1.0, float("nan")):
        with pytest.raises(ConfigError, match="alpha is"):
            OpenSet(UCAPC(), "energy", alpha)
    with pytest.raises(ConfigError, match="Did you mean 'energy'"):
        OpenSet(UCAPC(), "enrgy")
    with pytest.raises(ConfigError, match="threshold is NaN"):
        OpenSet(UCAPC(), "energy", threshold=float("nan"))


def test_a_picture_shows_rejected_frames(tmp_path: Path):
    result = OpenSet(UCAPC(), "knn").calibrate(EMBEDDING, LOGITS, CAPTURE, SOURCE)
    plot_capture(result, tmp_path / "capture.svg", "E1/M")
    assert ">rejected<" in (tmp_path / "capture.svg").read_text()


def test_every_calibration_can_follow_a_rejection():
    confusion = replace(SOURCE, confusion=10 * np.eye(4))
    for name, kind in calibrators().items():
        result = OpenSet(kind(), "energy").calibrate(EMBEDDING, LOGITS, CAPTURE, confusion)
        assert set(np.unique(result.prediction)) <= set(range(-1, 4)), name


def test_one_class_adds_a_score_and_what_moved_to_the_studies_says_where_it_is(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(REJECTIONS, "_parts", {n: s for n, s in REJECTIONS.parts().items() if n not in ("msp", "vim")})
    with pytest.raises(ConfigError, match=r"msp is now only in the studies\. Use session.* --plugin studies/scores.py"):
        OpenSet(UCAPC(), "msp")

    @register_rejection("length")
    @dataclass(frozen=True)
    class Length(UnknownScore):
        def fit(self, source: SourceStatistics, classes: int, like: Tensor) -> ScoreFunction:
            return lambda seen: seen.embedding.norm(dim=1)

    length = np.linalg.norm(EMBEDDING, axis=1)
    middle = float(np.median(length))
    result = OpenSet(UCAPC(), "length", threshold=middle).calibrate(EMBEDDING, LOGITS, CAPTURE, SOURCE)
    np.testing.assert_array_equal(result.known, length <= middle)
