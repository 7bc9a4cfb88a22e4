"""One convolution with batch normalisation, ReLU, skip and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from pisa_capc.model.stacked import kernels
from pisa_capc.model.stacked.branches import joined
from pisa_capc.model.stacked.counts import Counts
from pisa_capc.model.stacked.fused.launching import PROGRAMS, ROWS, low_precision, precision, programs

if TYPE_CHECKING:
    from pisa_capc.model.stacked.layers import BatchNorm


def _gather(channels: int, taps: int) -> int:
    return 0 if channels >= 16 else kernels.padded(channels * taps)


def convolve(x: Tensor, weight: Tensor, dilation: int, counts: Counts) -> tuple[Tensor, Tensor]:
    """weight (R, taps, C_in, C_out) in the type of x; returns y and parts of its sums (R, parts, 2, C_out)."""
    runs, n, t, cin = x.shape
    taps, cout = weight.shape[1], weight.shape[3]
    rows = n * t
    count = programs(kernels.tiles(rows, ROWS), runs, 8)
    y = x.new_empty(runs, n, t, cout)
    partial = x.new_empty(runs, count, 2, cout, dtype=torch.float32)
    kernels.convolve[(count, runs)](
        x, weight, y, partial, counts.each, counts.used, rows, t,
        CIN=cin, COUT=cout, TAPS=taps, DILATION=dilation, GATHER=_gather(cin, taps),
        BLOCK=ROWS, PRECISION=precision(x), num_warps=4,
        num_stages=1 if x.dtype == torch.float32 else 3,  # else tiles of float32 would not fit into shared memory
    )  # fmt: skip
    return y, partial


def weight_gradient(
    x: Tensor,
    dy: Tensor,
    weight: Tensor,
    dilation: int,
    counts: Counts,
    y: Tensor | None = None,
    coefficient: Tensor | None = None,
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
        x, dy, dy if y is None else y, dy if coefficient is None else coefficient, partial,
        counts.each, counts.used, rows, t, per_split,
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
        counts: Counts,
    ) -> Tensor:
        runs, n, t, _ = x.shape
        cout = weight.shape[1]
        low = weight.permute(0, 3, 2, 1).to(x.dtype).contiguous()  # (R, taps, C_in, C_out)
        rows = n * t
        y, partial = convolve(x, low, dilation, counts)
        found = Norm.of_batch(norm, bias, partial, counts.total * t) if norm.training else Norm.frozen(norm, bias)
        other = skip if skip is not None else y
        options = {"C": cout, "WITH_SKIP": skip is not None, "RELU": relu}
        if tokens:
            out = y.new_empty(runs, n, tokens, cout)
            kernels.norm_pool[(n * tokens, runs)](
                y, found.scale, found.shift, other, out, counts.used, rows, t, t // tokens,
                **options, BLOCK=64, num_warps=1,
            )  # fmt: skip
        else:
            out = torch.empty_like(y)
            kernels.norm_apply[(kernels.tiles(rows, ROWS), runs)](
                y, found.scale, found.shift, other, out, counts.used, rows, t, **options, BLOCK=ROWS, num_warps=4
            )
        ctx.save_for_backward(x, weight, y, skip, gamma, *found)
        ctx.dilation, ctx.options, ctx.pool, ctx.counts = dilation, options, t // tokens if tokens else 0, counts
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
        counts = ctx.counts
        partial = y.new_empty(runs, count, 2, cout, dtype=torch.float32)
        kernels.norm_gradient_sums[(count, runs)](
            dout, y, norm.scale, norm.shift, other, dout, partial, counts.used, rows, t, ctx.pool or 1,
            **options, KEEP=False, BLOCK=ROWS, num_warps=4,
        )  # fmt: skip
        dgamma, dbeta, coefficient = norm.gradients(gamma, partial, counts.total * t)
        dy = torch.empty_like(y)
        dskip = torch.empty_like(y) if skip is not None else None
        kernels.norm_gradient_apply[(kernels.tiles(rows, ROWS), runs)](
            dout, y, norm.scale, norm.shift, other, coefficient, dy, dskip if dskip is not None else dy,
            counts.each, counts.used, rows, t, ctx.pool or 1, **options, BLOCK=ROWS, num_warps=4,
        )  # fmt: skip
        dw = weight_gradient(x, dy, weight, ctx.dilation, counts)
        dx = None
        if ctx.needs_input_grad[0]:
            # The gradient of a convolution is the convolution with the flipped, transposed kernel.
            low = weight.flip(3).permute(0, 3, 1, 2).to(x.dtype).contiguous()
            dx, _ = convolve(dy, low, ctx.dilation, Counts.once(dy))
        return dx, dw, None, dgamma, dbeta, dskip, None, None, None, None, None


def conv_norm(
    x: Tensor,
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    norm: BatchNorm,
    dilation: int,
    skip: Tensor | None,
    relu: bool,
    tokens: int = 0,
    counts: Counts | None = None,
) -> Tensor:
    """See `layers.conv_norm`. Branches of different kernels become one convolution with zero-padded kernels.

    tokens must divide the length; 0 means no pooling.
    """
    weight = joined(weights)
    bias = torch.cat(list(biases), dim=1)
    x = low_precision(x)
    if skip is not None:
        skip = skip.to(x.dtype).contiguous()
    result: Tensor = _ConvNorm.apply(
        x, weight, bias, norm.weight, norm.bias, skip, norm, dilation, relu, tokens, counts or Counts.once(x)
    )
    return result
