"""What is drawn for an epoch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pisa_capc.model.objective import SPANS, draw_epoch, drop_spans

DROPS = (0.25, 0.15)


def test_an_epoch_covers_every_frame() -> None:
    plan = draw_epoch(1, 0, frames=103, batch=16, antennas=4, antenna_drop=0.25, span_drop=0.15)
    assert plan.rows.shape == (7, 16)
    counts = np.bincount(plan.rows.ravel(), minlength=103)
    assert set(counts.tolist()) <= {1, 2}
    assert counts.sum() == 112


def test_fewer_frames_than_a_batch_still_fill_it() -> None:
    plan = draw_epoch(1, 0, 3, 8, 4, *DROPS)
    assert sorted(np.bincount(plan.rows.ravel()).tolist()) == [2, 3, 3]


def test_epochs_and_seeds_differ_and_repeat_themselves() -> None:
    plans = {(seed, epoch): draw_epoch(seed, epoch, 64, 16, 4, *DROPS) for seed in (1, 2) for epoch in (0, 1)}
    rows = {key: plan.rows.tobytes() for key, plan in plans.items()}
    assert len(set(rows.values())) == 4
    again = draw_epoch(1, 1, 64, 16, 4, *DROPS)
    assert all(np.array_equal(a, b) for a, b in zip(again, plans[1, 1], strict=True))


def test_at_least_one_antenna_stays() -> None:
    plan = draw_epoch(3, 0, 6400, 64, 2, antenna_drop=0.9, span_drop=0.0)
    kept = plan.antenna_keep.sum(axis=2)
    assert kept.min() == 1
    spared = plan.antenna_keep[kept == 1].mean(axis=0)
    assert spared == pytest.approx([0.5, 0.5], abs=0.03)  # and not always the same one


def test_antennas_and_spans_are_dropped_at_their_rates() -> None:
    plan = draw_epoch(4, 0, 12800, 128, 4, *DROPS)
    # An antenna goes with probability 1/4, but not where all four would go and it is the one spared.
    assert 1 - plan.antenna_keep.mean() == pytest.approx(0.25 - 0.25**4 / 4, abs=0.006)
    assert 1 - plan.span_keep.mean() == pytest.approx(0.15, abs=0.004)
    assert np.corrcoef(plan.span_keep.reshape(-1, SPANS).T)[0, 1] == pytest.approx(0, abs=0.04)


@pytest.mark.parametrize("samples", [32, 37])
def test_dropped_spans_are_silent_on_all_antennas_and_nothing_else_changes(samples: int) -> None:
    iq = 1 + torch.rand(2, 3, 4, samples, 2)
    keep = torch.rand(2, 3, SPANS) > 0.4
    found = drop_spans(iq, keep)
    for r, b, t in np.ndindex(2, 3, samples):
        expected = iq[r, b, :, t] if keep[r, b, t * SPANS // samples] else torch.zeros(4, 2)
        assert torch.equal(found[r, b, :, t], expected)
