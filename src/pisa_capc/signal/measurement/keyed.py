"""On-off keying in closed form: what a transmitter's pulses are like, whatever bits they carry, with error bars.

Cheap transmitters key their oscillator. Within each pulse p of a frame the phase is fitted by least squares

    φ_p(u) = φ_0 + 2π D (f u + c u²/2 + b u³/6),    −½ ≤ u ≤ ½, D the length of the pulse

so f is the carrier offset, c how far the oscillator moves during a pulse, and b how that bends. The pulses' length and
the two most frequent intervals from one pulse to the next are those of the encoder's clock. Each quantity is the mean
over pulses, without outliers, and its error the standard error of that mean. No waveform has to be known; a frame needs
`FEWEST` pulses of one length, with silence between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter1d

from pisa_capc.core.errors import ConfigError, unknown_name
from pisa_capc.data.frames import UnlabelledFrames
from pisa_capc.signal.measurement.quantities import WIDE

BLOCKS = (128, 64, 32, 16, 8)  # samples over which power is averaged: the longest of which a pulse has LONG
LONG = 6
PARTS = 8  # of a pulse, whose phases are fitted
FEWEST = 8  # pulses
AT_ONCE = 256  # frames in memory
QUIET, LOUD = 0.2, 0.99  # quantiles of the power that are noise, and a pulse
LEAST = 4.0  # of pulses over the noise, in power
RATIO = 1.25  # by which lengths of one kind may follow each other in order of size
RARE = 0.05  # part of the intervals that are a kind at least
FAR = 4.0  # standard deviations of an outlier
QUANTITIES = {
    "offset": ("carrier offset", "Hz"),
    "chirp": ("chirp over a pulse", "Hz"),
    "bend": ("bend of the chirp", "Hz"),
    "pulse": ("pulse", "s"),
    "short": ("shorter interval", "s"),
    "long": ("longer interval", "s"),
}

Complex = NDArray[np.complexfloating[Any, Any]]
Real = NDArray[np.float64]


@dataclass(frozen=True)
class KeyedMeasurement:
    """Measurements of N frames: names of the d columns, value (N, d), covariance (N, d, d) of its error, pulses (N,).

    NaN where a frame does not hold pulses that can be measured.
    """

    names: tuple[str, ...]
    value: Real
    covariance: Real
    pulses: NDArray[np.int64]


class KeyedEstimator:
    """The estimator above. without: names of `QUANTITIES` to leave out.

    >>> keys = np.repeat(np.tile([0, 1, 0, 0, 1, 0], 20), 150)
    >>> sent = keys * np.exp(2j * np.pi * 3e3 / 250e3 * np.arange(len(keys)))
    >>> noise = np.random.default_rng(0).normal(scale=0.05, size=(len(keys), 2)) @ [1, 1j]
    >>> found = KeyedEstimator(250e3).measure((sent + noise)[None, None])
    >>> {name: float(f"{value:.2g}") for name, value in zip(found.names, found.value[0]) if name in ("offset", "pulse")}
    {'offset': 3000.0, 'pulse': 0.0006}
    """

    def __init__(self, sample_rate_hz: float, without: Sequence[str] = ()) -> None:
        for name in without:
            if name not in QUANTITIES:
                raise ConfigError(unknown_name("quantity", name, QUANTITIES))
        self.sample_rate_hz = sample_rate_hz
        self.names = tuple(name for name in QUANTITIES if name not in without)
        self._columns = [list(QUANTITIES).index(name) for name in self.names]
        u = (np.arange(PARTS) + 0.5) / PARTS - 0.5
        self._fit = np.linalg.pinv(np.stack([np.ones(PARTS), u, u**2 / 2, u**3 / 6], axis=1))

    def measure(self, iq: Complex, mask: NDArray[np.bool_] | None = None) -> KeyedMeasurement:
        """Measure frames (N, A, T) by the antenna of each that hears most; mask: (N, A) antennas that are there."""
        size = len(self.names)
        value, covariance = np.full((len(iq), size), np.nan), np.full((len(iq), size, size), np.nan)
        pulses = np.zeros(len(iq), dtype=np.int64)
        for n, frame in enumerate(iq):
            power = np.einsum("at,at->a", frame, frame.conj()).real
            power = np.where(np.isfinite(power) & (True if mask is None else mask[n]), power, 0)
            if not power.any():
                continue
            found = self._pulses(frame[int(power.argmax())])
            if found is not None:
                every, bars, pulses[n] = found
                value[n], covariance[n] = every[self._columns], bars[np.ix_(self._columns, self._columns)]
        return KeyedMeasurement(self.names, value, covariance, pulses)

    def _pulses(self, x: Complex) -> tuple[Real, Real, int] | None:
        """All quantities of a frame (T,), their covariance, and of how many pulses they are."""
        power = (x.real.astype(np.float64) ** 2 + x.imag.astype(np.float64) ** 2) / np.mean(np.abs(x) ** 2)
        for block in BLOCKS:
            begin, end = _edges(uniform_filter1d(power, block), block)
            if len(begin) >= FEWEST and np.median(end - begin) >= LONG * block:
                break
        else:
            return None
        lengths = end - begin
        usual = max(_kinds(lengths), key=len)
        same = (lengths >= usual[0]) & (lengths <= usual[-1])
        begin, end, lengths = begin[same], end[same], lengths[same]
        intervals = _kinds(np.diff(begin))
        if len(begin) < FEWEST or not intervals:
            return None
        two = sorted(sorted(intervals, key=len)[-2:], key=lambda kind: float(kind[0]))
        phases = self._oscillator(x, begin, end, block // 4)
        good = _near(phases)
        own = phases[good]
        if len(own) < FEWEST:
            return None
        value, covariance = np.empty(len(QUANTITIES)), np.zeros((len(QUANTITIES), len(QUANTITIES)))
        value[:3], covariance[:3, :3] = own.mean(axis=0), np.cov(own.T) / len(own)
        for column, kind in enumerate([lengths, two[0], two[-1]], start=3):
            close = kind[_near(kind[:, None])] / self.sample_rate_hz
            step = 1 / self.sample_rate_hz
            value[column], covariance[column, column] = close.mean(), (close.var() + step**2 / 12) / len(close)
        return value, covariance, len(own)

    def _oscillator(self, x: Complex, begin: NDArray[np.int64], end: NDArray[np.int64], edge: int) -> Real:
        """(P, 3) offset, chirp and bend of each pulse, in Hz, from its samples without those of its edges."""
        whole_length = (end - begin)[:, None]
        begin, end = begin + edge, end - edge
        inside = np.concatenate([x[first:last] for first, last in zip(begin, end, strict=True)])
        coarse = np.angle(np.sum(inside[:-1].conj() * inside[1:])) / (2 * np.pi)  # cycles a sample
        length = (end - begin)[:, None]
        cuts = begin[:, None] + length * np.arange(PARTS + 1) // PARTS
        summed = np.concatenate([[0], np.cumsum(x * np.exp(-2j * np.pi * coarse * np.arange(len(x))))])
        phase = np.unwrap(np.angle(np.diff(summed[cuts], axis=1)), axis=1) / (2 * np.pi)
        hz = phase @ self._fit[1:].T / length * self.sample_rate_hz * (whole_length / length) ** np.arange(3)
        hz[:, 0] += coarse * self.sample_rate_hz
        return np.asarray(hz)


def keyed_rows(frames: UnlabelledFrames, estimator: KeyedEstimator) -> Iterator[dict[str, Any]]:
    """A row per frame that holds pulses: sender, place, and of each quantity its value and 95 % interval."""
    from pisa_capc.signal.measurement.senders import senders_of  # which imports torch

    names, sender = senders_of(frames, None)
    keys, first = frames.capture_key, 0
    for part in frames.batches(AT_ONCE):
        found = estimator.measure(part.iq)
        for n in np.flatnonzero(found.pulses):
            row: dict[str, Any] = {"sender": names[sender[first + n]], "place": str(keys[first + n])}
            for k, name in enumerate(found.names):
                title, unit = QUANTITIES[name]
                value, half = found.value[n, k], WIDE * np.sqrt(found.covariance[n, k, k])
                own = f"{title} ({unit})"
                row |= {own: float(value), f"{own} low": float(value - half), f"{own} high": float(value + half)}
            yield row | {"pulses": int(found.pulses[n])}
        first += len(part)


def _edges(power: Real, block: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First sample of each pulse and the one after its last, at half the power of pulses.

    Where the averaged power passes it, half of a block lies in the pulse: its length does not depend on its level.
    """
    noise, loud = np.quantile(power[:: max(1, block // 4)], [QUIET, LOUD])
    if not loud > LEAST * noise:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    typical = np.median(power[power > (noise + loud) / 2])
    level = (noise + typical) / 2
    steps = np.diff((power > level).astype(np.int8))
    begin, end = np.flatnonzero(steps == 1) + 1, np.flatnonzero(steps == -1) + 1
    end = end[np.searchsorted(end, begin[0]) :] if len(begin) else end[:0]
    begin = begin[: len(end)]
    whole = end - begin > block  # what is shorter is noise
    return begin[whole], end[whole]


def _kinds(values: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Values that are alike, kind by kind in order of size, without those that are rare."""
    ordered = np.sort(values)
    cuts = np.flatnonzero(ordered[1:] > RATIO * ordered[:-1]) + 1
    return [kind for kind in np.split(ordered, cuts) if len(kind) >= max(2, RARE * len(values))]


def _near(values: Any) -> NDArray[np.bool_]:
    """(P,) rows that are no outliers in any column, by the median and the median deviation."""
    middle = np.median(values, axis=0)
    off = np.abs(values - middle)
    return np.asarray((off <= FAR * np.maximum(1.4826 * np.median(off, axis=0), 1e-9 + 0 * middle)).all(axis=1))
