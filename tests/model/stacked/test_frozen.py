"""The quick ways of a frozen model against the plain layers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from pisa_capc.model.encoders import encoder_names
from pisa_capc.model.inference.recorded import RecordedNetwork, recorded
from pisa_capc.model.networks import PISA
from pisa_capc.model.stacked.frozen import derived
from pisa_capc.model.stacked.layers import plain_layers
from tests.models import random_pisa

ANTENNAS, SAMPLES = 4, 64


def frames(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """I/Q, descriptor, and a mask in which one frame misses antennas."""
    random = torch.Generator().manual_seed(3)
    iq = torch.randn(5, ANTENNAS, SAMPLES, 2, generator=random, dtype=dtype)
    mask = torch.ones(5, ANTENNAS, dtype=torch.bool)
    mask[2, 1:3] = False
    return iq, torch.rand(5, 4, generator=random, dtype=dtype), mask


def both_ways(model: nn.Module, *inputs: Tensor | None) -> tuple[list[Tensor], list[Tensor]]:
    with torch.no_grad():
        quick = model(*inputs)
        with plain_layers():
            plain = model(*inputs)
    return [quick.embedding, quick.logits], [plain.embedding, plain.logits]


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("encoder", encoder_names())
def test_a_frozen_model_gives_what_plain_layers_give(encoder: str, missing: bool) -> None:
    iq, descriptor, mask = frames(torch.float64)
    found, expected = both_ways(random_pisa(encoder), iq, descriptor, mask if missing else None)
    # plain attention of the Transformer takes its softmax in float32
    near = 2e-6 if encoder == "transformer" else 1e-10
    torch.testing.assert_close(found, expected, rtol=0, atol=near)


@pytest.mark.parametrize("times", [1, 20])  # few rows of a product, and many
@pytest.mark.parametrize("encoder", encoder_names())
def test_in_float32_the_difference_is_rounding(encoder: str, times: int) -> None:
    iq, descriptor = (values.repeat(times, *[1] * (values.ndim - 1)) for values in frames(torch.float32)[:2])
    found, expected = both_ways(random_pisa(encoder).float(), iq, descriptor, None)
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours - theirs).abs().max() < 1e-5 * theirs.abs().max()


def with_extreme_scores() -> PISA:
    """A Transformer whose attention has scores of hundreds, the powers of which float32 does not have."""
    model = random_pisa("transformer").float()
    with torch.no_grad():
        for layer in model.identity_encoder.layers:  # type: ignore[union-attr]
            layer.qkv.weight.mul_(40)  # type: ignore[union-attr]
    return model


def test_scores_whose_powers_are_lost_or_infinite_give_the_softmax_all_the_same() -> None:
    iq, descriptor, _ = frames(torch.float32)
    found, expected = both_ways(with_extreme_scores(), iq, descriptor, None)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_a_record_looks_at_the_scores_of_every_frame() -> None:
    """It is made of frames that are small enough, and then sees ones that are not."""
    model = with_extreme_scores()
    for layer in model.identity_encoder.layers:  # type: ignore[union-attr]
        layer.qkv.bias.zero_()  # type: ignore[union-attr]
    quick = recorded(model, ANTENNAS, SAMPLES)
    assert isinstance(quick, RecordedNetwork)
    iq, descriptor, _ = frames(torch.float32)
    for scale in (1e-3, 1.0, 1e3):
        with plain_layers():
            expected = model(scale * iq, descriptor).logits
        torch.testing.assert_close(quick(scale * iq, descriptor).logits, expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_a_frozen_model_follows_its_weights() -> None:
    iq, descriptor, _ = frames(torch.float64)
    model = random_pisa("resnet")
    before = model(iq, descriptor).logits
    assert torch.equal(model(iq, descriptor).logits, before)
    for parameter in model.parameters():
        parameter.mul_(1.1)
    found, expected = both_ways(model, iq, descriptor, None)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
    assert not torch.allclose(found[1], before)
    found, expected = both_ways(model.float(), iq.float(), descriptor.float(), None)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_what_is_derived_is_made_once_and_again_after_a_change() -> None:
    owner, made = nn.Linear(2, 2), []

    def value() -> int:
        return derived(owner, [owner.weight], torch.float32, lambda: made.append(1) or len(made))

    with torch.no_grad():
        assert [value(), value()] == [1, 1]
        owner.weight.add_(1)
        assert [value(), value()] == [2, 2]
        owner.weight = nn.Parameter(torch.zeros(2, 2))
        assert [value(), value()] == [3, 3]
    assert [value(), value()] == [4, 5]  # with gradients, which go to the weights, each time


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("encoder", encoder_names())
def test_a_frozen_model_follows_its_optimiser(encoder: str, fused: bool) -> None:
    iq, descriptor, _ = frames(torch.float32)
    model = random_pisa(encoder).float()
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.1, fused=fused)
    for _ in range(2):
        found, expected = both_ways(model, iq, descriptor, None)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        model(iq, descriptor).logits.sum().backward()
        optimiser.step()
