"""Array view, contextual direction and bounded suppression (Section III-D, second half)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pisa_capc.model.stacked import Linear, at_least_float32


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
