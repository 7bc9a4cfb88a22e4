"""Batches and models for tests of methods."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from pisa_capc.data.geometry import square
from pisa_capc.model.methods import METHODS, Batch, Method, Setup, build_method
from pisa_capc.model.stacked import bind_noise
from pisa_capc.model.stacked.noise import step_key
from pisa_capc.model.training.stack import build_seeded

RUNS, BATCH, CLASSES, SAMPLES = 3, 12, 4, 64
ENVIRONMENTS = (1, 3)
IN_EPOCHS = [name for name, cls in METHODS.parts().items() if cls.in_epochs]  # methods that train a network


def setup(encoder: str = "cnn", environments: tuple[int, ...] = ENVIRONMENTS) -> Setup:
    return Setup(CLASSES, encoder, square(), environments, SAMPLES)


def method(name: str, encoder: str = "cnn", **settings: Any) -> Method:
    return build_method(name, setup(encoder), settings=settings)


def batch(runs: int = RUNS, seed: int = 0) -> Batch:
    g = torch.Generator().manual_seed(seed)
    keep = torch.rand(runs, BATCH, 4, generator=g) > 0.3
    keep[..., 0] = True
    seeds = torch.arange(2026, 2026 + runs, dtype=torch.int32)
    return Batch(
        iq=torch.randn(runs, BATCH, 4, SAMPLES, 2, generator=g, dtype=torch.float64),
        descriptor=torch.rand(runs, BATCH, 4, generator=g, dtype=torch.float64),
        label=torch.randint(CLASSES, (runs, BATCH), generator=g),
        environment=torch.tensor(ENVIRONMENTS)[torch.randint(2, (runs, BATCH), generator=g)],
        antenna_keep=keep,
        span_keep=torch.rand(runs, BATCH, 8, generator=g) > 0.2,
        key=step_key(seeds, torch.tensor([7], dtype=torch.int32)),
    )


def of_run(data: Batch, run: int) -> Batch:
    return Batch(*(None if x is None else x[run : run + 1] for x in data))


def seeded(built: Method, key: torch.Tensor, seed: int = 0) -> nn.Module:
    """A float64 model of one run in training, its dropouts bound to `key`."""
    model = build_seeded(built, seed).double().train()
    bind_noise(model, key)
    return model


def gradients(built: Method, data: Batch) -> dict[str, torch.Tensor]:
    """Of the seeded model on one run's batch, by parameter name; parameters without any are left out."""
    model = seeded(built, data.key)
    torch.stack(list(built.loss(model, data).values())).sum().backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
