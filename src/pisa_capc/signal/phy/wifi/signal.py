"""What a frame's SIGNAL fields say: rate, length, format (17.3.4, 19.3.9.4.3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pisa_capc.signal.phy.wifi import viterbi
from pisa_capc.signal.phy.wifi.coding import HT, LEGACY, Coding, crc8
from pisa_capc.signal.phy.wifi.demodulate import Fronts
from pisa_capc.signal.waveforms import wifi

SIGNAL_START = wifi.PREAMBLE_SAMPLES
DATA_START = SIGNAL_START + wifi.SYMBOL_SAMPLES  # of a non-HT frame, and of HT-SIG in an HT-mixed one
HT_LTF_START = DATA_START + 3 * wifi.SYMBOL_SAMPLES
HT_DATA_START = HT_LTF_START + wifi.SYMBOL_SAMPLES
_BPSK = LEGACY[wifi.RATE_6_MBPS]


@dataclass(frozen=True)
class SignalField:
    """L-SIG. length: octets it says; in HT-mixed and later frames only a way to say how long the frame lasts."""

    coding: Coding
    length: int

    @property
    def may_be_newer(self) -> bool:
        """Whether the frame may be HT-mixed or later: their L-SIG says 6 Mb/s."""
        return self.coding is _BPSK

    @property
    def samples(self) -> int:
        """Of the whole frame at 20 MS/s, from its first preamble sample, whatever its format."""
        return DATA_START + wifi.SYMBOL_SAMPLES * self.coding.symbols(self.length)


@dataclass(frozen=True)
class HtSignal:
    """HT-SIG. simple: no space-time code, no LDPC, no extension streams."""

    mcs: int
    length: int
    wide: bool
    short_guard: bool
    aggregated: bool
    simple: bool

    @property
    def coding(self) -> Coding | None:
        """None where it is not one stream in 20 MHz with the convolutional code."""
        return HT[self.mcs] if self.simple and not self.wide and self.mcs < len(HT) else None

    @property
    def rate_mbps(self) -> float | None:
        """Of one to four equal streams in 20 or 40 MHz (19.5)."""
        streams, scheme = divmod(self.mcs, len(HT))
        if streams > 3:
            return None
        each = HT[scheme].rate_mbps * (108 / 52 if self.wide else 1) * (10 / 9 if self.short_guard else 1)
        return round((streams + 1) * each, 1)


def read_signals(fronts: Fronts) -> list[SignalField | None]:
    """L-SIG of each frame, of at least 400 samples; None where it is not valid."""
    points, weight = fronts.points(
        fronts.tones(SIGNAL_START, 1), wifi.pilot_tones(1, first_symbol=0), wifi.DATA_SUBCARRIERS
    )
    return [_signal(bits) for bits in _decode(points, weight)]


def _signal(bits: NDArray[np.uint8]) -> SignalField | None:
    """RATE, a reserved zero, LENGTH, even parity; the tail is zero, for the decoder was told so."""
    coding = LEGACY.get((int(bits[0]), int(bits[1]), int(bits[2]), int(bits[3])))
    length = _number(bits[5:17])
    if coding is None or bits[4] or bits[:18].sum() % 2 or length == 0:
        return None
    return SignalField(coding, length)


def read_formats(fronts: Fronts) -> list[tuple[str, HtSignal | None]]:
    """ "non-ht", "ht-mixed" or "vht", and HT-SIG where its CRC is right, of frames of at least 560 samples whose L-SIG
    says 6 Mb/s.

    Of the two symbols after L-SIG, HT-mixed frames have both as BPSK turned by 90°, VHT frames the second.
    """
    points, weight = fronts.points(
        fronts.tones(DATA_START, 2), wifi.pilot_tones(2, first_symbol=1), wifi.DATA_SUBCARRIERS
    )
    turned = ((np.square(points.imag) - np.square(points.real)) * weight[:, None]).sum(axis=-1) > 0
    both = turned.all(axis=1)
    decoded = iter(_decode(points[both] * np.complex64(-1j), weight[both]))
    return [
        ("ht-mixed", _ht_signal(next(decoded))) if ht else ("vht" if second else "non-ht", None)
        for ht, second in zip(both, turned[:, 1], strict=True)
    ]


def _ht_signal(bits: NDArray[np.uint8]) -> HtSignal | None:
    """MCS, 40 MHz, HT LENGTH; smoothing, not sounding, reserved, aggregation, STBC, LDPC, short guard, extension."""
    if not np.array_equal(crc8(bits[:34]), bits[34:42]):
        return None
    mcs, wide, length = _number(bits[:7]), bool(bits[7]), _number(bits[8:24])
    aggregated, short_guard = bool(bits[27]), bool(bits[31])
    return HtSignal(mcs, length, wide, short_guard, aggregated, simple=not bits[[28, 29, 30, 32, 33]].any())


def _decode(points: NDArray[np.complex64], weight: NDArray[np.float32]) -> list[NDArray[np.uint8]]:
    """Bits of (F, S, 48) BPSK points at rate 1/2 that end in a tail."""
    soft = [frame.reshape(-1) for frame in _BPSK.soft_bits(points, weight)]
    return viterbi.decode(soft, [True] * len(soft))


def _number(bits: NDArray[np.uint8]) -> int:
    """Least significant bit first."""
    return int(bits @ (1 << np.arange(len(bits))))
