"""Bluetooth LE advertising: samples to a PDU, and who sends it.

Bluetooth Core Specification 5.4, volume 6, part B, 2.3. Behind the access address, the lowest bit first:

    header 2   type (4 bits), reserved, channel selection, whether the two addresses are random; length in octets
    AdvA 6     address of the advertiser, the lowest octet first; in SCAN_REQ and CONNECT_IND behind that of who asks
    data, CRC 3

    42 09 c6 c5 c4 c3 c2 c1 02 01 06    ADV_NONCONN_IND of the random address c1:c2:c3:c4:c5:c6, flags 06

In ADV_EXT_IND (Bluetooth 5) an extended header, as long as its first six bits say, has a flag for AdvA.
Random addresses may change every few minutes: what a device is called is then not for long.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import ConfigError
from pisa_capc.signal.phy.base import Header
from pisa_capc.signal.waveforms.ble import (
    BEGINNING,
    CHANNELS,
    CRC_OCTETS,
    HEADER_OCTETS,
    LONGEST_OCTETS,
    PER_BIT,
    RATE_HZ,
    Bits,
    crc,
    frame,
    frame_samples,
    octets_of,
    whitening,
)

RATE_MBPS = 1.0
ADV_NONCONN_IND, SCAN_REQ, CONNECT_IND, ADV_EXT_IND = 2, 3, 5, 7
KINDS = (
    "adv-ind",
    "adv-direct-ind",
    "adv-nonconn-ind",
    "scan-req",
    "scan-rsp",
    "connect-ind",
    "adv-scan-ind",
    "adv-ext-ind",
)
ADDRESS = 6  # octets
SMOOTH = 5  # samples that are averaged: 0.6 µs
RANDOM = 0x40  # of the first octet: AdvA is a random address

Complex = NDArray[np.complexfloating[Any, Any]]


def advertisement(address: str, data: bytes, kind: int = ADV_NONCONN_IND) -> bytes:
    """The PDU of an advertiser with a random address.

    >>> advertisement("c1:c2:c3:c4:c5:c6", bytes.fromhex("020106")).hex()
    '4209c6c5c4c3c2c1020106'
    """
    octets = bytes.fromhex(address.replace(":", ""))[::-1]
    if len(octets) != ADDRESS or len(data) > LONGEST_OCTETS - ADDRESS:
        raise ConfigError(f"advertisement of {address!r} with {len(data)} octets: expected an address of six octets.")
    return bytes([RANDOM | kind, ADDRESS + len(data)]) + octets + data


def parse(pdu: bytes, right: bool) -> Header:
    """Who sends a PDU. right: whether its CRC is."""
    kind, content = pdu[0] & 15, pdu[HEADER_OCTETS:]
    first, second = (_address(content[at : at + ADDRESS]) for at in (0, ADDRESS))
    sender, receiver = first, None
    if kind in (SCAN_REQ, CONNECT_IND) or kind == KINDS.index("adv-direct-ind"):
        receiver = second
    elif kind == ADV_EXT_IND:
        told = len(content) > 1 and content[0] & 0x3F > ADDRESS and content[1] & 1
        sender = _address(content[2 : 2 + ADDRESS]) if told else None
    elif kind > ADV_EXT_IND:
        sender = None
    name = KINDS[kind] if kind < len(KINDS) else "reserved"
    return Header(name, RATE_MBPS, len(content), sender, receiver, right)


def _address(octets: bytes) -> str | None:
    return octets[::-1].hex(":") if len(octets) == ADDRESS else None


def transmit(pdu: bytes, channel: int) -> NDArray[np.complex128]:
    """(T,) a whole packet at 8 MS/s, of modulus one."""
    if channel not in CHANNELS:
        raise ConfigError(f"channel {channel} is none that is advertised on; expected one of {CHANNELS}.")
    if len(pdu) < HEADER_OCTETS or len(pdu) != HEADER_OCTETS + pdu[1]:
        raise ConfigError(f"a PDU of {len(pdu)} octets: expected two, and as many as the second of them says.")
    return frame(pdu, channel)


def receive(iq: Complex, cfo_hz: NDArray[np.float64]) -> tuple[Header, int | None]:
    """What a packet (A, T) says that begins with its first sample, with offsets (A,); its samples, where it says them.

    The channel is the one by whose whitening the CRC is right; where it is right by none, nothing is known.
    """
    bits = _bits(iq, cfo_hz)
    for channel in CHANNELS:
        pdu, right = _pdu(bits, channel)
        if right:
            return parse(pdu, right), frame_samples(len(pdu) - HEADER_OCTETS)
    return Header(fcs=False), None


def rebuild(iq: Complex, cfo_hz: NDArray[np.float64]) -> NDArray[np.complex128] | None:
    """(T,) a whole packet as it was sent; None where no CRC is right."""
    bits = _bits(iq, cfo_hz)
    for channel in CHANNELS:
        pdu, right = _pdu(bits, channel)
        if right:
            return frame(pdu, channel)
    return None


def _pdu(bits: Bits, channel: int) -> tuple[bytes, bool]:
    """The octets of a PDU behind the access address, and whether they are there whole with the right CRC."""
    plain = octets_of((bits ^ whitening(channel, len(bits)))[: len(bits) // 8 * 8])
    if len(plain) < HEADER_OCTETS:
        return b"", False
    end = HEADER_OCTETS + plain[1]
    pdu, check = plain[:end], plain[end : end + CRC_OCTETS]
    return pdu, len(pdu) == end and check == crc(pdu)


def _bits(iq: Complex, cfo_hz: NDArray[np.float64]) -> Bits:
    """Bits behind the access address: which way the phase turns over each, on all antennas together."""
    known = np.isfinite(cfo_hz)
    turn = np.exp(-2j * np.pi * np.where(known, cfo_hz, 0)[:, None] / RATE_HZ * np.arange(iq.shape[1]))
    still = np.where(known[:, None], np.nan_to_num(iq, posinf=0, neginf=0) * turn, 0)
    if still.shape[1] < SMOOTH:
        return np.empty(0, dtype=np.uint8)
    smooth = np.stack([np.convolve(row, np.ones(SMOOTH), "same") for row in still])
    product = (smooth[:, PER_BIT:] * smooth[:, :-PER_BIT].conj()).sum(0).imag  # of number n: over the bit around n + 4
    first = 8 * len(BEGINNING) * PER_BIT
    count = min((iq.shape[1] - first) // PER_BIT, 8 * (HEADER_OCTETS + LONGEST_OCTETS + CRC_OCTETS))
    if count <= 0:
        return np.empty(0, dtype=np.uint8)
    product = np.pad(product, (1, PER_BIT))
    middle = first + PER_BIT * np.arange(count) + 1
    return (sum(product[middle + d] for d in (-1, 0, 1)) > 0).astype(np.uint8)
