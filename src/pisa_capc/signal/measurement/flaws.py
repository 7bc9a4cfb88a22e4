"""What a transmitter's hardware adds to a waveform: one function per flaw, x (T,) → b(x) (T,).

A transmitter sends x + Σ_j θ_j b_j(x), where x has unit mean power. A function with `@register_flaw("name", …)`, here
or in a plugin, adds a flaw. A flaw that a waveform cannot show is left out: |x|²x of a chirp is the chirp itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.registry import Registry

Complex = NDArray[np.complexfloating[Any, Any]]


Role = Literal["identity", "nuisance", "detail"]


@dataclass(frozen=True)
class Flaw:
    """title: what people read. of: x → b(x).

    role: "identity": tells devices apart for good. "nuisance": there, but changes with time, so it is fitted and set
    aside. "detail": refines another flaw; it is measured and shown, and an identity does without it.
    in_data: whether data show the same of it as a preamble, whose peaks are lower.
    """

    title: str
    role: Role
    of: Callable[[Complex], Complex]
    in_data: bool = True

    @property
    def implementation(self) -> Callable[[Complex], Complex]:
        """Whose code it is: that of a plugin, where one registers it."""
        return self.of


FLAWS: Registry[Flaw] = Registry("flaw")


def register_flaw(
    name: str, title: str, role: Role = "identity", in_data: bool = True
) -> Callable[[Callable[[Complex], Complex]], Callable[[Complex], Complex]]:
    """Make a function x → b(x) known as the flaw `name`."""

    def add(of: Callable[[Complex], Complex]) -> Callable[[Complex], Complex]:
        FLAWS.add(name, Flaw(title, role, of, in_data))
        return of

    return add


@register_flaw("image", "IQ image")
def image(x: Complex) -> Complex:
    """x*: unequal gains of I and Q, and an angle between them that is not 90°. θ = ν/μ of
    `signal.simulation.hardware`."""
    return x.conj()


@register_flaw("leakage", "carrier leakage")
def leakage(x: Complex) -> Complex:
    """1: the local oscillator, which shows at the carrier."""
    return np.ones_like(x)


@register_flaw("compression", "compression", in_data=False)
def compression(x: Complex) -> Complex:
    """|x|²x: the amplifier's third order; its real part is AM/AM, its imaginary part AM/PM."""
    return np.abs(x) ** 2 * x


@register_flaw("compression-5", "compression, fifth order", role="detail", in_data=False)
def compression_5(x: Complex) -> Complex:
    """|x|⁴x: the amplifier's fifth order. Beside |x|²x it follows its curve; by itself it tells no device apart."""
    return np.abs(x) ** 4 * x


@register_flaw("offset", "carrier offset", role="nuisance")
def offset(x: Complex) -> Complex:
    """(n/T − ½) x: what a carrier offset f adds to first order, θ = j2πfT. It moves with temperature."""
    return (np.arange(len(x)) / len(x) - 0.5) * x
