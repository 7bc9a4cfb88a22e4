"""A chain of convolutions with batch normalisation in training on a CPU, some frames at a time.

Plain layers walk over activations of tens of megabytes a dozen times each, and wait for memory. Here a block of frames
goes through everything that can be done with it while it is in the cache of a core: what a convolution reads is
normalised just before it, and what it gives is summed just after. Kept are the convolutions' outputs; the rest is
computed again on the way back. Every pass begins where the last one ended, with what is still in the cache. Each block
is one thread's, and what comes of the blocks is summed in their order: neither depends on how many threads there are.

Activations are pictures of one line, (N, C, 1, T) with channels last, of one run: PyTorch convolves those, and not
series, as they lie. In mixed precision they are in bfloat16, and all that is summed over frames is in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from pisa_capc.core.threads import all_in_threads, block_sizes
from pisa_capc.model.stacked.branches import joined
from pisa_capc.model.stacked.counts import Counts
from pisa_capc.model.stacked.precision import full_precision, product_dtype
from pisa_capc.model.stacked.runs import join_runs, split_runs
from pisa_capc.model.stacked.scripting import scripted

if TYPE_CHECKING:
    from pisa_capc.model.stacked.layers import BatchNorm, Convolution

BLOCK_BYTES = 2**21  # of an activation that are worked on together: few calls, and yet they stay in the cache
TAPS = 8  # of a kernel up to which oneDNN's gradient of the weights is quick

T = TypeVar("T")
_Affine = Optional[tuple[Tensor, Tensor]]  # noqa: UP045  (as TorchScript writes it)


class _Layer(NamedTuple):
    """One convolution of the chain: its kernel (C_out, C_in, 1, k), and what the chain says of it."""

    weight: Tensor
    dilation: int
    residual: bool  # adds what the convolution before it read
    shared: bool  # what it reads is added again by the next one

    @property
    def border(self) -> int:
        """Zeros before and after a frame, so that it keeps its length."""
        return self.dilation * (self.weight.shape[-1] // 2)

    @property
    def widest(self) -> int:
        return max(self.weight.shape[:2])

    def kernel(self, dtype: torch.dtype, scale: Tensor | float = 1.0) -> Tensor:
        """Its kernel times `scale`, as convolutions take it."""
        return (self.weight * scale).to(dtype).contiguous(memory_format=torch.channels_last)


class _Norm(NamedTuple):
    """Batch normalisation as scale · y + shift, each (C,)."""

    mean: Tensor
    rstd: Tensor
    scale: Tensor
    shift: Tensor


def _lines(frames: Tensor) -> Tensor:
    """(N, T, C) as (N, C, 1, T)."""
    return frames.permute(0, 2, 1)[:, :, None]


def _frames(lines: Tensor) -> Tensor:
    """(N, C, 1, T) as (N, T, C)."""
    return lines[:, :, 0].permute(0, 2, 1)


# What a thread does with a block, in scripts: it would wait for the interpreter between operations -------------------


def _affine(y: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """scale · y + shift of each channel, rounded once."""
    if y.dtype == scale.dtype:
        return torch.addcmul(shift[:, None, None], y, scale[:, None, None])
    # Not that of `functional`, which in some versions refuses an eps of zero.
    return torch.batch_norm(y, scale, shift, torch.zeros_like(scale), torch.ones_like(scale), False, 0.0, 0.0, False)


def _relu(x: Tensor) -> Tensor:
    """In place. What is negative in bfloat16 is so as an integer, and integers need not become float32 for it.

    A NaN may become zero here; y keeps it, and so do the gradients.
    """
    if x.dtype == torch.bfloat16:
        x.view(torch.int16).clamp_min_(0)
        return x
    return x.relu_()


def _normalised(y: Tensor, norm: tuple[Tensor, Tensor], skip: Tensor | None) -> Tensor:
    """scale · y + shift + skip."""
    z = _affine(y, norm[0], norm[1])
    return z if skip is None else z.add_(skip)


def _activation(y: Tensor, norm: _Affine, skip: Tensor | None) -> Tensor:
    """The ReLU of `_normalised`, or y where there is no scale and shift."""
    return y if norm is None else _relu(_normalised(y, norm, skip))


def _moments(y: Tensor) -> Tensor:
    """Mean and variance of each channel: (2, C), at least float32."""
    dtype = torch.float64 if y.dtype == torch.float64 else torch.float32
    unused = torch.zeros([y.shape[1]], dtype=dtype)  # says in which type
    mean, variance = torch.ops.aten.batch_norm_update_stats(y, unused, unused.clone(), 0.0)
    return torch.stack([mean, variance])


def _convolved(
    y: Tensor, norm: _Affine, skip: Tensor | None, kernel: Tensor, border: int, dilation: int
) -> tuple[Tensor, Tensor, Tensor]:
    """What a convolution reads, what it gives, and the moments of that."""
    z = _activation(y, norm, skip)
    given = torch.conv2d(z, kernel, None, [1, 1], [0, border], [1, dilation])
    return z, given, _moments(given)


def _pooled(y: Tensor, norm: _Affine, skip: Tensor | None, tokens: int) -> Tensor:
    """What the chain gives, (N, T, C), or its mean over each of `tokens` equal spans."""
    z = _activation(y, norm, skip)
    if tokens:
        z = F.avg_pool2d(z, [1, z.shape[-1] // tokens])
    return z[:, :, 0].permute(0, 2, 1)


def _gradient_sums(du: Tensor, y: Tensor, mean: Tensor) -> Tensor:
    """Σ du and Σ du · (y − mean): (2, C)."""
    one = torch.ones_like(mean)
    _, along, total = torch.ops.aten.native_batch_norm_backward(
        du, y, one, mean, one, None, None, False, 0.0, [False, True, True]
    )
    return torch.stack([total, along])


def _cut(
    y: Tensor, norm: tuple[Tensor, Tensor], skip: Tensor | None, mean: Tensor, dout: Tensor, tokens: int
) -> tuple[Tensor, Tensor]:
    """From the gradient of what the chain gives, (N, T, C) or (N, tokens, C), to that before its last ReLU, du.

    Returns du, in the place of what the ReLU read, and its sums.
    """
    u = _normalised(y, norm, skip)
    span = u.shape[-1] // tokens if tokens else 1
    spans = u[:, :, 0].unflatten(-1, [-1, span])
    torch.ops.aten.threshold_backward((dout / span).mT[..., None].expand_as(spans), spans, 0, grad_input=spans)
    return u, _gradient_sums(u, y, mean)


def _gradient(
    g: Tensor, z: Tensor, kernel: Tensor, border: int, dilation: int, of: list[bool]
) -> tuple[Tensor, Tensor]:
    """Of what a convolution read, z, and of its kernel, where asked for."""
    dz, dkernel, _ = torch.ops.aten.convolution_backward(
        g, z, kernel, None, [1, 1], [0, border], [1, dilation], False, [0, 0], 1, [of[0], of[1], False]
    )
    return dz, dkernel


def _gradients(
    g: Tensor, z: Tensor, kernel: Tensor, border: int, dilation: int, further: bool, most: int = TAPS
) -> tuple[Tensor, Tensor]:
    """Of z, where asked for (else anything), and of the kernel; of more taps than `most`, some at a time."""
    taps = kernel.shape[-1]
    if taps <= most:
        dz, dkernel = _gradient(g, z, kernel, border, dilation, [further, True])
        return dz if further else g, dkernel
    padded = F.pad(z, [border, border])
    parts: list[Tensor] = []
    for first in range(0, taps, most):
        some = kernel[..., first : first + most]
        start, length = first * dilation, z.shape[-1] + (some.shape[-1] - 1) * dilation
        parts.append(_gradient(g, padded[..., start : start + length], some, 0, dilation, [False, True])[1])
    dz = _gradient(g, z, kernel, border, dilation, [True, False])[0] if further else g
    return dz, torch.cat(parts, -1)


def _through(
    y: Tensor, norm: _Affine, skip: Tensor | None, below: _Affine, given: Tensor, moved: tuple[Tensor, Tensor],
    du: Tensor, added: Tensor | None, kernel: Tensor, border: int, dilation: int, further: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Of a convolution's kernel, of what it read before the ReLU, where asked for, and the sums of that.

    given: what it gave, and du the gradient behind its normalisation; moved: slope and constant, see `_layer_backward`.
    added: the gradient of what it read from where that is added again. below: what the convolution before it gave, and
    its mean.
    """
    z = _activation(y, norm, skip)
    g = _affine(given, moved[0], moved[1]).add_(du)
    dz, dkernel = _gradients(g, z, kernel, border, dilation, further)
    if added is not None:
        dz = dz.add_(added)
    if below is None:
        return dkernel, dz, dz
    before = torch.ops.aten.threshold_backward(dz, z, 0, grad_input=dz)
    return dkernel, before, _gradient_sums(before, below[0], below[1])


class _Chain:
    """Forward and backward pass of a chain for one run. x: (N, T, C); dtype: of the activations.

    counts: how often each frame counts, (N,), or once each. Those of a block count the same.
    """

    def __init__(self, layers: Sequence[_Layer], x: Tensor, dtype: torch.dtype, counts: Tensor | None) -> None:
        self.layers, self.dtype, self.sum_dtype = layers, dtype, x.dtype
        x = x.to(dtype)
        frame_bytes = x.shape[1] * max(layer.widest for layer in layers) * x.element_size()
        alike = [(1.0, len(x))]
        if counts is not None:
            alike = list(zip(*(found.tolist() for found in counts.unique_consecutive(return_counts=True)), strict=True))
        sizes = [(count, block_sizes(frames, BLOCK_BYTES // frame_bytes)) for count, frames in alike]
        self.counts = [count for count, blocks in sizes for _ in blocks]  # of the frames of each block
        self.x = _lines(x).split([size for _, blocks in sizes for size in blocks])
        self.frames = sum(count * len(own) for count, own in zip(self.counts, self.x, strict=True))
        self.values = self.frames * x.shape[1]  # of a channel
        counted = [count * len(own) for count, own in zip(self.counts, self.x, strict=True)]
        self.share = torch.tensor(counted).double()[:, None] / self.frames  # of each block
        self.backwards = True  # whether the last pass ended at the first block
        self.y: list[list[Tensor]] = []  # of each layer and block
        self.norms: list[_Norm] = []
        self.kept: dict[int, list[Tensor]] = {}  # what layer i read, where it is added again later

    def script(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, as a script where it can be one: scripts do not see bfloat16 as integers, see `_relu`."""
        return function if self.dtype == torch.bfloat16 else scripted(function)

    def each(self, work: Callable[[int], T]) -> list[T]:
        """What is made of each block, beginning where the last pass ended."""
        self.backwards = not self.backwards
        step = -1 if self.backwards else 1
        order = range(len(self.x))[::step]
        return all_in_threads(work, order)[::step]

    def source(self, i: int, block: int) -> tuple[Tensor, _Affine, Tensor | None]:
        """Of what `_activation` makes what layer `i` reads of a block; of the layer behind the last, what is given."""
        if i == 0:
            return self.x[block], None, None
        if i in self.kept:
            return self.kept[i][block], None, None
        norm = self.norms[i - 1]
        skip = self.kept[i - 2][block] if self.layers[i - 1].residual else None
        return self.y[i - 1][block], (norm.scale, norm.shift), skip

    # Forward ----------------------------------------------------------------------------------------------------------

    def convolve(self, i: int) -> tuple[Tensor, Tensor]:
        """Layer `i` without its normalisation; returns mean and variance of each channel."""
        layer = self.layers[i]
        kernel = layer.kernel(self.dtype)

        convolve = self.script(_convolved)

        def convolved(block: int) -> tuple[Tensor | None, Tensor, Tensor]:
            z, y, moments = convolve(*self.source(i, block), kernel, layer.border, layer.dilation)
            return z if layer.shared else None, y, moments

        read, y, moments = zip(*self.each(convolved), strict=True)
        if layer.shared:
            self.kept[i] = list(read)
        self.y.append(list(y))
        means, variances = torch.stack(moments).double().unbind(1)
        mean = (self.share * means).sum(0)
        variance = (self.share * (variances + (means - mean) ** 2)).sum(0)
        return mean.to(self.sum_dtype), variance.to(self.sum_dtype)

    def normalise(self, mean: Tensor, variance: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> None:
        rstd = torch.rsqrt(variance + eps)
        self.norms.append(_Norm(mean, rstd, gamma * rstd, beta - mean * gamma * rstd))

    def result(self, tokens: int) -> Tensor:
        """What the chain gives: (N, T, C), or its mean over each of `tokens` equal spans."""
        pooled = self.script(_pooled)
        return torch.cat(self.each(lambda block: pooled(*self.source(len(self.layers), block), tokens)))

    # Backward ---------------------------------------------------------------------------------------------------------

    def backward(self, dout: Tensor, tokens: int, to_input: bool) -> tuple[Tensor | None, list[Any]]:
        """Gradients of x, where asked for, and of each layer: its weight, γ and β."""
        last = len(self.layers)
        self.backwards = last % 2 == 0
        parts, way_in = dout.to(self.dtype).split([len(own) for own in self.x]), self.script(_cut)

        def cut(block: int) -> tuple[Tensor, Tensor]:
            made: tuple[Tensor, Tensor] = way_in(*self.source(last, block), self.norms[-1].mean, parts[block], tokens)
            return made

        du, sums = (list(made) for made in zip(*self.each(cut), strict=True))
        added: list[Tensor | None] = [None] * len(du)
        gradients: list[Any] = []
        for i in range(last - 1, -1, -1):
            to_skip = list(du) if self.layers[i].residual else [None] * len(du)
            du, sums, own = self._layer_backward(i, du, sums, added, to_input or i > 0)
            gradients.append(own)
            added = to_skip
        dweights = all_in_threads(lambda gradient: gradient[0](), gradients)  # their sums take a while
        flat = [(dweight, *rest) for dweight, (_, *rest) in zip(dweights, gradients, strict=True)]
        return torch.cat([_frames(own) for own in du]) if to_input else None, flat[::-1]

    def _layer_backward(
        self, i: int, du: list[Any], sums: list[Any], added: list[Any], further: bool
    ) -> tuple[list[Any], list[Any], tuple[Callable[[], Tensor], Tensor, Tensor]]:
        """Through layer `i`, from the gradient before its ReLU to that before the ReLU of the layer before it.

        The gradient of y is g = scale · (du + count · (slope · y + constant)), of which the scale is left to the
        kernel.
        du and added, the gradient of what the layer read from where that is added again, are emptied on the way.
        """
        layer, norm = self.layers[i], self.norms[i]
        dbeta, along = torch.stack(sums).double().sum(0).to(self.sum_dtype)
        dgamma = norm.rstd * along
        slope = -norm.rstd * dgamma / self.values
        constant = -(norm.mean * slope + dbeta / self.values)
        scale = norm.scale[:, None, None, None]
        kernel = layer.kernel(self.dtype, scale)

        way_back = self.script(_through)

        def through(block: int) -> tuple[Tensor, Tensor, Tensor]:
            own, more = du[block], added[block]
            du[block] = added[block] = None
            count = self.counts[block]
            below = (self.y[i - 1][block], self.norms[i - 1].mean) if i else None
            dweight, *before = way_back(
                *self.source(i, block), below, self.y[i][block], (count * slope, count * constant), own, more,
                kernel, layer.border, layer.dilation, further,
            )  # fmt: skip
            return dweight.to(self.sum_dtype), *before

        dweights, before, before_sums = zip(*self.each(through), strict=True)
        return list(before), list(before_sums), (lambda: torch.stack(dweights).sum(0) * scale, dgamma, dbeta)


class _ConvChain(torch.autograd.Function):
    """See `conv_chain`; of one run. tensors: of each layer its weight, γ and β."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, dtype: torch.dtype, layers: Sequence[_Layer], norms: Sequence[BatchNorm], run: int,
        biases: Sequence[Tensor], tokens: int, counts: Tensor | None, *tensors: Tensor,
    ) -> Tensor:  # fmt: skip
        chain = _Chain(layers, x, dtype, counts)
        for i, (norm, bias) in enumerate(zip(norms, biases, strict=True)):
            mean, variance = chain.convolve(i)
            chain.normalise(mean, variance, norm.weight[run], norm.bias[run], norm.eps)
            norm.running_mean[run].lerp_(mean + bias, norm.momentum)
            norm.running_var[run].lerp_(variance * (chain.values / max(chain.values - 1, 1)), norm.momentum)
        ctx.chain, ctx.tokens = chain, tokens
        return chain.result(tokens)

    @staticmethod
    def backward(ctx: Any, dout: Tensor) -> Any:
        dx, gradients = ctx.chain.backward(dout, ctx.tokens, ctx.needs_input_grad[0])
        flat = [value for own in gradients for value in own]
        return dx, None, None, None, None, None, None, None, *flat


def conv_chain(x: Tensor, convolutions: Sequence[Convolution], tokens: int, counts: Counts | None = None) -> Tensor:
    """See `layers.conv_chain`: (R, N, T, C_in) → (R, N, T, C), or (R, N, tokens, C) where `tokens` is not 0.

    Biases of the convolutions only move the running means: batch statistics cancel them.
    """
    dtype = product_dtype(x)
    norms = [c.norm for c in convolutions]
    parts = []
    weights = [[split_runs(w) for w in c.weights] for c in convolutions]
    affine = [(split_runs(norm.weight), split_runs(norm.bias)) for norm in norms]
    for run, own in enumerate(split_runs(x)):
        layers, biases, tensors = [], [], []
        for i, c in enumerate(convolutions):
            weight = joined([w[run] for w in weights[i]])[:, :, None]
            shared = i + 1 < len(convolutions) and convolutions[i + 1].residual
            layers.append(_Layer(weight.detach(), c.dilation, c.residual, shared))
            biases.append(torch.cat([b[run].detach() for b in c.biases]))
            tensors += [weight, *(part[run] for part in affine[i])]
        with full_precision(x):
            own_counts = None if counts is None else counts.each[run]
            parts.append(_ConvChain.apply(own, dtype, layers, norms, run, biases, tokens, own_counts, *tensors))
    return join_runs(parts)
