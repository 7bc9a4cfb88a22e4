"""Modules of PISA: token aggregation (Section III-D, first half), the suppression of array context (Section III-D,
second half), and its modulation by acquisition dynamics (Section III-E).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pisa_capc.model.stacked import LayerNorm, Linear, at_least_float32

if TYPE_CHECKING:
    from pisa_capc.model.networks.pisa import PisaConfig


def array_view(iq: Tensor, mask: Tensor | None) -> Tensor:
    """Eq. (array_view): mean of the available antenna streams, (R, N, A, T, 2) → (R, N, T, 2).

    Absent streams must be zero. mask: (R, N, A), or none where all are there.
    """
    if mask is None:
        return iq.mean(2)
    return iq.sum(2) / mask.sum(2)[..., None, None].to(iq.dtype)


def bounded_suppression(z_id: Tensor, direction: Tensor, alpha: Tensor) -> Tensor:
    """Eq. (context_residual_suppression): z = z_id − α̃ tanh(s)."""
    return z_id - alpha[..., None].to(z_id.dtype) * torch.tanh(direction)


class Projection(nn.Module):
    """g_id and g_ctx: 32 → 64 → 64 with ReLU."""

    def __init__(self, inputs: int, outputs: int, runs: int = 1) -> None:
        super().__init__()
        self.first = Linear(inputs, outputs, runs)
        self.second = Linear(outputs, outputs, runs)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.second(F.relu(self.first(x)))
        return y


class SuppressionGate(nn.Module):
    """α of Eq. (context_alpha): α_min + (α_max − α_min) φ([z_id, s]), φ a 128 → 64 → 1 network with sigmoid."""

    def __init__(self, embedding: int, alpha_min: float, alpha_max: float, runs: int = 1) -> None:
        super().__init__()
        self.alpha_min, self.alpha_max = alpha_min, alpha_max
        self.first = Linear(2 * embedding, embedding, runs)
        self.second = Linear(embedding, 1, runs)

    def forward(self, z_id: Tensor, direction: Tensor) -> Tensor:
        gate = self.second(F.relu(self.first(torch.cat([z_id, direction], dim=-1))))
        return self.alpha_min + (self.alpha_max - self.alpha_min) * torch.sigmoid(at_least_float32(gate.squeeze(-1)))


def antenna_average(tokens: Tensor, mask: Tensor | None) -> Tensor:
    """u_k: mean of the graph-updated tokens over the available antennas, (R, N, A, K, d) → (R, N, K, d).

    mask: (R, N, A), or none where all are there.
    """
    if mask is None:
        return tokens.mean(2)
    weight = mask[..., None, None].to(tokens.dtype)
    return (tokens * weight).sum(2) / weight.sum(2)


class TokenRefinement(nn.Module):
    """Reliability-aware correction around the uniform average, Eq. (token_refinement).

    γ = softmax_k q(u_k),  ū = mean_k u_k + η (Σ_k γ_k u_k − mean_k u_k), q = linear(LayerNorm(·)).
    """

    def __init__(self, width: int, eta: float, runs: int = 1) -> None:
        super().__init__()
        self.eta = eta
        self.norm = LayerNorm(width, runs)
        self.score = Linear(width, 1, runs)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """(R, N, K, d) → the summary (R, N, d) and the weights γ (R, N, K)."""
        gamma = torch.softmax(at_least_float32(self.score(self.norm(tokens)).squeeze(-1)), dim=-1)
        mean = tokens.mean(2)
        weighted = (gamma[..., None].to(tokens.dtype) * tokens).sum(2)
        return mean + self.eta * (weighted - mean), gamma


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
