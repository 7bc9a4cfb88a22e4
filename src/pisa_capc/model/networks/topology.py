"""Topology-guided token propagation (Section III-C)."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from pisa_capc.model.stacked import Dropout, Fusable, LayerNorm, Linear, at_least_float32, draws, in_blocks, in_kernels
from pisa_capc.model.stacked.frozen import attention_heads

# Stands for log 0: finite, so that no arithmetic on a masked entry makes NaN.
NEVER = -1e9


def topology_exponent(distances: Tensor, tokens: int, tau_s: float, tau_t: Tensor) -> Tensor:
    """log P of Eq. (topology_prior), its rows not normalised.

        P_{(a,k),(b,l)} = exp(−d(p_a, p_b)/τ_s) exp(−|k − l|/τ_t)

    distances: (A, A), in wavelengths like τ_s. tau_t: (R, N), in tokens. Returns (R, N, A·K, A·K); node (a, k) has
    index a·K + k. The diagonal, where both exponents are zero, is the self-loop.
    """
    space, gap = node_distances(distances, tokens, tau_s, tau_t.dtype)
    return -space - gap / tau_t[..., None, None]


def node_distances(distances: Tensor, tokens: int, tau_s: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """d(p_a, p_b)/τ_s and |k − l| of all pairs of nodes: (A·K, A·K) each."""
    step = torch.arange(tokens, device=distances.device, dtype=dtype)
    gap = (step[:, None] - step[None]).abs()
    antennas = len(distances)
    space = (distances / tau_s)[:, None, :, None].expand(antennas, tokens, antennas, tokens).flatten(2).flatten(0, 1)
    time = gap[None, :, None, :].expand(antennas, tokens, antennas, tokens).flatten(2).flatten(0, 1)
    return space, time


def log_topology_prior(distances: Tensor, tokens: int, tau_s: float, tau_t: Tensor, available: Tensor) -> Tensor:
    """`topology_exponent` with each row normalised over the available nodes. available: (R, N, A·K) boolean.

    Normalised rows make the graph regulariser a true KL divergence and leave the attention unchanged, because softmax
    ignores a constant per row.
    """
    exponent = topology_exponent(distances, tokens, tau_s, tau_t)
    return torch.log_softmax(exponent.masked_fill(~available[..., None, :], NEVER), dim=-1)


def topology_attention(query: Tensor, key: Tensor, log_prior: Tensor, beta: Tensor, available: Tensor) -> Tensor:
    """Eq. (topology_attention): A = softmax(QKᵀ/√d_h + β̃ log P), over the available nodes.

    query, key: (R, N, heads, J, d_h). log_prior: (R, N, J, J). beta: (R, N). available: (R, N, J) boolean.
    Returns (R, N, heads, J, J), at least float32; rows sum to one and absent nodes get nothing.
    """
    score = at_least_float32(query @ key.transpose(-1, -2)) / math.sqrt(query.shape[-1])
    score = score + (beta[..., None, None] * log_prior)[:, :, None]
    return torch.softmax(score.masked_fill(~available[:, :, None, None, :], NEVER), dim=-1)


def graph_loss(attention: Tensor, log_prior: Tensor, available: Tensor) -> Tensor:
    """Eq. (graph_loss): 1/|Ω| Σ_{(i,j)∈Ω} A_ij log(A_ij / P_ij), per sample: (R, N).

    attention: (R, N, J, J), averaged over heads. Ω: pairs of available nodes.
    """
    pairs = available[..., :, None] & available[..., None, :]
    ratio = attention * (attention.clamp_min(1e-12).log() - log_prior)
    return torch.where(pairs, ratio, 0.0).sum((-1, -2)) / pairs.sum((-1, -2))


class Propagated(NamedTuple):
    """The output of a graph block for a frame's tokens; the last two only on request."""

    nodes: Tensor  # (R, N, J, d)
    graph_loss: Tensor | None = None  # (R, N)
    attention: Tensor | None = None  # (R, N, J, J), averaged over heads
    log_prior: Tensor | None = None  # (R, N, J, J)


class TopologyBlock(Fusable):
    """Residual graph block: u = x + scale · out(dropout(A) V), A by `topology_attention`; Q, K, V from LayerNorm(x)."""

    fusable = ("propagate_plainly",)

    def __init__(self, width: int, heads: int, scale: float, dropout: float, runs: int = 1) -> None:
        super().__init__()
        self.heads = heads
        self.scale = scale
        self.norm = LayerNorm(width, runs)
        self.query, self.key, self.value, self.out = (Linear(width, width, runs) for _ in range(4))
        self.dropout = Dropout(dropout)

    def propagate(
        self,
        x: Tensor,
        distances: Tensor,
        tau_s: float,
        tau_t: Tensor,
        beta: Tensor,
        available: Tensor,
        details: bool = False,
    ) -> Propagated:
        """`forward` under the prior of `log_topology_prior`, and the `graph_loss` of its attention.

        x: (R, N, J, d), antenna by antenna; details: attention and prior, too.
        """
        if in_kernels(x) and x.shape[2] <= 64 and draws(self.dropout) and not details:  # a frame is one tile
            from pisa_capc.model.stacked import fused

            layers = self.query, self.key, self.value, self.out
            given = x, tau_t, beta, available, distances, tau_s
            return Propagated(*fused.topology(*given, self.norm, layers, self.heads, self.scale, self.dropout))
        if self.training and in_blocks(x) and draws(self.dropout) and not details:
            return self._in_blocks(x, distances, tau_s, tau_t, beta, available)
        found: Propagated = self.part("propagate_plainly")(x, distances, tau_s, tau_t, beta, available)
        return found

    def propagate_plainly(
        self, x: Tensor, distances: Tensor, tau_s: float, tau_t: Tensor, beta: Tensor, available: Tensor
    ) -> Propagated:
        """`propagate` as the equations have it."""
        tokens = x.shape[2] // len(distances)
        log_prior = log_topology_prior(distances, tokens, tau_s, tau_t, available)
        nodes, attention = self(x, log_prior, beta, available)
        return Propagated(nodes, graph_loss(attention, log_prior, available), attention, log_prior)

    def forward(self, x: Tensor, log_prior: Tensor, beta: Tensor, available: Tensor) -> tuple[Tensor, Tensor]:
        """x: (R, N, J, d); log_prior: (R, N, J, J); beta: (R, N); available: (R, N, J).

        Returns the propagated tokens and the attention averaged over heads.
        """
        normed = self.norm(x)
        q, k, v = (
            layer(normed).unflatten(-1, (self.heads, -1)).transpose(2, 3)
            for layer in (self.query, self.key, self.value)
        )  # (R, N, heads, J, d_h)
        attention = topology_attention(q, k, log_prior, beta, available)
        mixed = self.dropout(attention).to(v.dtype) @ v
        update = self.out(mixed.transpose(2, 3).flatten(-2))
        return x + self.scale * update, attention.mean(2)

    def _in_blocks(
        self, x: Tensor, distances: Tensor, tau_s: float, tau_t: Tensor, beta: Tensor, available: Tensor
    ) -> Propagated:
        """`propagate` in training on a CPU."""
        from pisa_capc.model.stacked import graph

        pairs = node_distances(distances, x.shape[2] // len(distances), tau_s, tau_t.dtype)
        layers = (self.query, self.key, self.value)
        weight, bias = (torch.cat([getattr(layer, kind) for layer in layers], 1) for kind in ("weight", "bias"))
        mixed, loss = graph.attention(
            self.norm(x), tau_t, beta, available, *pairs, NEVER, weight, bias, self.heads, self.dropout
        )
        return Propagated(x + self.scale * self.out(mixed), loss)

    def infer(self, x: Tensor, exponent: Tensor, available: Tensor | None) -> Tensor:
        """The propagated tokens of a frozen model, as `forward` has them.

        exponent: β̃ log P (R, N, J, J), of rows that need not sum to one. available: (R, N, J), or none for all.
        """
        if available is not None:
            exponent = exponent.masked_fill(~available[..., None, :], NEVER)
        layers = (self.query, self.key, self.value)
        mixed = attention_heads(self.norm(x)[0], self, layers, self.heads, exponent[0])
        return x + self.scale * self.out(mixed)[None]
