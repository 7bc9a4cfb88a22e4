"""What is kept of the source: exact statistics, and frames taken evenly over each class."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pisa_capc.core.errors import DataError
from pisa_capc.decide.calibration import Careful, OpenSet
from pisa_capc.model.inference.statistics import BANK, VALIDATION, SourceStatistics, openset_statistics
from tests.decide.calibration.openset.examples import World


def statistics(label: np.ndarray, classes: int = 3) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    draw = np.random.default_rng(0)
    z = draw.normal(size=(len(label), 4)) + label[:, None]
    held = np.arange(len(label), dtype=np.float64)[:, None].repeat(4, 1)
    found = openset_statistics(z, label, held, draw.normal(size=(len(label), classes)), torch.from_numpy(label))
    return z, {name: value.numpy() for name, value in found.items()}


def test_moments_are_those_of_numpy():
    label = np.random.default_rng(1).integers(0, 3, 500)
    z, found = statistics(label)
    own = [z[label == k] for k in range(3)]
    np.testing.assert_allclose(found["class_mean"], [part.mean(0) for part in own], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["prior"], np.bincount(label) / 500, rtol=1e-6)
    within = sum(len(part) * np.cov(part.T, bias=True) for part in own) / 500
    np.testing.assert_allclose(found["covariance"], within, rtol=1e-4, atol=1e-6)


def test_frames_are_taken_evenly_over_each_class():
    label = np.repeat([0, 1, 2], [1000, 30, 101])
    z, found = statistics(label)
    assert len(found["bank"]) == BANK + 30 + BANK
    np.testing.assert_array_equal(found["bank"][:BANK], np.float32(z[:1000:20]))
    np.testing.assert_array_equal(np.bincount(found["validation_label"]), [VALIDATION, 30, VALIDATION])
    np.testing.assert_array_equal(found["validation"][:VALIDATION, 0], np.arange(0, 1000, 10))
    assert len(found["validation_logits"]) == len(found["validation"])


def test_a_class_without_frames_has_no_mass():
    _, found = statistics(np.repeat([0, 2], 50))
    np.testing.assert_array_equal(found["prior"], [0.5, 0, 0.5])
    np.testing.assert_array_equal(found["class_mean"][1], 0)
    assert set(found["validation_label"]) == {0, 2}


def test_a_session_is_a_class_in_a_capture_of_a_place():
    draw = np.random.default_rng(2)
    label, where = draw.integers(0, 2, 300), draw.integers(0, 2, (300, 2))
    z = draw.normal(size=(300, 4)) + 10 * label[:, None] + where @ [[1], [3]]
    held = np.array([0, 1, 1]), np.array([[1, 0], [0, 1], [9, 9]])  # of the last, no training frame was heard
    parts = (z, label, np.zeros((3, 4)), np.zeros((3, 2)), torch.from_numpy(held[0]), where, held[1])
    found = {name: value.numpy() for name, value in openset_statistics(*parts).items()}
    assert len(found["session_mean"]) == 8
    within = np.zeros((4, 4))
    for s, (kind, place) in enumerate(zip(found["session_label"], found["session_place"], strict=True)):
        own = z[(label == kind) & (where[:, 0] == place) & (where[:, 1] == s % 2)]
        assert found["session_frames"][s] == len(own)
        np.testing.assert_allclose(found["session_mean"][s], own.mean(0), rtol=1e-5)
        within += len(own) * np.cov(own.T, bias=True)
    np.testing.assert_allclose(found["session_covariance"], within / (300 - 8), rtol=1e-4, atol=1e-6)
    first, second, none = found["validation_session"]
    assert none == -1
    assert (found["session_label"][[first, second]] == [0, 1]).all()
    assert (found["session_place"][[first, second]] == [1, 0]).all()


def test_any_classifier_has_a_source_that_careful_and_rejections_can_use() -> None:
    world = World(classes=5, features=8)
    seen, new = world.known(1000), world.known(300)
    capture = np.arange(1000) // 5 % 4
    source = SourceStatistics.from_source(seen.embedding, seen.logits, seen.label, capture)
    np.testing.assert_allclose(source.weight, world.weight / 4, atol=1e-9)  # of a classifier that is linear
    np.testing.assert_allclose(source.bias, world.bias, atol=1e-9)
    assert source.confusion is not None
    assert source.validation is not None
    assert source.confusion.sum() == len(source.validation) == 200
    result = OpenSet(Careful(), "session").calibrate(new.embedding, new.logits, source=source)
    assert result.judged is not None
    assert (result.prediction == new.label).mean() > 0.8
    strangers = OpenSet(Careful(), "session").calibrate(*world.unknown(300)[:2], source=source)
    assert strangers.known.sum() < result.known.sum() / 2  # type: ignore[union-attr]


def test_a_source_that_cannot_be_is_explained_and_one_that_is_exchanged_is_noticed() -> None:
    z, logits, label, _ = World(classes=5, features=8).known(200)
    with pytest.raises(DataError, match="expected whole numbers from 0 to 4, as logits have 5 columns"):
        SourceStatistics.from_source(z, logits, label + 1)
    with pytest.raises(DataError, match=r"labels \(199,\) disagree"):
        SourceStatistics.from_source(z, logits, label[1:])
    with pytest.raises(DataError, match="NaN or infinity"):
        SourceStatistics.from_source(z * np.inf, logits, label)
    with pytest.warns(UserWarning, match="embedding and logits look exchanged"):
        SourceStatistics.from_source(logits, z, label)
