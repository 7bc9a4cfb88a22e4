"""Bursts of any signal, by their energy over a noise floor that is tracked.

The power of blocks of B samples, divided by the noise floor of each antenna and averaged over A antennas, is
Gamma(A B) / (A B) distributed where there is noise alone; so the threshold follows from how often noise may pass it. A
burst begins above that threshold, lasts while the level stays above a lower one, and goes on behind gaps that are short
enough. Its ends are then found to the sample: where the likelihood of a step in power is largest. Of a band with
several channels, each is searched by itself, behind a filter bank.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.fft import fft, fftshift
from scipy.special import gammainccinv, gammaincinv

from pisa_capc.core.errors import ConfigError
from pisa_capc.core.quantities import HIGHEST_HZ
from pisa_capc.signal.detection.base import Detector, FoundFrame
from pisa_capc.signal.detection.finders import Finder, History, register_finder
from pisa_capc.signal.recordings import About, Recording
from pisa_capc.signal.recordings.channels import ChannelSplitter, ChannelStream, FilterBank
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
OUTSIDE = 1.05  # of a channel's width: what is on the edge of two is lost in neither
BESIDE_DB, BESIDE, SAME = 12.0, 64, 0.1  # as of `BankDetector`; samples that ends may differ by; part of the width
PLUS = re.compile(r"(?<![eE])\+")  # between channels


@dataclass(frozen=True)
class BurstSettings:
    """In seconds. min, max: length of a burst; of a longer one further frames are made. gap: silence within a burst, as
    between the pulses of on-off keying. window, hop: of a signal that never stops, take so much, so often, instead.
    channels: the centres of those that are searched, in Hz, from zero where no carrier is known. width: of a channel,
    in Hz; without `channels` the whole band is divided.
    """

    min: float = 20e-6
    max: float = 50e-3
    gap: float = 0.0
    window: float = 0.0
    hop: float = 0.0
    width: float = 0.0
    channels: tuple[float, ...] = ()

    @classmethod
    def named(cls, text: str) -> BurstSettings:
        """As 'gap=5e-3,max=0.2' or 'channels=433.05e6+433.92e6,width=100e3'."""
        known = {field.name for field in fields(cls)}
        values: dict[str, float] = {}
        channels: tuple[float, ...] = ()
        for pair in filter(None, text.split(",")):
            name, _, value = pair.partition("=")
            try:
                numbers = tuple(float(part) for part in PLUS.split(value))
            except ValueError:
                numbers = (math.nan,)
            most = HIGHEST_HZ if name.strip() in ("width", "channels") else 3600
            one = len(numbers) == 1 and numbers[0] >= 0
            if name.strip() not in known or not all(abs(number) <= most for number in numbers):
                one = False
            elif name.strip() == "channels":
                channels = numbers
                continue
            if not one:
                seconds = ", ".join(sorted(known - {"width", "channels"}))
                raise ConfigError(
                    f"waveform burst: {pair!r}: expected seconds of {seconds}, or Hz of width and channels, as "
                    "burst:gap=5e-3 or burst:channels=433.05e6+433.92e6,width=100e3."
                )
            values[name.strip()] = numbers[0]
        found = cls(**values, channels=channels)
        if found.min > found.max or found.max == 0 or (found.hop and not found.window):
            raise ConfigError("waveform burst: expected min below max, and hop only with a window.")
        if found.channels and not found.width:
            raise ConfigError("waveform burst: channels need a width, in Hz, as burst:channels=433.92e6,width=100e3.")
        return found

    def bank(self, about: About) -> FilterBank | None:
        """The channels of a recording; None: it is searched as a whole."""
        if not self.width:
            return None
        if not self.channels:
            return FilterBank.of_band(about.sample_rate_hz, self.width)
        carrier = about.carrier_hz or 0.0
        return FilterBank(about.sample_rate_hz, self.width, tuple(channel - carrier for channel in self.channels))


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
    def __init__(self, settings: BurstSettings | None = None, stored: int = STORED) -> None:
        self._settings, self._stored = settings or BurstSettings(), stored

    def with_settings(self, text: str) -> BurstFinder:
        return BurstFinder(BurstSettings.named(text))

    def keeping(self, samples: int) -> BurstFinder:
        return BurstFinder(self._settings, samples)

    def waveform(self, about: About) -> Waveform:
        bank = self._settings.bank(about)
        return Bursts(about.sample_rate_hz if bank is None else bank.channel_rate_hz)

    def stream(self, recording: Recording) -> Recording:
        bank = self._settings.bank(recording.about)
        return recording if bank is None else ChannelStream(recording, bank)

    def searched(self, recording: Recording) -> Recording:
        return recording

    def detector(
        self, about: About, encoding: Encoding | None = None, first: int = 0, end: int | None = None
    ) -> Detector:
        kind = WindowDetector if self._settings.window else BurstDetector
        bank = self._settings.bank(about)
        how = self._settings, bank, self._stored
        if bank is None:
            return kind(about.antennas, about.sample_rate_hz, *how)
        return BankDetector(bank, about, [kind(about.antennas, bank.channel_rate_hz, *how) for _ in bank.centres_hz])


class BankDetector:
    """A detector for each channel. A burst belongs to the channel that the middle of its band is in.

    What is on the air in several channels at the same time, and `BESIDE_DB` weaker, is taken for what the strongest
    burst sends beside its own channel.
    """

    def __init__(self, bank: FilterBank, about: About, each: Sequence[BurstDetector | WindowDetector]) -> None:
        self._bank, self._each, self._carrier_hz = bank, each, about.carrier_hz or 0.0
        self._splitter = ChannelSplitter(bank, about.antennas)
        self._held: list[_Held] = []

    def wanted(self, received: int) -> int:
        return self._each[0].wanted(received // self._bank.decimation) * self._bank.decimation

    def push(self, block: NDArray[np.complex64]) -> list[FoundFrame]:
        return self._found(self._splitter.push(block), ended=False)

    def finish(self) -> list[FoundFrame]:
        return self._found(self._splitter.finish(), ended=True)

    def _found(self, channels: NDArray[np.complex64], ended: bool) -> list[FoundFrame]:
        for number, (detector, x) in enumerate(zip(self._each, channels, strict=True)):
            for frame in detector.push(x) + (detector.finish() if ended else []):
                self._held += self._in_channel(frame, number)
        self._held.sort(key=lambda one: one.frame.at)
        self._hide()
        # While a channel has a burst that is not over, others may still turn out to be beside it. In order of time.
        settled = math.inf if ended else min(detector.settled for detector in self._each) - BESIDE
        count = next((n for n, one in enumerate(self._held) if one.end > settled), len(self._held))
        done, self._held = self._held[:count], self._held[count:]
        return [one.frame for one in done if not one.hidden]

    def _in_channel(self, frame: FoundFrame, number: int) -> list[_Held]:
        """The frame as one of its channel; none where it is a neighbour's."""
        centre = self._bank.centres_hz[number]
        aside_hz = float(self._bank.rounded_hz[number]) - centre  # what the samples were not turned by
        cfo_hz = frame.cfo_hz + aside_hz
        middle_hz = float(np.nanmedian(cfo_hz))
        if not abs(middle_hz) <= OUTSIDE * self._bank.width_hz / 2:
            return []
        channel_hz = centre + self._carrier_hz
        own = replace(frame, cfo_hz=cfo_hz, turn_hz=-aside_hz, channel=number, channel_hz=channel_hz)
        x = frame.iq[:, : frame.samples]
        power_db = 10 * math.log10(float(np.vdot(x, x).real) / x.shape[1] + SILENCE)
        return [_Held(own, frame.at + (frame.samples or 0), power_db, centre + middle_hz)]

    def _hide(self) -> None:
        """Mark those, of all that are held in order of their beginning, that a stronger one explains."""
        on_air: list[_Held] = []
        for one in self._held:
            on_air = [other for other in on_air if other.end + BESIDE > one.frame.at]
            for other in on_air:
                self._hide_weaker(one, other)
                self._hide_weaker(other, one)
            on_air.append(one)

    def _hide_weaker(self, strong: _Held, weak: _Held) -> None:
        within = strong.frame.at - BESIDE <= weak.frame.at and weak.end <= strong.end + BESIDE
        if strong.frame.channel != weak.frame.channel and within:
            same = abs(strong.middle_hz - weak.middle_hz) < SAME * self._bank.width_hz
            weak.hidden |= strong.power_db >= weak.power_db + (0 if same else BESIDE_DB)


@dataclass
class _Held:
    """A frame of a channel, where it ends, how strong it is, and where the middle of its band is."""

    frame: FoundFrame
    end: int
    power_db: float
    middle_hz: float
    hidden: bool = False


class BurstDetector:
    """Finds bursts in a stream of any rate.

    bank: where the stream is one of its channels; then noise is not quite white, and all share the false alarms.
    stored: samples of a frame at least.
    """

    def __init__(
        self,
        antennas: int,
        sample_rate_hz: float,
        settings: BurstSettings | None = None,
        bank: FilterBank | None = None,
        stored: int = STORED,
    ) -> None:
        settings, self._stored = settings or BurstSettings(), stored
        self._antennas, self._rate_hz = antennas, sample_rate_hz
        least = max(8.0, settings.min * sample_rate_hz)
        self.block = block = int(min(max(least / 4, 8), 256))
        self._least = math.ceil(least / block)  # in blocks, as those that follow
        self._most = max(self._least, min(int(settings.max * sample_rate_hz), LONGEST // antennas) // block)
        self._gap = max(DIP, math.ceil(settings.gap * sample_rate_hz / block))
        alone = block * (1.0 if bank is None else bank.whiteness)
        shape = antennas * alone
        chance = FALSE_PER_S * block / sample_rate_hz / (1 if bank is None else len(bank.centres_hz))
        self._on = max(float(gammainccinv(shape, chance)) / shape, 10 ** (LEAST_DB / 10))
        self._off = 1 + (self._on - 1) / 2
        self._bias = float(gammaincinv(alone, QUIET)) / alone  # of a quantile, relative to the mean
        self._kept = max(CHUNKS, math.ceil(2 * self._most / CHUNK))
        self._history = History()
        self._floors: list[NDArray[np.float64]] = []  # (A,) of the newest chunks
        self._levels = np.empty(0)  # of blocks from number `_base` on, over the noise
        self._base = 0

    def wanted(self, received: int) -> int:
        """Until a chunk is whole."""
        return self._chunk - received % self._chunk

    @property
    def settled(self) -> int:
        """Bursts that begin before this sample have been reported."""
        return self._base * self.block

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
            known = max(end + self._gap, begin + self._stored // self.block + 1)
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
        return [replace(found, iq=self._history.read(first, min(max(last, first + self._stored), self._history.end)))]

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

    def __init__(
        self,
        antennas: int,
        sample_rate_hz: float,
        settings: BurstSettings,
        bank: FilterBank | None = None,
        stored: int = STORED,
    ) -> None:
        self._rate_hz = sample_rate_hz
        self._window = round(settings.window * sample_rate_hz)
        self._hop = round((settings.hop or settings.window) * sample_rate_hz)
        if not 2 <= self._window <= LONGEST // antennas or self._hop < 1:
            raise ConfigError(
                f"waveform burst: windows of {self._window} samples, {self._hop} apart: expected two or more."
            )
        self._history, self._next = History(), 0

    @property
    def settled(self) -> int:
        """Windows that begin before this sample have been reported."""
        return self._next

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
