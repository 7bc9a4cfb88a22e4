"""Several channels of a band at once: a filter bank by fast convolution.

Channel c at the frequency f_c, of samples x at the rate f_s, at a rate that is lower by the factor D:

    y_c[m] = Σ_l h[l] x[mD − l] exp(−2πi f_c (mD − l) / f_s)

h passes ±3/8 of the channel's rate and is 65 dB down at half of it. The channels share one transform of M D samples. Of
it, each takes the M bins around f_c, which is rounded to a bin, a 128th of its rate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy.fft import fft, ifft

from pisa_capc.core.errors import ConfigError
from pisa_capc.signal.recordings.base import About, Annotation, Recording

BINS, EDGE = 128, 16  # outputs of a transform, and how many of them at either end are not whole
KEPT = BINS - 2 * EDGE
PASSED, STOPPED, STOP_DB = 3 / 8, 1 / 2, 65.0  # of a channel's rate
PASSES = 4  # widths in the sample rate of a band, at least: a channel passes 3/4 of its width on either side
MOST_CHANNELS, MOST_DECIMATION = 128, 4096
AT_ONCE = 1 << 20  # samples that are transformed together


@dataclass(frozen=True)
class FilterBank:
    """Channels `width_hz` apart or more, around `centres_hz` from the carrier of samples at `sample_rate_hz`."""

    sample_rate_hz: float
    width_hz: float
    centres_hz: tuple[float, ...]

    def __post_init__(self) -> None:
        rate, width = self.sample_rate_hz, self.width_hz
        if not 0 < width <= rate / PASSES or self.decimation > MOST_DECIMATION:
            raise ConfigError(
                f"channels of {width:g} Hz at {rate:g} samples/s: expected {rate / (2 * MOST_DECIMATION):.4g} to "
                f"{rate / PASSES:g} Hz. Wider signals need no channels."
            )
        _check_count(len(self.centres_hz))
        for centre in self.centres_hz:
            if not abs(centre) <= rate / 2:
                raise ConfigError(
                    f"a channel {centre:+g} Hz from the carrier: the band ends {rate / 2:g} Hz from it. Correct the "
                    "channel or the --carrier."
                )

    @classmethod
    def of_band(cls, sample_rate_hz: float, width_hz: float) -> FilterBank:
        """As many channels as the band has, side by side."""
        count = math.floor(sample_rate_hz / width_hz + 1e-6) if width_hz > 0 else 0
        if count > MOST_CHANNELS:
            _check_count(count)
        return cls(sample_rate_hz, width_hz, tuple((k - (count - 1) / 2) * width_hz for k in range(count)))

    @property
    def decimation(self) -> int:
        return max(2, math.floor(self.sample_rate_hz / (2 * self.width_hz)))

    @property
    def channel_rate_hz(self) -> float:
        return self.sample_rate_hz / self.decimation

    @property
    def step(self) -> int:
        """Samples from one transform to the next."""
        return KEPT * self.decimation

    @cached_property
    def _bins(self) -> NDArray[np.int64]:
        """(C,) of the channels."""
        return np.round(np.array(self.centres_hz) / self.sample_rate_hz * BINS * self.decimation).astype(np.int64)

    @cached_property
    def rounded_hz(self) -> NDArray[np.float64]:
        """(C,) where the channels are mixed to zero."""
        return np.asarray(self._bins * self.channel_rate_hz / BINS)

    @cached_property
    def _response(self) -> NDArray[np.float32]:
        """(M,) of h at the bins around a channel, over D."""
        from scipy.signal import firwin, kaiser_beta

        half, size = EDGE * self.decimation - 1, BINS * self.decimation
        cutoff = (PASSED + STOPPED) / self.decimation
        h = firwin(2 * half + 1, cutoff, window=("kaiser", kaiser_beta(STOP_DB)))
        around = fft(np.roll(np.pad(h, (0, size - len(h))), -half)).real
        near = np.concatenate([around[: BINS // 2], around[-BINS // 2 :]])
        return np.asarray(near / self.decimation, dtype=np.float32)

    @cached_property
    def whiteness(self) -> float:
        """Part of a channel's samples of noise that are worth as much as independent ones: (Σ|h|²)² / M Σ|h|⁴."""
        power = self._response.astype(np.float64) ** 2
        return float(power.sum() ** 2 / (BINS * np.sum(power**2)))

    def split(self, x: NDArray[np.complex64], block: int, only: slice = slice(None)) -> NDArray[np.complex64]:
        """(C, A, KEPT n) samples of the channels, from number KEPT · `block` on.

        x: (A, n step + 2 EDGE D) samples, EDGE D earlier.
        """
        size, bins, half, h = BINS * self.decimation, self._bins[only], BINS // 2, self._response
        spectra = fft(sliding_window_view(x, size, axis=1)[:, :: self.step])
        around = np.concatenate([spectra[..., -half:], spectra, spectra[..., :half]], axis=-1)  # (A, n, N + M)
        own = np.empty((len(bins), *spectra.shape[:2], BINS), np.complex64)
        for channel, centre in zip(own, (bins % size + half).tolist(), strict=True):
            np.multiply(around[..., centre : centre + half], h[:half], out=channel[..., :half])
            np.multiply(around[..., centre - half : centre], h[half:], out=channel[..., half:])
        y = ifft(own, overwrite_x=True)[..., EDGE:-EDGE]
        first = (block + np.arange(y.shape[2])) * self.step - EDGE * self.decimation
        turn = np.exp(-2j * np.pi * (bins[:, None] * first % size) / size).astype(np.complex64)
        return np.asarray((y * turn[:, None, :, None]).reshape(len(bins), len(x), -1))


def _check_count(count: int) -> None:
    if not 0 < count <= MOST_CHANNELS:
        raise ConfigError(
            f"{count:,} channels: expected 1 to {MOST_CHANNELS}. Give another width, or name the channels."
        )


class ChannelSplitter:
    """A stream of blocks (A, n) → its channels (C, A, m), as far as they are known."""

    def __init__(self, bank: FilterBank, antennas: int) -> None:
        self._bank, self._block, self._received = bank, 0, 0
        self._waiting = [np.zeros((antennas, EDGE * bank.decimation), np.complex64)]

    def push(self, block: NDArray[np.complex64]) -> NDArray[np.complex64]:
        bank, edges = self._bank, 2 * EDGE * self._bank.decimation
        self._waiting.append(block)
        self._received += block.shape[1]
        there = sum(part.shape[1] for part in self._waiting)
        if there < edges + bank.step:
            return np.empty((len(bank.centres_hz), len(block), 0), np.complex64)
        x, parts = np.concatenate(self._waiting, axis=1), []
        whole, at_once = (there - edges) // bank.step, max(1, AT_ONCE // bank.step)
        for first in range(0, whole, at_once):
            count = min(at_once, whole - first)
            parts.append(bank.split(x[:, first * bank.step :][:, : count * bank.step + edges], self._block + first))
        self._block += whole
        self._waiting = [x[:, whole * bank.step :].copy()]
        return np.concatenate(parts, axis=2)

    def finish(self) -> NDArray[np.complex64]:
        """The rest, up to the last sample that was pushed."""
        total, before = -(-self._received // self._bank.decimation), self._block * KEPT
        antennas = len(self._waiting[0])
        rest = self.push(np.zeros((antennas, self._bank.step + 2 * EDGE * self._bank.decimation), np.complex64))
        return rest[:, :, : total - before]


@dataclass(frozen=True)
class ChannelStream:
    """A channel of a recording as a `Recording` of its own, at the rate of the channel."""

    recording: Recording
    bank: FilterBank
    number: int = 0

    @cached_property
    def about(self) -> About:
        about, bank = self.recording.about, self.bank
        return replace(about, sample_rate_hz=bank.channel_rate_hz, length=-(-about.length // bank.decimation))

    @property
    def annotations(self) -> tuple[Annotation, ...]:
        return ()

    def channel(self, number: int) -> ChannelStream:
        return replace(self, number=number)

    def read(self, first: int, count: int) -> NDArray[np.complex64]:
        count = max(0, min(count, self.about.length - first))
        blocks = range(first // KEPT, -(-(first + count) // KEPT))
        if not count:
            return np.empty((self.about.antennas, 0), dtype=np.complex64)
        edge = EDGE * self.bank.decimation
        begin, length = blocks.start * self.bank.step - edge, len(blocks) * self.bank.step + 2 * edge
        there = self.recording.read(max(begin, 0), length + min(begin, 0))
        before = max(-begin, 0)
        x = np.pad(there, ((0, 0), (before, length - before - there.shape[1])))
        y = self.bank.split(x, blocks.start, slice(self.number, self.number + 1))[0]
        return np.ascontiguousarray(y[:, first - KEPT * blocks.start :][:, :count])

    def blocks(self, size: int) -> Iterator[NDArray[np.complex64]]:
        for first in range(0, self.about.length, size):
            yield self.read(first, size)
