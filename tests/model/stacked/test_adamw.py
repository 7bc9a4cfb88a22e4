"""AdamW in one launch against PyTorch's: on a GPU where there is one, else in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
from torch import nn

pytest.importorskip("triton")

from pisa_capc.core.errors import ConfigError
from pisa_capc.model.stacked import fused
from tests.model.stacked.test_fused import DEVICE, relative

SHAPES = [(3, 5, 7), (1,), (2, 700), (64,)]


def parameters() -> list[nn.Parameter]:
    torch.manual_seed(1)
    return [nn.Parameter(torch.randn(*shape, device=DEVICE)) for shape in [*SHAPES, (4,)]]


def train(optimiser: torch.optim.Optimizer, found: list[nn.Parameter], steps: int, seed: int = 2) -> None:
    """Gradients for all but the last."""
    random = torch.Generator(DEVICE).manual_seed(seed)
    for _ in range(steps):
        for p in found[:-1]:
            gradient = torch.randn(p.shape[::-1], generator=random, device=DEVICE)
            p.grad = gradient.permute(*reversed(range(p.ndim)))  # as they come from products, not in a row
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)


def test_steps_and_state_are_those_of_pytorch() -> None:
    ours, theirs = parameters(), parameters()
    quick = fused.FlatAdamW(ours, lr=1e-2, weight_decay=0.1)
    plain = torch.optim.AdamW(theirs, lr=1e-2, weight_decay=0.1)
    for steps in (1, 1, 20):
        train(quick, ours, steps)
        train(plain, theirs, steps)
        for a, b in zip(ours, theirs, strict=True):
            assert relative(a, b) < 1e-6
    assert torch.equal(ours[-1], parameters()[-1])  # it never had a gradient
    found, expected = quick.state_dict()["state"], plain.state_dict()["state"]
    assert found.keys() == expected.keys() == {0, 1, 2, 3}
    for i, values in expected.items():
        assert found[i].keys() == values.keys()
        assert all(relative(found[i][kind], value) < 1e-6 for kind, value in values.items())


def test_it_goes_on_from_a_state_that_was_copied_into_it() -> None:
    ours, again = parameters(), parameters()
    quick, later = (fused.FlatAdamW(p, lr=1e-2, weight_decay=0.1) for p in (ours, again))
    train(quick, ours, 3)
    train(later, again, 1, seed=3)  # somewhere else
    with torch.no_grad():
        for p, q in zip(ours, again, strict=True):
            q.copy_(p)
        for i, values in quick.state_dict()["state"].items():
            for kind, value in values.items():
                later.state_dict()["state"][i][kind].copy_(value)
    train(quick, ours, 2, seed=4)
    train(later, again, 2, seed=4)
    assert all(torch.equal(p, q) for p, q in zip(ours, again, strict=True))


def test_a_gradient_that_comes_later_is_refused() -> None:
    ours = parameters()
    quick = fused.FlatAdamW(ours, lr=1e-2, weight_decay=0.1)
    train(quick, ours, 1)
    for p in ours:
        p.grad = torch.ones_like(p)
    with pytest.raises(ConfigError, match="5 parameters have a gradient, and 4 had one in the first step"):
        quick.step()


def test_every_parameter_stands_where_kernels_expect_it() -> None:
    ours = parameters()
    quick = fused.FlatAdamW(ours, lr=1e-2, weight_decay=0.1)
    train(quick, ours, 1)
    start = min(p.data_ptr() for p in ours[:-1])
    assert {(p.data_ptr() - start) % 256 for p in ours[:-1]} == {0}
