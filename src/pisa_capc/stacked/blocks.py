"""A chain of convolutions with batch normalisation in training on a CPU, some frames at a time.

Plain layers walk over activations of tens of megabytes a dozen times each, and wait for memory. Here a block of frames
goes through everything that can be done with it while it is in the cache: what a convolution reads is normalised just
before it, and what it gives is summed just after. Kept are the convolutions' outputs; the rest is computed again on the
way back. Every pass begins where the last one ended, with what is still in the cache; its order, which is that of the
sums, depends on nothing but the shapes.

Activations are (N, T, C), channels last, of one run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from pisa_capc.stacked.layers import BatchNorm, Convolution

BLOCK = 2**19  # elements of an activation that are worked on together: few calls, and yet they stay in the cache


class _Layer(NamedTuple):
    """One convolution of the chain: kernels (C_out, C_in, k) of its branches, and what the chain says of it."""

    weights: tuple[Tensor, ...]
    dilation: int
    residual: bool  # adds what the convolution before it read
    shared: bool  # what it reads is added again by the next one

    @property
    def border(self) -> int:
        """Zeros before and after a frame, so that the longest kernel keeps its length."""
        return self.dilation * (max(w.shape[-1] for w in self.weights) // 2)

    @property
    def outputs(self) -> int:
        return sum(len(w) for w in self.weights)


class _Norm(NamedTuple):
    """Batch normalisation as scale · y + shift, each (C,)."""

    mean: Tensor
    rstd: Tensor
    scale: Tensor
    shift: Tensor


class _Padded:
    """Room for a block of frames with zeros around each."""

    def __init__(self, frames: int, length: int, channels: int, border: int, like: Tensor) -> None:
        self.border = border
        self.room = like.new_zeros(frames, length + 2 * border, channels)

    def inner(self, frames: int) -> Tensor:
        """Where the frames are: (frames, T, C)."""
        return self.room[:frames, self.border : self.room.shape[1] - self.border]

    def rows(self, frames: int, offset: int, count: int, step: int) -> Tensor:
        """The frames one after the other, moved by `offset`, then by `step` more each time: (count, rows, C).

        What is moved across an end meets a border of the others.
        """
        _, length, channels = self.room.shape
        rows = frames * length - 2 * self.border
        return self.room.as_strided(
            (count, rows, channels), (step * channels, channels, 1), (self.border + offset) * channels
        )


def _blocks(frames: int, length: int, channels: int) -> list[slice]:
    each = max(1, BLOCK // (length * channels))
    return [slice(start, min(start + each, frames)) for start in range(0, frames, each)]


def _convolve(padded: Tensor, weight: Tensor, dilation: int, border: int) -> Tensor:
    """(N, T + 2·border, C_in) → (N, T, C_out). Frames are pictures of one line, which PyTorch convolves as they lie."""
    less = border - dilation * (weight.shape[-1] // 2)
    lines = padded[:, less : padded.shape[1] - less].permute(0, 2, 1)[:, :, None]
    y = F.conv2d(lines, weight[:, :, None].contiguous(memory_format=torch.channels_last), dilation=(1, dilation))
    return y[:, :, 0].permute(0, 2, 1)


def _add_products(total: Tensor, gradient: Tensor, read: Tensor) -> None:
    """total (k, C_out, C_in) += gradientᵀ · read of each tap: (rows, C_out) and (k, rows, C_in)."""
    if read.shape[2] < gradient.shape[1]:  # the product that has fewer rows than columns is much the quicker one
        total += (read.transpose(1, 2) @ gradient).transpose(1, 2)
    else:
        torch.baddbmm(total, gradient.t().expand(len(read), -1, -1), read, out=total)


def _in_order(parts: dict[int, Tensor]) -> Tensor:
    """What was made of the blocks, as one."""
    return torch.cat([parts[block] for block in sorted(parts)])


class _Chain:
    """Forward and backward pass of a chain for one run."""

    def __init__(self, layers: Sequence[_Layer], x: Tensor) -> None:
        self.layers, self.x = layers, x
        self.frames, self.length = x.shape[:2]
        widest = max(layer.outputs for layer in layers)
        self.blocks = _blocks(self.frames, self.length, widest)
        self.most = self.blocks[0].stop
        self.backwards = True  # whether the last pass ended at the first block
        self.y: list[dict[int, Tensor]] = []  # of each layer and block
        self.norms: list[_Norm] = []
        self.kept: dict[int, dict[int, Tensor]] = {}  # what layer i read, where it is added again later
        self.scratch = x.new_empty(self.most, self.length, widest)

    def _padded(self, channels: int, border: int) -> _Padded:
        return _Padded(self.most, self.length, channels, border, self.x)

    # What a layer reads: z = ReLU(scale · y + shift + skip) of the one before it ------------------------------------

    def activation(self, i: int, block: int, out: Tensor) -> Tensor:
        """What layer `i` reads of a block, into `out`; of the layer behind the last, what the chain gives."""
        if i == 0:
            return out.copy_(self.x[self.blocks[block]])
        if block in self.kept.get(i, ()):
            return out.copy_(self.kept[i][block])
        norm = self.norms[i - 1]
        torch.addcmul(norm.shift, self.y[i - 1][block], norm.scale, out=out)
        if self.layers[i - 1].residual:
            out += self.kept[i - 2][block]
        return out.relu_()

    def _sums(self, a: Tensor, b: Tensor) -> Tensor:
        """Σ a and Σ a·b of each channel: (2, C)."""
        product = torch.mul(a, b, out=self.scratch[: len(a), :, : a.shape[2]])
        return torch.stack([a.sum((0, 1)), product.sum((0, 1))])

    def each(self) -> Iterator[tuple[int, int]]:
        """Number and frames of each block, from where the last pass ended."""
        self.backwards = not self.backwards
        count = len(self.blocks)
        for block in range(count - 1, -1, -1) if self.backwards else range(count):
            yield block, self.blocks[block].stop - self.blocks[block].start

    # Forward ----------------------------------------------------------------------------------------------------------

    def convolve(self, i: int) -> tuple[Tensor, Tensor]:
        """Layer `i` without its normalisation; returns mean and variance of each channel."""
        layer = self.layers[i]
        border = layer.border
        read = self._padded(layer.weights[0].shape[1], border)
        if layer.shared:
            self.kept[i] = {}
        outputs, sums = {}, []
        for block, frames in self.each():
            z = self.activation(i, block, read.inner(frames))
            if layer.shared:
                self.kept[i][block] = z.clone(memory_format=torch.contiguous_format)
            parts = [_convolve(read.room[:frames], w, layer.dilation, border) for w in layer.weights]
            y = parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)
            outputs[block] = y
            sums.append(self._sums(y, y))
        self.y.append(outputs)
        first, second = torch.stack(sums).double().sum(0) / (self.frames * self.length)
        return first.to(self.x.dtype), (second - first**2).clamp_min(0).to(self.x.dtype)

    def normalise(self, mean: Tensor, variance: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> None:
        rstd = torch.rsqrt(variance + eps)
        self.norms.append(_Norm(mean, rstd, gamma * rstd, beta - mean * gamma * rstd))

    def result(self, tokens: int) -> Tensor:
        """What the chain gives: (N, T, C), or its mean over each of `tokens` equal spans."""
        room = self._padded(self.layers[-1].outputs, 0)
        parts = {}
        for block, frames in self.each():
            z = self.activation(len(self.layers), block, room.inner(frames))
            parts[block] = z.unflatten(1, (tokens, -1)).mean(2) if tokens else z.clone()
        return _in_order(parts)

    # Backward ---------------------------------------------------------------------------------------------------------

    def backward(self, dout: Tensor, tokens: int, to_input: bool) -> tuple[Tensor | None, list[Any]]:
        """Gradients of x, where asked for, and of each layer: its weights, γ and β."""
        last = len(self.layers)
        self.backwards = last % 2 == 0
        room = self._padded(self.layers[-1].outputs, 0)
        du, sums = {}, []
        for block, frames in self.each():
            z = self.activation(last, block, room.inner(frames))
            dz = dout[self.blocks[block]]
            if tokens:
                span = self.length // tokens
                dz = (dz / span)[:, :, None].expand(-1, -1, span, -1).flatten(1, 2)
            du[block] = torch.ops.aten.threshold_backward(dz, z, 0)
            sums.append(self._sums(du[block], self.y[-1][block]))
        added: dict[int, Tensor] = {}
        gradients: list[Any] = []
        for i in range(last - 1, -1, -1):
            to_skip = dict(du) if self.layers[i].residual else {}
            du, sums, own = self._layer_backward(i, du, sums, added, to_input or i > 0)
            gradients.append(own)
            added = to_skip
        return _in_order(du) if to_input else None, gradients[::-1]

    def _layer_backward(
        self, i: int, du: dict[int, Tensor], sums: list[Tensor], added: dict[int, Tensor], further: bool
    ) -> tuple[dict[int, Tensor], list[Tensor], tuple[list[Tensor], Tensor, Tensor]]:
        """Through layer `i`, from the gradient before its ReLU to that before the ReLU of the layer before it.

        du is emptied: its memory serves for what is made of it. added: the gradient of what the layer read, from where
        that is added again.
        """
        layer, norm, count = self.layers[i], self.norms[i], self.frames * self.length
        dbeta, along = torch.stack(sums).double().sum(0).to(self.x.dtype)
        dgamma = norm.rstd * (along - norm.mean * dbeta)
        slope = -norm.scale * norm.rstd * dgamma / count
        constant = norm.scale * (norm.mean * norm.rstd * dgamma - dbeta) / count
        border = layer.border
        inputs = layer.weights[0].shape[1]
        read, gradient = self._padded(inputs, border), self._padded(layer.outputs, border)
        starts = [0, *torch.tensor([len(w) for w in layer.weights]).cumsum(0).tolist()]
        back = [w.flip(2).transpose(0, 1) for w in layer.weights]
        dweights = [w.new_zeros(w.shape[-1], *w.shape[:2]) for w in layer.weights]
        before: dict[int, Tensor] = {}
        before_sums = []
        for block, frames in self.each():
            z = self.activation(i, block, read.inner(frames))
            g = torch.addcmul(constant, self.y[i][block], slope, out=gradient.inner(frames))
            g.addcmul_(du.pop(block), norm.scale)
            dz: Tensor | None = None
            rows = gradient.rows(frames, 0, 1, 0)[0]
            for w, dw, start, stop in zip(back, dweights, starts[:-1], starts[1:], strict=True):
                taps = len(dw)
                moved = read.rows(frames, -layer.dilation * (taps // 2), taps, layer.dilation)
                _add_products(dw, rows[:, start:stop], moved)
                if further:
                    part = _convolve(gradient.room[:frames, :, start:stop], w, layer.dilation, border)
                    dz = part if dz is None else dz.add_(part)
            if dz is None:
                continue
            if block in added:
                dz += added.pop(block)
            before[block] = dz
            if i > 0:
                torch.ops.aten.threshold_backward.grad_input(dz, z, 0, grad_input=dz)
                before_sums.append(self._sums(dz, self.y[i - 1][block]))
        return before, before_sums, ([dw.permute(1, 2, 0) for dw in dweights], dgamma, dbeta)


class _ConvChain(torch.autograd.Function):
    """See `conv_chain`; of one run. tensors: of each layer its weights, γ and β."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, layers: Sequence[_Layer], norms: Sequence[BatchNorm], run: int, biases: Sequence[Tensor],
        tokens: int, *tensors: Tensor,
    ) -> Tensor:  # fmt: skip
        chain = _Chain(layers, x)
        for i, (norm, bias) in enumerate(zip(norms, biases, strict=True)):
            mean, variance = chain.convolve(i)
            chain.normalise(mean, variance, norm.weight[run], norm.bias[run], norm.eps)
            count = x.shape[0] * x.shape[1]
            norm.running_mean[run].lerp_(mean + bias, norm.momentum)
            norm.running_var[run].lerp_(variance * (count / max(count - 1, 1)), norm.momentum)
        ctx.chain, ctx.tokens = chain, tokens
        return chain.result(tokens)

    @staticmethod
    def backward(ctx: Any, dout: Tensor) -> Any:
        dx, gradients = ctx.chain.backward(dout.contiguous(), ctx.tokens, ctx.needs_input_grad[0])
        flat = [value for weights, gamma, beta in gradients for value in (*weights, gamma, beta)]
        return dx, None, None, None, None, None, *flat


def conv_chain(x: Tensor, convolutions: Sequence[Convolution], tokens: int) -> Tensor:
    """See `layers.conv_chain`: (R, N, T, C_in) → (R, N, T, C), or (R, N, tokens, C) where `tokens` is not 0.

    Biases of the convolutions only move the running means: batch statistics cancel them.
    """
    parts = []
    for run, own in enumerate(x):
        layers, biases, tensors = [], [], []
        for i, c in enumerate(convolutions):
            weights = tuple(w[run] for w in c.weights)
            shared = i + 1 < len(convolutions) and convolutions[i + 1].residual
            layers.append(_Layer(tuple(w.detach() for w in weights), c.dilation, c.residual, shared))
            biases.append(torch.cat([b[run].detach() for b in c.biases]))
            tensors += [*weights, c.norm.weight[run], c.norm.bias[run]]
        norms = [c.norm for c in convolutions]
        parts.append(_ConvChain.apply(own, layers, norms, run, biases, tokens, *tensors))
    return parts[0][None] if len(parts) == 1 else torch.stack(parts)
