"""Bluetooth LE advertising: GFSK of 1 Mb/s, sampled at 8 MS/s.

Bluetooth Core Specification 5.4, volume 6, parts A and B. A bit turns the phase by half of π (modulation index 0.5),
smoothed by a Gaussian of BT 0.5. A packet on the channels 37, 38 and 39 begins with 01010101 and the access address
0x8E89BED6, the lowest bit first; PDU and CRC follow, whitened by the channel's number. The envelope is constant.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf

from pisa_capc.signal.waveforms.base import Draw, Waveform, register_waveform

RATE_HZ = 8e6
PER_BIT = 8  # samples
INDEX = 0.5  # of the modulation
BANDWIDTH_TIME = 0.5
REACH = 1  # bits before and after its own that a bit's pulse reaches
ACCESS_ADDRESS = 0x8E89BED6
BEGINNING = bytes([0xAA]) + ACCESS_ADDRESS.to_bytes(4, "little")
CHANNELS = (37, 38, 39)
HEADER_OCTETS, CRC_OCTETS = 2, 3
LONGEST_OCTETS = 255  # behind a PDU's header
TYPICAL_OCTETS = 31
KNOWN_SAMPLES = (8 * len(BEGINNING) - REACH) * PER_BIT  # that the PDU does not reach
CRC_START = 0xAAAAAA  # 0x555555, its lowest bit last
CRC_GENERATOR = 0xDA6000  # x²⁴ + x¹⁰ + x⁹ + x⁶ + x⁴ + x³ + x + 1, likewise

Bits = NDArray[np.uint8]


def crc(pdu: bytes) -> bytes:
    """The three octets behind a PDU as they are sent, before whitening (part B, 3.1.1)."""
    register = CRC_START
    for octet in pdu:
        register ^= octet
        for _ in range(8):
            register = register >> 1 ^ (CRC_GENERATOR if register & 1 else 0)
    return register.to_bytes(CRC_OCTETS, "little")


def whitening(channel: int, bits: int) -> Bits:
    """(bits,) the sequence of x⁷ + x⁴ + 1 that begins with a one and the channel's number (part B, 3.2)."""
    return _whitening(channel)[np.arange(bits) % 127]


@cache
def _whitening(channel: int) -> Bits:
    """(127,) its period."""
    state = [1, *(channel >> place & 1 for place in range(5, -1, -1))]
    found = np.empty(127, dtype=np.uint8)
    for n in range(127):
        last = state[6]
        found[n] = last
        state = [last, *state[:6]]
        state[4] ^= last
    return found


def bits_of(octets: bytes) -> Bits:
    """Bits in the order in which they are sent."""
    return np.unpackbits(np.frombuffer(octets, dtype=np.uint8), bitorder="little")


def octets_of(bits: Bits) -> bytes:
    return np.packbits(bits, bitorder="little").tobytes()


def whitened(octets: bytes, channel: int) -> bytes:
    """Octets behind the access address, whitened or the other way."""
    bits = bits_of(octets)
    return octets_of(bits ^ whitening(channel, len(bits)))


def _pulse() -> NDArray[np.float64]:
    """(24,) part of a bit's turn in each sample: a rectangle behind the Gaussian, of sum one."""
    width = np.sqrt(np.log(2)) / (2 * np.pi * BANDWIDTH_TIME)  # in bits
    time = (np.arange((1 + 2 * REACH) * PER_BIT) + 0.5) / PER_BIT - REACH
    shape = erf(time / width / np.sqrt(2)) - erf((time - 1) / width / np.sqrt(2))
    return np.asarray(shape / shape.sum())


def modulate(bits: Bits, index: float = INDEX) -> NDArray[np.complex128]:
    """(8 B,) of modulus one: φ[n] = π h Σ_k (2 b_k − 1) q[n − 8 k], q the sum of a bit's pulse up to n."""
    impulses = np.zeros(len(bits) * PER_BIT)
    impulses[::PER_BIT] = 2.0 * bits - 1
    turn = np.convolve(impulses, _pulse())[REACH * PER_BIT :][: len(impulses)]
    return np.asarray(np.exp(1j * np.pi * index * np.cumsum(turn)))


def frame(pdu: bytes, channel: int, index: float = INDEX) -> NDArray[np.complex128]:
    """(T,) a whole packet: preamble, access address, PDU, CRC."""
    return modulate(bits_of(BEGINNING + whitened(pdu + crc(pdu), channel)), index)


def frame_samples(octets: int) -> int:
    """Of a packet with so many octets behind the header of its PDU."""
    return 8 * PER_BIT * (len(BEGINNING) + HEADER_OCTETS + octets + CRC_OCTETS)


@register_waveform("ble")
class BLE(Waveform):
    """Preamble and access address, 40 µs, are the same in every packet."""

    title = "Bluetooth LE advertising"
    sample_rate_hz = RATE_HZ
    occupied = 0.25  # ±1 MHz
    longest_samples = frame_samples(LONGEST_OCTETS)
    taps = (2, 3)
    ridge = 1e-4
    shifts_frequency = True

    def preamble(self) -> NDArray[np.complex128]:
        return modulate(bits_of(BEGINNING))[:KNOWN_SAMPLES]

    def head(self, samples: int) -> NDArray[np.complex128] | None:
        return self.preamble()[:samples] if samples <= KNOWN_SAMPLES else None

    def frames(self, count: int, draw: Draw) -> NDArray[np.complex128]:
        """Advertisements of random addresses and data on channel 37."""
        rows = []
        for row in draw("payload").integers(0, 256, (count, TYPICAL_OCTETS + 1), dtype=np.uint8):
            rows.append(frame(bytes([0x42, TYPICAL_OCTETS]) + row[:-1].tobytes(), CHANNELS[0]))
        found = np.stack(rows)
        return np.pad(found, ((0, 0), (0, self.longest_samples - found.shape[1])))
