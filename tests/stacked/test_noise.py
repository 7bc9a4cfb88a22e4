"""Counter-based masks: random enough, and the same wherever they are drawn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pisa_capc.stacked import Dropout, bind_noise
from pisa_capc.stacked.noise import keep_mask, step_key

SHAPE = (64, 256)


def keys(seeds: list[int], step: int) -> Tensor:
    return step_key(torch.tensor(seeds, dtype=torch.int32), torch.tensor([step], dtype=torch.int32))


def mask(seed: int = 2026, step: int = 0, site: int = 0, drop: float = 0.1) -> Tensor:
    return keep_mask(keys([seed], step), site, (1, *SHAPE), drop)[0]


@pytest.mark.parametrize("drop", [0.05, 0.1, 0.5])
def test_masks_drop_at_their_rate(drop: float) -> None:
    dropped = np.mean([float((~mask(step=step, drop=drop)).float().mean()) for step in range(20)])
    error = 4 * np.sqrt(drop * (1 - drop) / (20 * np.prod(SHAPE)))
    assert dropped == pytest.approx(drop, abs=error)


def test_masks_of_other_seeds_steps_and_places_are_independent() -> None:
    def values(x: Tensor) -> np.ndarray:
        return x.flatten().double().numpy()

    base = mask(drop=0.5)
    others = [mask(seed=2027, drop=0.5), mask(step=1, drop=0.5), mask(site=1, drop=0.5), mask(step=2, site=3, drop=0.5)]
    others += [base.roll(1), base.roll(SHAPE[1])]  # and neighbours within one mask
    for other in others:
        assert np.corrcoef(values(base), values(other))[0, 1] == pytest.approx(0, abs=4 / np.sqrt(base.numel()))


def test_elements_are_dropped_evenly_over_steps() -> None:
    kept = torch.stack([mask(step=step, drop=0.5) for step in range(400)]).double().mean(0)
    assert kept.std() == pytest.approx(0.5 / 20, rel=0.05)


def test_a_run_draws_the_same_alone_and_in_a_stack() -> None:
    together = keep_mask(keys([11, 2026, 5], 7), 2, (3, *SHAPE), 0.1)
    assert torch.equal(together[1], mask(seed=2026, step=7, site=2))


def test_every_dropout_of_a_model_draws_for_itself() -> None:
    model = nn.Sequential(Dropout(0.5), nn.Sequential(Dropout(0.5)))
    bind_noise(model, keys([1], 0))
    ones = torch.ones(1, *SHAPE)
    first, second = model[0](ones), model[1](ones)
    assert not torch.equal(first, second)
    assert torch.equal(first, model[0](ones))
