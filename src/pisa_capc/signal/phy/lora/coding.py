"""Octets and symbols: whitening, Hamming codes, diagonal interleaving, Gray mapping, header and checksum.

Definitions as the public reverse engineering of LoRa has them: Tapparel et al., "An open-source LoRa physical layer
prototype on GNU Radio", SPAWC 2020 (gr-lora_sdr), and Xu et al., "From demodulation to decoding", ACM TOSN 19(1), 2022
(LoRaPHY). Both give the same symbols.
"""

from __future__ import annotations

from binascii import crc_hqx
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import ConfigError
from pisa_capc.signal.phy.lora.modulation import Modulation

LONGEST_PAYLOAD = 255
HEADER_NIBBLES = 5
HEADER_SYMBOLS = 8  # the first block is sent at the strongest code, two bits less a symbol
STRONGEST = 4  # coding rate 4/8

# Rows: the checksum's bits, most significant first; columns: the twelve bits of length, coding rate and CRC flag.
HEADER_CHECKSUM = np.array(
    [
        [1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0],
        [1, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 1],
        [0, 1, 0, 0, 1, 0, 0, 1, 1, 0, 1, 0],
        [0, 0, 1, 0, 0, 1, 0, 1, 0, 1, 1, 1],
        [0, 0, 0, 1, 0, 0, 1, 0, 1, 1, 1, 1],
    ]
)


@dataclass(frozen=True)
class ExplicitHeader:
    """The explicit header, from the first block. coding_rate: 1 … 4 for 4/5 … 4/8."""

    length: int
    coding_rate: int
    crc: bool

    def __post_init__(self) -> None:
        if not 0 <= self.length <= LONGEST_PAYLOAD:
            raise ConfigError(f"a LoRa payload of {self.length} octets; expected at most {LONGEST_PAYLOAD}")
        if self.coding_rate not in (1, 2, 3, 4):
            raise ConfigError(f"coding rate {self.coding_rate}; expected 1, 2, 3 or 4 for 4/5 … 4/8")

    def payload_symbols(self, modulation: Modulation) -> int:
        """Symbols after the header's eight: blocks of 4 + CR symbols, each of as many nibbles as a symbol has bits."""
        nibbles = HEADER_NIBBLES + 2 * (self.length + 2 * self.crc) - (modulation.spreading_factor - 2)
        return max(-(-nibbles // payload_bits(modulation)), 0) * (4 + self.coding_rate)


def payload_bits(modulation: Modulation) -> int:
    """Bits of a payload symbol."""
    return modulation.spreading_factor - 2 * modulation.low_data_rate


def _whitening() -> NDArray[np.uint8]:
    """(255,) states of the register x⁸ + x⁶ + x⁵ + x⁴ + 1, all ones at first."""
    states, state = [], 0xFF
    for _ in range(LONGEST_PAYLOAD):
        states.append(state)
        feedback = (state >> 7 ^ state >> 5 ^ state >> 4 ^ state >> 3) & 1
        state = (state << 1 | feedback) & 0xFF
    return np.array(states, np.uint8)


def _codebooks() -> dict[int, NDArray[np.int64]]:
    """By coding rate the (16, 4 + CR) bits of every nibble's codeword: data, lowest bit first, then parity."""
    d0, d1, d2, d3 = (np.arange(16)[:, None] >> np.arange(4) & 1).T
    parity = [d0 ^ d1 ^ d2, d1 ^ d2 ^ d3, d0 ^ d1 ^ d3, d0 ^ d2 ^ d3]
    books = {rate: np.stack([d0, d1, d2, d3, *parity[:rate]], axis=1) for rate in (2, 3, 4)}
    return books | {1: np.stack([d0, d1, d2, d3, d0 ^ d1 ^ d2 ^ d3], axis=1)}


WHITENING = _whitening()
CODEBOOKS = _codebooks()


def whiten(payload: bytes) -> bytes:
    """The payload with the whitening sequence added; twice gives it back."""
    return (np.frombuffer(payload, np.uint8) ^ WHITENING[: len(payload)]).tobytes()


def checksum(payload: bytes) -> bytes:
    """CRC-16 (x¹⁶ + x¹² + x⁵ + 1 from zero) of all but the last two octets, plus these; low octet first."""
    last = (b"\0\0" + payload)[-2:]
    return (crc_hqx(payload[:-2], 0) ^ int.from_bytes(last, "big")).to_bytes(2, "little")


def to_nibbles(octets: bytes) -> list[int]:
    """Low nibble first."""
    return [nibble for octet in octets for nibble in (octet & 15, octet >> 4)]


def to_octets(nibbles: list[int]) -> bytes:
    return bytes(low | high << 4 for low, high in zip(nibbles[::2], nibbles[1::2], strict=False))


def header_nibbles(header: ExplicitHeader) -> list[int]:
    """Length, coding rate and CRC flag, and their five-bit checksum."""
    said = [header.length >> 4, header.length & 15, header.coding_rate << 1 | header.crc]
    bits = np.array([nibble >> shift & 1 for nibble in said for shift in (3, 2, 1, 0)])
    first, *rest = (HEADER_CHECKSUM @ bits % 2).tolist()
    return [*said, first, int("".join(map(str, rest)), 2)]


def parse_header(nibbles: list[int]) -> ExplicitHeader | None:
    """The header of a frame's first five nibbles, or None if its checksum or its coding rate is wrong."""
    high, low, flags, *_ = nibbles
    if not 1 <= flags >> 1 <= STRONGEST:
        return None
    header = ExplicitHeader(high << 4 | low, flags >> 1, bool(flags & 1))
    return header if header_nibbles(header) == nibbles[:HEADER_NIBBLES] else None


def interleave(codewords: NDArray[np.int64]) -> NDArray[np.int64]:
    """(4 + CR, rows) bits of symbols from (rows, 4 + CR): bit l of symbol i is bit i of codeword (i + l) mod rows."""
    rows, symbols = codewords.shape
    i, bit = np.ogrid[:symbols, :rows]
    return codewords[(i + bit) % rows, i]


def from_gray(code: NDArray[np.int64]) -> NDArray[np.int64]:
    """The v whose Gray code v ⊕ ⌊v/2⌋ is `code`."""
    value = code.copy()
    for shift in (1, 2, 4, 8):
        value ^= value >> shift
    return value


def block_symbols(nibbles: list[int], coding_rate: int, bits: int, modulation: Modulation) -> NDArray[np.int64]:
    """(4 + CR,) symbols of one block of `bits` nibbles; with fewer bits than SF every fourth symbol is used."""
    filled = np.array(nibbles + [0] * (bits - len(nibbles)))
    codes = interleave(CODEBOOKS[coding_rate][filled]) @ (1 << np.arange(bits))
    spacing = 1 << modulation.spreading_factor - bits
    return (from_gray(codes) * spacing + 1) % modulation.chips


def encode(payload: bytes, coding_rate: int, crc: bool, modulation: Modulation) -> NDArray[np.int64]:
    """Symbols after the preamble: the explicit header and the payload's first nibbles, then the rest in blocks."""
    header = ExplicitHeader(len(payload), coding_rate, crc)
    nibbles = header_nibbles(header) + to_nibbles(whiten(payload) + (checksum(payload) if crc else b""))
    first, bits = modulation.spreading_factor - 2, payload_bits(modulation)
    blocks = [block_symbols(nibbles[:first], STRONGEST, first, modulation)]
    for at in range(first, len(nibbles), bits):
        blocks.append(block_symbols(nibbles[at : at + bits], coding_rate, bits, modulation))
    return np.concatenate(blocks)


def soft_bits(power: NDArray[np.floating], bits: int, modulation: Modulation) -> NDArray[np.floating]:
    """(n, bits) how much rather one than zero each bit is, lowest first, from (n, N) powers of n symbols.

    max-log: the best symbol that has the bit, less the best that has not. Where only every fourth symbol is used its
    neighbours count for it: oscillators drift.
    """
    shifted = np.roll(power, -1, axis=1)
    if bits < modulation.spreading_factor:
        shifted = np.maximum(shifted, np.maximum(np.roll(shifted, 1, axis=1), np.roll(shifted, -1, axis=1)))
    values = np.arange(1 << bits)
    taken = shifted[:, values << modulation.spreading_factor - bits]
    has = ((values ^ values >> 1)[:, None] >> np.arange(bits) & 1).astype(bool)
    return np.stack([taken[:, bit].max(axis=1) - taken[:, ~bit].max(axis=1) for bit in has.T], axis=1)


def block_nibbles(power: NDArray[np.floating], bits: int, modulation: Modulation) -> list[int]:
    """The `bits` nibbles of one block from its symbols' (4 + CR, N) powers: of all sixteen codewords the likeliest."""
    symbols = len(power)
    i, bit = np.ogrid[:symbols, :bits]
    soft = np.empty((bits, symbols))
    soft[(i + bit) % bits, i] = soft_bits(power, bits, modulation)
    return [int(best) for best in np.argmax(soft @ (2 * CODEBOOKS[symbols - 4] - 1).T, axis=1)]
