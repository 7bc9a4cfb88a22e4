"""Samples of all antennas to equalised constellation points, with the channel of the long training field."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from pisa_capc.phy.wifi.transmit import HT_LTF_TONES, HT_SUBCARRIERS
from pisa_capc.waveforms import wifi

SAMPLE_RATE_HZ = 20e6
_EARLY = 3  # samples that the DFT reaches into the guard interval, so that a start found late does no harm
_LONG_SYMBOLS = 192  # first sample of the two long training symbols
_USED = wifi.LTF_SUBCARRIERS != 0
_LEGACY_SUBCARRIERS = wifi.LTF_SUBCARRIERS[_USED]
_SMOOTH = 16  # symbols on either side over which an antenna's phase against the others is averaged


@dataclass(frozen=True)
class Field:
    """Equalised symbols. points: (S, K) of the carriers asked for. weight: (K,) their signal-to-noise ratios."""

    points: NDArray[np.complex64]
    weight: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Front:
    """One frame, ready to be demodulated.

    iq: (A, T) from the first preamble sample. cfo_hz: of the array, all antennas having one oscillator.
    channel: (A, 64) by DFT bin, zero where no carrier is. noise: (A,) power in each bin.
    """

    iq: NDArray[np.complex64]
    cfo_hz: float
    channel: NDArray[np.complex64]
    noise: NDArray[np.float32]

    @staticmethod
    def of(iq: NDArray[np.complex64], cfo_hz: NDArray[np.float64] | float) -> Front:
        """Channel and noise from the two long training symbols of at least 320 samples.

        cfo_hz: one value, or one per antenna. Antennas are weighted by their power to one CFO, and what it has left is
        taken out by the array's lag of 64: f = f_s / (2π 64) ∠ Σ_a Σ_n y_a*[n] y_a[n + 64].
        """
        iq = np.where(np.isfinite(iq), iq, 0).astype(np.complex64, copy=False)
        long = iq[:, _LONG_SYMBOLS : wifi.PREAMBLE_SAMPLES]
        power = np.square(np.abs(long)).mean(axis=1)
        known = np.isfinite(cfo_hz) * np.maximum(power, np.finfo(np.float32).tiny)
        coarse_hz = float((known * np.nan_to_num(cfo_hz)).sum() / max(known.sum(), np.finfo(np.float32).tiny))
        turn = np.exp(2j * np.pi * 64 * coarse_hz / SAMPLE_RATE_HZ)
        left = np.angle(np.vdot(long[:, :64] * turn, long[:, 64:])) / (2 * np.pi * 64) * SAMPLE_RATE_HZ
        front = Front(iq, coarse_hz + float(left), np.empty(0, np.complex64), np.empty(0, np.float32))
        pair = front.tones(_LONG_SYMBOLS, 2, spacing=64, guard=0)[..., _LEGACY_SUBCARRIERS % 64]
        noise = np.square(np.abs(pair[:, 0] - pair[:, 1])).mean(axis=1) / 2
        floor = 1e-6 * np.square(np.abs(pair)).mean() + np.finfo(np.float32).tiny
        channel = np.zeros((len(iq), 64), dtype=np.complex64)
        channel[:, _LEGACY_SUBCARRIERS % 64] = pair.mean(axis=1) * wifi.LTF_TONES[_USED]
        return Front(iq, front.cfo_hz, channel, np.maximum(noise, floor).astype(np.float32))

    def with_ht_channel(self, first: int) -> Front:
        """The same frame with the channel of the HT-LTF whose guard interval begins at `first`."""
        tones = self.tones(first, 1)[:, 0]
        channel = np.zeros_like(self.channel)
        channel[:, HT_SUBCARRIERS % 64] = tones[:, HT_SUBCARRIERS % 64] * HT_LTF_TONES
        return Front(self.iq, self.cfo_hz, channel, self.noise)

    def available(self, first: int, spacing: int = wifi.SYMBOL_SAMPLES) -> int:
        """How many whole symbols there are from sample `first` on."""
        return max((self.iq.shape[1] + _EARLY - first) // spacing, 0)

    def tones(
        self, first: int, count: int, spacing: int = wifi.SYMBOL_SAMPLES, guard: int = 16
    ) -> NDArray[np.complex64]:
        """(A, count, 64) DFT of symbols without CFO; the first one's guard interval begins at sample `first`."""
        start = first + guard - _EARLY
        windows = np.lib.stride_tricks.sliding_window_view(self.iq[:, start:], 64, axis=1)
        symbols = windows[:, : (count - 1) * spacing + 1 : spacing]
        turn = -2j * np.pi * self.cfo_hz / SAMPLE_RATE_HZ
        within = np.exp(turn * np.arange(64)).astype(np.complex64)
        between = np.exp(turn * (start + spacing * np.arange(count))).astype(np.complex64)
        return fft.fft(symbols * within, axis=-1) * between[:, None]

    def points(
        self, tones: NDArray[np.complex64], pilots: NDArray[np.float64], subcarriers: NDArray[np.int64]
    ) -> Field:
        """Maximum-ratio combination over antennas: x = Σ_a h_a* y_a / σ_a² ÷ Σ_a |h_a|² / σ_a².

        tones: (A, S, 64). pilots: (S, 4) as they were sent; they tell the phase of every symbol on every antenna, and
        how the sampling clocks drift apart.
        """
        matched = np.conj(self.channel) / self.noise[:, None]
        seen = tones[..., wifi.PILOT_SUBCARRIERS % 64] * matched[:, None, wifi.PILOT_SUBCARRIERS % 64] * pilots
        back = np.exp(-1j * _common_phase(seen.sum(axis=-1))).astype(np.complex64)  # (A, S)
        drift = _clock_drift((seen * back[..., None]).sum(axis=0))
        carriers = subcarriers % 64
        combined = np.einsum("ask,ak,as->sk", tones[..., carriers], matched[:, carriers], back, optimize=True)
        if drift:
            symbols = np.arange(len(combined))
            combined = combined * np.exp(-1j * drift * symbols[:, None] * subcarriers).astype(np.complex64)
        weight = (np.square(np.abs(self.channel[:, carriers])) / self.noise[:, None]).sum(axis=0)
        weight = np.maximum(weight, np.finfo(np.float32).tiny)
        return Field((combined / weight).astype(np.complex64), weight.astype(np.float32))


def _common_phase(pilots: NDArray[np.complex128]) -> NDArray[np.float64]:
    """(A, S) phase of each antenna in each symbol from the (A, S) sums of its pilots.

    The sum of a turn that is steady over the frame, of what an antenna differs from it slowly (nothing in a short frame),
    and of what all antennas have in common in a symbol.
    """
    symbols = np.arange(pilots.shape[1])
    turn = np.angle(np.vdot(pilots[:, :-1], pilots[:, 1:])) if len(symbols) > 1 else 0.0
    pilots = pilots * np.exp(-1j * turn * symbols)
    own = np.angle(_moving_sum(pilots)) if len(symbols) > _SMOOTH else np.zeros(pilots.shape)
    common = np.angle((pilots * np.exp(-1j * own)).sum(axis=0))
    return turn * symbols + own + common


def _moving_sum(x: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """(A, S) sums over at most `_SMOOTH` symbols on either side."""
    total = np.concatenate([np.zeros((len(x), 1)), np.cumsum(x, axis=1)], axis=1)
    symbols = np.arange(x.shape[1])
    return total[:, np.minimum(symbols + _SMOOTH + 1, x.shape[1])] - total[:, np.maximum(symbols - _SMOOTH, 0)]


def _clock_drift(pilots: NDArray[np.complex128]) -> float:
    """Phase [rad] per symbol and carrier by which the sampling clocks drift apart, from (S, 4) pilots.

    The phase between neighbouring pilots, 14 carriers apart, grows steadily from zero. Half a frame's lag gives it
    without doubt (40 ppm turn it by 3 rad in the longest half), a line through zero more exactly.
    """
    between = (pilots[:, 1:] * np.conj(pilots[:, :-1])).sum(axis=1)
    half = len(between) // 2
    if half < 4:  # too short to drift
        return 0.0
    coarse = float(np.angle(np.vdot(between[:-half], between[half:]))) / half
    symbols = np.arange(len(between))
    left = between * np.exp(-1j * coarse * symbols)
    fine = (symbols * left.imag).sum() / max((symbols**2).sum() * np.abs(left.mean()), np.finfo(np.float64).tiny)
    return (coarse + float(fine)) / 14
