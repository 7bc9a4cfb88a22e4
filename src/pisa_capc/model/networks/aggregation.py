"""Token aggregation (Section III-D, first half)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pisa_capc.model.stacked import LayerNorm, Linear, at_least_float32


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
