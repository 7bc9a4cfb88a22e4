"""Both halves of a Transformer layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pisa_capc.model.stacked import kernels
from pisa_capc.model.stacked.fused.launching import PROGRAMS, REGISTERS, ROWS, Drop, drop_key, precision, summed
from pisa_capc.model.stacked.precision import product_dtype

if TYPE_CHECKING:
    from pisa_capc.model.stacked.layers import Dropout, LayerNorm, Linear


def _row_splits(rows: int, runs: int, tile: int) -> tuple[int, int]:
    """How many programs share the rows of a run, and how many rows each has, in whole tiles."""
    splits = max(1, min(kernels.tiles(rows, tile), PROGRAMS // (4 * runs)))
    each = kernels.tiles(kernels.tiles(rows, splits), tile) * tile
    return kernels.tiles(rows, each), each


class _Attention(torch.autograd.Function):
    """LN(x + dropout(project(attention(x)))); the attention's weights never leave the chip."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, qkv: Tensor, qkv_bias: Tensor, project: Tensor, project_bias: Tensor, gamma: Tensor,
        beta: Tensor, eps: float, count: int, dropouts: tuple[Dropout, Dropout], keep: bool,
    ) -> Tensor:  # fmt: skip
        runs, n, length, width = x.shape
        key, drop = drop_key(x, *dropouts)
        inner, outer = (Drop.of(d) for d in dropouts)

        def kept(*shape: int, dtype: torch.dtype) -> Tensor:
            return x.new_empty(shape if keep else 1, dtype=dtype)

        low = product_dtype(x)
        out = torch.empty_like(x)
        heads = kept(runs, n, length, 3, width, dtype=low)
        mixed, normed = kept(*x.shape, dtype=low), kept(*x.shape, dtype=low)
        rstd = kept(runs, n, length, dtype=torch.float32)
        logsum = kept(runs, n, count, length, dtype=torch.float32)
        options = {"WIDTH": width, "DROP": drop, "PRECISION": precision(mixed)}
        tile = {"HEADS": count, "L": kernels.padded(length)}
        kernels.attention[(n, runs)](
            x, qkv, qkv_bias, project, project_bias, gamma, beta, key, out, heads, mixed, normed, rstd, logsum,
            n, length, eps, *inner, *outer, KEEP=keep, **tile, **options, num_warps=4, maxnreg=REGISTERS,
        )  # fmt: skip
        ctx.save_for_backward(
            x, qkv, qkv_bias, project, project_bias, gamma, beta, key, heads, mixed, normed, rstd, logsum
        )
        ctx.drops, ctx.options, ctx.tile = (inner, outer), options, tile
        return out

    @staticmethod
    def backward(ctx: Any, dout: Tensor) -> Any:
        x, qkv, qkv_bias, project, project_bias, gamma, beta, key, *saved = ctx.saved_tensors
        heads, mixed, normed, rstd, logsum = saved
        runs, n, length, width = x.shape
        rows = n * length
        (inner, outer), options = ctx.drops, ctx.options
        splits, each = _row_splits(rows, runs, ROWS)
        dx, dmixed, dheads = torch.empty_like(x), torch.empty_like(mixed), torch.empty_like(heads)
        after = (project, project_bias, gamma, beta)
        partial = gamma.new_empty(splits, sum(p.numel() for p in after))
        kernels.attention_output_gradient[(splits, runs)](
            project, gamma, key, dout.contiguous(), mixed, normed, rstd, dx, dmixed, partial,
            runs, rows, each, *outer, BLOCK=ROWS, **options, num_warps=4, num_stages=1,
        )  # fmt: skip
        dproject, dproject_bias, dgamma, dbeta = summed(partial, *after)
        kernels.attention_heads_gradient[(n, runs)](
            heads, key, mixed, logsum, dmixed, dheads, n, length, *inner,
            PAD=kernels.padded(width // ctx.tile["HEADS"]), **ctx.tile, **options, num_warps=4,
        )  # fmt: skip
        partial = gamma.new_empty(splits, qkv.numel() + qkv_bias.numel())
        kernels.attention_input_gradient[(splits, runs)](
            x, qkv, dheads, dx, partial, runs, rows, each,
            WIDTH=width, BLOCK=ROWS, PRECISION=options["PRECISION"], num_warps=4, num_stages=1,
        )  # fmt: skip
        dqkv, dqkv_bias = summed(partial, qkv, qkv_bias)
        return dx, dqkv, dqkv_bias, dproject, dproject_bias, dgamma, dbeta, None, None, None, None


def attention(
    x: Tensor, qkv: Linear, project: Linear, norm: LayerNorm, heads: int, weights: Dropout, out: Dropout
) -> Tensor:
    """See `layers.attention`; sequences of up to 128."""
    result: Tensor = _Attention.apply(
        x.contiguous(), qkv.weight, qkv.bias, project.weight, project.bias, norm.weight, norm.bias, norm.eps, heads,
        (weights, out), torch.is_grad_enabled(),
    )  # fmt: skip
    return result


class _FeedForward(torch.autograd.Function):
    """LN(x + dropout(down(dropout(ReLU(up(x)))))); the hidden activations never leave the chip."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor, gamma: Tensor,
        beta: Tensor, eps: float, dropouts: tuple[Dropout, Dropout], keep: bool,
    ) -> Tensor:  # fmt: skip
        runs, n, length, width = x.shape
        rows = n * length
        key, drop = drop_key(x, *dropouts)
        numbers = [*Drop.of(dropouts[0]), *Drop.of(dropouts[1])]
        out = torch.empty_like(x)
        normed = x.new_empty(x.shape if keep else 1, dtype=product_dtype(x))
        rstd = x.new_empty((runs, rows) if keep else 1, dtype=torch.float32)
        options = {"WIDTH": width, "HIDDEN": up.shape[1], "DROP": drop, "PRECISION": precision(normed)}
        kernels.feed_forward[(kernels.tiles(rows, ROWS), runs)](
            x, up, up_bias, down, down_bias, gamma, beta, key, out, normed, rstd, rows, eps, *numbers,
            CHUNK=64, KEEP=keep, BLOCK=ROWS, **options, num_warps=8,
        )  # fmt: skip
        ctx.save_for_backward(x, up, up_bias, down, down_bias, gamma, beta, key, normed, rstd)
        ctx.numbers, ctx.options = numbers, options
        return out

    @staticmethod
    def backward(ctx: Any, dout: Tensor) -> Any:
        x, up, up_bias, down, down_bias, gamma, beta, key, normed, rstd = ctx.saved_tensors
        runs, n, length, _ = x.shape
        rows = n * length
        splits, each = _row_splits(rows, runs, ROWS // 2)
        parameters = (up, down, up_bias, down_bias, gamma, beta)
        partial = gamma.new_empty(splits, sum(p.numel() for p in parameters))
        dx, dy = torch.empty_like(x), torch.empty_like(normed)
        kernels.feed_forward_gradient[(splits, runs)](
            x, up, up_bias, down, gamma, key, dout.contiguous(), normed, rstd, dx, dy, partial,
            runs, rows, each, *ctx.numbers, CHUNK=64, BLOCK=ROWS // 2, **ctx.options, num_warps=4, num_stages=1,
        )  # fmt: skip
        dup, ddown, dup_bias, ddown_bias, dgamma, dbeta = summed(partial, *parameters)
        return dx, dup, dup_bias, ddown, ddown_bias, dgamma, dbeta, None, None, None


def feed_forward(x: Tensor, up: Linear, down: Linear, norm: LayerNorm, hidden: Dropout, out: Dropout) -> Tensor:
    """See `layers.feed_forward`."""
    result: Tensor = _FeedForward.apply(
        x.contiguous(), up.weight, up.bias, down.weight, down.bias, norm.weight, norm.bias, norm.eps, (hidden, out),
        torch.is_grad_enabled(),
    )  # fmt: skip
    return result
