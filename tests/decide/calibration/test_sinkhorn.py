"""The class-balance operator keeps its constraints, solves its problem, and survives extremes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pisa_capc.core.errors import ConfigError
from pisa_capc.core.randomness import generator
from pisa_capc.decide.calibration import sinkhorn
from pisa_capc.decide.calibration.sinkhorn import balanced_assignment
from tests.reference import ucapc as reference


def scores(frames: int, classes: int, scale: float = 1.0, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(generator(seed, "sinkhorn").normal(scale=scale, size=(frames, classes)))


@given(st.integers(1, 40), st.integers(1, 8), st.sampled_from([0.1, 1.0, 30.0, 1e4]), st.integers(1, 30))
@settings(max_examples=60, deadline=None)
def test_rows_sum_to_one_after_any_number_of_iterations(frames: int, classes: int, scale: float, iterations: int):
    plan = balanced_assignment(scores(frames, classes, scale), iterations)
    assert torch.isfinite(plan).all()
    assert (plan >= 0).all()
    torch.testing.assert_close(plan.sum(1), torch.ones(frames, dtype=torch.float64), rtol=0, atol=1e-12)


def test_columns_reach_n_over_c_at_convergence():
    plan = balanced_assignment(scores(37, 5), 2000)
    torch.testing.assert_close(plan.sum(0), torch.full((5,), 37 / 5, dtype=torch.float64), rtol=0, atol=1e-10)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_equals_the_reference_after_few_iterations(epsilon: float):
    given_scores = scores(23, 4, 3.0)
    expected = reference.sinkhorn(given_scores.numpy(), 5, epsilon)
    np.testing.assert_allclose(balanced_assignment(given_scores, 5, epsilon), expected, rtol=0, atol=1e-12)


def test_converges_to_the_solution_of_pot():
    ot = pytest.importorskip("ot")
    given_scores = scores(30, 4, 2.0).numpy()
    rows, columns = np.full(30, 1.0), np.full(4, 30 / 4)
    expected = ot.bregman.sinkhorn_log(rows, columns, -given_scores, reg=0.7, numItermax=5000, stopThr=1e-14)
    np.testing.assert_allclose(balanced_assignment(torch.from_numpy(given_scores), 5000, 0.7), expected, atol=1e-9)


def test_equals_pot_at_equal_iterations_from_the_same_start():
    ot = pytest.importorskip("ot")
    given_scores = scores(30, 4, 4.0)
    cost = -torch.log_softmax(given_scores, dim=1).numpy()
    expected = ot.bregman.sinkhorn_log(np.ones(30), np.full(4, 7.5), cost, 1.0, numItermax=7, stopThr=0, warn=False)
    np.testing.assert_allclose(balanced_assignment(given_scores, 7), expected, rtol=0, atol=1e-12)


def test_is_optimal_against_every_feasible_direction():
    given_scores, epsilon = scores(6, 3), 0.8
    plan = balanced_assignment(given_scores, 3000, epsilon)
    # At the optimum the gradient S − ε(log Π + 1) is a sum of a row and a column term: no feasible move changes it.
    gradient = given_scores - epsilon * (plan.log() + 1)
    centred = gradient - gradient.mean(0) - gradient.mean(1, keepdim=True) + gradient.mean()
    torch.testing.assert_close(centred, torch.zeros_like(centred), rtol=0, atol=1e-10)


def test_a_constant_per_row_or_per_column_changes_nothing_at_the_end():
    given_scores = scores(20, 4)
    moved_rows = balanced_assignment(given_scores + 50 * scores(20, 1, seed=1), 3)
    torch.testing.assert_close(moved_rows, balanced_assignment(given_scores, 3), rtol=0, atol=1e-10)
    moved_columns = balanced_assignment(given_scores + scores(1, 4, seed=2), 2000)
    torch.testing.assert_close(moved_columns, balanced_assignment(given_scores, 2000), rtol=0, atol=1e-10)


def test_scaling_and_logarithms_are_the_same_iteration(monkeypatch: pytest.MonkeyPatch):
    given_scores = scores(50, 6, 40.0)
    by_scaling = balanced_assignment(given_scores)
    monkeypatch.setattr(sinkhorn, "_LARGEST_SPREAD", 0.0)
    torch.testing.assert_close(balanced_assignment(given_scores), by_scaling, rtol=0, atol=1e-12)


def test_scaling_stays_in_range_at_the_largest_spread_it_takes():
    # One class is 300 below the others for every frame: the scaling has to lift it all the way.
    given_scores = scores(40, 3)
    given_scores[:, 2] -= 290
    plan = balanced_assignment(given_scores, 4000)
    assert float((given_scores.amax(1) - given_scores.amin(1)).max()) < sinkhorn._LARGEST_SPREAD
    torch.testing.assert_close(plan.sum(0), torch.full((3,), 40 / 3, dtype=torch.float64), rtol=0, atol=1e-9)


def test_opposite_extreme_logits_still_balance():
    extreme = torch.tensor([[1e4, -1e4], [1e4, 0.0], [1e4, -9e3], [1e4, 10.0]], dtype=torch.float64)
    plan = balanced_assignment(extreme, 50)
    torch.testing.assert_close(plan.sum(1), torch.ones(4, dtype=torch.float64))
    torch.testing.assert_close(plan.sum(0), torch.full((2,), 2.0, dtype=torch.float64), rtol=0, atol=0.05)


@pytest.mark.parametrize("epsilon", [0.0, -1.0])
def test_smoothing_must_be_positive(epsilon: float):
    with pytest.raises(ConfigError, match="epsilon"):
        balanced_assignment(scores(3, 2), epsilon=epsilon)
