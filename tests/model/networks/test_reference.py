"""The model against its slow, obvious version."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pisa_capc.data.geometry import ArrayGeometry, circular, linear, square
from pisa_capc.model.networks import PISA, PisaConfig, Single
from pisa_capc.model.networks.pisa import Output
from pisa_capc.model.stacked import stack
from tests.models import random_pisa, without_dropout
from tests.reference.encoders import Array
from tests.reference.model import pisa_forward, single_forward

ENCODERS = ("cnn", "mscnn", "resnet", "tcn", "cvcnn", "cldnn", "transformer")  # those that have a slow version


def tolerance(encoder: str) -> float:
    # The attention weights of the Transformer encoder are float32 in any model.
    return 2e-6 if encoder == "transformer" else 1e-10


def frames(count: int, antennas: int, samples: int, seed: int = 1) -> tuple[Array, Array, Array]:
    """I/Q, descriptor and mask; every second frame lacks antennas."""
    rng = np.random.default_rng(seed)
    mask = np.ones((count, antennas), dtype=bool)
    for n in range(1, count, 2):
        mask[n, rng.permutation(antennas)[: rng.integers(1, antennas)]] = False
    return rng.normal(size=(count, antennas, samples, 2)), rng.random((count, 4)) * 3, mask


def compare(
    model: PISA,
    inputs: tuple[Array, Array | None, Array | None],
    encoder: str,
    geometry: ArrayGeometry,
    config: PisaConfig | None = None,
) -> Output:
    iq, descriptor, mask = (None if x is None else torch.from_numpy(x) for x in inputs)
    assert iq is not None
    with torch.no_grad():
        found: Output = model(iq, descriptor, mask, details=True)
    expected = pisa_forward(
        model.state_dict(),
        *inputs,
        encoder=encoder,
        geometry=geometry,
        config=config or PisaConfig(),
        training=model.training,
    )
    assert found.details is not None
    present = torch.ones(len(iq), geometry.antennas, dtype=torch.bool) if mask is None else mask
    present = present.repeat_interleave(model.config.tokens, dim=1)[..., None].numpy()
    pairs = {
        "embedding": found.embedding,
        "logits": found.logits,
        "graph_loss": found.graph_loss,
        "attention": found.details.attention * torch.from_numpy(present),
        "prior": found.details.log_prior.exp(),
        "token_weights": found.details.token_weights,
        "alpha": found.details.alpha,
        "modulation": torch.stack(tuple(found.details.modulation), dim=-1),
    }
    for name, value in pairs.items():
        np.testing.assert_allclose(value.numpy(), expected[name], rtol=0, atol=tolerance(encoder), err_msg=name)
    return found


@pytest.mark.parametrize("encoder", ENCODERS)
def test_model_equals_the_reference_for_every_encoder(encoder: str) -> None:
    iq, descriptor, mask = frames(2, 4, 40)
    model = random_pisa(encoder)
    tokens, _ = model.encode(torch.from_numpy(iq)[None], torch.from_numpy(mask)[None])
    assert tokens is not None
    assert tokens.std(dim=3).mean() > 0.03  # else the comparison would be of constants
    compare(model, (iq, descriptor, mask), encoder, square())


@pytest.mark.parametrize("encoder", ENCODERS)
def test_model_equals_the_reference_with_batch_statistics(encoder: str) -> None:
    model = random_pisa(encoder)
    without_dropout(model)
    compare(model, frames(2, 4, 32), encoder, square())


def test_model_equals_the_reference_without_descriptor_and_mask() -> None:
    iq, _, _ = frames(2, 4, 40)
    compare(random_pisa(), (iq, None, None), "cnn", square())


@pytest.mark.parametrize("geometry", [linear(3), circular(5), linear(1)], ids=["linear 3", "circular 5", "one"])
def test_model_equals_the_reference_for_other_arrays(geometry: ArrayGeometry) -> None:
    iq, descriptor, mask = frames(2, geometry.antennas, 24) if geometry.antennas > 1 else frames(1, 1, 24)
    compare(random_pisa(geometry=geometry), (iq, descriptor, mask), "cnn", geometry)


@pytest.mark.parametrize(("encoder", "samples"), [("cnn", 37), ("cnn", 5), ("transformer", 44), ("transformer", 1048)])
def test_model_equals_the_reference_for_other_frame_lengths(encoder: str, samples: int) -> None:
    """Not a multiple of the tokens, fewer than the tokens, not a multiple of the patch, more patches than positions."""
    geometry = linear(2)
    compare(random_pisa(encoder, geometry), frames(1, 2, samples), encoder, geometry)


@pytest.mark.parametrize("classes", [2, 37])
def test_model_equals_the_reference_for_other_class_counts(classes: int) -> None:
    found = compare(random_pisa(classes=classes), frames(2, 4, 24), "cnn", square())
    assert found.logits.shape == (2, classes)


OTHER = PisaConfig(
    tokens=5, heads=2, embedding=48, tau_s=0.7, tau_t=1.3, beta=0.6, graph_scale=0.9, eta=0.8, alpha_min=0.1,
    alpha_max=0.9, delta_alpha_max=0.4,
)  # fmt: skip


@pytest.mark.parametrize("config", [OTHER, PisaConfig(beta=0.0)], ids=["all others", "no prior"])
def test_model_equals_the_reference_for_other_settings(config: PisaConfig) -> None:
    compare(random_pisa(config=config), frames(2, 4, 30), "cnn", square(), config)


@pytest.mark.parametrize("encoder", ["cnn", "cvcnn", "transformer"])
def test_single_equals_its_reference(encoder: str) -> None:
    torch.manual_seed(3)
    model = Single(5, 3, encoder).double().eval()
    iq, _, mask = frames(2, 3, 40)
    expected = single_forward(model.state_dict(), iq, mask, encoder=encoder)
    found = model(torch.from_numpy(iq), None, torch.from_numpy(mask))
    np.testing.assert_allclose(found.embedding.detach(), expected["embedding"], rtol=0, atol=tolerance(encoder))
    np.testing.assert_allclose(found.logits.detach(), expected["logits"], rtol=0, atol=tolerance(encoder))


def test_a_stack_computes_each_of_its_models() -> None:
    models = [random_pisa(seed=s) for s in (1, 2, 3)]
    together = stack(models, random_pisa(runs=3))
    parts = [tuple(torch.from_numpy(x) for x in frames(2, 4, 24, seed)) for seed in (1, 2, 3)]
    iq, descriptor, mask = (torch.stack(column) for column in zip(*parts, strict=True))
    with torch.no_grad():
        found = together(iq, descriptor, mask)
        for r, (model, part) in enumerate(zip(models, parts, strict=True)):
            expected = model(*part)
            torch.testing.assert_close(found.logits[r], expected.logits, rtol=0, atol=1e-10)
            torch.testing.assert_close(found.embedding[r], expected.embedding, rtol=0, atol=1e-10)
            alone = model(*part, details=True).graph_loss
            torch.testing.assert_close(found.graph_loss[r], alone, rtol=0, atol=1e-10)
