"""Symbols and samples: chirps of one spreading factor, bandwidth and sample rate."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import ConfigError
from pisa_capc.signal.waveforms import lora

SPREADING_FACTORS = range(7, 13)
LONGEST_FULL_RATE_S = 16e-3  # symbols that last longer carry two bits less
SYNC_SYMBOLS = 2
DOWNCHIRPS = 2.25


@dataclass(frozen=True)
class Modulation:
    """How bits become chirps: N = 2^SF chips a symbol, one chip a 1/bandwidth, os samples a chip."""

    spreading_factor: int
    bandwidth_hz: float = 125e3
    sample_rate_hz: float = 1e6

    def __post_init__(self) -> None:
        if self.spreading_factor not in SPREADING_FACTORS:
            raise ConfigError(f"spreading factor {self.spreading_factor}; expected 7 to 12")
        ratio = self.sample_rate_hz / self.bandwidth_hz if self.bandwidth_hz > 0 else 0.0
        if ratio < 1 or abs(ratio - round(ratio)) > 1e-9 * ratio:
            raise ConfigError(
                f"LoRa of {self.bandwidth_hz:g} Hz at {self.sample_rate_hz:g} samples a second: expected a whole "
                "number of samples a chip; resample the recording"
            )

    @property
    def chips(self) -> int:
        return 1 << self.spreading_factor

    @property
    def oversampling(self) -> int:
        return round(self.sample_rate_hz / self.bandwidth_hz)

    @property
    def symbol_samples(self) -> int:
        return self.chips * self.oversampling

    @property
    def bin_hz(self) -> float:
        """How far two symbols are apart in frequency: bandwidth / N."""
        return self.bandwidth_hz / self.chips

    @property
    def low_data_rate(self) -> bool:
        """Whether payload symbols carry two bits less, because oscillators drift while they last (SF11, SF12)."""
        return self.chips / self.bandwidth_hz > LONGEST_FULL_RATE_S

    def chirp(self, symbol: int) -> NDArray[np.complex128]:
        """(N · os,) the upchirp that begins `symbol` bins above the lower edge of the band."""
        return lora.chirp(symbol, self.spreading_factor, self.oversampling)

    @cached_property
    def upchirp(self) -> NDArray[np.complex128]:
        return self.chirp(0)

    @property
    def kept_bins(self) -> int:
        """Bins of a symbol's spectrum on either side of the centre: one bandwidth, or as much as there is."""
        return min(self.symbol_samples // 2, self.chips)

    @cached_property
    def matched_filter(self) -> NDArray[np.complex64]:
        """(2N,) U*(k)/M² of the upchirp's spectrum U where it is kept, in the order of an FFT."""
        spectrum, half = np.fft.fft(self.upchirp).conj() / self.symbol_samples**2, self.kept_bins
        gap = np.zeros(2 * (self.chips - half))
        return np.concatenate([spectrum[:half], gap, spectrum[-half:]]).astype(np.complex64)

    def preamble(self, upchirps: int, sync_word: int) -> NDArray[np.complex128]:
        """Upchirps, the sync word's two nibbles at eight bins each, and 2.25 downchirps."""
        sync = [self.chirp(8 * nibble % self.chips) for nibble in divmod(sync_word, 16)]
        down = np.tile(self.upchirp.conj(), 3)[: round(DOWNCHIRPS * self.symbol_samples)]
        return np.concatenate([np.tile(self.upchirp, upchirps), *sync, down])

    def sampled(self, symbols: NDArray[np.int64], upchirps: int, sync_word: int, step: float) -> NDArray[np.complex128]:
        """(T,) a whole frame whose symbols last `step` samples each, as by a clock that is not the receiver's."""
        sync = [8 * nibble % self.chips for nibble in divmod(sync_word, 16)]
        before = upchirps + SYNC_SYMBOLS
        every = np.array([*[0] * upchirps, *sync, *symbols.tolist()])
        t = np.arange(round((before + DOWNCHIRPS + len(symbols)) * step)) / step  # in symbols
        falling = (t >= before) & (t < before + DOWNCHIRPS)
        along = np.where(t < before, t, t - np.where(falling, before, DOWNCHIRPS))
        number = np.minimum(along.astype(np.int64), len(every) - 1)
        value = np.where(falling, 0, every[number])
        phase = lora.phase_turns(along % 1 * self.symbol_samples, value, self.spreading_factor, self.oversampling)
        return np.asarray(np.exp(2j * np.pi * np.where(falling, -phase, phase)))
