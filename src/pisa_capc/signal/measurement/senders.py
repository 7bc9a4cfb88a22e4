"""Frames measured sender by sender, for a card of each."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import DataError, unknown_name
from pisa_capc.data.frames import Frames, UnlabelledFrames
from pisa_capc.data.store.dataset import TIME
from pisa_capc.signal.measurement.cards import Card, device_mean
from pisa_capc.signal.measurement.estimator import OFFSET, FlawEstimator, Measurement
from pisa_capc.signal.measurement.fit import SUSPECTED, fit_test
from pisa_capc.signal.measurement.flaws import FLAWS
from pisa_capc.signal.measurement.modulation import UNITS, measure_modulation
from pisa_capc.signal.measurement.quantities import WIDE, Quantity, around, json_number, offset_quantities, quantities
from pisa_capc.signal.measurement.rebuilt import RebuiltEstimator, estimator_of
from pisa_capc.signal.measurement.whole import Whole, behind, with_data
from pisa_capc.signal.waveforms import WAVEFORMS, Waveform

FAINT_DB = -30.0  # the lowest SNR that is told
HEARD_DB = 6.0  # SNR of a channel's estimate: with less its noise, which is not in the bars, is no small part of it
LOOKED_AT = 64  # frames, for whether they begin with the waveform
LEAST_EXPLAINED = 0.25  # of the energy, by a waveform that is there: −2 dB
AT_ONCE = 2**28  # bytes of frames in memory

Real = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Measured:
    """Frames as measured, and who sent each: `sender` (N,) is a number in `names`, place (N,) one in `places`.

    cfo_hz: (N,) with what a receiver had taken off before. cfo_std_hz: (N,) its error, NaN where it is not known.
    samples: (N,) that were measured of each frame. data_snr_db: (N,) of the data, where all that the model does
    not explain is noise; NaN where the preamble alone was measured. suspicion: (N,) chance that the model holds, see
    `fit`. modulation: (N, 3) values and standard deviations of `modulation.UNITS`, where the waveform shows them.
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
    samples: NDArray[np.int64]
    data_snr_db: Real
    suspicion: Real
    modulation: tuple[Real, Real] | None = None

    def of(self, name: str) -> Measured:
        """The frames of one sender."""
        if name not in self.names:
            raise DataError(unknown_name("sender", name, self.names))
        mine = np.flatnonzero(self.sender == self.names.index(name))
        own = {
            column: getattr(self, column)[mine]
            for column in ("place", "cfo_hz", "cfo_std_hz", "samples", "data_snr_db", "suspicion")
        }
        modulation = None if self.modulation is None else (self.modulation[0][mine], self.modulation[1][mine])
        return replace(
            self,
            names=(name,),
            sender=np.zeros_like(mine),
            measurement=self.measurement.select(mine),
            modulation=modulation,
            **own,
        )

    def modulation_of(self, name: str) -> list[Quantity]:
        """Of a sender, the mean over its preambles, with bars widened to the scatter; where the waveform shows it."""
        if self.modulation is None:
            return []
        mine = (self.sender == self.names.index(name)) & np.isfinite(self.modulation[0]).all(axis=1)
        value, std = (own[mine] for own in self.modulation)
        if not len(value):
            return []
        weight = std**-2.0
        mean = np.average(value, axis=0, weights=weight)
        spread = np.sum(weight * (value - mean) ** 2, axis=0) / max(1, len(value) - 1)
        wide = WIDE * np.sqrt(np.maximum(1, spread) / weight.sum(axis=0))
        return [around(*unit, *own) for unit, own in zip(UNITS, zip(mean, wide, strict=True), strict=True)]

    @property
    def whole(self) -> NDArray[np.bool_]:
        """(N,) frames that were measured behind their preamble, too."""
        return np.isfinite(self.data_snr_db)

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
        """A card for each sender of whom a frame could be measured; of whole frames alone, where there are any."""
        flaws = tuple(name for name in self.measurement.flaws if FLAWS[name].role == "identity")
        value, error = self.measurement.features()
        snr_db, suspicion = self.snr_db, self.suspicion
        cards = []
        for number, name in enumerate(self.names):
            mine = np.flatnonzero((self.sender == number) & self.measurement.measured)
            if not len(mine):
                continue
            if (whole := self.whole[mine]).any():
                mine = mine[whole]
            heard_db = self._flaw_snr_db(flaws)[mine]
            mean, uncertain, places = device_mean(value[mine], error[mine], heard_db, self.place[mine])
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
                    int(np.median(self.samples[mine])),
                    bool(whole.any()),
                )
            )
        return cards

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row per frame: who, where, each quantity with its bounds, and the misfit. What is not known is None."""
        found = self.measurement.without([name for name in self.measurement.flaws if FLAWS[name].role == "detail"])
        snr_db, suspicion = self.snr_db, self.suspicion
        for n in range(len(found)):
            row: dict[str, Any] = {"sender": self.names[self.sender[n]], "place": self.places[self.place[n]]}
            if found.measured[n]:
                theta = dict(zip(found.flaws, found.value[n].tolist(), strict=True))
                variance = dict(zip(found.flaws, found.covariance[n].diagonal().real.tolist(), strict=True))
                told = [
                    *quantities(theta, variance),
                    *offset_quantities(float(self.cfo_hz[n]), float(self.cfo_std_hz[n]), self.carrier_hz),
                    around("SNR", "dB", snr_db[n], WIDE * self._snr_std_db[n]),
                ]
                if self.modulation is not None:
                    own_frame = zip(UNITS, self.modulation[0][n], WIDE * self.modulation[1][n], strict=True)
                    told += [around(*unit, value, wide) for unit, value, wide in own_frame]
                for each in told:
                    own = f"{each.name} ({each.unit})"
                    row |= {
                        own: json_number(each.value),
                        f"{own} low": json_number(each.low),
                        f"{own} high": json_number(each.high),
                    }
                row |= {"misfit": float(found.misfit[n]), "misfit p": float(suspicion[n])}
                row["samples"] = int(self.samples[n])
            yield row

    def _flaw_snr_db(self, flaws: Sequence[str]) -> Real:
        """(N, 2J) SNR of what each of the features was measured on."""
        in_data = np.tile([FLAWS[name].in_data for name in flaws], 2)
        return np.where(in_data & self.whole[:, None], self.data_snr_db[:, None], self.snr_db[:, None])

    @property
    def _snr_std_db(self) -> Real:
        """(N,) noise power of n complex dimensions is known to a part 1/√n."""
        return 10 / math.log(10) / np.sqrt(np.maximum(self.measurement.freedom[:, 1], 1))


def _scatter(value: Real, std: Real) -> float:
    """Standard deviation over frames; of a single one its own error."""
    return float(np.std(value, ddof=1)) if len(value) > 1 else float(std[0])


def measure(
    frames: UnlabelledFrames,
    waveform: str | None = None,
    senders: Sequence[str] | None = None,
    whole: Iterable[Whole] = (),
) -> Measured:
    """Measure frames that begin with a known waveform; that of their sample rate unless it is named.

    senders: (N,) who sent each; the device of labelled frames, and by default one for all others.
    whole: those of the frames whose bits are known, which are then measured on all of their samples.
    """
    if frames.domain != TIME:
        raise DataError(
            f"frames of {frames.domain} hold channel state, and no waveform that a transmitter's flaws could be "
            "measured in. Train on them (`pisa train`), or give frames of I/Q."
        )
    known = waveform_for(frames, waveform)
    names, sender = senders_of(frames, senders)
    places, place = np.unique(frames.capture_key, return_inverse=True)
    estimator = estimator_of(known, frames.samples)
    found, suspicion = _in_pieces(estimator, frames, sender * len(places) + place)
    found = _heard(found, estimator.samples)
    if not found.measured.any():
        raise DataError(
            f"none of {len(frames):,} frames could be measured: expected frames that begin with the preamble of "
            f"{known.title}, on antennas that are neither silent nor NaN. See what they hold, or name their --waveform."
        )
    check_waveform(frames, estimator, found, waveform is not None)
    cfo_hz, cfo_std_hz = carrier_offset(frames, found, estimator.samples)
    fitted = ((one.row, behind(known, one, estimator.flaws)) for one in whole if found.measured[one.row])
    data = {row: own for row, own in fitted if own is not None}
    samples, rows = np.full(len(found), estimator.samples), list(data)
    samples[rows] += np.array([own.samples for own in data.values()], dtype=np.int64)
    data_snr_db = np.full(len(found), np.nan)
    data_snr_db[rows] = [own.snr_db for own in data.values()]
    return Measured(
        known,
        with_data(found, data),
        sender,
        names,
        place.astype(np.int64),
        tuple(map(str, places)),
        cfo_hz,
        cfo_std_hz,
        frames.carrier_hz,
        samples,
        data_snr_db,
        np.where(found.measured, suspicion, np.nan),
        measure_modulation(known, frames) if known.shifts_frequency else None,
    )


def check_waveform(
    frames: UnlabelledFrames, estimator: FlawEstimator, found: Measurement | None = None, named: bool = False
) -> None:
    """Refuse frames that do not begin with the waveform: hardly explained by it, or better by another one.

    Judged by the median over those in which it seems to be heard, of the energy that a waveform explains beyond what
    its r dimensions of T hold of noise. found: their measurement. Who named the waveform is taken to know better, and
    warned.
    """
    if isinstance(estimator, RebuiltEstimator):
        return  # each frame is checked by its own bits
    found = _heard(estimator.measure(frames.iq), estimator.samples) if found is None else found
    heard = np.flatnonzero(found.measured)
    if not len(heard):
        return  # where nothing could be measured, that is said
    some = heard[np.unique(np.linspace(0, len(heard) - 1, LOOKED_AT).astype(np.int64))]
    known, iq = estimator.waveform, frames.select(some).iq
    share = {known.name: _explained(estimator, found.select(some))}
    for name, other in WAVEFORMS.parts().items():
        if name != known.name and not other.rebuilds and len(other.preamble()) >= frames.samples // 2:
            with suppress(DataError):  # too few samples
                own = FlawEstimator(other, frames.samples)
                share[name] = _explained(own, own.measure(iq))
    best = max(share, key=lambda name: share[name])
    if share[known.name] > LEAST_EXPLAINED and best == known.name:
        return
    also = "" if best == known.name else f", that of {WAVEFORMS[best].title} {share[best]:.2f}"
    text = (
        f"these frames do not seem to begin with the preamble of {known.title}: it explains {share[known.name]:.2f} of "
        f"their energy beyond chance{also}. Name the waveform that was sent, correct the sample rate, or cut frames "
        "where they begin; frames below −2 dB are too faint."
    )
    if not named:
        raise DataError(text)
    warnings.warn(text, stacklevel=2)


def _explained(estimator: FlawEstimator, found: Measurement) -> float:
    chance = estimator.rank / estimator.samples
    return float(np.median((found.explained - chance) / (1 - chance)))


def _in_pieces(
    estimator: FlawEstimator, frames: UnlabelledFrames, group: NDArray[np.int64]
) -> tuple[Measurement, Real]:
    """All frames, whole groups (N,) at a time, for not all may fit in memory; and whether the model holds for them."""
    order = np.argsort(group, kind="stable")
    most = max(1, AT_ONCE // (8 * frames.antennas * frames.samples))
    begins = np.searchsorted(group[order], group[order])  # of each frame's group
    parts, chances = list[Measurement](), list[Real]()
    fit = fit_test(estimator)
    for piece in np.split(order, np.flatnonzero(np.diff(begins // most)) + 1):
        iq = frames.select(piece).iq
        parts.append(estimator.measure(iq, sender=group[piece]))
        chances.append(fit(iq, sender=group[piece]))
    joined = {
        field.name: np.concatenate([getattr(part, field.name) for part in parts])
        for field in fields(Measurement)
        if field.name != "flaws"
    }
    back = np.argsort(order)
    return Measurement(estimator.flaws, **joined).select(back), np.concatenate(chances)[back]


def _heard(found: Measurement, samples: int) -> Measurement:
    """The same, where frames count as not measured in which no antenna hears the waveform."""
    gain_db = 10 * np.log10(samples / found.channel.shape[2])
    heard = np.nan_to_num(found.snr_db, nan=-np.inf).max(axis=1) + gain_db > HEARD_DB
    return replace(found, misfit=np.where(heard, found.misfit, np.nan))


def carrier_offset(frames: UnlabelledFrames, found: Measurement, samples: int) -> tuple[Real, Real]:
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
            "Name it with --waveform (keyed for on-off keying), or give what was sent by --reference."
        )
    return fitting[0]


def senders_of(frames: UnlabelledFrames, senders: Sequence[str] | None) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    if senders is not None:
        if len(senders) != len(frames):
            raise DataError(f"{len(senders)} senders for {len(frames)} frames: expected one for each.")
        names, number = np.unique(np.asarray(senders, dtype=str), return_inverse=True)
        return tuple(map(str, names)), number.astype(np.int64)
    if isinstance(frames, Frames):
        return tuple(frames.devices), frames.device.astype(np.int64)
    return ("all frames",), np.zeros(len(frames), dtype=np.int64)
