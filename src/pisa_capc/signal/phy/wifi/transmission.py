"""Octets to samples: whole PPDUs of IEEE Std 802.11-2020, non-HT (clause 17) and HT-mixed (clause 19), at 20 MS/s.

Every field has unit mean power; no windowing between symbols, which the standard leaves to the implementer.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import ConfigError
from pisa_capc.signal.phy.wifi.coding import HT, LEGACY, RATE_BITS, SERVICE_BITS, TAIL_BITS, Coding, crc8, ht_pilots
from pisa_capc.signal.waveforms import wifi

LONGEST_PSDU = 4095  # octets that LENGTH of L-SIG can say
LONGEST_HT_PSDU = 65535
SHORT_GUARD_SAMPLES = 8

HT_SUBCARRIERS = np.r_[-28:0, 1:29]
HT_DATA_SUBCARRIERS = np.setdiff1d(HT_SUBCARRIERS, wifi.PILOT_SUBCARRIERS)
HT_LTF_TONES = np.concatenate([[1, 1], wifi.LTF_TONES[wifi.LTF_SUBCARRIERS != 0], [-1, -1]])
_HT_SCALE = np.sqrt(52 / 56)  # four more carriers, same power


def transmit(psdu: bytes, rate_mbps: float, scrambler: int) -> NDArray[np.complex128]:
    """(T,) a whole non-HT PPDU of 1 … 4095 octets (FCS included) at 6, 9, 12, 18, 24, 36, 48 or 54 Mb/s.

    scrambler: initial state, 1 … 127.
    """
    if rate_mbps not in RATE_BITS:
        raise ConfigError(f"rate {rate_mbps} Mb/s is none of non-HT OFDM; expected one of {sorted(RATE_BITS)}.")
    _check(psdu, LONGEST_PSDU, scrambler)
    rate = RATE_BITS[rate_mbps]
    points = LEGACY[rate].points(data_bits(psdu, LEGACY[rate], scrambler))
    signal = wifi.signal_field(len(psdu), rate)
    return np.concatenate([wifi.preamble(), signal, wifi.data_symbols(points, first_symbol=1)])


def transmit_ht(
    psdu: bytes, mcs: int, scrambler: int, *, aggregated: bool = False, short_guard: bool = False
) -> NDArray[np.complex128]:
    """(T,) a whole HT-mixed PPDU of 1 … 65535 octets: one stream, 20 MHz, MCS 0 … 7.

    Its L-SIG says 6 Mb/s and a length that lasts as long (19.3.9.3.5), so the frame is at most 1,366 symbols long.
    aggregated: the PSDU is an A-MPDU.
    """
    if not 0 <= mcs < len(HT):
        raise ConfigError(f"MCS {mcs} is not one stream in 20 MHz; expected 0 … {len(HT) - 1}.")
    _check(psdu, LONGEST_HT_PSDU, scrambler)
    points = HT[mcs].points(data_bits(psdu, HT[mcs], scrambler))
    tones = np.concatenate([points, ht_pilots(len(points))], axis=1)
    guard = SHORT_GUARD_SAMPLES if short_guard else wifi.GUARD_SAMPLES
    body = np.concatenate(
        [
            _ht_signal(mcs, len(psdu), aggregated, short_guard),
            np.tile(wifi.ofdm(wifi.STF_TONES, wifi.STF_SUBCARRIERS), 2)[: wifi.SYMBOL_SAMPLES],
            _HT_SCALE * wifi.guarded(HT_LTF_TONES[None].astype(np.complex128), HT_SUBCARRIERS),
            _HT_SCALE * wifi.guarded(tones, np.concatenate([HT_DATA_SUBCARRIERS, wifi.PILOT_SUBCARRIERS]), guard),
        ]
    )
    pretended = 3 * -(-len(body) // wifi.SYMBOL_SAMPLES) - 3
    if pretended > LONGEST_PSDU:
        raise ConfigError(f"{len(psdu)} octets at MCS {mcs} last longer than L-SIG can say. Send fewer octets.")
    return np.concatenate([wifi.preamble(), wifi.signal_field(pretended), body])


def data_bits(psdu: bytes, coding: Coding, scrambler: int) -> NDArray[np.uint8]:
    """Scrambled bits of a DATA field: SERVICE, PSDU, tail, padding; the tail is zero after scrambling (17.3.5.3)."""
    content = SERVICE_BITS + 8 * len(psdu)
    bits = np.zeros(coding.symbols(len(psdu)) * coding.data_bits, dtype=np.uint8)
    bits[SERVICE_BITS:content] = np.unpackbits(np.frombuffer(psdu, dtype=np.uint8), bitorder="little")
    bits ^= wifi.scrambler_sequence(np.array(scrambler), len(bits))
    bits[content : content + TAIL_BITS] = 0
    return bits


def _ht_signal(mcs: int, octets: int, aggregated: bool, short_guard: bool) -> NDArray[np.complex128]:
    """(160,) HT-SIG (19.3.9.4.3): 20 MHz, smoothing recommended, not sounding, no STBC, BCC, no extension streams; BPSK
    turned by 90°."""
    head = [(mcs >> i) & 1 for i in range(7)] + [0] + [(octets >> i) & 1 for i in range(16)]
    flags = [1, 1, 1, int(aggregated), 0, 0, 0, int(short_guard), 0, 0]
    covered = np.array(head + flags, dtype=np.uint8)
    bits = np.concatenate([covered, crc8(covered), np.zeros(TAIL_BITS, dtype=np.uint8)])
    return wifi.data_symbols(1j * wifi.bpsk_points(bits), first_symbol=1)


def _check(psdu: bytes, longest: int, scrambler: int) -> None:
    if not 1 <= len(psdu) <= longest:
        raise ConfigError(f"PSDU of {len(psdu)} octets; expected 1 … {longest}.")
    if not 1 <= scrambler <= 127:
        raise ConfigError(f"scrambler state {scrambler}; expected 1 … 127 (zero would not scramble).")
