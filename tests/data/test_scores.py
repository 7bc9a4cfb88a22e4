"""Scores, against scikit-learn and by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score, roc_auc_score

from pisa_capc.core.errors import DataError
from pisa_capc.data.scores import macro_f1, score
from pisa_capc.evidence.figures.confusion import plot_confusions

DEVICES = tuple("abcde")


@pytest.fixture(scope="module")
def guess():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 5, 400)
    logits = rng.normal(size=(400, 5)) + 1.5 * np.eye(5)[labels]
    captures = np.array(["E1/L1", "E1/M"])[rng.integers(0, 2, 400)]
    return labels, logits, captures


def softmax(x):
    return np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)


def test_scores_are_those_of_scikit_learn(guess) -> None:
    labels, logits, captures = guess
    found, predictions = score(logits, labels, DEVICES, captures), logits.argmax(axis=1)
    assert found.macro_f1 == pytest.approx(f1_score(labels, predictions, average="macro"))
    assert found.macro_f1 == pytest.approx(macro_f1(labels, predictions, 5))
    assert found.accuracy == pytest.approx(accuracy_score(labels, predictions))
    assert found.macro_auroc == pytest.approx(
        roc_auc_score(labels, softmax(logits), multi_class="ovr", average="macro"), abs=1e-12
    )
    np.testing.assert_array_equal(found.confusion, confusion_matrix(labels, predictions))
    np.testing.assert_allclose(list(found.per_device.values()), f1_score(labels, predictions, average=None))
    in_m = captures == "E1/M"
    assert found.per_capture["E1/M"].accuracy == pytest.approx(accuracy_score(labels[in_m], predictions[in_m]))
    assert found.per_capture["E1/M"].macro_f1 == pytest.approx(
        f1_score(labels[in_m], predictions[in_m], average="macro")
    )
    assert sum(c.frames for c in found.per_capture.values()) == 400


def test_logits_and_their_probabilities_score_alike(guess) -> None:
    labels, logits, captures = guess
    a, b = (score(x, labels, DEVICES, captures).to_json() for x in (logits, softmax(logits)))
    assert a["macro_auroc"] == pytest.approx(b["macro_auroc"])
    assert a["confusion"] == b["confusion"]


def test_tied_probabilities_count_half() -> None:
    labels = np.array([0, 1, 0, 1])
    assert score(np.full((4, 2), 0.5), labels, ("a", "b"), np.array(["x"] * 4)).macro_auroc == 0.5


def test_macro_f1_is_over_all_classes_and_a_class_never_hit_counts_zero() -> None:
    assert macro_f1([0, 0, 1], [0, 0, 1], 4) == pytest.approx(0.5)


def test_a_capture_is_scored_over_the_devices_recorded_in_it() -> None:
    outputs = np.eye(3)[[0, 1, 0, 1, 2]]
    found = score(outputs, np.array([0, 1, 0, 1, 2]), tuple("abc"), np.array(["E3/L1"] * 2 + ["E3/M"] * 3))
    assert found.per_capture["E3/L1"].macro_f1 == 1


def test_one_class_alone_has_no_auroc() -> None:
    found = score(np.eye(2)[[0, 0]], np.array([0, 0]), ("a", "b"), np.array(["x", "x"]))
    assert np.isnan(found.macro_auroc)
    assert found.to_json()["macro_auroc"] is None


def test_scores_are_json(guess) -> None:
    labels, logits, captures = guess
    text = json.dumps(score(logits, labels, DEVICES, captures).to_json())
    assert json.loads(text)["per_device"].keys() == set(DEVICES)


def test_the_confusion_matrix_can_be_drawn(guess, tmp_path) -> None:
    labels, logits, captures = guess
    found = score(logits, labels, DEVICES, captures)
    plot_confusions(tmp_path / "confusion.png", {"": found})
    assert (tmp_path / "confusion.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(DataError, match="cannot be written"):
        plot_confusions(tmp_path / "confusion.png" / "below-a-file.png", {"": found})


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (np.ones((3, 2)), r"expected \(2, 2\).*found \(3, 2\)"),
        (np.ones(2), r"found shape \(2,\)"),
        (np.array([[1, 0], [np.nan, 1]]), "frame 1 is NaN"),
    ],
)
def test_outputs_that_do_not_fit_are_refused(outputs, message: str) -> None:
    with pytest.raises(DataError, match=message):
        score(outputs, np.array([0, 1]), ("a", "b"), np.array(["x", "x"]))


def test_labels_out_of_range_are_refused() -> None:
    with pytest.raises(DataError, match="predictions: expected classes 0 to 1, found 0 to 2"):
        macro_f1([0, 1], [0, 2], 2)
