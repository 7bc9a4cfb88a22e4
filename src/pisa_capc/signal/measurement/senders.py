"""Frames measured sender by sender: quantities that engineers name, each with an interval of 95 %, and cards to keep.

A card holds what was measured of one device, and how certain that is. Two cards are of the same radio where they differ
by no more than that. The image and the leakage of the receiver are in every estimate: cards compare at one receiver.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.data.frames import Frames, UnlabelledFrames
from pisa_capc.signal.measurement.estimator import FlawEstimator, Measurement
from pisa_capc.signal.measurement.flaws import FLAWS
from pisa_capc.signal.waveforms import WAVEFORMS, Waveform

SCHEMA = 1
WIDE = 1.96  # standard deviations to either side of an interval of 95 %
ABOVE_DB = 3  # the amplifier is described from mean power to this much above it
MOST_FLAWS = 64  # of a card that is read
PLACES = 8.0  # that the expected shift from place to place counts for
SUSPECTED = 0.01  # chance below which a frame's misfit is no accident

Real = NDArray[np.floating[Any]]
Complex = NDArray[np.complexfloating[Any, Any]]


@dataclass(frozen=True)
class Quantity:
    """What a flaw amounts to, as it is written in data sheets. low, high: an interval of 95 %."""

    name: str
    unit: str
    value: float
    low: float
    high: float

    def __str__(self) -> str:
        decimals = 2 if abs(self.high - self.low) < 1 else 1 if abs(self.high - self.low) < 20 else 0
        half = (self.high - self.low) / 2
        return f"{self.value:.{decimals}f} ± {half:.{decimals}f} {self.unit}".rstrip()


def quantities(flaws: Mapping[str, complex], variance: Mapping[str, float]) -> Iterator[Quantity]:
    """What θ and the variances of its circular error (both parts together) amount to.

    Image rejection −20 lg |θ| and its angle; leakage 20 lg |θ| relative to the signal; compression as the change of
    gain and phase from mean power to `ABOVE_DB` above it, g(r) = 1 + θ r². Bounds of a modulus are taken before the
    logarithm, so that what is not told from zero has no lower bound.
    """
    for name, title, sign in (("image", "image rejection", -1), ("leakage", "leakage", 1)):
        if name in flaws:
            size, bar = abs(flaws[name]), WIDE * np.sqrt(variance[name] / 2)
            ends = [sign * 20 * _lg(size - bar), sign * 20 * _lg(size + bar)]
            yield Quantity(title, "dB" if name == "image" else "dBc", sign * 20 * _lg(size), min(ends), max(ends))
            turn = float(np.degrees(np.angle(flaws[name])))
            wide = float(min(180.0, np.degrees(bar / max(size, 1e-12))))
            yield Quantity(f"{name} angle", "°", turn, turn - wide, turn + wide)
    if "compression" in flaws:
        theta, power = flaws["compression"], 10 ** (ABOVE_DB / 10)
        change = np.log((1 + theta * power) / (1 + theta))
        slope = abs(power / (1 + theta * power) - 1 / (1 + theta))
        bar = WIDE * slope * np.sqrt(variance["compression"] / 2)
        for title, unit, value, scale in (
            ("AM/AM", "dB", change.real, 20 / np.log(10)),
            ("AM/PM", "°", change.imag, 180 / np.pi),
        ):
            yield Quantity(title, unit, value * scale, (value - bar) * scale, (value + bar) * scale)


def _lg(size: float) -> float:
    return float(np.log10(size)) if size > 0 else -np.inf


@dataclass(frozen=True)
class Card:
    """One device as measured. mean: (2J,) real and imaginary parts of its flaws. error: (2J, 2J), places included.

    cfo_hz, cfo_std_hz: mean and scatter over its frames. suspected: share of frames that the model does not explain.
    """

    name: str
    waveform: str
    flaws: tuple[str, ...]
    mean: Real
    error: Real
    frames: int
    places: int
    snr_db: float
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
        """All that is told of it."""
        found = list(quantities(self.theta, self.variance))
        bar = WIDE * self.cfo_std_hz
        found.append(Quantity("CFO", "Hz", self.cfo_hz, self.cfo_hz - bar, self.cfo_hz + bar))
        if self.carrier_hz:
            ppm, wide = 1e6 * self.cfo_hz / self.carrier_hz, 1e6 * bar / self.carrier_hz
            found.append(Quantity("CFO", "ppm", ppm, ppm - wide, ppm + wide))
        return found

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
        own = asdict(self) | {"mean": self.mean.tolist(), "error": self.error.tolist(), "flaws": list(self.flaws)}
        return {"schema": SCHEMA, **own, "quantities": [asdict(each) for each in self.quantities]}

    @classmethod
    def from_json(cls, value: Any, where: str) -> Card:
        """A card that somebody kept; what it is not is said."""
        try:
            if value["schema"] != SCHEMA:
                raise DataError(f"{where}: written with schema {value['schema']}; this version reads {SCHEMA}.")
            flaws = tuple(str(name) for name in value["flaws"])
            size = 2 * len(flaws)
            mean, error = (np.array(value[name], dtype=np.float64) for name in ("mean", "error"))
            numbers = {
                name: float(value[name]) for name in ("snr_db", "cfo_hz", "cfo_std_hz", "carrier_hz", "suspected")
            }
            fits = 0 < len(flaws) <= MOST_FLAWS and mean.shape == (size,) and error.shape == (size, size)
            if not fits or not np.isfinite(mean).all() or not np.isfinite(error).all():
                raise ValueError("mean and error do not fit its flaws")
            if not np.allclose(error, error.T) or np.linalg.eigvalsh(error).min() <= 0:
                raise ValueError("its error is no covariance")
            frames, places = int(value["frames"]), int(value["places"])
            return cls(str(value["name"]), str(value["waveform"]), flaws, mean, error, frames, places, **numbers)
        except (KeyError, TypeError, ValueError, np.linalg.LinAlgError) as error_found:
            raise DataError(
                f"{where}: not a card as `pisa measure --card` writes ({type(error_found).__name__}: {error_found})."
            ) from error_found


@dataclass(frozen=True)
class Comparison:
    """A card against another one. p_value: chance that one radio, measured twice, differs as much. each: in bars."""

    name: str
    p_value: float
    each: dict[str, float]


@dataclass(frozen=True)
class Measured:
    """Frames as measured, and who sent each: `sender` (N,) is a number in `names`, place (N,) one in `places`."""

    waveform: Waveform
    measurement: Measurement
    sender: NDArray[np.int64]
    names: tuple[str, ...]
    place: NDArray[np.int64]
    places: tuple[str, ...]
    cfo_hz: Real
    carrier_hz: float

    @property
    def cards(self) -> list[Card]:
        """A card for each sender of whom a frame could be measured."""
        found = self.measurement.without([name for name in self.measurement.flaws if FLAWS[name].role == "detail"])
        flaws = tuple(name for name in found.flaws if FLAWS[name].role == "identity")
        value, error = self.measurement.features()
        snr_db = np.nanmean(self.measurement.snr_db, axis=1) if len(value) else np.empty(0)
        cards = []
        for number, name in enumerate(self.names):
            mine = np.flatnonzero((self.sender == number) & self.measurement.measured)
            if not len(mine):
                continue
            mean, uncertain, places = _device(value[mine], error[mine], self.place[mine])
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
                    float(np.mean(self.cfo_hz[mine])),
                    float(np.std(self.cfo_hz[mine])),
                    self.carrier_hz,
                    float(np.mean(self.measurement.suspicion[mine] < SUSPECTED)),
                )
            )
        return cards

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row per frame: who, where, each quantity with its bounds, SNR, misfit."""
        found = self.measurement.without([name for name in self.measurement.flaws if FLAWS[name].role == "detail"])
        for n in range(len(found)):
            row: dict[str, Any] = {"sender": self.names[self.sender[n]], "place": self.places[self.place[n]]}
            if found.measured[n]:
                theta = dict(zip(found.flaws, found.value[n].tolist(), strict=True))
                variance = dict(zip(found.flaws, found.covariance[n].diagonal().real.tolist(), strict=True))
                for each in quantities(theta, variance):
                    own = f"{each.name} ({each.unit})"
                    row |= {own: each.value, f"{own} low": each.low, f"{own} high": each.high}
                row |= {"CFO (Hz)": float(self.cfo_hz[n]), "SNR (dB)": float(np.nanmean(found.snr_db[n]))}
                row |= {"misfit": float(found.misfit[n]), "misfit p": float(found.suspicion[n])}
            yield row


def _device(value: Real, error: Real, place: NDArray[np.int64]) -> tuple[Real, Real, int]:
    """Mean of a device's frames and its covariance, by the frames' bars, their scatter and what places may add.

    Bars that are narrower than the scatter are widened to it. A place may shift a device by as much as one frame's bar:
    of several places their own scatter counts for as many, as in `model.gaussian.fit`.
    """
    weight = np.linalg.inv(error)
    mean = np.linalg.solve(weight.sum(0), np.einsum("nij,nj->i", weight, value))
    size = value.shape[1]
    if len(value) > 1:
        off = value - mean
        spread = np.einsum("ni,nij,nj->", off, weight, off) / (size * (len(value) - 1))
        weight = weight / max(1.0, spread)
    numbers = np.unique(place)
    centres, inside = [], []
    for number in numbers:
        mine = place == number
        whole = np.linalg.inv(weight[mine].sum(0))
        centres.append(whole @ np.einsum("nij,nj->i", weight[mine], value[mine]))
        inside.append(whole)
    prior = np.linalg.inv(weight.mean(0))
    apart = np.stack(centres) - np.mean(centres, axis=0)
    shift = (PLACES * prior + apart.T @ apart) / (PLACES + len(numbers) - 1)
    trust = np.linalg.inv(shift + np.stack(inside))
    uncertain = np.linalg.inv(trust.sum(0))
    return uncertain @ np.einsum("cij,cj->i", trust, np.stack(centres)), uncertain, len(numbers)


def measure(frames: UnlabelledFrames, waveform: str | None = None, senders: Sequence[str] | None = None) -> Measured:
    """Measure frames that begin with a known waveform; that of their sample rate unless it is named.

    senders: (N,) who sent each; the device of labelled frames, and one for all of others, unless told.
    """
    known = waveform_for(frames, waveform)
    names, sender = _senders(frames, senders)
    keys = frames.capture_key
    places, place = np.unique(keys, return_inverse=True)
    group = sender * (len(places) + 1) + place
    found = FlawEstimator(known, frames.source.samples).measure(frames.iq, sender=group)
    recorded = frames.cfo_hz
    rest = found.offset * frames.sample_rate_hz
    cfo_hz = rest if recorded is None else rest + np.nan_to_num(recorded).mean(axis=1)
    return Measured(
        known, found, sender, names, place.astype(np.int64), tuple(map(str, places)), cfo_hz, frames.carrier_hz
    )


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
