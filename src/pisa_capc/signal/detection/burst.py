"""Bursts of any signal, by their energy over a noise floor that is tracked.

The power of blocks of B samples, divided by the noise floor of each antenna and averaged over A antennas, is
Gamma(A B) / (A B) distributed where there is noise alone; so the threshold follows from how often noise may pass it. A
burst begins above that threshold, lasts while the level stays above a lower one, and goes on behind gaps that are short
enough. Its ends are then found to the sample: where the likelihood of a step in power is largest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.fft import fft, fftshift
from scipy.special import gammainccinv, gammaincinv

from pisa_capc.core.errors import ConfigError
from pisa_capc.signal.detection.base import Detector, FoundFrame
from pisa_capc.signal.detection.finders import Finder, History, register_finder
from pisa_capc.signal.recordings import About
from pisa_capc.signal.recordings.encoding import Encoding
from pisa_capc.signal.waveforms import Waveform

FALSE_PER_S = 0.1  # how often noise may pass the threshold
LEAST_DB = 3.0  # over the noise, of a burst's strongest block
QUIET = 0.2  # part of the blocks that is taken to be noise
CHUNK, CHUNKS = 4096, 8  # blocks that are looked at together, and of how many of these the floor is the lowest
DIP = 2  # blocks that a burst may be quieter for
SPECTRUM = 256  # samples of each transform
BAND = 0.99  # part of a burst's power that its bandwidth holds
SILENCE = 1e-20  # power below which an antenna hears nothing
LONGEST = 1 << 24  # samples of a burst, of all antennas
STORED = 1024  # samples of a frame in a dataset, unless told


@dataclass(frozen=True)
class BurstSettings:
    """In seconds. min, max: length of a burst; of a longer one further frames are made. gap: silence within a burst, as
    between the pulses of on-off keying. window, hop: of a signal that never stops, take so much, so often, instead.
    """

    min: float = 20e-6
    max: float = 50e-3
    gap: float = 0.0
    window: float = 0.0
    hop: float = 0.0

    @classmethod
    def named(cls, text: str) -> BurstSettings:
        """As 'gap=5e-3,max=0.2'."""
        known = {field.name for field in fields(cls)}
        values: dict[str, float] = {}
        for pair in filter(None, text.split(",")):
            name, _, value = pair.partition("=")
            try:
                values[name.strip()] = number = float(value)
            except ValueError:
                number = math.nan
            if name.strip() not in known or not 0 <= number <= 3600:
                raise ConfigError(
                    f"waveform burst: {pair!r}: expected seconds of {', '.join(sorted(known))}, as burst:gap=5e-3."
                )
        found = cls(**values)
        if found.min > found.max or found.max == 0 or (found.hop and not found.window):
            raise ConfigError("waveform burst: expected min below max, and hop only with a window.")
        return found


class Bursts(Waveform):
    """Whatever is sent, at the rate at which it is received; it begins with nothing that is known."""

    name: ClassVar[str] = "burst"
    title = "burst"
    occupied = 0.99
    longest_samples = STORED

    def __init__(self, sample_rate_hz: float) -> None:
        self.sample_rate_hz = sample_rate_hz  # type: ignore[misc]

    def preamble(self) -> NDArray[np.complex128]:
        return np.zeros(STORED, dtype=np.complex128)


@register_finder("burst")
class BurstFinder(Finder):
    def __init__(self, settings: BurstSettings | None = None) -> None:
        self._settings = settings or BurstSettings()

    def with_settings(self, text: str) -> BurstFinder:
        return BurstFinder(BurstSettings.named(text))

    def waveform(self, about: About) -> Waveform:
        return Bursts(about.sample_rate_hz)

    def detector(
        self, about: About, encoding: Encoding | None = None, first: int = 0, end: int | None = None
    ) -> Detector:
        kind = WindowDetector if self._settings.window else BurstDetector
        return kind(about.antennas, about.sample_rate_hz, self._settings)


class BurstDetector:
    """Finds bursts in a stream of any rate."""

    def __init__(self, antennas: int, sample_rate_hz: float, settings: BurstSettings | None = None) -> None:
        settings = settings or BurstSettings()
        self._antennas, self._rate_hz = antennas, sample_rate_hz
        least = max(8.0, settings.min * sample_rate_hz)
        self.block = block = int(min(max(least / 4, 8), 256))
        self._least = math.ceil(least / block)  # in blocks, as those that follow
        self._most = max(self._least, min(int(settings.max * sample_rate_hz), LONGEST // antennas) // block)
        self._gap = max(DIP, math.ceil(settings.gap * sample_rate_hz / block))
        shape = antennas * block
        chance = FALSE_PER_S * block / sample_rate_hz
        self._on = max(float(gammainccinv(shape, chance)) / shape, 10 ** (LEAST_DB / 10))
        self._off = 1 + (self._on - 1) / 2
        self._bias = float(gammaincinv(block, QUIET)) / block  # of a quantile, relative to the mean
        self._kept = max(CHUNKS, math.ceil(2 * self._most / CHUNK))
        self._history = History()
        self._floors: list[NDArray[np.float64]] = []  # (A,) of the newest chunks
        self._levels = np.empty(0)  # of blocks from number `_base` on, over the noise
        self._base = 0

    def wanted(self, received: int) -> int:
        """Until a chunk is whole."""
        return self._chunk - received % self._chunk

    @property
    def _chunk(self) -> int:
        return CHUNK * self.block

    @property
    def _looked(self) -> int:
        """The first sample whose level is not known yet."""
        return (self._base + len(self._levels)) * self.block

    def push(self, block: NDArray[np.complex64]) -> list[FoundFrame]:
        self._history.append(block)
        done = []
        while self._looked + self._chunk <= self._history.end:
            self._look(self._chunk)
            done += self._taken(ended=False)
        return done

    def finish(self) -> list[FoundFrame]:
        rest = (self._history.end - self._looked) // self.block * self.block
        if rest > 0:
            self._look(rest)
        return self._taken(ended=True)

    def _look(self, samples: int) -> None:
        """The levels of the next samples."""
        x = self._history.read(self._looked, self._looked + samples)
        parts = x.view(np.float32).reshape(len(x), -1, 2 * self.block)
        power = np.einsum("abn,abn->ab", parts, parts).astype(np.float64) / self.block
        quiet = np.maximum(np.quantile(power, QUIET, axis=1) / self._bias, SILENCE)
        if samples == self._chunk or not self._floors:
            self._floors = [*self._floors[1 - self._kept :], quiet]
        self._levels = np.concatenate([self._levels, np.mean(power / self._floor[:, None], axis=0)])

    @property
    def _floor(self) -> NDArray[np.float64]:
        """(A,) power of the noise: the lowest that there was lately, so that a long burst does not raise it."""
        found: NDArray[np.float64] = np.min(self._floors, axis=0)
        return found

    def _taken(self, ended: bool) -> list[FoundFrame]:
        """The bursts that are over, or as long as they may be; the levels of others are kept."""
        levels, done = self._levels, list[FoundFrame]()
        keep = len(levels)
        for begin, end in self._runs(levels):
            known = max(end + self._gap, begin + STORED // self.block + 1)
            is_open = known >= len(levels) and not ended
            while end - begin >= self._most:
                done += self._frame(begin, begin + self._most, whole=False)
                begin += self._most
            if is_open:
                keep = begin
                break
            if end - begin >= self._least:
                done += self._frame(begin, end)
        self._base, self._levels = self._base + keep, levels[keep:]
        self._history.drop(self._base * self.block - 2 * self.block)
        return done

    def _runs(self, levels: NDArray[np.float64]) -> list[tuple[int, int]]:
        """Blocks first … end of each burst, in order."""
        above = np.flatnonzero(np.diff(np.concatenate([[False], levels > self._off, [False]]).astype(np.int8)))
        runs: list[tuple[int, int]] = []
        for begin, end in above.reshape(-1, 2).tolist():
            if levels[begin:end].max() <= self._on and not (runs and begin - runs[-1][1] <= self._gap):
                continue
            if runs and begin - runs[-1][1] <= self._gap:
                runs[-1] = runs[-1][0], end
            else:
                runs.append((begin, end))
        return runs

    def _frame(self, begin: int, end: int, whole: bool = True) -> list[FoundFrame]:
        first, last = ((self._base + number) * self.block for number in (begin, end))
        if whole:
            first, last = self._step(first, last, True), self._step(first, last, False)
        if last - first < max(2, self._least * self.block // 2):
            return []
        found = described(self._history.read(first, last), first, self._rate_hz, self._floor)
        # What is stored or embedded has one length: behind a shorter burst stands what was received.
        return [replace(found, iq=self._history.read(first, min(max(last, first + STORED), self._history.end)))]

    def _step(self, first: int, last: int, up: bool) -> int:
        """Where the power of a burst rises, or falls, to the sample.

        |x|² is exponential with mean N before the step and N L behind it, so the log-likelihood of a step at n is, but
        for a constant, Σ_{k ≥ n} |x_k|² (1 − 1/L) / N − ln L.
        """
        at, reach = (first if up else last), 2 * self.block
        near = slice(max(at - reach, 0), min(at + reach, self._history.end))
        x = self._history.read(near.start, near.stop)
        power = np.asarray(np.mean(np.abs(x) ** 2 / self._floor[:, None], axis=0), dtype=np.float64)
        inside = power[-reach // 2 :] if up else power[: reach // 2]
        level = max(float(inside.mean()), self._off)
        score = power * (1 - 1 / level) - math.log(level)
        gain = np.cumsum(score[::-1])[::-1] if up else np.cumsum(score)
        return near.start + (int(np.argmax(gain)) if up else int(np.argmax(gain)) + 1)


class WindowDetector:
    """Windows of a signal that never stops, one after the other."""

    def __init__(self, antennas: int, sample_rate_hz: float, settings: BurstSettings) -> None:
        self._rate_hz = sample_rate_hz
        self._window = round(settings.window * sample_rate_hz)
        self._hop = round((settings.hop or settings.window) * sample_rate_hz)
        if not 2 <= self._window <= LONGEST // antennas or self._hop < 1:
            raise ConfigError(
                f"waveform burst: windows of {self._window} samples, {self._hop} apart: expected two or more."
            )
        self._history, self._next = History(), 0

    def wanted(self, received: int) -> int:
        return max(1, self._next + self._window - received)

    def push(self, block: NDArray[np.complex64]) -> list[FoundFrame]:
        self._history.append(block)
        done = []
        while self._next + self._window <= self._history.end:
            x = self._history.read(self._next, self._next + self._window)
            done.append(described(x, self._next, self._rate_hz, None))
            self._next += self._hop
        self._history.drop(self._next)
        return done

    def finish(self) -> list[FoundFrame]:
        return []


def described(
    x: NDArray[np.complex64], first: int, sample_rate_hz: float, noise: NDArray[np.float64] | None
) -> FoundFrame:
    """A frame of samples (A, T) from `first` on. noise: (A,) power; None: not known.

    Its carrier offset is the mean frequency of its power, f_s/2π ∠ Σ_n x*[n] x[n+1], to which white noise adds nothing.
    """
    power = np.square(np.abs(x)).mean(axis=1, dtype=np.float64)
    floor = np.zeros(len(x)) if noise is None else noise
    signal = np.maximum(power - floor, 0)
    turn = np.sum(np.conj(x[:, :-1]) * x[:, 1:], axis=1)
    cfo_hz = np.where(power > SILENCE, np.angle(turn) * sample_rate_hz / (2 * np.pi), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        snr_db = np.full(len(x), np.nan) if noise is None else np.clip(10 * np.log10(signal / floor), -30, 90)
    quality = float(signal.sum() / power.sum()) if power.sum() > 0 else 0.0
    found = FoundFrame(first, x, cfo_hz, snr_db, quality, samples=x.shape[1])
    return replace(found, bandwidth_hz=_bandwidth(x, sample_rate_hz, floor))


def _bandwidth(x: NDArray[np.complex64], sample_rate_hz: float, noise: NDArray[np.float64]) -> float:
    """Hz that hold BAND of the power, noise taken off, of the antennas together."""
    size = min(SPECTRUM, x.shape[1])
    pieces = x[:, : x.shape[1] // size * size].reshape(len(x), -1, size)[:, :64]
    density = np.mean(np.abs(fft(pieces)) ** 2, axis=1, dtype=np.float64)
    spectrum = fftshift(np.maximum(density - size * noise[:, None], 0).sum(axis=0))
    if spectrum.sum() <= 0:
        return 0.0
    around = np.roll(spectrum, size // 2 - int(np.argmax(spectrum)))
    share = np.cumsum(around) / around.sum()
    outside = (1 - BAND) / 2
    low, high = (int(np.searchsorted(share, part)) for part in (outside, 1 - outside))
    return float((high - low + 1) * sample_rate_hz / size)
