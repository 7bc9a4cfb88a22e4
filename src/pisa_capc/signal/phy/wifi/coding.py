"""How bits become constellation points at each rate: puncturing, interleaving, Gray mapping (IEEE Std 802.11-2020,
17.3.5 for the eight non-HT rates, 19.3.11 for HT with one stream in 20 MHz), and the soft way back."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pisa_capc.signal.waveforms import wifi

SERVICE_BITS = 16
TAIL_BITS = 6

# Which of the coded bits A₁B₁A₂B₂… are sent (17.3.5.6, 19.3.11.6).
_PUNCTURING = {
    Fraction(1, 2): (1, 1),
    Fraction(2, 3): (1, 1, 1, 0),
    Fraction(3, 4): (1, 1, 1, 0, 0, 1),
    Fraction(5, 6): (1, 1, 1, 0, 0, 1, 1, 0, 0, 1),
}
_LEVEL_POWER = {1: 1, 2: 2, 4: 10, 6: 42}  # mean power of points at odd integers, by bits per carrier


@dataclass(frozen=True)
class Coding:
    """One rate: `carriers` data carriers with `bits_per_carrier` coded bits each; HT has 52 carriers."""

    rate_mbps: float
    bits_per_carrier: int
    code_rate: Fraction
    carriers: int = 48

    @cached_property
    def coded_bits(self) -> int:
        """Coded bits of one OFDM symbol, N_CBPS."""
        return self.carriers * self.bits_per_carrier

    @cached_property
    def data_bits(self) -> int:
        """Data bits of one OFDM symbol, N_DBPS."""
        return int(self.coded_bits * self.code_rate)

    def symbols(self, octets: int) -> int:
        """OFDM symbols of a DATA field with a PSDU of so many octets: SERVICE, PSDU, tail and padding."""
        return -(-(SERVICE_BITS + 8 * octets + TAIL_BITS) // self.data_bits)

    @cached_property
    def kept(self) -> NDArray[np.bool_]:
        """(2 N_DBPS,) which coded bits of one symbol are sent."""
        pattern = np.array(_PUNCTURING[self.code_rate], dtype=bool)
        return np.resize(pattern, 2 * self.data_bits)

    @cached_property
    def places(self) -> NDArray[np.int64]:
        """(N_CBPS,) where the interleaver puts each coded bit of a symbol (17.3.5.7, 19.3.11.8)."""
        columns = 16 if self.carriers == 48 else 13
        k = np.arange(self.coded_bits)
        i = self.coded_bits // columns * (k % columns) + k // columns
        s = max(self.bits_per_carrier // 2, 1)
        return s * (i // s) + (i + self.coded_bits - columns * i // self.coded_bits) % s

    def points(self, bits: NDArray[np.uint8]) -> NDArray[np.complex128]:
        """(S, carriers) unit-power points of (S N_DBPS) scrambled bits: coded, punctured, interleaved, mapped."""
        coded = wifi.convolutional_code(bits).reshape(-1, 2 * self.data_bits)[:, self.kept]
        interleaved = np.empty_like(coded)
        interleaved[:, self.places] = coded
        return self._mapped(interleaved.reshape(-1, self.carriers, self.bits_per_carrier))

    def _mapped(self, bits: NDArray[np.uint8]) -> NDArray[np.complex128]:
        """Gray mapping of (…, bits per carrier): the first half of the bits to I, the second to Q; BPSK has no Q."""
        scale = 1 / np.sqrt(_LEVEL_POWER[self.bits_per_carrier])
        if self.bits_per_carrier == 1:
            return gray_level(bits) * scale + 0j
        half = self.bits_per_carrier // 2
        return (gray_level(bits[..., :half]) + 1j * gray_level(bits[..., half:])) * scale

    def soft_bits(self, points: NDArray[np.complex64], weight: NDArray[np.float32]) -> NDArray[np.float32]:
        """(F, S, 2 N_DBPS) soft values of the coded bits, positive for one, zero where a bit was not sent.

        points: (F, S, carriers) equalised. weight: (F, carriers) signal-to-noise ratio of each carrier.
        """
        levels = points * np.float32(np.sqrt(_LEVEL_POWER[self.bits_per_carrier]))
        if self.bits_per_carrier == 1:
            soft = levels.real[..., None]
        else:
            both = levels.view(np.float32).reshape(*levels.shape, 2)  # I, then Q
            soft = soft_gray(both, self.bits_per_carrier // 2).reshape(*levels.shape, -1)
        soft = (soft * weight[:, None, :, None]).reshape(*points.shape[:2], self.coded_bits)
        sent = soft.take(self.places, axis=-1)
        if self.kept.all():
            return sent
        out = np.zeros((*points.shape[:2], 2 * self.data_bits), dtype=np.float32)
        out[..., self.kept] = sent
        return out


def gray_level(bits: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Odd integers of (…, n) Gray-coded bits (17.3.5.8): L(b₀, b…) = ±(2ⁿ⁻¹ − L(b…)), L(b₀) = ±1."""
    sign = 2.0 * bits[..., 0].astype(np.float64) - 1.0
    n = bits.shape[-1]
    return sign if n == 1 else sign * (2.0 ** (n - 1) - gray_level(bits[..., 1:]))


def soft_gray(levels: NDArray[np.float32], n: int) -> NDArray[np.float32]:
    """(…, n) soft values of n Gray-coded bits: y, 2ⁿ⁻¹ − |y|, …; piecewise linear max-log likelihood ratios."""
    soft = [levels]
    for half_range in (2.0**e for e in range(n - 1, 0, -1)):
        soft.append(np.float32(half_range) - np.abs(soft[-1]))
    return np.stack(soft, axis=-1)


_1_2, _2_3, _3_4, _5_6 = _PUNCTURING

# Bits R1 … R4 of the SIGNAL field (17.3.4).
LEGACY: dict[tuple[int, int, int, int], Coding] = {
    (1, 1, 0, 1): Coding(6, 1, _1_2),
    (1, 1, 1, 1): Coding(9, 1, _3_4),
    (0, 1, 0, 1): Coding(12, 2, _1_2),
    (0, 1, 1, 1): Coding(18, 2, _3_4),
    (1, 0, 0, 1): Coding(24, 4, _1_2),
    (1, 0, 1, 1): Coding(36, 4, _3_4),
    (0, 0, 0, 1): Coding(48, 6, _2_3),
    (0, 0, 1, 1): Coding(54, 6, _3_4),
}
RATE_BITS = {coding.rate_mbps: bits for bits, coding in LEGACY.items()}

# MCS 0 … 7 at 20 MHz with the long guard interval (19.5).
HT = (
    Coding(6.5, 1, _1_2, carriers=52),
    Coding(13, 2, _1_2, carriers=52),
    Coding(19.5, 2, _3_4, carriers=52),
    Coding(26, 4, _1_2, carriers=52),
    Coding(39, 4, _3_4, carriers=52),
    Coding(52, 6, _2_3, carriers=52),
    Coding(58.5, 6, _3_4, carriers=52),
    Coding(65, 6, _5_6, carriers=52),
)


def ht_pilots(symbols: int) -> NDArray[np.float64]:
    """(symbols, 4) pilots of HT data symbols in 20 MHz: the four values walk over the carriers, and their signs are
    those of symbols 3, 4, … (19.3.11.10)."""
    walk = (np.arange(symbols)[:, None] + np.arange(4)) % 4
    return wifi.PILOT_TONES[walk] * wifi.pilot_polarity(symbols, 3)[:, None]


def crc8(bits: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """(8,) check bits of HT-SIG, in the order sent (19.3.9.4.4): x⁸ + x² + x + 1, ones at the start, inverted."""
    register = 0xFF
    for bit in bits:
        feedback = (register >> 7) ^ int(bit)
        register = (register << 1 & 0xFF) ^ (0x07 if feedback else 0)
    return np.array([(~register >> i) & 1 for i in range(7, -1, -1)], dtype=np.uint8)
