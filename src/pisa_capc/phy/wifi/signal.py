"""What a frame's SIGNAL fields say: rate, length, format (17.3.4, 19.3.9.4.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pisa_capc.phy.wifi import viterbi
from pisa_capc.phy.wifi.coding import HT, LEGACY, Coding, crc8
from pisa_capc.phy.wifi.demodulate import Front
from pisa_capc.waveforms import wifi

SIGNAL_START = wifi.PREAMBLE_SAMPLES
DATA_START = SIGNAL_START + wifi.SYMBOL_SAMPLES  # of a non-HT frame, and of HT-SIG in an HT-mixed one
HT_LTF_START = DATA_START + 3 * wifi.SYMBOL_SAMPLES
HT_DATA_START = HT_LTF_START + wifi.SYMBOL_SAMPLES
_BPSK = LEGACY[wifi.RATE_6_MBPS]


@dataclass(frozen=True)
class Signal:
    """L-SIG. length: octets it says; in HT-mixed and later frames only a way to say how long the frame lasts."""

    coding: Coding
    length: int

    @property
    def samples(self) -> int:
        """Of the whole frame at 20 MS/s, from its first preamble sample, whatever its format."""
        return DATA_START + wifi.SYMBOL_SAMPLES * self.coding.symbols(self.length)


@dataclass(frozen=True)
class HtSignal:
    """HT-SIG. coding: None where it is not one stream in 20 MHz with the convolutional code."""

    coding: Coding | None
    length: int
    short_guard: bool
    aggregated: bool


def read_signals(fronts: Sequence[Front]) -> list[Signal | None]:
    """L-SIG of each frame; None where it is not there or not valid."""
    there = [front.iq.shape[1] >= DATA_START for front in fronts]
    soft = [_soft_bits(front, SIGNAL_START, 1, first_symbol=0) for front, ok in zip(fronts, there, strict=True) if ok]
    decoded = iter(viterbi.decode(soft, [True] * len(soft)))
    return [_signal(next(decoded)) if ok else None for ok in there]


def _signal(bits: NDArray[np.uint8]) -> Signal | None:
    """RATE, a reserved zero, LENGTH, even parity; the tail is zero as the decoder was told so."""
    coding = LEGACY.get((int(bits[0]), int(bits[1]), int(bits[2]), int(bits[3])))
    length = _number(bits[5:17])
    if coding is None or bits[4] or bits[:18].sum() % 2 or length == 0:
        return None
    return Signal(coding, length)


def is_high_throughput(front: Front, signal: Signal) -> bool:
    """Whether both symbols after L-SIG are BPSK turned by 90°, as HT-SIG is."""
    if signal.coding is not _BPSK or front.available(DATA_START) < 2:
        return False
    field = front.points(front.tones(DATA_START, 2), wifi.pilot_tones(2, 1), wifi.DATA_SUBCARRIERS)
    turned = ((np.square(field.points.imag) - np.square(field.points.real)) * field.weight).sum(axis=1)
    return bool(np.all(turned > 0))


def read_ht_signals(fronts: Sequence[Front]) -> list[HtSignal | None]:
    """HT-SIG of each frame that has one; None where its CRC is wrong."""
    soft = [_soft_bits(front, DATA_START, 2, first_symbol=1, turned=True) for front in fronts]
    return [_ht_signal(bits) for bits in viterbi.decode(soft, [True] * len(soft))]


def _ht_signal(bits: NDArray[np.uint8]) -> HtSignal | None:
    if not np.array_equal(crc8(bits[:34]), bits[34:42]):
        return None
    mcs, wide, flags = _number(bits[:7]), bits[7], bits[24:34]
    aggregated, space_time, parity_check, short_guard, extension = (
        flags[3],
        flags[4:6],
        flags[6],
        flags[7],
        flags[8:10],
    )
    simple = mcs < len(HT) and not (wide or space_time.any() or parity_check or extension.any())
    return HtSignal(HT[mcs] if simple else None, _number(bits[8:24]), bool(short_guard), bool(aggregated))


def _soft_bits(
    front: Front, first: int, symbols: int, first_symbol: int, turned: bool = False
) -> NDArray[np.float32]:
    """Soft bits of BPSK symbols at rate 1/2."""
    field = front.points(front.tones(first, symbols), wifi.pilot_tones(symbols, first_symbol), wifi.DATA_SUBCARRIERS)
    points = field.points * np.complex64(-1j) if turned else field.points
    return _BPSK.soft_bits(points, field.weight).reshape(-1)


def _number(bits: NDArray[np.uint8]) -> int:
    """Least significant bit first."""
    return int(bits @ (1 << np.arange(len(bits))))
