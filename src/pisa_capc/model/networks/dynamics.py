"""Acquisition-dynamics modulation (Section III-E)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pisa_capc.model.stacked import Linear, at_least_float32

if TYPE_CHECKING:
    from pisa_capc.model.networks.pisa import PisaConfig


class StreamModulation(NamedTuple):
    """What the descriptor changes, each (R, N): Δα, ρ_t and ρ_p of Eq. (cfo_motion_adjustment)."""

    delta_alpha: Tensor
    rho_t: Tensor
    rho_p: Tensor


def unmodulated(like: Tensor) -> StreamModulation:
    """Δα = 0 and ρ_t = ρ_p = 1 exactly, the case without a descriptor; like: (R, N, …)."""
    zero = at_least_float32(like.new_zeros(like.shape[:2]))
    return StreamModulation(zero, zero + 1, zero + 1)


def modulated(modulation: StreamModulation, config: PisaConfig) -> tuple[Tensor, Tensor]:
    """Eq. (cfo_motion_modulation) for the attention: τ̃_t = ρ_t τ_t and β̃ = ρ_p β, each (R, N)."""
    return config.tau_t * modulation.rho_t, config.beta * modulation.rho_p


def modulated_gate(gate: Tensor, modulation: StreamModulation, config: PisaConfig) -> Tensor:
    """Eq. (cfo_motion_modulation) for the gate: α̃ = clip(α + Δα, α_min, α_max), (R, N) → (R, N)."""
    return (gate + modulation.delta_alpha).clamp(config.alpha_min, config.alpha_max)


class DynamicsModulator(nn.Module):
    """ψ: 4 → 16 → 16 → 3. Δα = 0.25 tanh ·, ρ_t = exp tanh ·, ρ_p = exp tanh ·.

    The last layer starts at zero, so training starts unmodulated; the bounds keep ρ within [1/e, e].
    """

    def __init__(self, delta_alpha_max: float, runs: int = 1) -> None:
        super().__init__()
        self.delta_alpha_max = delta_alpha_max
        self.first = Linear(4, 16, runs)
        self.second = Linear(16, 16, runs)
        self.last = Linear(16, 3, runs)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(self, descriptor: Tensor) -> StreamModulation:
        hidden = F.relu(self.second(F.relu(self.first(descriptor))))
        bounded = torch.tanh(at_least_float32(self.last(hidden)))
        return StreamModulation(self.delta_alpha_max * bounded[..., 0], bounded[..., 1].exp(), bounded[..., 2].exp())
