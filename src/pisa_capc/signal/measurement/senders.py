"""Frames measured sender by sender: quantities that engineers name, each with an interval of 95 %, and cards to keep.

A card holds the measurements of one device and their uncertainty. Two cards can be of one radio where they differ
by no more than that. The image and the leakage of the receiver are in every estimate: cards compare at one receiver.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from pisa_capc.core.errors import ConfigError, DataError, unknown_name
from pisa_capc.data.frames import Frames, UnlabelledFrames
from pisa_capc.data.store.dataset import TIME
from pisa_capc.data.store.files import read_json, reading, write_text_atomic
from pisa_capc.data.store.seal import sealed, unsealed
from pisa_capc.signal.measurement.estimator import OFFSET, FlawEstimator, Measurement
from pisa_capc.signal.measurement.flaws import FLAWS
from pisa_capc.signal.waveforms import WAVEFORMS, Waveform

SCHEMA = 1
WIDE = 1.96  # standard deviations to either side of an interval of 95 %
ABOVE_DB = 3  # the amplifier is described from mean power to this much above it
MOST_FLAWS = 64  # of a card that is read
SHIFT_DB = 26.0  # SNR at which noise moves one frame as far as a place may move all: one real radio moved nearly so
PLACES = 2.0  # that this expectation counts for
SUSPECTED = 0.01  # chance below which a frame's misfit is no accident
DIFFERENT = 0.01  # chance below which two cards are not of one radio
FAINT_DB = -30.0  # the lowest SNR that is told
HEARD_DB = 6.0  # SNR of a channel's estimate: with less its noise, which is not in the bars, is no small part of it
AT_ONCE = 2**28  # bytes of frames in memory

Real = NDArray[np.floating[Any]]
Complex = NDArray[np.complexfloating[Any, Any]]


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
        return {name: _told(value) for name, value in asdict(self).items()}


def quantities(flaws: Mapping[str, complex], variance: Mapping[str, float]) -> Iterator[Quantity]:
    """What θ and the variances of its circular error (both parts together) amount to.

    Image rejection −20 lg |θ| and its angle; leakage 20 lg |θ| relative to the signal; compression as the change of
    gain and phase from mean power to `ABOVE_DB` above it, g(r) = 1 + θ r². Bounds of a modulus are taken before the
    logarithm, so that what is not told from zero has no lower bound, and no angle.
    """
    for name, title, unit, sign in (("image", "image rejection", "dB", -1), ("leakage", "leakage", "dBc", 1)):
        if name in flaws:
            size, bar = abs(flaws[name]), WIDE * math.sqrt(variance[name] / 2)
            ends = sorted((sign * _db(size - bar), sign * _db(size + bar)))
            yield Quantity(title, unit, sign * _db(size), *ends)
            turn = math.degrees(np.angle(flaws[name]))
            wide = math.degrees(math.asin(bar / size)) if bar < size else math.inf
            yield _around(f"{name} angle", "°", turn, wide)
    if "compression" in flaws:
        theta, power = flaws["compression"], 10 ** (ABOVE_DB / 10)
        change = np.log((1 + theta * power) / (1 + theta))
        slope = abs(power / (1 + theta * power) - 1 / (1 + theta))
        bar = WIDE * slope * math.sqrt(variance["compression"] / 2)
        for title, unit, value, scale in (
            ("AM/AM", "dB", change.real, 20 / math.log(10)),
            ("AM/PM", "°", change.imag, 180 / math.pi),
        ):
            yield _around(title, unit, value * scale, bar * scale)


def _db(size: float) -> float:
    return 20 * math.log10(size) if size > 0 else -math.inf


def _around(name: str, unit: str, value: float, half: float) -> Quantity:
    return Quantity(name, unit, float(value), float(value - half), float(value + half))


def _offset(cfo_hz: float, std_hz: float, carrier_hz: float) -> Iterator[Quantity]:
    yield _around("CFO", "Hz", cfo_hz, WIDE * std_hz)
    if carrier_hz:
        yield _around("CFO", "ppm", 1e6 * cfo_hz / carrier_hz, 1e6 * WIDE * std_hz / carrier_hz)


def _told(value: Any) -> Any:
    """JSON has no word for what is not finite."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True)
class Card:
    """One device as measured. mean: (2J,) real and imaginary parts of its flaws. error: (2J, 2J), places included.

    cfo_hz, snr_db: mean over its frames; cfo_std_hz, snr_std_db: their scatter. What is not known is NaN. suspected:
    share of frames that the model does not explain.
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
            *_offset(self.cfo_hz, self.cfo_std_hz, self.carrier_hz),
            _around("SNR", "dB", self.snr_db, WIDE * self.snr_std_db),
        ]

    def compared(self, other: Card) -> Comparison:
        """Whether two cards can be of one radio."""
        if (self.waveform, self.flaws) != (other.waveform, other.flaws):
            raise ConfigError(
                f"cards of {self.waveform} ({', '.join(self.flaws)}) and {other.waveform} ({', '.join(other.flaws)}): "
                "expected the same waveform and flaws. Measure both from the same kind of frames."
            )
        off, error = self.mean - other.mean, self.error + other.error
        distance = float(off @ np.linalg.solve(error, off))
        half = len(self.flaws)
        sizes = off**2 / error.diagonal()
        each = {name: float(np.sqrt((sizes[i] + sizes[half + i]) / 2)) for i, name in enumerate(self.flaws)}
        return Comparison(other.name, float(chi2.sf(distance, 2 * half)), each)

    def to_json(self) -> dict[str, Any]:
        own = {field.name: _told(getattr(self, field.name)) for field in fields(self)}
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
            numbers = {
                name: math.nan if value[name] is None else float(value[name])
                for name in ("snr_db", "snr_std_db", "cfo_hz", "cfo_std_hz", "carrier_hz", "suspected")
            }
            frames, places = int(value["frames"]), int(value["places"])
            return cls(str(value["name"]), str(value["waveform"]), flaws, mean, error, frames, places, **numbers)


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


@dataclass(frozen=True)
class Measured:
    """Frames as measured, and who sent each: `sender` (N,) is a number in `names`, place (N,) one in `places`.

    cfo_hz: (N,) with what a receiver had taken off before. cfo_std_hz: (N,) its error, NaN where it is not known.
    """

    waveform: Waveform
    measurement: Measurement
    sender: NDArray[np.int64]
    names: tuple[str, ...]
    place: NDArray[np.int64]
    places: tuple[str, ...]
    cfo_hz: Real
    cfo_std_hz: Real
    carrier_hz: float

    def of(self, name: str) -> Measured:
        """The frames of one sender."""
        if name not in self.names:
            raise DataError(unknown_name("sender", name, self.names))
        mine = np.flatnonzero(self.sender == self.names.index(name))
        own = {column: getattr(self, column)[mine] for column in ("place", "cfo_hz", "cfo_std_hz")}
        return replace(
            self, names=(name,), sender=np.zeros_like(mine), measurement=self.measurement.select(mine), **own
        )

    @property
    def snr_db(self) -> Real:
        """(N,) mean over the antennas that are there."""
        each = self.measurement.snr_db.astype(np.float64)
        there = np.isfinite(self.measurement.noise)
        total = np.where(there, np.maximum(each, FAINT_DB), 0).sum(axis=1)
        count = there.sum(axis=1)
        return np.divide(total, count, out=np.full(len(each), np.nan), where=count > 0)

    @property
    def cards(self) -> list[Card]:
        """A card for each sender of whom a frame could be measured."""
        flaws = tuple(name for name in self.measurement.flaws if FLAWS[name].role == "identity")
        value, error = self.measurement.features()
        snr_db, suspicion = self.snr_db, self.measurement.suspicion
        cards = []
        for number, name in enumerate(self.names):
            mine = np.flatnonzero((self.sender == number) & self.measurement.measured)
            if not len(mine):
                continue
            mean, uncertain, places = _device(value[mine], error[mine], snr_db[mine], self.place[mine])
            cards.append(
                Card(
                    name,
                    self.waveform.name,
                    flaws,
                    mean,
                    uncertain,
                    len(mine),
                    places,
                    float(np.mean(snr_db[mine])),
                    _scatter(snr_db[mine], self._snr_std_db[mine]),
                    float(np.mean(self.cfo_hz[mine])),
                    _scatter(self.cfo_hz[mine], self.cfo_std_hz[mine]),
                    self.carrier_hz,
                    float(np.mean(suspicion[mine] < SUSPECTED)),
                )
            )
        return cards

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row per frame: who, where, each quantity with its bounds, and the misfit. What is not known is None."""
        found = self.measurement.without([name for name in self.measurement.flaws if FLAWS[name].role == "detail"])
        snr_db, suspicion = self.snr_db, found.suspicion
        for n in range(len(found)):
            row: dict[str, Any] = {"sender": self.names[self.sender[n]], "place": self.places[self.place[n]]}
            if found.measured[n]:
                theta = dict(zip(found.flaws, found.value[n].tolist(), strict=True))
                variance = dict(zip(found.flaws, found.covariance[n].diagonal().real.tolist(), strict=True))
                told = [
                    *quantities(theta, variance),
                    *_offset(float(self.cfo_hz[n]), float(self.cfo_std_hz[n]), self.carrier_hz),
                    _around("SNR", "dB", snr_db[n], WIDE * self._snr_std_db[n]),
                ]
                for each in told:
                    own = f"{each.name} ({each.unit})"
                    row |= {own: _told(each.value), f"{own} low": _told(each.low), f"{own} high": _told(each.high)}
                row |= {"misfit": float(found.misfit[n]), "misfit p": float(suspicion[n])}
            yield row

    @property
    def _snr_std_db(self) -> Real:
        """(N,) noise power of n complex dimensions is known to a part 1/√n."""
        return 10 / math.log(10) / np.sqrt(np.maximum(self.measurement.freedom[:, 1], 1))


def _scatter(value: Real, std: Real) -> float:
    """Standard deviation over frames; of a single one its own error."""
    return float(np.std(value, ddof=1)) if len(value) > 1 else float(std[0])


def _device(value: Real, error: Real, snr_db: Real, place: NDArray[np.int64]) -> tuple[Real, Real, int]:
    """Mean of a device's frames and its covariance, by the frames' bars, their scatter and what places may add.

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
    at_0_db = np.mean(weight / 10 ** (snr_db / 10)[:, None, None], axis=0)
    scale = at_0_db * 10 ** (SHIFT_DB / 10)  # inverse of the expected shift's covariance
    apart = np.stack(centres) - np.mean(centres, axis=0)
    chance = (1 - 1 / places) * np.einsum("ij,cji->", scale, np.stack(own))
    beyond = max(0.0, float(np.einsum("ci,ij,cj->", apart, scale, apart) - chance)) / size
    shift = (PLACES + beyond) / (PLACES + places - 1) * np.linalg.inv(scale)
    trust = np.linalg.inv(shift + np.stack(own))
    uncertain = np.linalg.inv(trust.sum(0))
    return uncertain @ np.einsum("cij,cj->i", trust, np.stack(centres)), (uncertain + uncertain.T) / 2, places


def measure(frames: UnlabelledFrames, waveform: str | None = None, senders: Sequence[str] | None = None) -> Measured:
    """Measure frames that begin with a known waveform; that of their sample rate unless it is named.

    senders: (N,) who sent each; the device of labelled frames, and by default one for all others.
    """
    if frames.domain != TIME:
        raise DataError(
            f"frames of {frames.domain} hold channel state, and no waveform that a transmitter's flaws could be "
            "measured in. Train on them (`pisa train`), or give frames of I/Q."
        )
    known = waveform_for(frames, waveform)
    names, sender = _senders(frames, senders)
    places, place = np.unique(frames.capture_key, return_inverse=True)
    estimator = FlawEstimator(known, frames.samples)
    found = _heard(_in_pieces(estimator, frames, sender * len(places) + place), estimator.samples)
    if not found.measured.any():
        raise DataError(
            f"none of {len(frames):,} frames could be measured: expected frames that begin with the preamble of "
            f"{known.title}, on antennas that are neither silent nor NaN. See what they hold, or name their --waveform."
        )
    cfo_hz, cfo_std_hz = _cfo(frames, found, estimator.samples)
    return Measured(
        known,
        found,
        sender,
        names,
        place.astype(np.int64),
        tuple(map(str, places)),
        cfo_hz,
        cfo_std_hz,
        frames.carrier_hz,
    )


def _in_pieces(estimator: FlawEstimator, frames: UnlabelledFrames, group: NDArray[np.int64]) -> Measurement:
    """All frames, whole groups (N,) at a time, for not all may fit in memory."""
    order = np.argsort(group, kind="stable")
    most = max(1, AT_ONCE // (8 * frames.antennas * frames.samples))
    begins = np.searchsorted(group[order], group[order])  # of each frame's group
    parts = []
    for piece in np.split(order, np.flatnonzero(np.diff(begins // most)) + 1):
        parts.append(estimator.measure(frames.select(piece).iq, sender=group[piece]))
    joined = {
        field.name: np.concatenate([getattr(part, field.name) for part in parts])
        for field in fields(Measurement)
        if field.name != "flaws"
    }
    return Measurement(estimator.flaws, **joined).select(np.argsort(order))


def _heard(found: Measurement, samples: int) -> Measurement:
    """The same, where frames count as not measured in which no antenna hears the waveform."""
    gain_db = 10 * np.log10(samples / found.channel.shape[2])
    heard = np.nan_to_num(found.snr_db, nan=-np.inf).max(axis=1) + gain_db > HEARD_DB
    return replace(found, misfit=np.where(heard, found.misfit, np.nan))


def _cfo(frames: UnlabelledFrames, found: Measurement, samples: int) -> tuple[Real, Real]:
    """(N,) CFO in Hz and its error: what was recorded and taken off, and what is left in the samples.

    Some receivers record it and leave it in: then what is left is what was recorded, and counts once.
    """
    recorded = frames.cfo_hz
    told = None if recorded is None else np.mean(recorded, axis=1)
    if OFFSET not in found.flaws:
        unknown = np.full(len(found), np.nan)
        return (unknown if told is None else told), unknown
    left_hz = found.offset * frames.sample_rate_hz
    own = found.flaws.index(OFFSET)  # θ = j2πfT
    std_hz = np.sqrt(found.covariance[:, own, own].real / 2) / (2 * np.pi * samples) * frames.sample_rate_hz
    if told is None or np.nanmedian(np.abs(left_hz - told)) < np.nanmedian(np.abs(left_hz)):
        return left_hz, std_hz
    return left_hz + told, std_hz


def waveform_for(frames: UnlabelledFrames, waveform: str | None) -> Waveform:
    """The waveform by its name, or the one that is sampled as the frames are."""
    if waveform is not None:
        known = WAVEFORMS[waveform]
        if known.sample_rate_hz != frames.sample_rate_hz:
            raise DataError(
                f"{known.title} has {known.sample_rate_hz:g} samples/s, these frames {frames.sample_rate_hz:g}. "
                "Resample them, or name the waveform that they have."
            )
        return known
    fitting = [each for each in WAVEFORMS.parts().values() if each.sample_rate_hz == frames.sample_rate_hz]
    if len(fitting) != 1:
        listed = ", ".join(f"{name} ({each.sample_rate_hz:g}/s)" for name, each in WAVEFORMS.parts().items())
        raise DataError(
            f"frames of {frames.sample_rate_hz:g} samples/s: expected those of a known waveform, {listed}. "
            "Name it with --waveform."
        )
    return fitting[0]


def _senders(frames: UnlabelledFrames, senders: Sequence[str] | None) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    if senders is not None:
        if len(senders) != len(frames):
            raise DataError(f"{len(senders)} senders for {len(frames)} frames: expected one for each.")
        names, number = np.unique(np.asarray(senders, dtype=str), return_inverse=True)
        return tuple(map(str, names)), number.astype(np.int64)
    if isinstance(frames, Frames):
        return tuple(frames.devices), frames.device.astype(np.int64)
    return ("all frames",), np.zeros(len(frames), dtype=np.int64)
