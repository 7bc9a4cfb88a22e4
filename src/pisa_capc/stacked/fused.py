"""The stacked layers on a GPU: convolution with batch normalisation, the GRU, and both halves of a Transformer layer,
each a few kernels in all.

What makes them quick is what they do not do: no launch per run, no pass over the activations that another kernel
could have done, and nothing kept for the backward pass but what the next layer keeps anyway.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from pisa_capc.stacked.noise import salt, signed_threshold

if TYPE_CHECKING:
    from pisa_capc.stacked.layers import BatchNorm, Dropout, LayerNorm, Linear

AVAILABLE = find_spec("triton") is not None
if AVAILABLE:
    from pisa_capc.stacked import kernels

# Triton's interpreter runs the kernels on a CPU: for tests, never for work.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

ROWS = 128  # rows of a tile; a tile of 128 × 32 channels fills a warp group without spilling
MULTIPROCESSORS = 132  # of a Hopper GPU
PROGRAMS = 8 * MULTIPROCESSORS
REGISTERS = 128  # of a thread, where more programs at a time are worth a few spilled values


def precision(x: Tensor) -> str:
    """How the products of tensors of this type are computed."""
    return "ieee" if x.dtype == torch.float32 else "tf32"


def programs(count: int, runs: int, each: int) -> int:
    """How many programs share the tiles of a run, where each multiprocessor has room for `each` of them."""
    return max(1, min(count, MULTIPROCESSORS * each // runs))


def _gather(channels: int, taps: int) -> int:
    return 0 if channels >= 16 else kernels.padded(channels * taps)


def joined(weights: Sequence[Tensor]) -> Tensor:
    """Branches (R, C_out, C_in, k) as one kernel of the longest, in which the others have zeros."""
    if len(weights) == 1:
        return weights[0]
    longest = max(w.shape[-1] for w in weights)
    return torch.cat([F.pad(w, ((longest - w.shape[-1]) // 2,) * 2) for w in weights], dim=1)


def convolve(x: Tensor, weight: Tensor, dilation: int, sums: bool) -> tuple[Tensor, Tensor]:
    """weight (R, taps, C_in, C_out) in the type of x; returns y and parts of its sums (R, parts, 2, C_out)."""
    runs, n, t, cin = x.shape
    taps, cout = weight.shape[1], weight.shape[3]
    rows = n * t
    count = programs(kernels.tiles(rows, ROWS), runs, 8)
    y = x.new_empty(runs, n, t, cout)
    partial = x.new_empty((runs, count, 2, cout) if sums else (1,), dtype=torch.float32)
    kernels.convolve[(count, runs)](
        x, weight, y, partial, rows, t,
        CIN=cin, COUT=cout, TAPS=taps, DILATION=dilation, GATHER=_gather(cin, taps),
        WITH_SUMS=sums, BLOCK=ROWS, PRECISION=precision(x), num_warps=4,
        num_stages=1 if x.dtype == torch.float32 else 3,  # else tiles of float32 would not fit into shared memory
    )  # fmt: skip
    return y, partial


def weight_gradient(
    x: Tensor, dy: Tensor, weight: Tensor, dilation: int, y: Tensor | None = None, coefficient: Tensor | None = None
) -> Tensor:
    """dW like the weight (R, C_out, C_in, taps), in float32; with y and coefficients, dy holds u (see the kernel)."""
    runs, n, t, cin = x.shape
    cout, taps = weight.shape[1], weight.shape[3]
    rows = n * t
    gather = _gather(cin, taps)
    kinds = 1 if gather else taps
    block = ROWS // 2
    splits = max(1, min(kernels.tiles(rows, 4 * block), PROGRAMS // (kinds * runs)))
    per_split = kernels.tiles(kernels.tiles(rows, splits), block) * block
    partial = x.new_empty(runs, splits, taps, cin, cout, dtype=torch.float32)
    kernels.weight_gradient[(kinds, splits, runs)](
        x, dy, dy if y is None else y, dy if coefficient is None else coefficient, partial, rows, t, per_split,
        CIN=cin, COUT=cout, TAPS=taps, DILATION=dilation, GATHER=gather, NORM=y is not None, BLOCK=block,
        PRECISION=precision(x), num_warps=2,
    )  # fmt: skip
    return partial.sum(1).permute(0, 3, 2, 1)


class Norm(NamedTuple):
    """Batch normalisation as scale · y + shift, each (R, C), of a convolution's output without its bias."""

    mean: Tensor
    rstd: Tensor
    scale: Tensor
    shift: Tensor

    @classmethod
    def of_batch(cls, norm: BatchNorm, bias: Tensor, partial: Tensor, rows: int) -> Norm:
        """From parts of the sums of so many rows; the running averages go on."""
        found = cls(*(torch.empty_like(norm.weight) for _ in cls._fields))
        runs, parts, _, width = partial.shape
        kernels.norm_statistics[(runs,)](
            partial, bias, norm.weight, norm.bias, norm.running_mean, norm.running_var, *found,
            parts, float(rows), norm.momentum, norm.eps, C=width, PARTS=kernels.padded(parts), num_warps=4,
        )  # fmt: skip
        return found

    @classmethod
    def frozen(cls, norm: BatchNorm, bias: Tensor) -> Norm:
        """From the running averages."""
        rstd = torch.rsqrt(norm.running_var + norm.eps)
        scale = norm.weight * rstd
        return cls(norm.running_mean, rstd, scale, torch.addcmul(norm.bias, bias - norm.running_mean, scale))

    def gradients(self, gamma: Tensor, partial: Tensor, rows: int) -> tuple[Tensor, Tensor, Tensor]:
        """dγ, dβ and the coefficients (R, 3, C) of dy, from parts of the sums of the gradient behind it."""
        dgamma, dbeta = torch.empty_like(gamma), torch.empty_like(gamma)
        runs, parts, _, width = partial.shape
        coefficient = gamma.new_empty(runs, 3, width)
        kernels.norm_gradient_coefficients[(runs,)](
            partial, gamma, self.mean, self.rstd, dgamma, dbeta, coefficient, parts, float(rows),
            C=width, PARTS=kernels.padded(parts), num_warps=4,
        )  # fmt: skip
        return dgamma, dbeta, coefficient


class _ConvNorm(torch.autograd.Function):
    """out = ReLU(γ (y − μ)/σ + β + skip) with y = conv(x), batch statistics over (N, T) of each run.

    With running statistics μ is without the bias b, and there is no way back: see `layers.conv_norm`.

    tokens > 0: the mean of out over each of `tokens` equal spans instead, without writing out itself.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        gamma: Tensor,
        beta: Tensor,
        skip: Tensor | None,
        norm: BatchNorm,
        dilation: int,
        relu: bool,
        tokens: int,
    ) -> Tensor:
        runs, n, t, _ = x.shape
        cout = weight.shape[1]
        low = weight.permute(0, 3, 2, 1).to(x.dtype).contiguous()  # (R, taps, C_in, C_out)
        rows = n * t
        y, partial = convolve(x, low, dilation, norm.training)
        found = Norm.of_batch(norm, bias, partial, rows) if norm.training else Norm.frozen(norm, bias)
        other = skip if skip is not None else y
        options = {"C": cout, "WITH_SKIP": skip is not None, "RELU": relu}
        if tokens:
            out = y.new_empty(runs, n, tokens, cout)
            kernels.norm_pool[(n * tokens, runs)](
                y, found.scale, found.shift, other, out, rows, t // tokens, **options, BLOCK=64, num_warps=1
            )
        else:
            out = torch.empty_like(y)
            kernels.norm_apply[(kernels.tiles(rows, ROWS), runs)](
                y, found.scale, found.shift, other, out, rows, **options, BLOCK=ROWS, num_warps=4
            )
        ctx.save_for_backward(x, weight, y, skip, gamma, *found)
        ctx.dilation, ctx.options, ctx.pool = dilation, options, t // tokens if tokens else 0
        return out

    @staticmethod
    def backward(ctx: Any, dout: Tensor) -> Any:
        x, weight, y, skip, gamma, *found = ctx.saved_tensors
        norm = Norm(*found)
        dout = dout.contiguous()
        runs, n, t, cout = y.shape
        rows = n * t
        options = {**ctx.options, "POOLED": ctx.pool > 0}
        other = skip if skip is not None else y
        count = programs(kernels.tiles(rows, ROWS), runs, 8)
        partial = y.new_empty(runs, count, 2, cout, dtype=torch.float32)
        kernels.norm_gradient_sums[(count, runs)](
            dout, y, norm.scale, norm.shift, other, dout, partial, rows, ctx.pool or 1,
            **options, KEEP=False, BLOCK=ROWS, num_warps=4,
        )  # fmt: skip
        dgamma, dbeta, coefficient = norm.gradients(gamma, partial, rows)
        dy = torch.empty_like(y)
        dskip = torch.empty_like(y) if skip is not None else None
        kernels.norm_gradient_apply[(kernels.tiles(rows, ROWS), runs)](
            dout, y, norm.scale, norm.shift, other, coefficient, dy, dskip if dskip is not None else dy, rows,
            ctx.pool or 1, **options, BLOCK=ROWS, num_warps=4,
        )  # fmt: skip
        dw = weight_gradient(x, dy, weight, ctx.dilation)
        dx = None
        if ctx.needs_input_grad[0]:
            # The gradient of a convolution is the convolution with the flipped, transposed kernel.
            low = weight.flip(3).permute(0, 3, 1, 2).to(x.dtype).contiguous()
            dx, _ = convolve(dy, low, ctx.dilation, False)
        return dx, dw, None, dgamma, dbeta, dskip, None, None, None, None


def low_precision(x: Tensor) -> Tensor:
    """x in the type that autocast chose, or as it is."""
    if x.is_cuda and torch.is_autocast_enabled("cuda"):
        x = x.to(torch.get_autocast_dtype("cuda"))
    return x.contiguous()


def conv_norm(
    x: Tensor,
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    norm: BatchNorm,
    dilation: int,
    skip: Tensor | None,
    relu: bool,
    tokens: int = 0,
) -> Tensor:
    """See `layers.conv_norm`. Branches of different kernels become one convolution with zero-padded kernels.

    tokens must divide the length; 0 means no pooling.
    """
    weight = joined(weights)
    bias = torch.cat(list(biases), dim=1)
    x = low_precision(x)
    if skip is not None:
        skip = skip.to(x.dtype).contiguous()
    result: Tensor = _ConvNorm.apply(x, weight, bias, norm.weight, norm.bias, skip, norm, dilation, relu, tokens)
    return result


class _Drop(NamedTuple):
    """A dropout as the kernels take it: its place, the signed hash below which elements go, what makes up for it."""

    salt: int
    threshold: int
    inflate: float

    @classmethod
    def of(cls, dropout: Dropout) -> _Drop:
        drop = dropout.probability if dropout.training else 0.0
        return cls(salt(dropout.site), signed_threshold(drop), 1 / (1 - drop))


def _key(x: Tensor, *dropouts: Dropout) -> tuple[Tensor, bool]:
    """The key of the dropouts, and whether any is at work."""
    key = next((d.key for d in dropouts if d.training and d.probability), None)
    return (x.new_zeros(1, dtype=torch.int32), False) if key is None else (key, True)


def _low(x: Tensor) -> torch.dtype:
    """The type of the products: what autocast chose, or that of x."""
    return torch.get_autocast_dtype("cuda") if x.is_cuda and torch.is_autocast_enabled("cuda") else x.dtype


def _parts(partial: Tensor, *parameters: Tensor) -> list[Tensor]:
    """The gradients of the parameters from the programs' shares (programs, all elements)."""
    pieces = partial.sum(0).split([p.numel() for p in parameters])
    return [piece.view_as(p) for piece, p in zip(pieces, parameters, strict=True)]


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
        key, drop = _key(x, *dropouts)
        inner, outer = (_Drop.of(d) for d in dropouts)

        def kept(*shape: int, dtype: torch.dtype) -> Tensor:
            return x.new_empty(shape if keep else 1, dtype=dtype)

        low = _low(x)
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
        dproject, dproject_bias, dgamma, dbeta = _parts(partial, *after)
        kernels.attention_heads_gradient[(n, runs)](
            heads, key, mixed, logsum, dmixed, dheads, n, length, *inner,
            PAD=kernels.padded(width // ctx.tile["HEADS"]), **ctx.tile, **options, num_warps=4,
        )  # fmt: skip
        partial = gamma.new_empty(splits, qkv.numel() + qkv_bias.numel())
        kernels.attention_input_gradient[(splits, runs)](
            x, qkv, dheads, dx, partial, runs, rows, each,
            WIDTH=width, BLOCK=ROWS, PRECISION=options["PRECISION"], num_warps=4, num_stages=1,
        )  # fmt: skip
        dqkv, dqkv_bias = _parts(partial, qkv, qkv_bias)
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
        key, drop = _key(x, *dropouts)
        numbers = [*_Drop.of(dropouts[0]), *_Drop.of(dropouts[1])]
        out = torch.empty_like(x)
        normed = x.new_empty(x.shape if keep else 1, dtype=_low(x))
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
        dup, ddown, dup_bias, ddown_bias, dgamma, dbeta = _parts(partial, *parameters)
        return dx, dup, dup_bias, ddown, ddown_bias, dgamma, dbeta, None, None, None


def feed_forward(x: Tensor, up: Linear, down: Linear, norm: LayerNorm, hidden: Dropout, out: Dropout) -> Tensor:
    """See `layers.feed_forward`."""
    result: Tensor = _FeedForward.apply(
        x.contiguous(), up.weight, up.bias, down.weight, down.bias, norm.weight, norm.bias, norm.eps, (hidden, out),
        torch.is_grad_enabled(),
    )  # fmt: skip
    return result


class _Gates(torch.autograd.Function):
    """x Wᵀ of each run: (R, M, inputs), (R, outputs, inputs) → (R, M, outputs)."""

    SPLITS = 64  # of the rows for the gradient of W: one product of so many rows would keep few multiprocessors busy

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        low = weight.to(x.dtype)
        ctx.save_for_backward(x, low)
        return torch.bmm(x, low.transpose(1, 2))

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        x, low = ctx.saved_tensors
        splits = math.gcd(_Gates.SPLITS, x.shape[1])
        parts = [t.reshape(len(x) * splits, -1, t.shape[2]) for t in (dy, x)]
        dweight = torch.bmm(parts[0].transpose(1, 2), parts[1]).unflatten(0, (len(x), splits))
        return torch.bmm(dy, low), dweight.sum(1, dtype=torch.float32)


class _Recurrence(torch.autograd.Function):
    """h_t = (1 − z) n + z h_{t−1} in both directions; gates (R, N, T, 2, 3, H) hold the input's share.

    Its mean over each `pool` steps: (R, N, T/pool, 2, H).
    """

    BLOCK = 16  # streams of a program: few, because the time is that of 320 steps one after the other

    @staticmethod
    def forward(ctx: Any, gates: Tensor, weight: Tensor, bias: Tensor, pool: int) -> Tensor:
        runs, n, t, _, _, hidden = gates.shape
        out = gates.new_empty(runs, n, t, 2, hidden)
        split = weight.unflatten(2, (3, hidden))  # (R, 2, 3, H_out, H_in)
        low = split.transpose(3, 4).to(gates.dtype).contiguous()
        kernels.gru_forward[(kernels.tiles(n, _Recurrence.BLOCK), runs, 2)](
            gates, low, bias, out, n, t, H=hidden, BLOCK=_Recurrence.BLOCK, PRECISION=precision(gates), num_warps=1
        )
        ctx.save_for_backward(gates, weight, bias, out)
        ctx.pool = pool
        return out if pool == 1 else out.unflatten(2, (-1, pool)).mean(3)

    @staticmethod
    def backward(ctx: Any, dout: Tensor) -> Any:
        gates, weight, bias, out = ctx.saved_tensors
        runs, n, t, _, _, hidden = gates.shape
        split = weight.unflatten(2, (3, hidden)).to(gates.dtype)
        count = kernels.tiles(n, _Recurrence.BLOCK)
        dgates = torch.empty_like(gates)
        dweight = weight.new_empty(count, runs, 2, 3, hidden, hidden)
        dbias = weight.new_empty(count, runs, 2, 4, hidden)
        kernels.gru_backward[(count, runs, 2)](
            gates, split.transpose(3, 4).contiguous(), split.contiguous(), bias, out, dout.contiguous(),
            dgates, dweight, dbias, n, t, ctx.pool,
            H=hidden, BLOCK=_Recurrence.BLOCK, PRECISION=precision(gates), num_warps=1,
        )  # fmt: skip
        return dgates, dweight.sum(0).transpose(3, 4).flatten(2, 3), dbias.sum(0), None


def gru(
    x: Tensor, weight_input: Tensor, weight_hidden: Tensor, bias_input: Tensor, bias_hidden: Tensor, tokens: int = 0
) -> Tensor:
    """See `layers.GRU`: one matrix product for the inputs of all steps, then the recurrence.

    tokens must divide the length; 0 means no pooling.
    """
    runs, n, t, _ = x.shape
    hidden = weight_hidden.shape[-1]
    gates = _Gates.apply(low_precision(x).flatten(1, 2), weight_input.flatten(1, 2))
    b_input, b_hidden = (b.unflatten(2, (3, hidden)) for b in (bias_input, bias_hidden))
    bias = torch.cat([b_input[:, :, :2] + b_hidden[:, :, :2], b_hidden[:, :, 2:], b_input[:, :, 2:]], dim=2)
    pool = t // tokens if tokens else 1
    out: Tensor = _Recurrence.apply(gates.view(runs, n, t, 2, 3, hidden), weight_hidden, bias.contiguous(), pool)
    return out.flatten(3)
