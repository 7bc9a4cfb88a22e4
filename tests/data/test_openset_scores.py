"""Open-set scores, against scikit-learn and pair by pair."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score, roc_curve
from studies.openset import plot_openset

from pisa_capc.core.errors import DataError
from pisa_capc.data.protocol import Evaluator
from pisa_capc.data.scores import openset_score
from tests.problems import small_frames
from tests.reference import openset as reference


@pytest.fixture(params=[0, 1], ids=["continuous", "tied"])
def frames(request) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    draw = np.random.default_rng(3)
    known, unknown = draw.normal(size=150), 0.7 + draw.normal(size=90)
    if request.param:
        known, unknown = known.round(), unknown.round()
    return known, draw.random(150) < 0.8, unknown


def test_scores_are_those_of_scikit_learn_and_of_all_pairs(frames) -> None:
    known, correct, unknown = frames
    found = openset_score(known, correct, unknown)
    is_known, likeness = np.r_[np.ones(150), np.zeros(90)], -np.r_[known, unknown]
    assert found.auroc == pytest.approx(roc_auc_score(is_known, likeness))
    assert found.auroc == pytest.approx(reference.auroc(known, unknown))
    assert found.oscr == pytest.approx(reference.oscr(known, correct, unknown))
    fpr, tpr, _ = roc_curve(is_known, likeness, drop_intermediate=False)
    assert found.fpr95 == pytest.approx(fpr[tpr >= 0.95][0])
    assert found.accuracy == pytest.approx(correct.mean())
    np.testing.assert_allclose([found.false_accept[-1], found.accept[-1]], 1)


def test_limits() -> None:
    apart = openset_score([0, 1, 2], np.array([True, True, False]), [5, 6])
    assert (apart.auroc, apart.fpr95, apart.oscr) == pytest.approx((1, 0, 2 / 3))
    swapped = openset_score([5, 6], np.array([True, True]), [0, 1])
    assert (swapped.auroc, swapped.fpr95, swapped.oscr) == pytest.approx((0, 1, 0))
    blind = openset_score(np.zeros(4), np.array([True, False, True, False]), np.zeros(3))
    assert (blind.auroc, blind.fpr95, blind.oscr) == pytest.approx((0.5, 1, 0.25))


def test_exactly_95_percent_counts_as_95_percent() -> None:
    known = np.arange(20)
    assert openset_score(known, known >= 0, [18, 18.5, 30]).fpr95 == pytest.approx(1 / 3)  # 19 of 20 are at most 18


@pytest.mark.parametrize(
    ("known", "correct", "unknown", "message"),
    [
        ([], np.zeros(0, bool), [1.0], "0 known and 1 unknown"),
        ([1.0], np.ones(1, bool), [], "1 known and 0 unknown"),
        ([1.0], np.ones(2, bool), [1.0], "expected known"),
        ([1.0], np.ones(1), [1.0], "true or false"),
        ([np.nan], np.ones(1, bool), [1.0], "NaN"),
    ],
)
def test_what_cannot_be_scored_is_refused(known, correct, unknown, message: str) -> None:
    with pytest.raises(DataError, match=message):
        openset_score(known, correct, unknown)


def test_the_evaluator_knows_which_decisions_are_right() -> None:
    frames = small_frames(devices=3, environments=1)
    draw = np.random.default_rng(0)
    outputs, known, unknown = draw.normal(size=(len(frames), 3)), draw.normal(size=len(frames)), draw.normal(size=20)
    found = Evaluator(frames).openset(outputs, known, unknown)
    expected = openset_score(known, outputs.argmax(axis=1) == frames.device, unknown)
    assert found.to_json() == expected.to_json()


def test_curves_are_drawn(frames, tmp_path: Path) -> None:
    found = openset_score(*frames)
    plot_openset(tmp_path / "curves.png", {"energy": found, "knn": found})
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(DataError, match="cannot be written"):
        plot_openset(tmp_path / "curves.nonsense", {"energy": found})
