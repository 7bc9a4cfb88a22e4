"""Frames of a constant envelope by their preamble, whatever their frequency offset: one filter instead of many.

A sample times the one a lag D before it turns by the modulation alone and, always by the same, by the offset f:

    z[n] = Σ_a y_a[n] y_a*[n − D],    |Σ_n z[n] z₀*[n]|² / (N Σ_n |z[n]|²) → (S/(1 + S))²

z₀ is that of the preamble, N its length, S the signal-to-noise ratio; 2πfD is the phase of the sum. What stands out is
compared with the preamble itself, as `PreambleDetector` does.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.fft import fft, ifft, next_fast_len

from pisa_capc.signal.detection.correlation import PreambleDetector
from pisa_capc.signal.waveforms import Waveform

ALIKE = 0.15  # of what z₀ explains: a signal at −2 dB; noise is below 0.1
WINDOW = 1 << 15  # samples that are transformed at once
NEAR = 8


class LaggedDetector(PreambleDetector):
    """lag: D in samples; offsets up to half a turn over it are found. explained: least part of the energy.

    Data that happen to resemble the preamble reach 0.4 of IEEE 802.15.4, 0.6 of the shorter one of Bluetooth LE; bits
    are read above these.
    """

    def __init__(
        self, waveform: Waveform, antennas: int, lag: int, carrier_hz: float | None = None, explained: float = 0.5
    ) -> None:
        super().__init__(waveform, antennas, carrier_hz)
        self._lag = lag
        product = self._known[lag:] * self._known[:-lag].conj()
        self._beginning = len(self._known)
        self._size = size = next_fast_len(max(WINDOW, 4 * self._beginning))
        self._step = size - self._beginning + 1
        self._filter = np.conj(fft(product, size))
        self._strength = float(np.sum(np.abs(product) ** 2))
        self._threshold, self._least = ALIKE, max(explained, self._least)

    @property
    def _near(self) -> int:
        return NEAR

    def _matched(self, x: NDArray[np.complex64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        lag, count = self._lag, self._beginning - self._lag
        z = np.sum(x[:, lag:] * x[:, :-lag].conj(), axis=0)
        matched = ifft(fft(z, self._size) * self._filter)[: self._step]
        energy = np.cumsum(np.concatenate([[0.0], np.abs(z).astype(np.float64) ** 2]))
        within = (energy[count:] - energy[:-count])[: self._step]
        power = np.abs(matched).astype(np.float64) ** 2
        least = np.finfo(np.float32).tiny
        explained = np.divide(power, self._strength * within, out=np.zeros(self._step), where=within > least)
        return explained, np.angle(matched) * self._rate_hz / (2 * np.pi * lag)
