"""Long convolutions with two thirds of their products, exact but for rounding.

Runtimes convolve at the peak of a core: only fewer products are quicker. Of the even and the odd samples of a signal,
x⁰ and x¹, and of a kernel, h⁰ and h¹, a convolution is the sums (∗) of half the length

    y⁰ = h⁰ ∗ x⁰ + z⁻¹h¹ ∗ x¹ = s + (z⁻¹h¹ − h⁰) ∗ x¹
    y¹ = h¹ ∗ x⁰ +    h⁰ ∗ x¹ = s + (   h¹ − h⁰) ∗ x⁰    with s = h⁰ ∗ (x⁰ + x¹)

three instead of four (a fast FIR algorithm); and each of them is again. z⁻¹h¹ − h⁰ and h¹ − h⁰ are kernels as any.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pisa_capc.model.encoders.base import Convolutional
from pisa_capc.model.stacked import Convolution
from pisa_capc.model.stacked.frozen import folded

PHASES = 4  # every fourth sample makes a phase; with more, sums of phases cost what products save
LONG = 15  # taps from which it gains


class Taps(NamedTuple):
    """y[t] = Σᵢ weight[…, i] x[t + first + i]; weight: (C_out, C_in, taps)."""

    weight: Tensor
    first: int

    def phase(self, odd: int) -> Taps:
        """Those that take an even or an odd number of steps."""
        skipped = (self.first + odd) % 2
        return Taps(self.weight[..., skipped::2], (self.first + skipped - odd) // 2)

    def minus(self, other: Taps) -> Taps:
        first = min(self.first, other.first)
        end = max(taps.first + taps.weight.shape[-1] for taps in (self, other))
        one, two = (
            F.pad(taps.weight, (taps.first - first, end - taps.first - taps.weight.shape[-1])) for taps in (self, other)
        )
        return Taps(one - two, first)


class Convolved(nn.Module):
    """A convolution and what is `added`: (N, C_in, 1, T) → (N, C_out, 1, T/step), of all samples or of every `step`-th.

    In ONNX's own words, in which borders may differ.
    """

    weight: Tensor
    bias: Tensor | None

    def __init__(self, taps: Taps, bias: Tensor | None, step: int = 1) -> None:
        super().__init__()
        self.register_buffer("weight", taps.weight[:, :, None].float())
        self.register_buffer("bias", None if bias is None else bias.float())
        self.first, self.step = taps.first, step

    def forward(self, x: Tensor, added: Tensor | None = None) -> Tensor:
        length, taps = x.shape[-1], self.weight.shape[-1]
        border = [-self.first, self.first + taps - self.step]
        y = torch.onnx.ops.symbolic(
            "Conv",
            (x, self.weight) if self.bias is None else (x, self.weight, self.bias),
            {"pads": [0, border[0], 0, border[1]], "strides": [1, self.step]},
            dtype=x.dtype,
            shape=(x.shape[0], self.weight.shape[0], 1, length // self.step),
        )
        return y if added is None else y + added


class OfPhases(nn.Module):
    """A convolution of a signal as its phases: every one of them (N, C_in, 1, T) → (N, C_out, 1, T)."""

    def __init__(self, taps: Taps, bias: Tensor | None, phases: int) -> None:
        super().__init__()
        self.whole = phases == 1
        if self.whole:
            self.own = Convolved(taps, bias)
            return
        even, odd = taps.phase(0), taps.phase(1)
        self.shared = OfPhases(even, bias, phases // 2)
        self.to_even = OfPhases(odd.minus(even), None, phases // 2)
        self.to_odd = OfPhases(Taps(odd.weight, odd.first + 1).minus(even), None, phases // 2)

    def forward(self, x: Sequence[Tensor], added: Sequence[Tensor] | None = None) -> list[Tensor]:
        if self.whole:
            return [self.own(x[0], None if added is None else added[0])]
        even, odd = x[0::2], x[1::2]
        shared = self.shared(_sums(even, odd))
        both = [shared, shared] if added is None else [_sums(shared, part) for part in (added[0::2], added[1::2])]
        return [y for pair in zip(self.to_even(odd, both[0]), self.to_odd(even, both[1]), strict=True) for y in pair]


def _sums(x: Sequence[Tensor], y: Sequence[Tensor]) -> list[Tensor]:
    return [a + b for a, b in zip(x, y, strict=True)]


class InPhases(nn.Module):
    """An encoder that `has_long_kernels`: the first of its convolutions makes the phases, in which the others stay."""

    def __init__(self, encoder: Convolutional) -> None:
        super().__init__()
        self.encoder = encoder
        first, *others = (_plain(c) for c in encoder.convolutions())
        self.first = nn.ModuleList(
            Convolved(Taps(first[0].weight, first[0].first + phase), first[1], PHASES) for phase in range(PHASES)
        )
        self.others = nn.ModuleList(OfPhases(*one, PHASES) for one in others)

    def forward(self, x: Tensor, tokens: int) -> Tensor:
        """(1, N, T, C_in) → (1, N, tokens, C_out)."""
        if x.shape[2] % (PHASES * tokens):
            y: Tensor = self.encoder(x, tokens)
            return y
        lines = x.permute(1, 3, 0, 2)
        phases = [F.relu(convolution(lines)) for convolution in self.first]
        for convolution in self.others:
            phases = [F.relu(y) for y in convolution(phases)]
        span = x.shape[2] // (PHASES * tokens)
        means = [F.avg_pool2d(y, (1, span)) for y in phases]
        return (sum(means[1:], means[0]) / PHASES).permute(2, 0, 3, 1)


def _plain(convolution: Convolution) -> tuple[Taps, Tensor]:
    """Kernel and bias that hold the normalisation."""
    weight, bias = folded(convolution.weights, convolution.biases, convolution.norm)
    return Taps(weight[0, :, :, 0].double(), -(weight.shape[-1] // 2)), bias[0]


def has_long_kernels(module: nn.Module) -> TypeGuard[Convolutional]:
    """Whether a module is an encoder of nothing but long convolutions, one after the other."""
    if not isinstance(module, Convolutional) or type(module).forward is not Convolutional.forward:
        return False
    return all(
        max(weight.shape[-1] for weight in c.weights) >= LONG and c.dilation == 1 and not c.residual
        for c in module.convolutions()
    )
