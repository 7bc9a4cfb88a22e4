"""What stands before some networks, in real numbers: ONNX has no complex ones.

Each is the twin of a class in `model.methods.equaliser` and says the same equations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pisa_capc.model.methods.equaliser import LAG, SILENCE, Aligner, Equaliser, PreambleReference


@dataclass(frozen=True)
class Complex:
    """re + j·im, two tensors of one shape."""

    re: Tensor
    im: Tensor

    def __mul__(self, other: Complex) -> Complex:
        return Complex(self.re * other.re - self.im * other.im, self.re * other.im + self.im * other.re)

    def __matmul__(self, other: Complex) -> Complex:
        return Complex(self.re @ other.re - self.im @ other.im, self.re @ other.im + self.im @ other.re)

    def scaled(self, factor: Tensor) -> Complex:
        return Complex(self.re * factor, self.im * factor)

    def conj(self) -> Complex:
        return Complex(self.re, -self.im)

    def power(self) -> Tensor:
        return self.re * self.re + self.im * self.im

    def flattened(self) -> Complex:
        """(N, …) as (N, M)."""
        return Complex(self.re.flatten(1), self.im.flatten(1))

    def first(self, count: int) -> Complex:
        return Complex(self.re[..., :count], self.im[..., :count])

    def after(self, count: int) -> Complex:
        return Complex(self.re[..., count:], self.im[..., count:])


def constant(values: Tensor) -> Complex:
    """A complex tensor, rounded once."""
    return Complex(values.real.float().contiguous(), values.imag.float().contiguous())


def roots(numerator: Tensor, denominator: int) -> Tensor:
    """e^{−j2π numerator/denominator} of whole numbers, in double precision."""
    phase = -2 * math.pi * (numerator % denominator).double() / denominator
    return torch.polar(torch.ones_like(phase), phase)


class Fourier:
    """The discrete Fourier transform of T = a·b samples as two products with small matrices (Cooley and Tukey).

        X[k₁ + a·k₂] = Σ_{n₂} e^{−j2πn₂k₂/b} · e^{−j2πn₂k₁/T} · Σ_{n₁} e^{−j2πn₁k₁/a} x[b·n₁ + n₂]

    Frequencies are in the order (k₁, k₂) that comes out of this, `order`; the inverse takes them so.
    """

    def __init__(self, samples: int) -> None:
        self.a = max(d for d in range(1, math.isqrt(samples) + 1) if samples % d == 0)
        self.b = samples // self.a
        one, two = torch.arange(self.a), torch.arange(self.b)
        self.order = (one[:, None] + self.a * two).flatten()
        self.outer = constant(roots(one[:, None] * one, self.a))
        self.twiddle = constant(roots(one[:, None] * two, samples))
        self.inner = constant(roots(two[:, None] * two, self.b))

    def transform(self, x: Complex) -> Complex:
        """(…, T) → (…, T)."""
        columns = Complex(*(part.unflatten(-1, (self.a, self.b)).mT for part in (x.re, x.im)))
        across = columns @ self.outer
        found = (Complex(across.re.mT, across.im.mT) * self.twiddle) @ self.inner
        return Complex(found.re.flatten(-2), found.im.flatten(-2))

    def inverse(self, x: Complex) -> Complex:
        """(…, T) → (…, T)."""
        rows = Complex(*(part.unflatten(-1, (self.a, self.b)) for part in (x.re, x.im)))
        turned = (rows @ self.inner.conj()) * self.twiddle.conj()
        across = Complex(turned.re.mT, turned.im.mT) @ self.outer.conj()
        count = self.a * self.b
        return Complex(across.re.mT.flatten(-2) / count, across.im.mT.flatten(-2) / count)


class RealReference(nn.Module):
    """`PreambleReference` in real numbers: (…, A, T, 2), in which absent antennas are zero."""

    def __init__(self, front: PreambleReference) -> None:
        super().__init__()
        self.reference, self.periodic = constant(front.reference), front.periodic

    def turn(self, received: Complex) -> Complex:
        tone = received.first(self.periodic) * self.reference.first(self.periodic).conj()
        step = tone.first(self.periodic - LAG).conj() * tone.after(LAG)
        angle = torch.atan2(step.im.sum((-1, -2)), step.re.sum((-1, -2))) / LAG
        phase = angle[..., None, None] * torch.arange(received.re.shape[-1], dtype=torch.float32)
        return Complex(torch.cos(phase), torch.sin(phase))


class RealAligner(RealReference):
    """`Aligner` in real numbers."""

    def forward(self, iq: Tensor, mask: Tensor) -> Tensor:
        received = Complex(iq[..., 0], iq[..., 1])
        known = self.reference.re.shape[-1]
        still = received.first(known) * self.turn(received).first(known).conj()
        product = still * self.reference.conj()
        gain = Complex(product.re.sum(-1, keepdim=True), product.im.sum(-1, keepdim=True))
        found = received * gain.conj().scaled(1 / gain.power().sqrt().clamp_min(SILENCE))
        return torch.stack([found.re, found.im], dim=-1)


class RealEqualiser(RealReference):
    """`Equaliser` in real numbers."""

    def __init__(self, front: Equaliser, samples: int) -> None:
        super().__init__(front)
        self.fourier, self.noise = Fourier(samples), front.noise
        self.solve = constant(front.solve.mT)
        self.response = constant(roots(torch.arange(front.taps)[:, None] * self.fourier.order, samples))

    def forward(self, iq: Tensor, mask: Tensor) -> Tensor:
        received = Complex(iq[..., 0], iq[..., 1])
        turn = self.turn(received)
        still = received * turn.conj()
        response = (still.first(self.reference.re.shape[-1]) @ self.solve) @ self.response
        power = response.power()
        floor = (self.noise * power.mean(-1, keepdim=True)).clamp_min(SILENCE)  # the exporter drops what is nearly zero
        spectrum = self.fourier.transform(still) * response.conj()
        sent = turn * self.fourier.inverse(spectrum.scaled(1 / (power + floor)))
        antennas = mask.shape[-1] / mask.sum(-1)
        scale = sent.power().mean((-1, -2), keepdim=True) * antennas[..., None, None]
        found = sent.scaled(torch.rsqrt(scale.clamp_min(SILENCE)))
        return torch.stack([found.re, found.im], dim=-1)


def real_front(front: nn.Module, samples: int) -> nn.Module | None:
    """The twin of what stands before a network; none where there is none."""
    if type(front) is Aligner:
        return RealAligner(front)
    if type(front) is Equaliser:
        return RealEqualiser(front, samples)
    return None
