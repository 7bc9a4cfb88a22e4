"""IEEE 802.15.4 in the 2.4 GHz band: O-QPSK of 2 Mchip/s with half-sine pulses, sampled at 4 MS/s.

IEEE Std 802.15.4-2020, clause 12. Four bits are one of 16 symbols of 32 chips (table 12-1): symbols 1 … 7 are symbol 0
shifted by four chips each, 8 … 15 the same with every second chip inverted. Chips of even number are on I, of odd
number on Q, half a pulse later; a pulse lasts two chips. A frame begins with eight symbols 0 and the delimiter 0xA7.
The envelope is constant: it is minimum shift keying, of other bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.signal.waveforms.base import Draw, Waveform, register_waveform

RATE_HZ = 4e6
CHIPS = 32  # of a symbol
PER_CHIP = 2  # samples
SYMBOL_SAMPLES = CHIPS * PER_CHIP
PREAMBLE = (0,) * 8
DELIMITER = (7, 10)
HEADER = (*PREAMBLE, *DELIMITER)
HEADER_SAMPLES = len(HEADER) * SYMBOL_SAMPLES
KNOWN_SAMPLES = HEADER_SAMPLES - 1  # that the length behind it does not reach
POWER = (KNOWN_SAMPLES - 1.5) / KNOWN_SAMPLES  # of the header at modulus one: its first chip rises from zero
LONGEST_OCTETS = 127
TYPICAL_OCTETS = 32

Complex = NDArray[np.complexfloating[Any, Any]]


def _sequences() -> NDArray[np.uint8]:
    """(16, 32) table 12-1."""
    first = np.array([int(chip) for chip in "11011001110000110101001000101110"], dtype=np.uint8)
    shifted = np.stack([np.roll(first, 4 * shift) for shift in range(8)])
    return np.concatenate([shifted, shifted ^ (np.arange(CHIPS, dtype=np.uint8) & 1)])


SEQUENCES = _sequences()


def symbols_of(octets: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """(…, 2n) symbols of (…, n) octets, the lower four bits first."""
    pairs = np.stack([octets & 15, octets >> 4], axis=-1)
    return np.asarray(pairs.reshape(*octets.shape[:-1], -1))


def octets_of(symbols: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """(…, n) of (…, 2n) symbols."""
    return np.asarray(symbols[..., ::2] | symbols[..., 1::2] << 4, dtype=np.uint8)


def modulate(symbols: NDArray[np.uint8]) -> NDArray[np.complex128]:
    """(…, 64 S + 2) of (…, S) symbols: Σ_k c_2k p(t − 2kT) + j c_2k+1 p(t − (2k + 1)T), p(t) = sin(πt/2T) for 2T.

    Of modulus one, but for the first and the last chip; scaled so that what is known of a header has unit power.
    """
    chips = (2.0 * SEQUENCES[symbols].reshape(*symbols.shape[:-1], -1)) - 1
    pulse = np.sin(np.pi * np.arange(2 * PER_CHIP) / (2 * PER_CHIP))
    in_phase, quadrature = ((chips[..., part::2, None] * pulse).reshape(*chips.shape[:-1], -1) for part in (0, 1))
    edges = [(0, 0)] * (chips.ndim - 1)
    return np.asarray(
        POWER**-0.5 * (np.pad(in_phase, [*edges, (0, PER_CHIP)]) + 1j * np.pad(quadrature, [*edges, (PER_CHIP, 0)]))
    )


def frame(psdu: bytes) -> NDArray[np.complex128]:
    """(T,) a whole frame of 1 … 127 octets: preamble, delimiter, length, PSDU."""
    content = np.frombuffer(bytes([len(psdu)]) + psdu, dtype=np.uint8)
    return modulate(np.concatenate([np.array(HEADER, dtype=np.uint8), symbols_of(content)]))


def frame_samples(octets: int) -> int:
    """Of a whole frame with a PSDU of so many octets."""
    return (len(HEADER) + 2 + 2 * octets) * SYMBOL_SAMPLES + PER_CHIP


def check_sequence(octets: bytes) -> bytes:
    """FCS of 7.2.11: CRC of x¹⁶ + x¹² + x⁵ + 1 from zero, the lowest bit of an octet first, as two octets.

    >>> check_sequence(bytes.fromhex("02006a")).hex()     # the acknowledgment of 7.2.11
    'e479'
    """
    register = 0
    for octet in octets:
        register ^= octet
        for _ in range(8):
            register = register >> 1 ^ (0x8408 if register & 1 else 0)
    return register.to_bytes(2, "little")


@register_waveform("ieee802154")
class IEEE802154(Waveform):
    """Preamble and delimiter, 160 µs, are the same in every frame, the length already is not."""

    title = "IEEE 802.15.4"
    sample_rate_hz = RATE_HZ
    occupied = 0.75  # the main lobe, ±1.5 MHz
    longest_samples = frame_samples(LONGEST_OCTETS)
    periodic = len(PREAMBLE) * SYMBOL_SAMPLES
    taps = (4, 6)
    ridge = 1e-4
    shifts_frequency = True

    def preamble(self) -> NDArray[np.complex128]:
        return modulate(np.array(HEADER, dtype=np.uint8))[:KNOWN_SAMPLES]

    def head(self, samples: int) -> NDArray[np.complex128] | None:
        known = self.preamble()
        return known[:samples] if samples <= len(known) else None

    def frames(self, count: int, draw: Draw) -> NDArray[np.complex128]:
        """Random octets with their check sequence."""
        rows = []
        for row in draw("payload").integers(0, 256, (count, TYPICAL_OCTETS), dtype=np.uint8):
            content = row[:-2].tobytes()
            rows.append(frame(content + check_sequence(content)))
        found = np.stack(rows)
        return np.pad(found, ((0, 0), (0, self.longest_samples - found.shape[1])))
