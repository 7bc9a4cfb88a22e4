"""What flaws amount to in words of data sheets, each with an interval of 95 %."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pisa_capc.signal.measurement.flaws import FLAWS

WIDE = 1.96  # standard deviations to either side of an interval of 95 %
ABOVE_DB = 3  # the amplifier is described from mean power to this much above it


@dataclass(frozen=True)
class Quantity:
    """What a flaw amounts to, as data sheets give it. low, high: an interval of 95 %; infinite where nothing bounds it.

    >>> print(Quantity("image rejection", "dB", 38.94, 38.2, 39.8))
    38.94 ± 0.86 dB
    >>> print(Quantity("leakage", "dBc", -48.0, -math.inf, -41.3))
    below -41.3 dBc
    """

    name: str
    unit: str
    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.number} {self.unit}"

    @property
    def number(self) -> str:
        """Without its unit."""
        bounded = math.isfinite(self.low), math.isfinite(self.high)
        if not math.isfinite(self.value) or not any(bounded):
            return "–"
        if not all(bounded):
            return f"above {self.low:.1f}" if bounded[0] else f"below {self.high:.1f}"
        half = max(self.high - self.value, self.value - self.low)
        decimals = 3 if half < 0.01 else 2 if half < 1 else 1 if half < 10 else 0
        return f"{self.value:.{decimals}f} ± {half:.{decimals}f}"

    def to_json(self) -> dict[str, Any]:
        return {name: json_number(value) for name, value in asdict(self).items()}


def quantities(flaws: Mapping[str, complex], variance: Mapping[str, float]) -> Iterator[Quantity]:
    """What θ and the variances of its circular error (both parts together) amount to.

    Image rejection −20 lg |θ| and its angle; leakage 20 lg |θ| relative to the signal; compression as the change of
    gain and phase from mean power to `ABOVE_DB` above it, g(r) = 1 + θ r²; any other identity flaw as leakage is.
    Bounds of a modulus are taken before the logarithm, so that what is not told from zero has no lower bound, and no
    angle.
    """
    if "image" in flaws:
        yield from _size_and_angle("image", "image rejection", "dB", flaws["image"], variance["image"], -1)
    if "leakage" in flaws:
        yield from _size_and_angle("leakage", "leakage", "dBc", flaws["leakage"], variance["leakage"])
    if "compression" in flaws:
        theta, power = flaws["compression"], 10 ** (ABOVE_DB / 10)
        change = np.log((1 + theta * power) / (1 + theta))
        slope = abs(power / (1 + theta * power) - 1 / (1 + theta))
        bar = WIDE * slope * math.sqrt(variance["compression"] / 2)
        for title, unit, value, scale in (
            ("AM/AM", "dB", change.real, 20 / math.log(10)),
            ("AM/PM", "°", change.imag, 180 / math.pi),
        ):
            yield around(title, unit, value * scale, bar * scale)
    for name, theta in flaws.items():
        if name not in ("image", "leakage", "compression") and name in FLAWS and FLAWS[name].role == "identity":
            yield from _size_and_angle(FLAWS[name].title, FLAWS[name].title, "dBc", theta, variance[name])


def _size_and_angle(
    name: str, title: str, unit: str, theta: complex, variance: float, sign: int = 1
) -> Iterator[Quantity]:
    size, bar = abs(theta), WIDE * math.sqrt(variance / 2)
    ends = sorted((sign * _db(size - bar), sign * _db(size + bar)))
    yield Quantity(title, unit, sign * _db(size), *ends)
    wide = math.degrees(math.asin(bar / size)) if bar < size else math.inf
    yield around(f"{name} angle", "°", math.degrees(np.angle(theta)), wide)


def _db(size: float) -> float:
    return 20 * math.log10(size) if size > 0 else -math.inf


def around(name: str, unit: str, value: float, half: float) -> Quantity:
    return Quantity(name, unit, float(value), float(value - half), float(value + half))


def offset_quantities(cfo_hz: float, std_hz: float, carrier_hz: float) -> Iterator[Quantity]:
    yield around("CFO", "Hz", cfo_hz, WIDE * std_hz)
    if carrier_hz:
        yield around("CFO", "ppm", 1e6 * cfo_hz / carrier_hz, 1e6 * WIDE * std_hz / carrier_hz)


def json_number(value: Any) -> Any:
    """JSON has no word for what is not finite."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
