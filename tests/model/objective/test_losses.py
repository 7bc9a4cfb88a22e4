"""The objective against loops, and its gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pisa_capc.data.geometry import square
from pisa_capc.model.methods import Batch, Setup, build_method
from pisa_capc.model.methods.pisa import PisaMethod
from pisa_capc.model.objective import cross_entropy, prediction_consistency, supervised_contrastive
from tests.models import random_pisa, without_dropout
from tests.reference import objective as reference

RUNS, BATCH, CLASSES = 3, 7, 4


@pytest.fixture
def logits() -> torch.Tensor:
    return 4 * torch.randn(RUNS, 2 * BATCH, CLASSES, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.fixture
def label() -> torch.Tensor:
    return torch.randint(CLASSES, (RUNS, BATCH), generator=torch.Generator().manual_seed(1))


def test_cross_entropy_equals_the_reference(logits: torch.Tensor, label: torch.Tensor) -> None:
    found = cross_entropy(logits[:, :BATCH], label)
    expected = [reference.cross_entropy(a[:BATCH].numpy(), y.numpy()) for a, y in zip(logits, label, strict=True)]
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_prediction_consistency_equals_the_reference(logits: torch.Tensor) -> None:
    clean, perturbed = logits[:, :BATCH], logits[:, BATCH:]
    expected = [reference.consistency(a.numpy(), b.numpy()) for a, b in zip(clean, perturbed, strict=True)]
    np.testing.assert_allclose(prediction_consistency(clean, perturbed), expected, atol=1e-12)
    assert prediction_consistency(clean, clean).abs().max() < 1e-12


def test_supervised_contrastive_equals_the_reference(label: torch.Tensor) -> None:
    z = torch.randn(RUNS, BATCH, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    expected = [reference.supervised_contrastive(a.numpy(), y.numpy(), 0.2) for a, y in zip(z, label, strict=True)]
    np.testing.assert_allclose(supervised_contrastive(z, label, 0.2), expected, atol=1e-12)


def test_supervised_contrastive_skips_anchors_without_a_positive() -> None:
    z = torch.randn(1, 4, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    label = torch.tensor([[0, 0, 1, 2]])
    expected = reference.supervised_contrastive(z[0].numpy(), label[0].numpy(), 0.2)
    assert supervised_contrastive(z, label, 0.2).item() == pytest.approx(expected)
    assert supervised_contrastive(z, torch.arange(4)[None], 0.2).item() == 0


def batch(antennas: int = 4, samples: int = 32) -> Batch:
    g = torch.Generator().manual_seed(4)
    keep = torch.rand(1, BATCH, antennas, generator=g) > 0.3
    keep[..., 0] = True
    return Batch(
        torch.randn(1, BATCH, antennas, samples, 2, generator=g, dtype=torch.float64),
        torch.rand(1, BATCH, 4, generator=g, dtype=torch.float64),
        torch.randint(CLASSES, (1, BATCH), generator=g),
        torch.zeros(1, BATCH, dtype=torch.int64),
        keep,
        torch.rand(1, BATCH, 8, generator=g) > 0.3,
        torch.zeros(1, dtype=torch.int32),
    )


def test_pisa_objective_is_the_weighted_sum_over_clean_and_perturbed_frames() -> None:
    method = build_method("pisa", Setup(CLASSES, "cnn", square()))
    assert isinstance(method, PisaMethod)
    model = random_pisa(classes=CLASSES)
    data = batch()
    terms = method.loss(model, data)
    silenced = data.iq[0].clone()
    for b in range(BATCH):
        for span in range(8):
            if not data.span_keep[0, b, span]:
                silenced[b, :, 4 * span : 4 * span + 4] = 0
    clean = model(data.iq[0], data.descriptor[0])
    perturbed = model(silenced, data.descriptor[0], data.antenna_keep[0])
    label = data.label[0].numpy()
    a, b = clean.logits.detach().numpy(), perturbed.logits.detach().numpy()
    both = torch.cat([clean.embedding, perturbed.embedding]).detach().numpy()
    expected = {
        "cls": reference.cross_entropy(a, label),
        "graph": 0.001 * clean.graph_loss.mean().item(),
        "aug": 0.5 * reference.cross_entropy(b, label),
        "kl": 0.2 * reference.consistency(a, b),
        "sup": 0.1 * reference.supervised_contrastive(both, np.concatenate([label, label]), 0.2),
    }
    assert tuple(terms) == method.terms == tuple(expected)
    for name, value in expected.items():
        assert terms[name].item() == pytest.approx(value, abs=1e-10), name


def test_gradient_of_the_objective_is_its_slope() -> None:
    """Along a random direction in the space of all parameters."""
    method = build_method("pisa", Setup(CLASSES, "cnn", square()))
    model, data = random_pisa(classes=CLASSES), batch(samples=16)

    def loss() -> torch.Tensor:
        return torch.stack(list(method.loss(model, data).values())).sum()

    loss().backward()
    parameters = [p for p in model.parameters() if p.grad is not None]
    assert len(parameters) == len(list(model.parameters()))
    g = torch.Generator().manual_seed(5)
    direction = [torch.randn(p.shape, generator=g, dtype=p.dtype) for p in parameters]
    slope = sum(float((p.grad * d).sum()) for p, d in zip(parameters, direction, strict=True) if p.grad is not None)
    values, step = [], 1e-7
    for sign in (1, -2):
        with torch.no_grad():
            for p, d in zip(parameters, direction, strict=True):
                p += sign * step * d
            values.append(float(loss()))
    assert (values[0] - values[1]) / (2 * step) == pytest.approx(slope, rel=1e-4)


def test_biases_before_batch_statistics_get_no_gradient() -> None:
    """Batch normalisation cancels them; rounding would otherwise be blown up to full steps by Adam."""
    model = without_dropout(random_pisa(classes=CLASSES))
    terms = build_method("pisa", Setup(CLASSES, "cnn", square())).loss(model, batch(samples=16))
    torch.stack(list(terms.values())).sum().backward()
    without = {name for name, p in model.named_parameters() if p.grad is None}
    layers = ("blocks.0", "blocks.1", "last")
    assert without == {f"{e}_encoder.{layer}.bias" for e in ("identity", "context") for layer in layers}
