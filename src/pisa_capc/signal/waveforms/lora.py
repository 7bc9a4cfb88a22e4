"""LoRa: the chirp spread spectrum preamble, SF7 in 125 kHz at 1 MS/s."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pisa_capc.signal.waveforms.base import Waveform, register_waveform

SPREADING_FACTOR = 7
OVERSAMPLING = 8  # 1 MS/s over a bandwidth of 125 kHz
SYMBOL_SAMPLES = 2**SPREADING_FACTOR * OVERSAMPLING
PREAMBLE_SYMBOLS = 8


def chirp(
    symbol: int, spreading_factor: int = SPREADING_FACTOR, oversampling: int = OVERSAMPLING
) -> NDArray[np.complex128]:
    """(N · os,) x[n] = exp(j2π(n²/(2 N os²) + n/os · (s/N − 1/2 − [n ≥ (N − s) os]))), N = 2^SF, os samples a chip.

    The frequency wraps once, where it reaches the band's upper edge. The phase is continuous there and zero again at
    the end of a symbol, so symbols follow each other continuously (Vangelista, IEEE Signal Processing Letters 24(12),
    2017).
    """
    n = np.arange(2**spreading_factor * oversampling)
    return np.exp(2j * np.pi * phase_turns(n, symbol, spreading_factor, oversampling))


def phase_turns(
    n: ArrayLike, symbol: ArrayLike, spreading_factor: int = SPREADING_FACTOR, oversampling: int = OVERSAMPLING
) -> NDArray[np.float64]:
    """(…,) the phase of such chirps at n samples, whole or not, from their beginning, in turns."""
    n, symbol, chips, os = np.asarray(n), np.asarray(symbol), 2**spreading_factor, oversampling
    wrapped = n >= (chips - symbol) * os
    return np.asarray(n**2 / (2 * chips * os**2) + n * (symbol / chips - 0.5 - wrapped) / os)


def upchirps(symbols: int = PREAMBLE_SYMBOLS) -> NDArray[np.complex128]:
    """(1024 · symbols,) x[n] = exp(j2π(n²/(2 N os²) − n/(2 os))), again and again."""
    return np.tile(chirp(0), symbols)


@register_waveform("lora")
class LoRa(Waveform):
    """Upchirps and nothing else. Dechirped, they are a tone behind any short channel: all of them tell the CFO."""

    title = "LoRa"
    sample_rate_hz = 1e6
    occupied = 1 / OVERSAMPLING
    longest_samples = PREAMBLE_SYMBOLS * SYMBOL_SAMPLES
    taps = (2, 2)  # a sample is 300 m
    block = SYMBOL_SAMPLES
    linewidth_hz = 4.0  # below 1 GHz; it grows with the square of the carrier
    ridge = 1e-4  # 320 samples of a chirp show half of its band

    def preamble(self) -> NDArray[np.complex128]:
        return upchirps()

    def head(self, samples: int) -> NDArray[np.complex128]:
        return upchirps(-(-samples // SYMBOL_SAMPLES))[:samples]
