"""Receive-array coordinates p_a, in wavelengths of the carrier.

The topology prior (Eq. topology_prior) and the simulator's angle-of-arrival phases both start from these.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pisa_capc.core.errors import ConfigError, unknown_name

KINDS = ("square", "linear", "circular")


@dataclass(frozen=True)
class ArrayGeometry:
    """Antenna positions of one receive array.

    coordinates: one (x, y, z) per antenna, in wavelengths.
    kind: how the array was described; for people, nothing depends on it.
    """

    coordinates: tuple[tuple[float, float, float], ...]
    kind: str = field(default="custom", compare=False)

    @property
    def antennas(self) -> int:
        return len(self.coordinates)

    @property
    def positions(self) -> NDArray[np.float64]:
        """(A, 3) coordinates in wavelengths."""
        return np.array(self.coordinates, dtype=np.float64)

    def distances(self) -> NDArray[np.float64]:
        """d(p_a, p_b): (A, A) Euclidean distances in wavelengths."""
        p = self.positions
        return np.linalg.norm(p[:, None] - p[None], axis=-1)

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "coordinates_wavelengths": [list(p) for p in self.coordinates]}

    @classmethod
    def from_json(cls, value: Any) -> ArrayGeometry:
        try:
            return custom(value["coordinates_wavelengths"], kind=str(value.get("kind", "custom")))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(
                f"array geometry: expected {{kind, coordinates_wavelengths: [[x, y, z], …]}}, found {value!r}."
            ) from error


def custom(coordinates: ArrayLike, kind: str = "custom") -> ArrayGeometry:
    """An array from own coordinates (A, 1), (A, 2) or (A, 3), in wavelengths."""
    p = np.asarray(coordinates, dtype=np.float64)
    if p.ndim != 2 or p.shape[0] < 1 or not 1 <= p.shape[1] <= 3:
        raise ConfigError(f"array coordinates: expected shape (antennas, 1 to 3), found {p.shape}.")
    if not np.isfinite(p).all():
        raise ConfigError("array coordinates: expected finite numbers, found NaN or infinity.")
    p = np.pad(p, ((0, 0), (0, 3 - p.shape[1])))
    if len(np.unique(p, axis=0)) != len(p):
        raise ConfigError("array coordinates: two antennas share one position.")
    return ArrayGeometry(tuple((float(x), float(y), float(z)) for x, y, z in p), kind)


def square(spacing_wavelengths: float = 0.5, antennas: int = 4) -> ArrayGeometry:
    """A square grid, row by row; neighbours are `spacing_wavelengths` apart. The paper's array is the 2×2 one."""
    side = math.isqrt(max(antennas, 0))
    if side < 1 or side**2 != antennas:
        raise ConfigError(
            f"a square array has 4, 9, 16, … antennas, not {antennas}. Give linear, circular or own coordinates."
        )
    row, column = np.divmod(np.arange(antennas), side)
    return custom(np.stack([column, row], axis=1) * spacing_wavelengths, "square")


def linear(antennas: int, spacing_wavelengths: float = 0.5) -> ArrayGeometry:
    """A uniform linear array along x."""
    return custom(np.arange(antennas)[:, None] * spacing_wavelengths, "linear")


def circular(antennas: int, spacing_wavelengths: float = 0.5) -> ArrayGeometry:
    """A uniform circular array whose neighbouring antennas are `spacing_wavelengths` apart (chord)."""
    if antennas < 2:
        return linear(antennas)
    radius = spacing_wavelengths / (2 * np.sin(np.pi / antennas))
    angle = 2 * np.pi * np.arange(antennas) / antennas
    return custom(radius * np.stack([np.cos(angle), np.sin(angle)], axis=1), "circular")


def named(kind: str, antennas: int, spacing_wavelengths: float = 0.5) -> ArrayGeometry:
    """A square, linear or circular array by its name."""
    if kind not in KINDS:
        raise ConfigError(unknown_name("array", kind, KINDS))
    if kind == "square":
        return square(spacing_wavelengths, antennas)
    return (linear if kind == "linear" else circular)(antennas, spacing_wavelengths)


def default_geometry(antennas: int) -> ArrayGeometry:
    """The array assumed where a recording names none: the paper's square for four antennas, else a line."""
    return square() if antennas == 4 else linear(antennas)
