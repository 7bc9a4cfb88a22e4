"""Cards: the measurements of one device and their uncertainty, to keep and to compare.

Two cards can be of one radio where they differ by no more than that. The image and the leakage of the receiver are in
every estimate: cards compare at one receiver.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.data.store.files import read_json, reading, write_text_atomic
from pisa_capc.data.store.seal import sealed, unsealed
from pisa_capc.signal.measurement.quantities import WIDE, Quantity, around, json_number, offset_quantities, quantities

SCHEMA = 1
MOST_FLAWS = 64  # of a card that is read
SHIFT_DB = 26.0  # SNR at which noise moves one frame as far as a place may move all: one real radio moved nearly so
PLACES = 2.0  # that this expectation counts for
DIFFERENT = 0.01  # chance below which two cards are not of one radio

Real = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Card:
    """One device as measured. mean: (2J,) real and imaginary parts of its flaws. error: (2J, 2J), places included.

    cfo_hz, snr_db: mean over its frames; cfo_std_hz, snr_std_db: their scatter. What is not known is NaN. suspected:
    share of frames that the model does not explain. samples: measured of a frame, as is usual. whole: whether these
    are whole frames; else they are preambles.
    """

    name: str
    waveform: str
    flaws: tuple[str, ...]
    mean: Real
    error: Real
    frames: int
    places: int
    snr_db: float
    snr_std_db: float
    cfo_hz: float
    cfo_std_hz: float
    carrier_hz: float
    suspected: float
    samples: int = 0
    whole: bool = False

    @property
    def theta(self) -> dict[str, complex]:
        half = len(self.flaws)
        return {name: complex(self.mean[i], self.mean[half + i]) for i, name in enumerate(self.flaws)}

    @property
    def variance(self) -> dict[str, float]:
        """Of both parts together."""
        half, diagonal = len(self.flaws), self.error.diagonal()
        return {name: float(diagonal[i] + diagonal[half + i]) for i, name in enumerate(self.flaws)}

    @property
    def quantities(self) -> list[Quantity]:
        """All quantities of the table. Intervals of flaws are those of the mean; those of CFO and SNR, which change,
        hold 95 % of the frames."""
        return [
            *quantities(self.theta, self.variance),
            *offset_quantities(self.cfo_hz, self.cfo_std_hz, self.carrier_hz),
            around("SNR", "dB", self.snr_db, WIDE * self.snr_std_db),
        ]

    def compared(self, other: Card) -> Comparison:
        """Whether two cards can be of one radio."""
        if (self.waveform, self.flaws) != (other.waveform, other.flaws):
            raise ConfigError(
                f"cards of {self.waveform} ({', '.join(self.flaws)}) and {other.waveform} ({', '.join(other.flaws)}): "
                "expected the same waveform and flaws. Measure both from the same kind of frames."
            )
        if self.whole != other.whole:
            one, two = (self, other) if self.whole else (other, self)
            raise ConfigError(
                f"card {one.name} is of whole frames, card {two.name} of preambles: expected the same of both, as a "
                "filter in a transmitter moves what preambles tell. Measure recordings with --preamble for both."
            )
        off, error = self.mean - other.mean, self.error + other.error
        distance = float(off @ np.linalg.solve(error, off))
        half = len(self.flaws)
        sizes = off**2 / error.diagonal()
        each = {name: float(np.sqrt((sizes[i] + sizes[half + i]) / 2)) for i, name in enumerate(self.flaws)}
        return Comparison(other.name, float(chi2.sf(distance, 2 * half)), each)

    def to_json(self) -> dict[str, Any]:
        own = {field.name: json_number(getattr(self, field.name)) for field in fields(self)}
        own |= {"flaws": list(self.flaws), "mean": self.mean.tolist(), "error": self.error.tolist()}
        return {"schema": SCHEMA, **own, "quantities": [each.to_json() for each in self.quantities]}

    def save(self, path: str | Path) -> None:
        """Keep it, with a digest by which damage is noticed."""
        text = json.dumps(sealed(self.to_json()), indent=1, ensure_ascii=False, allow_nan=False)
        write_text_atomic(Path(path), text + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Card:
        """A stored card; an invalid one is refused with the reason."""
        path = Path(path)
        with reading(path, "a card as `pisa measure --card` writes"):
            value = unsealed(read_json(path), path)
            if value["schema"] != SCHEMA:
                raise DataError(f"{path}: written with schema {value['schema']}; this version reads {SCHEMA}.")
            flaws = tuple(str(name) for name in value["flaws"])
            size = 2 * len(flaws)
            mean, error = (np.array(value[name], dtype=np.float64) for name in ("mean", "error"))
            fits = 0 < len(flaws) <= MOST_FLAWS and mean.shape == (size,) and error.shape == (size, size)
            if not fits or not np.isfinite(mean).all() or not np.isfinite(error).all():
                raise ValueError("mean and error do not fit its flaws")
            if not np.allclose(error, error.T) or np.linalg.eigvalsh(error).min() <= 0:
                raise ValueError("its error is no covariance")
            snr_db, snr_std_db, cfo_hz, cfo_std_hz, carrier_hz, suspected = (
                math.nan if value[name] is None else float(value[name])
                for name in ("snr_db", "snr_std_db", "cfo_hz", "cfo_std_hz", "carrier_hz", "suspected")
            )
            frames, places = int(value["frames"]), int(value["places"])
            samples, whole = int(value.get("samples", 0)), bool(value.get("whole", False))  # not in cards of before
            own = str(value["name"]), str(value["waveform"]), flaws, mean, error, frames, places
            return cls(*own, snr_db, snr_std_db, cfo_hz, cfo_std_hz, carrier_hz, suspected, samples, whole)


@dataclass(frozen=True)
class Comparison:
    """A card against another, `name`. p_value: chance that one radio, measured twice, differs as much or more.

    each: how far apart each flaw is, in standard deviations of that difference.
    """

    name: str
    p_value: float
    each: dict[str, float]

    @property
    def same(self) -> bool:
        """Whether they can be of one radio."""
        return self.p_value >= DIFFERENT


def device_mean(value: Real, error: Real, snr_db: Real, place: NDArray[np.int64]) -> tuple[Real, Real, int]:
    """Mean of a device's frames and its covariance, by the frames' bars, their scatter and what places may add.

    snr_db: (N, d) of what each value was measured on.

    Bars that are narrower than the scatter within a place are widened to it. A place may shift a device, and no number
    of frames averages that out: with the weight of `PLACES` places by as much as noise at `SHIFT_DB` moves one frame,
    and for the rest as several places show.
    """
    weight, size = np.linalg.inv(error), value.shape[1]
    own, centres = [], []
    for number in np.unique(place):
        mine = place == number
        inside = np.linalg.inv(weight[mine].sum(0))
        centre = inside @ np.einsum("nij,nj->i", weight[mine], value[mine])
        off = value[mine] - centre
        spread = np.einsum("ni,nij,nj->", off, weight[mine], off) / max(1, size * (len(off) - 1))
        own.append(max(1.0, float(spread)) * inside)
        centres.append(centre)
    places = len(centres)
    amplitude = 10 ** (snr_db / 20)
    at_0_db = np.mean(weight / (amplitude[:, :, None] * amplitude[:, None]), axis=0)
    scale = at_0_db * 10 ** (SHIFT_DB / 10)  # inverse of the expected shift's covariance
    apart = np.stack(centres) - np.mean(centres, axis=0)
    chance = (1 - 1 / places) * np.einsum("ij,cji->", scale, np.stack(own))
    beyond = max(0.0, float(np.einsum("ci,ij,cj->", apart, scale, apart) - chance)) / size
    shift = (PLACES + beyond) / (PLACES + places - 1) * np.linalg.inv(scale)
    trust = np.linalg.inv(shift + np.stack(own))
    uncertain = np.linalg.inv(trust.sum(0))
    return uncertain @ np.einsum("cij,cj->i", trust, np.stack(centres)), (uncertain + uncertain.T) / 2, places
