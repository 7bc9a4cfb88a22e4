"""Opponents inside one step: a gradient that changes sign, and the small network behind it.

Minimising L(critic(reverse(z))) trains the critic to lower L and whatever made z to raise it: the alternation of two
players as one step of one optimiser (Ganin et al., JMLR 2016).
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function

from pisa_capc.model import Single
from pisa_capc.stacked import Linear


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


class Critic(nn.Module):
    """D → hidden → outputs with ReLU: (R, B, D) → (R, B, outputs)."""

    def __init__(self, inputs: int, hidden: int, outputs: int, runs: int = 1) -> None:
        super().__init__()
        self.first = Linear(inputs, hidden, runs)
        self.second = Linear(hidden, outputs, runs)

    def forward(self, z: Tensor) -> Tensor:
        y: Tensor = self.second(F.relu(self.first(z)))
        return y


class WithCritic(Single):
    """Single with a critic of its embedding, one output for each source environment."""

    def __init__(
        self, classes: int, antennas: int, encoder: str, embedding: int, runs: int, *, hidden: int, environments: int
    ) -> None:
        super().__init__(classes, antennas, encoder, embedding, runs)
        self.critic = Critic(embedding, hidden, environments, runs)
