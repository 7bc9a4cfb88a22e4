"""Class shares other than equal ones: exact where they are given, loose where they are asked to be, estimated by EM."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from pisa_capc.core.errors import ConfigError
from pisa_capc.decide.calibration import UCAPC, PriorUCAPC, SourceStatistics
from pisa_capc.decide.calibration.prior import estimate_shares
from tests.decide.calibration.examples import shifted_captures

EXAMPLE = shifted_captures()
FRAMES = (EXAMPLE.embedding, EXAMPLE.logits, EXAMPLE.capture)
EXACT = {"relaxation": math.inf, "sinkhorn_iterations": 2000}


def test_equal_shares_held_exactly_are_the_published_calibration() -> None:
    given = PriorUCAPC(prior="given", shares=(0.25,) * 4, relaxation=math.inf).calibrate(*FRAMES)
    np.testing.assert_allclose(given.probability, UCAPC().calibrate(*FRAMES).probability, rtol=0, atol=1e-10)


def test_given_shares_are_met_exactly_or_approached() -> None:
    shares = np.array([0.4, 0.3, 0.2, 0.1])
    distance = []
    for relaxation in (math.inf, 10.0, 1.0):
        settings = {**EXACT, "relaxation": relaxation}
        result = PriorUCAPC(prior="given", shares=tuple(shares), **settings).calibrate(*FRAMES)
        np.testing.assert_allclose(result.probability.sum(1), 1, atol=1e-12)
        distance.append(max(abs(c.mass_after / c.frames - shares).max() for c in result.captures))
    assert distance[0] < 1e-6
    assert distance[0] < distance[1] < distance[2]


def test_a_share_of_zero_leaves_a_class_empty() -> None:
    result = PriorUCAPC(prior="given", shares=(0.5, 0.5, 0.0, 0.0), **EXACT).calibrate(*FRAMES)
    assert set(result.prediction) == {0, 1}


@pytest.mark.parametrize("logits", [1.0, 400.0])  # by scaling, and on logarithms
def test_the_loose_transport_solves_its_problem(logits: float) -> None:
    """At the optimum the potential of a class is −ρ log of how far its share is exceeded, up to one constant."""
    rho, n = 2.0, len(EXAMPLE.logits)
    settings = PriorUCAPC(prior="balanced", relaxation=rho, sinkhorn_iterations=5000, passes=0, group="none")
    result = settings.calibrate(EXAMPLE.embedding, EXAMPLE.logits * logits)
    assert result.potentials is not None
    mass = np.asarray(result.probability).sum(0)
    excess = result.potentials[0] + rho * np.log(mass / (n / 4))
    np.testing.assert_allclose(excess, excess[0], atol=1e-6)


def test_shares_are_estimated_where_posteriors_are_calibrated() -> None:
    rng = np.random.default_rng(0)
    truth = np.array([0.6, 0.3, 0.1])
    label = rng.choice(3, 20_000, p=truth)
    means = 2 * np.eye(3)
    x = means[label] + rng.normal(size=(len(label), 3))
    log_posterior = torch.log_softmax(torch.from_numpy(x @ means.T), dim=1)  # of balanced classes
    equal = torch.full((3,), 1 / 3, dtype=torch.float64)
    found = estimate_shares(log_posterior, equal, equal, weight=0.0)
    np.testing.assert_allclose(found, truth, atol=0.015)
    held = estimate_shares(log_posterior, equal, equal, weight=1e9)
    np.testing.assert_allclose(held, equal, atol=1e-4)


def test_the_estimate_uses_the_source_and_each_capture() -> None:
    settings = PriorUCAPC(shrinkage=0.0)
    plain = settings.calibrate(*FRAMES)
    warm = settings.calibrate(*FRAMES, source=SourceStatistics(temperature=np.array(5.0)))
    assert abs(np.asarray(plain.probability) - np.asarray(warm.probability)).max() > 1e-3


def test_each_capture_has_its_own_estimate() -> None:
    rng = np.random.default_rng(1)
    truth = np.array([[0.6, 0.3, 0.1], [0.1, 0.3, 0.6]])
    label = np.concatenate([rng.choice(3, 5000, p=shares) for shares in truth])
    means = 2 * np.eye(3)
    x = means[label] + rng.normal(size=(len(label), 3))
    frames = (x, x @ means.T, np.repeat(["a", "b"], 5000))  # logits of balanced classes, calibrated
    exact = {"relaxation": math.inf, "passes": 0, "sinkhorn_iterations": 500}

    def shares(settings: PriorUCAPC) -> np.ndarray:
        return np.array([c.mass_after / c.frames for c in settings.calibrate(*frames).captures])

    np.testing.assert_allclose(shares(PriorUCAPC(shrinkage=0.0, **exact)), truth, atol=0.03)
    drawn = shares(PriorUCAPC(shrinkage=5000.0, **exact))  # half way to what holds over all
    assert np.ptp(drawn[:, 0]) < 0.8 * np.ptp(truth[:, 0])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prior": "given"}, "go together"),
        ({"shares": (0.5, 0.5)}, "go together"),
        ({"prior": "given", "shares": (0.5, 0.4)}, "sum to 0.9; expected one share per class"),
        ({"prior": "given", "shares": (1.5, -0.5)}, "none negative"),
        ({"relaxation": 0.0}, "expected a positive number"),
        ({"shrinkage": -1.0}, "expected a number of frames"),
        ({"prior": "estimate"}, "Did you mean 'estimated'"),
    ],
)
def test_senseless_settings_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PriorUCAPC(**settings)


def test_shares_must_fit_the_classes() -> None:
    with pytest.raises(ConfigError, match="3 are given for 4 classes"):
        PriorUCAPC(prior="given", shares=(0.5, 0.25, 0.25)).calibrate(*FRAMES)
