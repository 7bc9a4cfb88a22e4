"""Thresholds keep what they promise on exchangeable frames, and say when they cannot."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta, binom, binomtest

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.decide.calibration.openset import conformal_threshold, false_accept_threshold

DRAW = np.random.default_rng(2026)


@pytest.mark.parametrize("alpha", [0.02, 0.1, 0.5])
def test_conformal_false_rejections_are_at_most_alpha_for_every_device(alpha: float):
    trials, rejected = 4000, np.zeros(3, dtype=int)
    label = np.arange(60 * 3) % 3
    for _ in range(trials):
        scores = DRAW.normal(size=180) * np.array([1, 1, 3])[label]
        new = DRAW.normal(size=3) * np.array([1, 1, 3])
        rejected += new > conformal_threshold(scores, label, alpha, range(3))
    assert (rejected <= binom.ppf(0.9999, trials, alpha)).all()


def test_conformal_threshold_of_one_device_rejects_exactly_its_share():
    trials, alpha, n = 20_000, 0.1, 39
    new, old = DRAW.normal(size=trials), DRAW.normal(size=(trials, n))
    label = np.zeros(n, dtype=int)
    rejected = sum(u > conformal_threshold(s, label, alpha, [0]) for u, s in zip(new, old, strict=True))
    exact = np.floor(alpha * (n + 1)) / (n + 1)  # what theory gives for scores without ties
    assert binomtest(int(rejected), trials, exact).pvalue > 1e-4


def test_the_threshold_is_that_of_the_most_spread_device():
    label = np.repeat([0, 1], 99)
    scores = np.r_[np.arange(99), 1000 + np.arange(99)]
    assert conformal_threshold(scores, label, 0.01, [0]) == 98
    assert conformal_threshold(scores, label, 0.05, [0]) == 94  # five of 99 at or above, ⌊0.05 · 100⌋ = 5
    assert conformal_threshold(scores, label, 0.05, [0, 1]) == 1094
    assert conformal_threshold(scores, label, 0.05, [1, 0]) == 1094, "whichever comes last"


def test_too_few_validation_frames_of_a_class_are_named():
    scores, label = np.zeros(40), np.repeat([0, 1], [22, 18])
    assert conformal_threshold(scores, label, 0.05, [0]) == 0
    with pytest.raises(DataError, match=r"class 1 has 18 validation frames; alpha = 0.05 needs at least 19"):
        conformal_threshold(scores, label, 0.05, [0, 1])
    with pytest.raises(DataError, match="class 2 has 0 validation frames"):
        conformal_threshold(scores, label, 0.05, [2])


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, float("nan")])
def test_alpha_out_of_range_is_refused(alpha: float):
    with pytest.raises(ConfigError, match="alpha is"):
        conformal_threshold(np.zeros(50), np.zeros(50), alpha, [0])


def test_false_accepts_stay_below_the_bound_as_often_as_promised():
    trials, n, share, confidence = 2000, 200, 0.1, 0.9
    broken = 0
    for scores in DRAW.random(size=(trials, n)):
        found = false_accept_threshold(scores, share, confidence)
        broken += found.threshold > share  # of uniform scores the threshold is the share accepted
    j = found.accepted
    assert beta.ppf(confidence, j + 1, n - j) <= share < beta.ppf(confidence, j + 2, n - j - 1)
    assert binomtest(broken, trials, 1 - beta.cdf(share, j + 1, n - j)).pvalue > 1e-4
    assert broken <= binom.ppf(0.9999, trials, 1 - confidence)


def test_the_bound_is_that_of_clopper_and_pearson():
    found = false_accept_threshold(DRAW.normal(size=500), 0.05, 0.95)
    exact = binomtest(found.accepted, 500, alternative="less").proportion_ci(0.95, method="exact").high
    assert found.bound == pytest.approx(exact, rel=1e-6)
    assert found.bound <= 0.05


def test_tied_proxies_are_rejected_together():
    found = false_accept_threshold(np.r_[np.zeros(300), -1.0], 0.05, 0.95)
    assert (found.accepted, found.frames) == (1, 301)
    assert -1 < found.threshold < 0


def test_too_few_proxies_are_refused():
    assert false_accept_threshold(np.arange(59), 0.05, 0.95).accepted == 0
    with pytest.raises(DataError, match=r"58 frames of proxy unknowns cannot show .* at least 59"):
        false_accept_threshold(np.arange(58), 0.05, 0.95)
    with pytest.raises(DataError, match="0 frames of proxy unknowns"):
        false_accept_threshold([], 0.05, 0.95)
    with pytest.raises(ConfigError, match="share is 0"):
        false_accept_threshold(np.arange(58), 0.0)
