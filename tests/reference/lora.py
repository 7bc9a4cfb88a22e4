"""LoRa bit by bit and in continuous time: what the fast code must equal."""

from __future__ import annotations

import numpy as np

DOWN = -1


def parities(nibble: int) -> list[int]:
    a, b, c, d = (nibble >> i & 1 for i in range(4))
    return [a ^ b ^ c, b ^ c ^ d, a ^ b ^ d, a ^ c ^ d]


def codeword(nibble: int, coding_rate: int) -> list[int]:
    data = [nibble >> i & 1 for i in range(4)]
    if coding_rate == 1:
        return [*data, sum(data) % 2]
    return data + parities(nibble)[:coding_rate]


def header(length: int, coding_rate: int, crc: bool) -> list[int]:
    """Five nibbles; the checksum's equations one by one, as gr-lora_sdr writes them."""
    a, b, c = length >> 4, length & 15, coding_rate << 1 | crc
    a3, a2, a1, a0 = (a >> i & 1 for i in (3, 2, 1, 0))
    b3, b2, b1, b0 = (b >> i & 1 for i in (3, 2, 1, 0))
    c3, c2, c1, c0 = (c >> i & 1 for i in (3, 2, 1, 0))
    c4 = a3 ^ a2 ^ a1 ^ a0
    low = (
        (a3 ^ b3 ^ b2 ^ b1 ^ c0) << 3
        | (a2 ^ b3 ^ b0 ^ c3 ^ c1) << 2
        | (a1 ^ b2 ^ b0 ^ c2 ^ c1 ^ c0) << 1
        | (a0 ^ b1 ^ c3 ^ c2 ^ c1 ^ c0)
    )
    return [a, b, c, c4, low]


def crc16(payload: bytes) -> int:
    value = 0
    for octet in payload[:-2]:
        value ^= octet << 8
        for _ in range(8):
            value = (value << 1 ^ (0x1021 if value & 0x8000 else 0)) & 0xFFFF
    return value ^ payload[-1] ^ payload[-2] << 8


def symbols(payload: bytes, spreading_factor: int, coding_rate: int, crc: bool, low_data_rate: bool) -> list[int]:
    """Symbols after the downchirps; symbols at the reduced rate get a parity bit and a zero before Gray decoding."""
    register, white = 0xFF, []
    for octet in payload:
        white.append(octet ^ register)
        fed = sum(register >> i & 1 for i in (7, 5, 4, 3)) % 2
        register = (register << 1 & 0xFF) | fed
    if crc:
        white += [crc16(payload) & 0xFF, crc16(payload) >> 8]
    nibbles = header(len(payload), coding_rate, crc)
    for octet in white:
        nibbles += [octet & 15, octet >> 4]
    out: list[int] = []
    while nibbles or not out:
        first = not out
        rate, rows = (4, spreading_factor - 2) if first else (coding_rate, spreading_factor - 2 * low_data_rate)
        block, nibbles = nibbles[:rows], nibbles[rows:]
        block += [0] * (rows - len(block))
        words = [codeword(nibble, rate) for nibble in block]
        for i in range(4 + rate):
            bits = [words[(i - j - 1) % rows][i] for j in range(rows)]  # the highest first
            if rows < spreading_factor:
                bits += [sum(bits) % 2, 0]
            value, binary = 0, 0
            for bit in bits:
                binary ^= bit
                value = value << 1 | binary
            out.append((value + 1) % 2**spreading_factor)
    return out


def waveform(times: np.ndarray, chirps: list[tuple[int, float]], spreading_factor: int) -> np.ndarray:
    """The frame at any `times`, in chips from its beginning; zero before and after.

    chirps: one after the other, each a symbol (or DOWN) and how much of it is sent.
    """
    chips = 2**spreading_factor
    out, begin = np.zeros(len(times), complex), 0.0
    for symbol, part in chirps:
        low, high = np.searchsorted(times, [begin, begin + part * chips])
        u = times[low:high] - begin
        s = max(symbol, 0)
        turns = u**2 / (2 * chips) + u * (s / chips - 0.5) - np.where(u >= chips - s, u, 0)
        out[low:high] = np.exp((-2j if symbol == DOWN else 2j) * np.pi * turns)
        begin += part * chips
    return out


def frame(
    payload: bytes, spreading_factor: int, coding_rate: int, sync_word: int, crc: bool = True, preamble: int = 8
) -> list[tuple[int, float]]:
    """The chirps of a frame in a bandwidth of 125 kHz."""
    sync = [8 * (sync_word >> 4), 8 * (sync_word & 15)]
    data = symbols(payload, spreading_factor, coding_rate, crc, spreading_factor > 10)
    down = [(DOWN, 1.0), (DOWN, 1.0), (DOWN, 0.25)]
    return [(0, 1.0)] * preamble + [(s, 1.0) for s in sync] + down + [(s, 1.0) for s in data]


def received(
    chirps: list[tuple[int, float]],
    spreading_factor: int,
    samples: int,
    start: float,
    cfo_hz: float,
    carrier_hz: float = 868e6,
    oversampling: int = 8,
) -> np.ndarray:
    """(samples,) of a frame that begins at sample `start` and whose one oscillator is off: carrier and chips alike."""
    n = np.arange(samples)
    ratio = 1 + cfo_hz / carrier_hz
    x = waveform((n - start) * ratio / oversampling, chirps, spreading_factor)
    return x * np.exp(2j * np.pi * cfo_hz / (125e3 * oversampling) * (n - start))


def correlations(window: np.ndarray, spreading_factor: int, oversampling: int) -> np.ndarray:
    """(2N,) with the chirp of every symbol and half symbol, one by one: the upchirp, begun later."""
    chips = 2**spreading_factor
    up = waveform(np.arange(chips * oversampling) / oversampling, [(0, 1.0)], spreading_factor)
    later = [np.roll(up, -half * oversampling // 2) for half in range(2 * chips)]
    return np.array([np.vdot(shifted, window) for shifted in later]) / len(window)
