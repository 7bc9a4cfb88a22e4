"""Opponents inside one step of one optimiser, in the place of two that alternate.

Minimising L(critic(reverse(z))) trains the critic to lower L and whatever made z to raise it (Ganin et al., JMLR 2016).
Where the two want different things, each gets its own term: one with z detached, one with a frozen critic.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function

from pisa_capc.model.networks import Single
from pisa_capc.model.stacked import Linear


class _Reverse(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, strength: float) -> Tensor:
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return -ctx.strength * gradient, None


def reverse_gradient(x: Tensor, strength: float = 1.0) -> Tensor:
    """x itself; its gradient is −strength times what arrives."""
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
