"""Samples of all antennas to equalised constellation points, with the channel of the long training field."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pisa_capc.signal.phy.wifi.transmission import HT_LTF_TONES, HT_SUBCARRIERS
from pisa_capc.signal.waveforms import wifi

SAMPLE_RATE_HZ = 20e6
_EARLY = 3  # samples that the DFT reaches into the guard interval, so that a start found late does no harm
_LONG_SYMBOLS = 192  # first sample of the two long training symbols
_USED = wifi.LTF_SUBCARRIERS != 0
_LEGACY_BINS = wifi.LTF_SUBCARRIERS[_USED] % 64
_HALF_TONES = (wifi.LTF_TONES[_USED] / 2).astype(np.float32)
_PILOT_BINS = wifi.PILOT_SUBCARRIERS % 64
SHORT = 7  # symbols of a field that has no time to drift
_SMOOTH = 16  # symbols on either side over which an antenna's phase against the others is averaged
_CLOCK_PPM = 20.0  # standard deviation expected of the offset between two sampling clocks
_TINY = np.finfo(np.float32).tiny


@dataclass(frozen=True, eq=False)
class Fronts:
    """Frames of as many antennas, ready to be demodulated together.

    frames: each (A, T) from the first preamble sample. cfo_hz: (F,) of each array, its antennas having one oscillator.
    channel: (F, A, 64) by DFT bin, zero where no carrier is. noise: (F, A) power in each bin.
    """

    frames: Sequence[NDArray[np.complex64]]
    cfo_hz: NDArray[np.float64]
    channel: NDArray[np.complex64]
    noise: NDArray[np.float32]

    @staticmethod
    def of(frames: Sequence[NDArray[np.complex64]], cfo_hz: NDArray[np.float64]) -> Fronts:
        """CFO, channel and noise from the two long training symbols, for which 320 samples are enough.

        cfo_hz: (F, A). Antennas are weighted by their power to one CFO, and what it has left is taken out by the
        array's lag of 64: f = f_s / (2π 64) ∠ Σ_a Σ_n y_a*[n] y_a[n + 64].
        """
        long = _finite(np.stack([frame[:, _LONG_SYMBOLS : wifi.PREAMBLE_SAMPLES] for frame in frames]))
        first, second = long[..., :64], long[..., 64:]
        there = np.isfinite(cfo_hz)
        power = there * (_energy(long) / 128 + _TINY)
        coarse_hz = (power * np.where(there, cfo_hz, 0.0)).sum(axis=1) / np.maximum(power.sum(axis=1), _TINY)
        left = np.angle(np.vecdot(first, second).sum(axis=1) * np.exp(-128j * np.pi * coarse_hz / SAMPLE_RATE_HZ))
        refined_hz = coarse_hz + left / (128 * np.pi) * SAMPLE_RATE_HZ
        unknown = Fronts(frames, refined_hz, np.empty(0, np.complex64), np.empty(0, np.float32))
        pair = unknown.tones(_LONG_SYMBOLS, 2, spacing=64, guard=0)[..., _LEGACY_BINS]
        one, two = pair[:, :, 0], pair[:, :, 1]
        noise = _energy(two - one) / (2 * pair.shape[-1])
        floor = 1e-6 * _energy(pair).mean(axis=(1, 2)) / pair.shape[-1] + _TINY
        channel = np.zeros((*long.shape[:2], 64), dtype=np.complex64)
        channel[..., _LEGACY_BINS] = (one + two) * _HALF_TONES
        return replace(unknown, channel=channel, noise=np.maximum(noise, floor[:, None]).astype(np.float32))

    def __len__(self) -> int:
        return len(self.frames)

    def of_frames(self, chosen: Sequence[int]) -> Fronts:
        """Some of the frames."""
        rows = np.array(chosen, dtype=np.int64)
        frames = [self.frames[i] for i in chosen]
        return Fronts(frames, self.cfo_hz[rows], self.channel[rows], self.noise[rows])

    def with_ht_channel(self, first: int) -> Fronts:
        """The same frames with the channel of the HT-LTF whose guard interval begins at `first`."""
        channel = np.zeros_like(self.channel)
        channel[..., HT_SUBCARRIERS % 64] = self.tones(first, 1)[:, :, 0, HT_SUBCARRIERS % 64] * HT_LTF_TONES
        return replace(self, channel=channel)

    def tones(
        self,
        first: int,
        count: int,
        spacing: int = wifi.SYMBOL_SAMPLES,
        guard: int = 16,
        counts: Sequence[int] | None = None,
    ) -> NDArray[np.complex64]:
        """(F, A, count, 64) DFT of symbols without CFO; the first one's guard interval begins at sample `first`.

        counts: symbols of each frame, where some have fewer: zeros follow them.
        """
        from scipy import fft

        start, reach = first + guard - _EARLY, 64 - spacing
        samples = np.zeros((len(self), len(self.frames[0]), reach + count * spacing), self.frames[0].dtype)
        for frame, row, own in zip(self.frames, samples, counts or [count] * len(self), strict=True):
            row[:, : reach + own * spacing] = frame[:, start : start + reach + own * spacing]
        samples = _finite(samples)
        steps = *samples.strides[:2], spacing * samples.itemsize, samples.itemsize
        symbols = np.ndarray((*samples.shape[:2], count, 64), samples.dtype, samples, strides=steps)
        turn = -2j * np.pi * self.cfo_hz[:, None] / SAMPLE_RATE_HZ
        within = np.exp(turn * np.arange(64)).astype(np.complex64)
        between = np.exp(turn * (start + spacing * np.arange(count))).astype(np.complex64)
        return fft.fft(symbols * within[:, None, None], axis=-1, overwrite_x=True) * between[:, None, :, None]

    def points(
        self, tones: NDArray[np.complex64], pilots: NDArray[np.float64], subcarriers: NDArray[np.int64]
    ) -> tuple[NDArray[np.complex64], NDArray[np.float32]]:
        """(F, S, K) points by maximum-ratio combination over antennas, x = Σ_a h_a* y_a / σ_a² ÷ Σ_a |h_a|² / σ_a², and
        the (F, K) signal-to-noise ratios that the divisor is.

        tones: (F, A, S, 64). pilots: (S, 4) as they were sent; they tell the phase of every symbol on every antenna,
        and how the sampling clocks drift apart.
        """
        matched = np.conj(self.channel) / self.noise[..., None]
        seen = tones[..., _PILOT_BINS] * (matched[:, :, None, _PILOT_BINS] * pilots.astype(np.float32))
        drift = _clock_drift(seen)
        if drift is not None:
            slope = -1j * drift[:, None, None] * np.arange(tones.shape[2])[:, None]  # (F, S, 1)
            seen = seen * np.exp(slope * wifi.PILOT_SUBCARRIERS)[:, None]
        back = np.exp(-1j * _phases(seen.sum(axis=-1))).astype(np.complex64)[..., None]
        bins = subcarriers % 64
        combined = (tones[..., bins] * (matched[:, :, None, bins] * back)).sum(axis=1)
        if drift is not None:
            combined *= np.exp(slope * subcarriers).astype(np.complex64)
        weight = (matched * self.channel).real[..., bins].sum(axis=1) + _TINY
        return combined / weight[:, None], weight


def whole_symbols(samples: int, first: int, spacing: int = wifi.SYMBOL_SAMPLES) -> int:
    """How many symbols of so many samples from sample `first` on can be demodulated."""
    return max((samples + _EARLY - first) // spacing, 0)


def _energy(values: NDArray[np.complex64]) -> NDArray[np.float32]:
    """Σ |y|² along the last axis."""
    return np.asarray(np.vecdot(values, values).real)


def _finite(samples: NDArray[np.complex64]) -> NDArray[np.complex64]:
    """Samples with zeros where a receiver gave none."""
    return samples if np.isfinite(samples.sum()) else np.where(np.isfinite(samples), samples, np.complex64(0))


def _phases(pilots: NDArray[np.complex64]) -> NDArray[np.float64]:
    """(F, A, S) phase of each antenna in each symbol from the sums of its pilots.

    It is made of a turn that is steady over the frame, of what an antenna slowly differs from it (nothing in a short
    frame), and of what all antennas have in common in a symbol.
    """
    symbols = np.arange(pilots.shape[-1])
    turn = np.angle((np.conj(pilots[..., :-1]) * pilots[..., 1:]).sum(axis=(1, 2)))[:, None, None] * symbols
    still = pilots * np.exp(-1j * turn)
    own = np.angle(_moving_sum(still)) if len(symbols) > _SMOOTH else np.zeros(pilots.shape)
    common = np.angle((still * np.exp(-1j * own)).sum(axis=1, keepdims=True))
    return turn + own + common


def _moving_sum(x: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """Sums over at most `_SMOOTH` symbols on either side, along the last axis."""
    total = np.concatenate([np.zeros((*x.shape[:-1], 1)), np.cumsum(x, axis=-1)], axis=-1)
    symbols = np.arange(x.shape[-1])
    return total[..., np.minimum(symbols + _SMOOTH + 1, len(symbols))] - total[..., np.maximum(symbols - _SMOOTH, 0)]


def _clock_drift(pilots: NDArray[np.complex64]) -> NDArray[np.float64] | None:
    """(F,) phase [rad] per symbol and carrier by which the sampling clocks drift apart, from (F, A, S, 4) pilots.

    None of fields that are too short to drift.

    The phase between neighbouring pilots, 14 carriers apart, grows steadily. Half a frame's lag gives its rate without
    doubt (40 ppm turn it by 3 rad in half of the longest frame), a straight line more exactly; the estimate is drawn
    to zero by as much as its variance outweighs what clocks differ by.
    """
    symbols = np.arange(pilots.shape[2])
    half = len(symbols) // 2
    if len(symbols) <= SHORT:
        return None
    between = (pilots[..., 1:] * np.conj(pilots[..., :-1])).sum(axis=(1, 3))
    usual = 14 * 2 * np.pi * wifi.SYMBOL_SAMPLES / 64 * _CLOCK_PPM * 1e-6
    lagged = (np.conj(between[:, :-half]) * between[:, half:]).sum(axis=1)
    coarse = np.clip(np.angle(lagged) / half, -3 * usual, 3 * usual)
    left = between * np.exp(-1j * coarse[:, None] * symbols)
    mean = left.mean(axis=1, keepdims=True)
    angle = (left * np.conj(mean)).imag / (np.square(np.abs(mean)) + _TINY)
    time = symbols - symbols.mean()
    fine = (angle * time).sum(axis=1) / np.square(time).sum()
    scatter = np.square(angle - fine[:, None] * time).sum(axis=1) / (len(symbols) - 2)
    variance = scatter / np.square(time).sum()
    return (coarse + fine) / (1 + variance / usual**2) / 14
