"""A stream under a guard goes as far as the guard allows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from pisa_capc.decide.calibration import Decisions, OnlineCalibrator
from pisa_capc.decide.calibration.safe import Guard

CLASSES, FEATURES = 4, 8
INF = float("inf")


def frames(count: int = 600) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Four classes in turn, in a place that moves all embeddings, with a classifier that prefers one class."""
    rng = np.random.default_rng(5)
    weight = rng.normal(size=(CLASSES, FEATURES))
    z = weight[np.arange(count) % CLASSES] + 0.3 * rng.normal(size=FEATURES) + 0.4 * rng.normal(size=(count, FEATURES))
    return z, z @ weight.T / 2 + 1.5 * (np.arange(CLASSES) == 0)


def decided(guard: Guard | None) -> Decisions:
    return OnlineCalibrator(CLASSES, FEATURES, guard=guard).push(*frames())


def test_a_guard_that_allows_everything_changes_nothing() -> None:
    np.testing.assert_allclose(decided(Guard((INF,) * 3)).probability, decided(None).probability)


def test_a_guard_that_allows_nothing_leaves_the_classifier_alone() -> None:
    got, logits = decided(Guard((-INF,) * 3)), frames()[1]
    np.testing.assert_array_equal(got.prediction, logits.argmax(axis=1))
    np.testing.assert_allclose(got.probability, np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True))


@pytest.mark.parametrize("thresholds", [(-INF, INF, INF), (-INF, -INF, INF)])
def test_levels_between_differ_from_both(thresholds: tuple[float, ...]) -> None:
    got = decided(Guard(thresholds)).probability[-100:]
    for other in (decided(None), decided(Guard((-INF,) * 3))):
        assert np.abs(got - other.probability[-100:]).max() > 1e-3


def test_a_stream_that_is_loaded_keeps_its_guard(tmp_path: Path) -> None:
    z, logits = frames()
    stream = OnlineCalibrator(CLASSES, FEATURES, guard=Guard((-INF, 0.1, INF)))
    stream.push(z[:300], logits[:300])
    stream.save(tmp_path)
    again = OnlineCalibrator.load(tmp_path)
    assert again.guard == stream.guard
    np.testing.assert_array_equal(again.push(z[300:], logits[300:]).score, stream.push(z[300:], logits[300:]).score)
