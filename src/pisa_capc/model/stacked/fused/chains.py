"""A chain of convolutions with batch normalisation on a GPU, in as few passes over the activations as there can be.

A convolution normalises what it reads and sums what it gives, so that forward each activation is written once and read
once. What the first one gives is not even written where it has few inputs, but computed again by those who need it. On
the way back one kernel goes from the gradient before a ReLU to that before the ReLU of the convolution before it, with
the gradient of its weights and the sums that the next normalisation needs. Kept are the convolutions' outputs, and what
a residual adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from pisa_capc.model.stacked import kernels
from pisa_capc.model.stacked.branches import joined
from pisa_capc.model.stacked.counts import Counts
from pisa_capc.model.stacked.fused.convolution import Norm, convolve, weight_gradient
from pisa_capc.model.stacked.fused.launching import REGISTERS, fetches, low_precision, precision, programs
from pisa_capc.model.stacked.fused.window import LARGEST, Window
from pisa_capc.model.stacked.precision import product_dtype

if TYPE_CHECKING:
    from pisa_capc.model.stacked.layers import BatchNorm, Convolution

LONGEST = 15  # taps of a kernel that the kernels here can do
# Taps up to which what a kernel reads is normalised wherever it is read: longer kernels read it too often.
NORMED_FORWARD, NORMED_BACKWARD = 5, 3
BLOCK = 64  # rows of a tile


class _Layer(NamedTuple):
    """One convolution: its weight (R, C_out, C_in, taps), and what the chain says of it."""

    weight: Tensor
    bias: Tensor
    norm: BatchNorm
    dilation: int
    residual: bool  # adds what the convolution before it read
    kept: bool  # what it reads is needed again

    @property
    def taps(self) -> int:
        return self.weight.shape[3]


def takes(x: Tensor, convolutions: Sequence[Convolution]) -> bool:
    """Whether the kernels here can do this chain; on a GPU not in float32, in which they take minutes to compile."""
    first, *others = convolutions
    width = sum(w.shape[1] for w in first.weights)
    return (
        not x.requires_grad
        and not (x.is_cuda and product_dtype(x) == torch.float32)
        and len(others) > 0
        and not (first.residual or others[0].residual)
        and width in (16, 32)
        and all(sum(w.shape[1] for w in c.weights) == width for c in others)
        and all(w.shape[2] == width and 3 <= w.shape[3] <= LONGEST for c in others for w in c.weights)
    )


class _Shape(NamedTuple):
    """How a kernel takes a convolution: outputs of a row, inputs that it takes at a time, and how often."""

    span: int
    chunk: int
    parts: int

    @classmethod
    def of(cls, taps: int) -> _Shape:
        return cls(2, 4, kernels.tiles(2 + taps - 1, 4))

    @classmethod
    def forward(cls, taps: int) -> _Shape:
        """Where nothing but outputs has to fit into the registers."""
        return cls(4, 8, 1) if taps == 5 else cls.of(taps)

    def groups(self, layer: _Layer, x: Tensor) -> int:
        """Rows of the kernel, of a run."""
        return x.shape[1] * kernels.tiles(x.shape[2], self.span * layer.dilation) * layer.dilation

    def options(self, layer: _Layer, x: Tensor, grain: int) -> dict[str, Any]:
        """grain: of how many the number of frames is a multiple."""
        rows = self.groups(layer, x) * grain // x.shape[1]
        whole = x.shape[2] % (self.span * layer.dilation) == 0 and rows % BLOCK == 0
        return {
            "LENGTH": x.shape[2],
            "C": layer.weight.shape[1],
            "TAPS": layer.taps,
            "DILATION": layer.dilation,
            "SPAN": self.span,
            "CHUNK": self.chunk,
            "WHOLE": whole,
            "BLOCK": BLOCK,
            "PRECISION": precision(x),
            "FETCH": fetches(x),
            "num_warps": 4,
            "num_stages": 1,  # programs that wait for one another hide more than one that reads ahead
        }


class _Chain:
    """Forward and backward pass of a chain. x: (R, N, T, C), in the type of the activations."""

    def __init__(self, x: Tensor, layers: Sequence[_Layer], counts: Counts) -> None:
        self.x, self.layers, self.counts = x, layers, counts
        self.runs, self.frames, self.length, _ = x.shape
        self.rows = self.frames * self.length
        self.values = counts.total * self.length  # of a channel, that the statistics are of
        self.y: list[Tensor] = []
        self.norms: list[Norm] = []
        self.read: dict[int, Tensor] = {}  # what layer i read, where it is needed again
        self.window = _window(x, layers)  # of the first layer, where what it gives is not written
        self.moments: Tensor | None = None  # of that window, in training

    # Forward ----------------------------------------------------------------------------------------------------------

    def forward(self, training: bool) -> None:
        for i, layer in enumerate(self.layers):
            y, partial = self._convolve(i)
            self.y.append(y)
            norm, bias = layer.norm, layer.bias
            self.norms.append(Norm.of_batch(norm, bias, partial, self.values) if training else Norm.frozen(norm, bias))
            if not training and i > 0:  # nothing goes back, so that nothing has to stay
                self.y[i - 1] = y
                self.read.pop(i - 2, None)

    def _convolve(self, i: int) -> tuple[Tensor, Tensor]:
        layer, x = self.layers[i], self.x
        if i == 0 and self.window is not None:
            if layer.norm.training:
                self.moments, sums = self.window.moments(self.counts)
                return x, sums
            return x, x
        if i == 0:
            low = layer.weight.permute(0, 3, 2, 1).to(x.dtype).contiguous()
            return convolve(x, low, layer.dilation, self.counts)
        before, norm, skip = self.y[i - 1], self.norms[i - 1], self._skip(i - 1)
        shape = _Shape.forward(layer.taps)
        normed = layer.taps <= NORMED_FORWARD
        y = x.new_empty(*x.shape[:3], layer.weight.shape[1])
        if layer.kept:
            self.read[i] = torch.empty_like(y) if normed else self._activation(i)
        count = programs(kernels.tiles(shape.groups(layer, x), BLOCK), self.runs, 4)
        partial = x.new_empty(self.runs, count, 2, y.shape[3], dtype=torch.float32)
        kernels.chain_convolve[(count, self.runs)](
            before if normed else self.read[i], norm.scale, norm.shift, y if skip is None else skip, layer.weight,
            y, self.read.get(i, y), partial, self.counts.each, self.counts.used, self.layers[0].weight, self.frames,
            **shape.options(layer, x, self.counts.grain), **self._first(i, shape.chunk, normed), PARTS=shape.parts,
            NORM=normed, WITH_SKIP=skip is not None, KEEP=layer.kept and normed,
            maxnreg=REGISTERS if layer.taps == 3 else None,
        )  # fmt: skip
        return y, partial

    def _first(self, i: int, outputs: int, needed: bool = True) -> dict[str, Any]:
        """What the kernels of layer `i`, which take so many of its inputs at a time, have to know of the first."""
        if needed and i == 1 and self.window is not None:
            return self.window.options(outputs)
        return {"INPUTS": 0, "FIRST_TAPS": 0, "SEEN": 16}

    def _activation(self, i: int) -> Tensor:
        """What layer `i` reads; of the layer behind the last, what the chain gives."""
        y, norm, skip = self.y[i - 1], self.norms[i - 1], self._skip(i - 1)
        if i == 1 and self.window is not None:
            return self.window.activation(norm.scale, norm.shift, self.counts)
        out = torch.empty_like(y)
        kernels.norm_apply[(kernels.tiles(self.rows, 128), self.runs)](
            y, norm.scale, norm.shift, y if skip is None else skip, out, self.counts.used, self.rows, self.length,
            C=y.shape[3], WITH_SKIP=skip is not None, RELU=True, BLOCK=128, num_warps=4,
        )  # fmt: skip
        return out

    def _skip(self, i: int) -> Tensor | None:
        """What layer `i` adds before its ReLU."""
        return self.read[i - 1] if self.layers[i].residual else None

    def result(self, tokens: int) -> Tensor:
        """What the chain gives: (R, N, T, C), or its mean over each of `tokens` equal spans."""
        if not tokens:
            return self._activation(len(self.layers))
        y, norm, skip = self.y[-1], self.norms[-1], self._skip(len(self.layers) - 1)
        out = y.new_empty(self.runs, self.frames, tokens, y.shape[3])
        kernels.norm_pool[(self.frames * tokens, self.runs)](
            y, norm.scale, norm.shift, y if skip is None else skip, out, self.counts.used, self.rows, self.length,
            self.length // tokens,
            C=y.shape[3], WITH_SKIP=skip is not None, RELU=True, BLOCK=64, num_warps=1,
        )  # fmt: skip
        return out

    # Backward ---------------------------------------------------------------------------------------------------------

    def backward(self, dout: Tensor, tokens: int) -> list[Tensor]:
        """The gradients of each layer's weight, γ and β."""
        last = len(self.layers) - 1
        u, partial = self._before_last_relu(dout, tokens)
        gradients: list[Tensor] = []
        added: Tensor | None = None
        for i in range(last, -1, -1):
            layer = self.layers[i]
            dgamma, dbeta, coefficient = self.norms[i].gradients(layer.norm.weight, partial, self.values)
            if i == 0 and self.window is not None:
                assert self.moments is not None
                dweight = self.window.gradient(self.moments, u, coefficient)
            elif i == 0:
                first = (self.x, u, layer.weight, layer.dilation, self.counts)
                dweight = weight_gradient(*first, self.y[0], coefficient)
            else:
                du, partial, dweight = self._layer_backward(i, u, coefficient, added)
                added = u if layer.residual else None
                u = du
            gradients = [dweight, dgamma, dbeta, *gradients]
        return gradients

    def _before_last_relu(self, dout: Tensor, tokens: int) -> tuple[Tensor, Tensor]:
        y, norm, skip = self.y[-1], self.norms[-1], self._skip(len(self.layers) - 1)
        u = torch.empty_like(y)
        count = programs(kernels.tiles(self.rows, 128), self.runs, 8)
        partial = y.new_empty(self.runs, count, 2, y.shape[3], dtype=torch.float32)
        kernels.norm_gradient_sums[(count, self.runs)](
            dout, y, norm.scale, norm.shift, y if skip is None else skip, u, partial,
            self.counts.used, self.rows, self.length,
            self.length // tokens if tokens else 1,
            C=y.shape[3], WITH_SKIP=skip is not None, RELU=True, POOLED=tokens > 0, KEEP=True, BLOCK=128, num_warps=4,
        )  # fmt: skip
        return u, partial

    def _layer_backward(
        self, i: int, u: Tensor, coefficient: Tensor, added: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """From the gradient before the ReLU of layer `i` to that before the ReLU of the one before it, its sums, dW.

        Of a first layer that is not written, the sums of its gradient with its window instead of the gradient.
        """
        layer, before, norm = self.layers[i], self.y[i - 1], self.norms[i - 1]
        normed = layer.taps <= NORMED_BACKWARD
        kept = self.read.get(i) if self.layers[i - 1].residual or layer.taps > NORMED_FORWARD else None
        shape = _Shape.of(layer.taps)
        tiles = kernels.tiles(shape.groups(layer, u), BLOCK)
        dy = u if normed else self._gradient(i, u, coefficient)
        first = self._first(i, shape.span)
        count, chunks = programs(tiles, self.runs, 2), shape.parts
        if first["INPUTS"]:
            du = u.new_empty(self.runs, count, shape.span * u.shape[3], first["SEEN"], dtype=torch.float32)
        else:
            du = torch.empty_like(u)

        def launch(count: int, chunks: int, sums: Tensor | None, dweight: Tensor | None) -> None:
            kernels.chain_gradient[(count, self.runs, chunks)](
                dy, self.y[i], coefficient, layer.weight, before, norm.scale, norm.shift,
                before if kept is None else kept, u if added is None else added, du, sums, dweight,
                self.counts.each, self.counts.used, self.layers[0].weight, self.frames,
                **shape.options(layer, u, self.counts.grain), **first, PARTS=shape.parts // chunks, NORM=normed,
                KEPT=kept is not None, ADDED=added is not None, INPUT=sums is not None, WEIGHT=dweight is not None,
            )  # fmt: skip

        def parts(count: int, *size: int) -> Tensor:
            return u.new_empty(self.runs, count, *size, dtype=torch.float32)

        sums = parts(count, 2, u.shape[3])
        if chunks == 1:
            dweight = parts(count, *layer.weight.shape[1:])
            launch(count, 1, sums, dweight)
        else:  # the sums of both would not fit into the registers
            launch(count, 1, sums, None)
            count = programs(tiles, self.runs * chunks, 3)
            dweight = parts(count * chunks, *layer.weight.shape[1:])
            launch(count, chunks, None, dweight)
        return du.sum(1) if first["INPUTS"] else du, sums, dweight.sum(1)

    def _gradient(self, i: int, u: Tensor, coefficient: Tensor) -> Tensor:
        """The gradient of y of layer `i` from that before its ReLU."""
        y, norm = self.y[i], self.norms[i]
        dy = torch.empty_like(u)
        kernels.norm_gradient_apply[(kernels.tiles(self.rows, 128), self.runs)](
            u, y, norm.scale, norm.shift, y, coefficient, dy, dy,
            self.counts.each, self.counts.used, self.rows, self.length, 1,
            C=y.shape[3], WITH_SKIP=False, RELU=False, POOLED=False, BLOCK=128, num_warps=4,
        )  # fmt: skip
        return dy


def _window(x: Tensor, layers: Sequence[_Layer]) -> Window | None:
    """The first convolution as one that need not be written, where the second can compute again what it gave."""
    first, second = layers[:2]
    window = Window(x, first.weight)
    outputs = _Shape.of(second.taps).span
    if second.taps <= NORMED_FORWARD:
        outputs = _Shape.forward(second.taps).chunk
    near = first.dilation == second.dilation == 1
    return window if near and window.seen(outputs) <= LARGEST else None


class _ConvChain(torch.autograd.Function):
    """See `conv_chain`; tensors: of each layer its weight, γ and β."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, layers: Sequence[_Layer], training: bool, tokens: int, counts: Counts,
        *tensors: Tensor,
    ) -> Tensor:  # fmt: skip
        chain = _Chain(x, layers, counts)
        chain.forward(training)
        ctx.chain, ctx.tokens = chain, tokens
        return chain.result(tokens)

    @staticmethod
    def backward(ctx: Any, dout: Tensor) -> Any:
        chain, ctx.chain = ctx.chain, None  # its activations go now, and not when the other encoders are done
        return None, None, None, None, None, *chain.backward(dout.contiguous(), ctx.tokens)


def conv_chain(x: Tensor, convolutions: Sequence[Convolution], tokens: int, counts: Counts | None = None) -> Tensor:
    """See `layers.conv_chain`: (R, N, T, C_in) → (R, N, T, C), or (R, N, tokens, C) where `tokens` is not 0.

    Only for what `takes` says. Biases of the convolutions only move the running means, or are part of the shift.
    """
    layers, tensors = [], []
    for i, c in enumerate(convolutions):
        weight = joined(c.weights)
        shared = i + 1 < len(convolutions) and convolutions[i + 1].residual
        kept = i > 0 and (shared or convolutions[i - 1].residual or weight.shape[3] > NORMED_FORWARD)
        bias = torch.cat(list(c.biases), dim=1).detach()
        layers.append(_Layer(weight.detach().contiguous(), bias, c.norm, c.dilation, c.residual, kept))
        tensors += [weight, c.norm.weight, c.norm.bias]
    training, counts = convolutions[0].norm.training, counts or Counts.once(x)
    y: Tensor = _ConvChain.apply(low_precision(x), layers, training, tokens, counts, *tensors)
    return y
