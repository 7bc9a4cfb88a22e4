"""Topology-guided token propagation and its graph loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pisa_capc.model.stacked import kernels
from pisa_capc.model.stacked.fused.launching import ROWS, Drop, drop_key, precision, programs, summed
from pisa_capc.model.stacked.precision import product_dtype

if TYPE_CHECKING:
    from pisa_capc.model.stacked.layers import Dropout, LayerNorm, Linear

ROWS_OF_A_WARP = 16  # of a tile: as many as its matrix unit takes, so that no warp does the work of another
REGISTERS = 168  # of a thread of the forward pass: more programs at a time for a few spilled values
PAIRS = 1024  # of nodes, whose separations a program writes


class _Topology(torch.autograd.Function):
    """u = x + scale · out(dropout(A) V) and the graph loss of A; nothing of size J² leaves the chip."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, tau_t: Tensor, beta: Tensor, available: Tensor, distances: Tensor, tau_s: float,
        heads: int, scale: float, dropout: Dropout, eps: float, keep: bool, *parameters: Tensor,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        runs, frames, nodes, width = x.shape
        noise, drop = drop_key(x, dropout)
        low = product_dtype(x)
        apart = x.new_empty(2, nodes, nodes, dtype=torch.float32)
        kernels.separations[(kernels.tiles(nodes**2, PAIRS),)](
            distances, apart, nodes, nodes // len(distances), tau_s, BLOCK=PAIRS
        )
        u, loss = torch.empty_like(x), x.new_empty(runs, frames, dtype=torch.float32)
        mixed = x.new_empty(x.shape if keep else 1, dtype=low)
        logsum = x.new_empty((runs, frames, heads, nodes) if keep else 1, dtype=torch.float32)
        numbers = (scale, eps, *Drop.of(dropout))
        tile = kernels.padded(nodes)
        options = {
            "WIDTH": width, "HEADS": heads, "J": tile, "DROP": drop, "PRECISION": precision(mixed),
            "num_warps": tile // ROWS_OF_A_WARP, "num_stages": 1,
        }  # fmt: skip
        kernels.topology[(frames, runs)](
            x, tau_t, beta, available, apart, *parameters, noise, u, loss, mixed, logsum, frames, nodes, *numbers,
            KEEP=keep, **options, maxnreg=REGISTERS,
        )  # fmt: skip
        ctx.save_for_backward(x, tau_t, beta, available, apart, noise, mixed, logsum, *parameters)
        ctx.numbers, ctx.options = numbers, options
        return u, loss

    @staticmethod
    def backward(ctx: Any, du: Tensor, dloss: Tensor) -> Any:
        x, tau_t, beta, available, apart, noise, mixed, logsum, *parameters = ctx.saved_tensors
        runs, frames, nodes, width = x.shape
        gamma, shift, query, query_bias, key, key_bias, value, value_bias, out, out_bias = parameters
        du = du.contiguous()
        dtau_t, dbeta, dheads = torch.empty_like(tau_t), torch.empty_like(beta), mixed.new_empty(*x.shape[:3], 3, width)
        kernels.topology_heads_gradient[(frames, runs)](
            x, tau_t, beta, available, apart, *parameters[:-1], noise, logsum, du, dloss.contiguous(), dtau_t, dbeta,
            dheads, frames, nodes, *ctx.numbers, **ctx.options,
        )  # fmt: skip
        rows = frames * nodes
        count = programs(kernels.tiles(rows, ROWS // 2), runs, 2)
        dx = torch.empty_like(x)
        shares = (query, key, value, out, query_bias, key_bias, value_bias, out_bias, gamma, shift)
        partial = gamma.new_empty(count, sum(p.numel() for p in shares))
        kernels.topology_rows_gradient[(count, runs)](
            x, gamma, shift, query, key, value, mixed, du, dheads, dx, partial, runs, rows, *ctx.numbers[:2],
            WIDTH=width, BLOCK=ROWS // 2, PRECISION=ctx.options["PRECISION"], num_warps=4, num_stages=1,
        )  # fmt: skip
        dquery, dkey, dvalue, dout, *biases, dgamma, dshift = summed(partial, *shares)
        weights = zip((dquery, dkey, dvalue, dout), biases, strict=True)
        return dx, dtau_t, dbeta, *[None] * 8, dgamma, dshift, *(g for pair in weights for g in pair)


def topology(
    x: Tensor, tau_t: Tensor, beta: Tensor, available: Tensor, distances: Tensor, tau_s: float, norm: LayerNorm,
    layers: tuple[Linear, Linear, Linear, Linear], heads: int, scale: float, dropout: Dropout,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The propagated tokens (R, N, J, d) and the graph loss of each sample (R, N), of up to 64 nodes.

    x: (R, N, J, d), antenna by antenna. tau_t, beta: (R, N). available: (R, N, J) boolean. distances: (A, A), in
    wavelengths like tau_s. layers: query, key, value and out. See `TopologyBlock` for the mathematics.
    """
    parameters = [norm.weight, norm.bias, *(p for layer in layers for p in (layer.weight, layer.bias))]
    u, loss = _Topology.apply(
        x.contiguous(), tau_t.contiguous(), beta.contiguous(), available.contiguous(), distances, tau_s, heads, scale,
        dropout, norm.eps, torch.is_grad_enabled(), *parameters,
    )  # fmt: skip
    return u, loss
