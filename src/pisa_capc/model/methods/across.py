"""Shared by the methods that work across source environments: statistics of each environment in a batch, and opponents
that are trained in the same step of one optimiser, instead of alternating steps of two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function

from pisa_capc.model.methods.registry import Batch
from pisa_capc.model.methods.single import SingleMethod, SingleSettings
from pisa_capc.model.networks import Single
from pisa_capc.model.stacked import Linear, at_least_float32, full_precision


class _Reverse(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, strength: float | Tensor) -> Tensor:
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return -ctx.strength * gradient, None


def reverse_gradient(x: Tensor, strength: float | Tensor = 1.0) -> Tensor:
    """x itself; its gradient is −strength times what arrives. strength: a number, or (R, 1, 1) of each run."""
    y: Tensor = _Reverse.apply(x, strength)
    return y


def frozen(layer: Linear, x: Tensor) -> Tensor:
    """The layer's output with a gradient for x alone."""
    return torch.einsum("rbd,rcd->rbc", x, layer.weight.detach()) + layer.bias.detach()[:, None]


class Critic(nn.Module):
    """D → hidden → outputs with ReLU: (R, B, D) → (R, B, outputs)."""

    def __init__(self, inputs: int, hidden: int, outputs: int, runs: int = 1) -> None:
        super().__init__()
        self.first = Linear(inputs, hidden, runs)
        self.second = Linear(hidden, outputs, runs)

    def forward(self, z: Tensor) -> Tensor:
        y: Tensor = self.second(F.relu(self.first(z)))
        return y

    def frozen(self, z: Tensor) -> Tensor:
        """The same with a gradient for z alone."""
        return frozen(self.second, F.relu(frozen(self.first, z)))


class WithCritic(Single):
    """Single with a critic of its embedding, one output for each source environment."""

    def __init__(
        self, classes: int, antennas: int, encoder: str, embedding: int, runs: int, *, hidden: int, environments: int
    ) -> None:
        super().__init__(classes, antennas, encoder, embedding, runs)
        self.critic = Critic(embedding, hidden, environments, runs)


def membership(environment: Tensor, environments: Sequence[int]) -> Tensor:
    """(R, B, E) booleans: whether a frame (R, B) is of a source environment."""
    return torch.stack([environment == e for e in environments], dim=-1)


def domain_label(member: Tensor) -> Tensor:
    """(R, B) position of each frame's environment among the source environments."""
    return member.long().argmax(-1)


def environment_mean(value: Tensor, member: Tensor) -> Tensor:
    """Mean of (R, B) over the frames of each environment, (R, E); zero where there are none."""
    weight = member.to(value.dtype)
    return (value[..., None] * weight).sum(1) / weight.sum(1).clamp_min(1)


def moments(z: Tensor, member: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (R, E, D) and unbiased covariance (R, E, D, D) of z (R, B, D) in each environment."""
    with full_precision(z):
        z = at_least_float32(z)
        weight = member.to(z.dtype).mT[..., None]  # (R, E, B, 1)
        count = weight.sum(2)
        mean = (weight * z[:, None]).sum(2) / count.clamp_min(1)
        centred = weight * (z[:, None] - mean[:, :, None])
        return mean, centred.mT @ centred / (count[..., None] - 1).clamp_min(1)


def mean_over_pairs(distance: Tensor, present: Tensor) -> Tensor:
    """Mean of (R, E, E) over the pairs i < j of environments that are both `present` (R, E): (R,); zero without any."""
    pair = (present[:, :, None] & present[:, None, :]).triu(1)
    return torch.where(pair, distance, 0.0).sum((1, 2)) / pair.sum((1, 2)).clamp_min(1)


def coral_distance(z: Tensor, member: Tensor) -> Tensor:
    """Mean over pairs of environments of mean_d (μ_i − μ_j)² + mean_{d,d'} (C_i − C_j)²: (R,).

    z: (R, B, D). An environment with fewer than two frames in the batch has no covariance and is left out.
    """
    mean, covariance = moments(z, member)
    of_means = (mean[:, :, None] - mean[:, None]).square().mean(-1)
    of_covariances = (covariance[:, :, None] - covariance[:, None]).square().mean((-1, -2))
    return mean_over_pairs(of_means + of_covariances, member.sum(1) >= 2)


@dataclass(frozen=True)
class WeightSettings(SingleSettings):
    weight: float = 1.0  # of the term beside the cross-entropy


class AcrossEnvironments(SingleMethod):
    """Base of the methods that need two source environments or more."""

    least_environments = 2

    def member(self, batch: Batch) -> Tensor:
        """(R, B, E) booleans: which source environment a frame is of."""
        return membership(batch.environment, self.setup.source_environments)


@dataclass(frozen=True)
class CriticSettings(WeightSettings):
    hidden: int = 64  # width of the critic's hidden layer


class AgainstCritic(AcrossEnvironments):
    """Base of the methods whose encoder works against a critic."""

    Settings = CriticSettings
    settings: CriticSettings

    def build(self, runs: int = 1) -> nn.Module:
        environments = len(self.setup.source_environments)
        return WithCritic(*self.network, runs, hidden=self.settings.hidden, environments=environments)
