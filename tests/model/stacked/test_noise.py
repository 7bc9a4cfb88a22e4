"""Counter-based masks: random enough, and the same wherever they are drawn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from pisa_capc.model.stacked import Dropout, bind_noise
from pisa_capc.model.stacked.noise import (
    fill_kept,
    keep_factor,
    keep_mask,
    mask_tables,
    own_site_key,
    permutation,
    site_key,
    step_key,
    symmetric_beta,
    uniform,
)

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


def test_uniform_numbers_are_uniform_and_never_zero_or_one() -> None:
    drawn = torch.cat([uniform(keys([2026], step), 3, (1, 4000)) for step in range(10)], dim=1).flatten()
    assert drawn.min() > 0
    assert drawn.max() < 1
    assert stats.kstest(drawn.numpy(), "uniform").pvalue > 0.01


@pytest.mark.parametrize("alpha", [0.05, 0.2, 1.0, 4.0])
def test_symmetric_beta_has_its_distribution(alpha: float) -> None:
    drawn = torch.cat([symmetric_beta(keys([2026], step), 5, (1, 2000), alpha) for step in range(10)], dim=1).flatten()
    assert drawn.isfinite().all()
    values = drawn.double().numpy()
    # Where α is small many draws are 0 or 1 to float32; compare what lies between with what should.
    for at in (1e-3, 0.1, 0.5, 0.7, 0.999):
        expected = stats.beta(alpha, alpha).cdf(at)
        assert np.mean(values <= at) == pytest.approx(expected, abs=4 * np.sqrt(0.25 / len(values)))


def test_permutations_are_permutations_of_their_own_for_each_run_and_step() -> None:
    first, second = (permutation(keys([1, 2], step), 0, (2, 50)) for step in range(2))
    for order in (*first, *second):
        assert torch.equal(order.sort().values, torch.arange(50))
    assert len({tuple(order.tolist()) for order in (*first, *second)}) == 4
    where = torch.stack([permutation(keys([1], step), 0, (1, 5))[0] for step in range(2000)])
    share = torch.nn.functional.one_hot(where).double().mean(0)
    torch.testing.assert_close(share, torch.full((5, 5), 0.2, dtype=torch.float64), rtol=0, atol=0.04)


def test_other_draws_do_not_depend_on_the_stack_either() -> None:
    together, alone = keys([11, 2026, 5], 7), keys([2026], 7)
    for draw in (
        lambda key: symmetric_beta(key, 1, (len(key), 20), 0.2),
        lambda key: permutation(key, 1, (len(key), 20)),
    ):
        assert torch.equal(draw(together)[1], draw(alone)[0])


@pytest.mark.parametrize("shape", [(3, 5, 7), (2, 2 * 2**16 // 1000 + 1, 1000), (1, 0)])
@pytest.mark.parametrize("drop", [0.1, 0.5])
def test_factors_made_block_by_block_are_the_mask(shape: tuple[int, ...], drop: float) -> None:
    key = keys(list(range(shape[0])), 4)
    expected = keep_mask(key, 2, shape, drop).double() / (1 - drop)
    torch.testing.assert_close(keep_factor(key, 2, shape, drop, torch.float64), expected, rtol=1e-15, atol=0)
    assert keep_factor(key, 2, shape, drop, torch.float32).dtype == torch.float32


@pytest.mark.parametrize("first", [0, 5, 256, 1000, 2**16 - 1, 3 * 2**16])
@pytest.mark.parametrize("size", [1, 255, 300, 2**16, 2**17 + 77])
def test_masks_in_pieces_are_the_mask(first: int, size: int) -> None:
    key = torch.tensor([-77], dtype=torch.int32)
    elements = first + size
    whole = keep_mask(key, 4, (1, elements), 0.3)[0].float()
    piece = torch.full((size,), float("nan"))
    fill_kept(piece, mask_tables(int(site_key(key, 4)), 0.3, elements), first)
    assert torch.equal(piece, whole[first:])


def test_draws_do_not_depend_on_how_wide_a_compiler_counts_the_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inductor counts in 64 bits where a size is a symbol; a mask by the sign of that hash would drop half."""
    draws = (
        lambda: mask(drop=0.1),
        lambda: uniform(keys([2026], 3), 2, (1, *SHAPE)),
        lambda: permutation(keys([2026], 3), 2, (1, 500)),
    )
    narrow = [draw() for draw in draws]
    arange = torch.arange
    monkeypatch.setattr(torch, "arange", lambda n, dtype, device: arange(n, dtype=torch.int64, device=device))
    for draw, expected in zip(draws, narrow, strict=True):
        assert torch.equal(draw(), expected)


@pytest.mark.parametrize("key", [0, -1, 77, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("site", [0, 3, 500])
def test_the_key_of_one_run_is_that_of_the_stack(key: int, site: int) -> None:
    assert own_site_key(key, site) == int(site_key(torch.tensor([key], dtype=torch.int32), site))
