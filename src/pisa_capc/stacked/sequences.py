"""The two halves of a Transformer layer in training on a CPU, some sequences at a time.

What is wide, the attention and the hidden layer, is made, dropped and used while it is in the cache. Dropout only sets
zeros here: what makes up for it, 1/(1 − p), is in the weights that come next, where there is least to multiply.

In mixed precision the products with weights are taken in bfloat16. Attention is in float32 all the same: its products
are so small that they would gain little, and what is between them would take longer. PyTorch's threads share every
operation here: a block to each thread, as in `blocks.py`, was tried and is slower.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pisa_capc.stacked.noise import fill_kept, site_key
from pisa_capc.stacked.precision import at_least_float32, full_precision, product_dtype

if TYPE_CHECKING:
    from pisa_capc.stacked.layers import Dropout

BLOCK = 2**19  # elements of what is wide that are worked on together


class Drop:
    """Dropout of one run at one place: what `Dropout` does, in pieces."""

    def __init__(self, dropout: Dropout, run: int) -> None:
        self.probability = dropout.probability if dropout.training else 0.0
        self.inflate = 1 / (1 - self.probability)
        if self.probability:
            assert dropout.key is not None
            self.own = int(site_key(dropout.key[run : run + 1], dropout.site))

    def zero(self, x: Tensor, first: int, room: Tensor) -> Tensor:
        """A copy of x with zeros where elements are dropped, the first of which is element `first` of the whole."""
        if not self.probability:
            return x
        kept = room[: x.numel()]
        fill_kept(kept, self.own, self.probability, first)
        return x * kept.view_as(x)


def _blocks(count: int, wide: int) -> list[slice]:
    each = max(1, BLOCK // wide)
    return [slice(start, min(start + each, count)) for start in range(0, count, each)]


class _Heads(torch.autograd.Function):
    """dropout(softmax(QKᵀ/√d)) V of all heads, (N, L, W) → (N, L, W). dtype: of products with weights.

    Queries, keys and values are (N, heads, d, L): products with a side of d elements are several times quicker when
    that side comes first.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, dtype: torch.dtype, weight: Tensor, bias: Tensor, heads: int, drop: Drop
    ) -> Tensor:
        count, length, width = x.shape
        scales = x.new_tensor([math.sqrt(heads / width), 1.0, drop.inflate]).repeat_interleave(width)[:, None]
        scaled, shift = (weight * scales).to(dtype), (bias[:, None] * scales).to(dtype)
        blocks = _blocks(count, heads * length**2)
        room = x.new_empty(blocks[0].stop * heads * length**2)
        out, kept = torch.empty_like(x), []
        for rows in blocks:
            own = x[rows].to(dtype)
            qkv = torch.baddbmm(shift, scaled.expand(len(own), -1, -1), own.mT).to(x.dtype)
            q, k, v = qkv.view(-1, 3, heads, width // heads, length).transpose(0, 1).flatten(1, 2)
            a = torch.softmax(torch.bmm(q.mT, k), dim=-1)
            dropped = drop.zero(a, rows.start * heads * length**2, room)
            mixed = torch.bmm(v, dropped.mT)
            out[rows] = mixed.view(-1, width, length).mT
            kept.append((qkv, a, dropped, mixed))
        ctx.save_for_backward(x, scaled, scales)
        ctx.heads, ctx.blocks, ctx.kept = heads, blocks, kept
        return out

    @staticmethod
    def backward(ctx: Any, dout: Tensor) -> Any:
        x, scaled, scales = ctx.saved_tensors
        _, length, width = x.shape
        heads = ctx.heads
        dx = torch.empty_like(x)
        dweight, dbias = x.new_zeros(scaled.shape), x.new_zeros(len(scaled))
        for rows, (qkv, a, dropped, mixed) in zip(ctx.blocks, ctx.kept, strict=True):
            q, k, v = qkv.view(-1, 3, heads, width // heads, length).transpose(0, 1).flatten(1, 2)
            dmixed = dout[rows].mT.reshape(-1, width // heads, length)
            # Σ_j a_j da_j, with what was dropped: over a head's features, Σ mixed · dmixed
            along = (mixed * dmixed).sum(1)[:, :, None]
            dscore = torch.bmm(dmixed.mT, v).mul_(dropped).addcmul_(a, along, value=-1)
            parts = (torch.bmm(k, dscore.mT), torch.bmm(q, dscore), torch.bmm(dmixed, dropped))
            dqkv = torch.stack([part.view(-1, width, length) for part in parts], dim=1)
            flat = dqkv.view(-1, 3 * width, length).mT.reshape(-1, 3 * width)
            dbias += flat.sum(0)
            flat = flat.to(scaled.dtype)
            _add_product(dweight, flat.t(), x[rows].flatten(0, 1).to(flat.dtype))
            dx[rows] = (flat @ scaled).view_as(x[rows])
        return dx, None, dweight * scales, dbias * scales[:, 0], None, None


class _Hidden(torch.autograd.Function):
    """down(dropout(ReLU(up(x)))), rows (M, W) → (M, W). dtype: of the hidden layer and its products."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, dtype: torch.dtype, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor,
        drop: Drop,
    ) -> Tensor:  # fmt: skip
        wide = len(up)
        up, up_bias, scaled, down_bias = (w.to(dtype) for w in (up, up_bias, down * drop.inflate, down_bias))
        blocks = _blocks(len(x), wide)
        room = up.new_empty(blocks[0].stop * wide)
        out, kept = torch.empty_like(x), []
        for rows in blocks:
            hidden = torch.addmm(up_bias, x[rows].to(dtype), up.t()).relu_()
            kept.append(drop.zero(hidden, rows.start * wide, room))
            out[rows] = torch.addmm(down_bias, kept[-1], scaled.t())
        ctx.save_for_backward(x, up, scaled)
        ctx.blocks, ctx.kept, ctx.inflate = blocks, kept, drop.inflate
        return out

    @staticmethod
    def backward(ctx: Any, dout: Tensor) -> Any:
        x, up, scaled = ctx.saved_tensors
        dx = torch.empty_like(x)
        dup, ddown, dup_bias = x.new_zeros(up.shape), x.new_zeros(scaled.shape), x.new_zeros(len(up))
        for rows, hidden in zip(ctx.blocks, ctx.kept, strict=True):
            own = dout[rows].to(up.dtype)
            _add_product(ddown, own.t(), hidden)
            dhidden = own @ scaled
            # zero are the elements that the ReLU cut off and those that were dropped
            torch.ops.aten.threshold_backward.grad_input(dhidden, hidden, 0, grad_input=dhidden)
            _add_product(dup, dhidden.t(), x[rows].to(up.dtype))
            dup_bias += dhidden.sum(0, dtype=x.dtype)
            dx[rows] = dhidden @ up
        return dx, None, dup, dup_bias, ddown * ctx.inflate, dout.sum(0), None


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += a · b, whatever type these are of."""
    if a.dtype == total.dtype:
        total.addmm_(a, b)
    else:
        total += a @ b


def attention_heads(x: Tensor, weight: Tensor, bias: Tensor, heads: int, dropout: Dropout) -> Tensor:
    """dropout(softmax(QKᵀ/√d)) V for each run: (R, N, L, W); weight (R, 3W, W), bias (R, 3W)."""
    dtype = product_dtype(x)
    with full_precision(x):
        runs = [
            _Heads.apply(at_least_float32(own).contiguous(), dtype, w, b, heads, Drop(dropout, run))
            for run, (own, w, b) in enumerate(zip(x, weight, bias, strict=True))
        ]
        return torch.stack(runs)


def hidden_layer(x: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor, dropout: Dropout) -> Tensor:
    """down(dropout(ReLU(up(x)))) for each run: (R, N, L, W)."""
    dtype = product_dtype(x)
    with full_precision(x):
        runs = [
            _Hidden.apply(at_least_float32(own).flatten(0, -2), dtype, *parameters, Drop(dropout, run))
            for run, (own, *parameters) in enumerate(zip(x, up, up_bias, down, down_bias, strict=True))
        ]
        return torch.stack(runs).view_as(x)
