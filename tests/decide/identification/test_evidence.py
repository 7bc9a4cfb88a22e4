"""Evidence is a martingale where frames are exchangeable, and grows where they are not."""

from __future__ import annotations

import numpy as np
import pytest

from pisa_capc.decide.identification.evidence import conformal_p, first_beyond, log_evidence


def mean_over_uniform(steps: int) -> float:
    """E M of independent uniform p-values, by quadrature in u with p = u^20, where nothing is singular."""
    nodes, weights = np.polynomial.legendre.leggauss(60)
    u, weights = (nodes + 1) / 2, weights / 2
    p, density = u**20, 20 * u**19 * weights
    grids = np.meshgrid(*[np.arange(len(u))] * steps, indexing="ij")
    return sum(
        float(np.prod([density[i] for i in index]) * np.exp(log_evidence([p[i] for i in index])[-1]))
        for index in zip(*(grid.ravel().tolist() for grid in grids), strict=True)
    )


@pytest.mark.parametrize("steps", [1, 2])
def test_evidence_is_one_on_average_where_p_is_uniform(steps: int) -> None:
    assert mean_over_uniform(steps) == pytest.approx(1, rel=1e-3)


def test_p_values_are_ranks_among_all_that_was_seen() -> None:
    rng = np.random.default_rng(3)
    reference, score = rng.integers(0, 9, 20).astype(float), rng.integers(0, 9, 30).astype(float)  # with ties
    slow = [
        (np.sum(reference >= score[t]) + np.sum(score[: t + 1] >= score[t])) / (len(reference) + t + 1)
        for t in range(len(score))
    ]
    np.testing.assert_allclose(conformal_p(score, reference), slow)


def test_false_alarms_are_as_rare_as_promised_however_long_one_waits() -> None:
    rng, alpha, trials = np.random.default_rng(0), 0.1, 100
    crossed = sum(
        first_beyond(log_evidence(conformal_p(rng.normal(size=200), rng.normal(size=50))), alpha) is not None
        for _ in range(trials)
    )
    assert crossed <= alpha * trials


def test_ranks_among_a_fixed_reference_would_not_keep_the_promise() -> None:
    rng, alpha, trials = np.random.default_rng(0), 0.01, 100
    crossed = 0
    for _ in range(trials):
        reference, score = rng.normal(size=20), rng.normal(size=500)
        fixed = (1 + (reference >= score[:, None]).sum(axis=1)) / (1 + len(reference))
        crossed += first_beyond(log_evidence(fixed), alpha) is not None
    assert crossed > 3 * alpha * trials


@pytest.mark.parametrize("before", [0, 300])
def test_strange_frames_are_found_whenever_they_begin(before: int) -> None:
    rng = np.random.default_rng(1)
    score = np.concatenate([rng.normal(size=before), rng.normal(6, 1, 30)])
    after = first_beyond(log_evidence(conformal_p(score, rng.normal(size=100))), 0.01)
    assert after is not None
    assert before < after <= before + 12


def test_the_first_frame_beyond_is_counted_from_one() -> None:
    assert first_beyond(np.log([1.0, 50.0, 200.0, 1.0]), 0.01) == 3
    assert first_beyond(np.log([1.0, 50.0]), 0.01) is None
