"""Verification: EER, DET curve and Cllr, by what they must be and by their slow twins."""

from __future__ import annotations

import numpy as np
import pytest

from pisa_capc.core.errors import DataError
from pisa_capc.data.scores import Scores, openset_score, score
from pisa_capc.data.trials import claim_ratios, cllr, det_curve, verification_score
from tests.reference import trials as slow


@pytest.fixture(scope="module")
def trials():
    """Ratios that are true: of N(1, 1) against N(-1, 1) the log-likelihood ratio of x is 2x."""
    rng = np.random.default_rng(7)
    return 2 * rng.normal(1, 1, 4000), 2 * rng.normal(-1, 1, 6000)


def test_perfect_ratios_have_no_bits_and_useless_ones_have_one() -> None:
    perfect = verification_score(np.full(5, 800.0), np.full(7, -800.0))
    assert (perfect.eer, perfect.cllr, perfect.min_cllr) == (0, 0, 0)
    useless = verification_score(np.zeros(5), np.zeros(7))
    assert (useless.eer, useless.cllr, useless.min_cllr) == pytest.approx((0.5, 1, 1))


def test_ratios_that_mislead_cost_more_than_one_bit_and_best_mapped_one() -> None:
    found = verification_score([-5.0, -4.0], [4.0, 5.0])
    assert found.eer == 1
    assert found.cllr > 5
    assert found.min_cllr == pytest.approx(1)


def test_true_ratios_of_two_gaussians_have_their_error_rate_and_are_calibrated(trials) -> None:
    found = verification_score(*trials)
    assert found.eer == pytest.approx(0.1587, abs=0.01)  # Φ(−1)
    assert found.min_cllr <= found.cllr < found.min_cllr + 0.02


def test_eer_is_the_same_with_the_roles_swapped(trials) -> None:
    genuine, false = trials
    assert verification_score(-false, -genuine).eer == pytest.approx(verification_score(genuine, false).eer)
    assert cllr(-false, -genuine) == pytest.approx(cllr(genuine, false))


def test_only_cllr_depends_on_the_scale_of_the_ratios(trials) -> None:
    genuine, false = trials
    plain, shouted = verification_score(genuine, false), verification_score(5 * genuine + 1, 5 * false + 1)
    assert (shouted.eer, shouted.min_cllr) == pytest.approx((plain.eer, plain.min_cllr))
    assert shouted.cllr > 2 * plain.cllr


def test_a_det_curve_goes_from_accepting_all_to_refusing_all(trials) -> None:
    found = verification_score(*trials)
    assert (found.miss[0], found.false_accept[0], found.miss[-1], found.false_accept[-1]) == pytest.approx((0, 1, 1, 0))
    assert (np.diff(found.miss) >= 0).all()
    assert (np.diff(found.false_accept) <= 1e-15).all()
    short = det_curve(found.miss, found.false_accept, points=50)
    assert len(short["miss"]) <= 50
    assert (short["miss"][0], short["miss"][-1]) == (0, 1)
    assert max(np.diff(short["miss"])) < 0.05


@pytest.mark.parametrize("seed", range(5))
def test_fast_measures_are_those_of_their_slow_twins(seed: int) -> None:
    rng = np.random.default_rng(seed)
    genuine = rng.normal(1, 2, 40).round(seed % 2).tolist()  # with ties, where it is rounded to whole numbers
    false = rng.normal(-1, 2, 30).round(seed % 2).tolist()
    found = verification_score(genuine, false)
    assert found.eer == pytest.approx(slow.equal_error_rate(genuine, false))
    assert found.cllr == pytest.approx(slow.cllr(genuine, false))
    assert found.min_cllr == pytest.approx(slow.min_cllr(genuine, false))


def test_every_frame_claims_every_device() -> None:
    rng = np.random.default_rng(3)
    probability = rng.dirichlet(np.full(4, 0.3), size=20).clip(1e-9)
    probability /= probability.sum(axis=1, keepdims=True)
    labels = rng.integers(0, 4, 20)
    for fast, obvious in zip(claim_ratios(labels, probability), slow.claim_ratios(labels, probability), strict=True):
        np.testing.assert_allclose(fast, obvious)


def test_a_claim_keeps_its_size_where_a_probability_rounds_to_one() -> None:
    probability = np.array([[1.0, 1e-30], [1e-40, 1.0]])
    genuine, false = claim_ratios(np.array([0, 1]), probability)
    np.testing.assert_allclose(genuine, [30 * np.log(10), 40 * np.log(10)])
    np.testing.assert_allclose(false, -genuine)


def test_scores_of_an_identification_say_how_well_claims_are_verified() -> None:
    labels, captures = np.array([0, 1, 2, 0]), np.array(["x"] * 4)
    right = score(np.eye(3)[labels], labels, tuple("abc"), captures)
    assert (right.eer, right.cllr, right.min_cllr, right.balanced_accuracy) == pytest.approx((0, 0, 0, 1))
    blind = score(np.full((4, 3), 1 / 3), labels, tuple("abc"), captures)
    assert (blind.eer, blind.cllr, blind.balanced_accuracy) == pytest.approx((0.5, 1, 1 / 3))
    again = Scores.from_json(blind.to_json())
    assert (again.eer, again.cllr, again.min_cllr) == (blind.eer, blind.cllr, blind.min_cllr)


def test_scores_of_earlier_versions_have_no_claims() -> None:
    earlier = score(np.eye(2), np.array([0, 1]), ("a", "b"), np.array(["x", "x"])).to_json()
    for name in ("eer", "cllr", "min_cllr"):
        del earlier[name]
    assert np.isnan(Scores.from_json(earlier).eer)


def test_one_device_alone_makes_no_claims() -> None:
    found = score(np.ones((2, 1)), np.array([0, 0]), ("a",), np.array(["x", "x"]))
    assert np.isnan(found.eer)
    assert found.to_json()["cllr"] is None


def test_strangers_have_an_equal_error_rate() -> None:
    def eer(known, unknown):
        return openset_score(known, np.ones(len(known), dtype=bool), unknown).eer

    assert eer([1, 2], [3, 4]) == 0
    assert eer([3, 4], [1, 2]) == 1
    assert eer([1, 1], [1, 1]) == 0.5
    rng = np.random.default_rng(0)
    known, unknown = rng.normal(size=50).tolist(), rng.normal(1, 1, 70).tolist()
    assert eer(known, unknown) == pytest.approx(slow.equal_error_rate(unknown, known))


@pytest.mark.parametrize(("genuine", "false"), [([], [1.0]), ([1.0], []), ([[1.0]], [1.0]), ([np.nan], [1.0])])
def test_trials_that_give_no_curve_are_refused(genuine, false) -> None:
    with pytest.raises(DataError, match="trials"):
        verification_score(genuine, false)
