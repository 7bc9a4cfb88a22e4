"""MAC frames: build, check, and read whom they are from and to (IEEE Std 802.11-2020, clause 9).

Address 1 is always the receiver; address 2, where there is one, always the transmitter. To DS and From DS tell what
address 3 means and whether there is a fourth. ACK and CTS name no transmitter.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pisa_capc.core.errors import ConfigError
from pisa_capc.signal.phy.wifi.coding import crc8

BROADCAST = "ff:ff:ff:ff:ff:ff"
FCS_OCTETS = 4
ADDRESSES_OCTETS = 24  # of a frame: what has to be read for `parse` to say all it can
DELIMITER_OCTETS = 4  # before each frame of an aggregate

_MANAGEMENT, _CONTROL, _DATA = range(3)
_ACK, _CTS, _RTS, _BEACON = 13, 12, 11, 8
_KINDS = {
    _MANAGEMENT: {
        0: "association-request",
        1: "association-response",
        2: "reassociation-request",
        3: "reassociation-response",
        4: "probe-request",
        5: "probe-response",
        6: "timing-advertisement",
        _BEACON: "beacon",
        9: "atim",
        10: "disassociation",
        11: "authentication",
        12: "deauthentication",
        13: "action",
        14: "action-no-ack",
    },
    _CONTROL: {
        2: "trigger",
        4: "beamforming-report-poll",
        5: "ndp-announcement",
        7: "control-wrapper",
        8: "block-ack-request",
        9: "block-ack",
        10: "ps-poll",
        _RTS: "rts",
        _CTS: "cts",
        _ACK: "ack",
        14: "cf-end",
        15: "cf-end-ack",
    },
    # Bit 2 of a data subtype: no body. Bit 3: QoS. The two lowest bits are of the contention-free period of old.
    _DATA: {s: ("qos-" if s & 8 else "") + ("null" if s & 4 else "data") for s in range(16)},
}
_ONLY_RECEIVER = {"control-wrapper", "cts", "ack"}


@dataclass(frozen=True)
class MacHeader:
    """kind: as "qos-data", "beacon", "ack". Addresses as "e8:de:27:90:6e:42"."""

    kind: str
    receiver: str
    transmitter: str | None


def parse(octets: bytes) -> MacHeader | None:
    """The header at the beginning of a frame; None where it is too short or none that the standard knows."""
    if len(octets) < 10 or octets[0] & 3:  # the only protocol version there is, is 0
        return None
    frame_type, subtype = octets[0] >> 2 & 3, octets[0] >> 4
    kind = _KINDS.get(frame_type, {}).get(subtype)
    if kind is None:
        return None
    receiver = _text(octets[4:10])
    if kind in _ONLY_RECEIVER:
        return MacHeader(kind, receiver, None)
    if len(octets) < (16 if frame_type == _CONTROL else 24):
        return None
    transmitter = octets[10:16]
    if frame_type == _CONTROL:
        # A set group bit signals the bandwidth there (9.3.1.2); the address is without it.
        transmitter = bytes([transmitter[0] & 0xFE]) + transmitter[1:]
    return MacHeader(kind, receiver, _text(transmitter))


def first_of_aggregate(octets: bytes) -> tuple[bytes, int] | None:
    """The first frame of an A-MPDU (9.7.1), as far as it is there, and the octets it should have.

    Delimiters of no frame are passed over. None where one is wrong, or none has a frame.
    """
    for start in range(0, len(octets) - DELIMITER_OCTETS + 1, DELIMITER_OCTETS):
        rest = octets[start + DELIMITER_OCTETS :]
        length = int.from_bytes(octets[start : start + 2], "little") >> 4
        if octets[start : start + DELIMITER_OCTETS] != _delimiter(length):
            return None
        if length:
            return rest[:length], length
    return None


def aggregate_is_right(octets: bytes) -> bool:
    """Whether an A-MPDU has a frame, and all its delimiters and checksums are right."""
    at, found = 0, False
    while at + DELIMITER_OCTETS <= len(octets):
        begin, length = at + DELIMITER_OCTETS, int.from_bytes(octets[at : at + 2], "little") >> 4
        if octets[at:begin] != _delimiter(length):
            return False
        if length and not fcs_is_right(octets[begin : begin + length]):
            return False
        found, at = found or length > 0, begin + -(-length // 4) * 4
    return found


def aggregate(frames: Sequence[bytes]) -> bytes:
    """An A-MPDU of frames, each with its delimiter and all but the last padded to four octets."""
    parts = [_delimiter(len(frame)) + frame for frame in frames]
    return b"".join(part + bytes(-len(part) % 4) for part in parts[:-1]) + parts[-1]


def _delimiter(length: int) -> bytes:
    """4 reserved bits, 12 of length, CRC-8 and the letter N."""
    head = np.frombuffer(_u16(length << 4), dtype=np.uint8)
    check = np.packbits(crc8(np.unpackbits(head, bitorder="little")), bitorder="little")
    return head.tobytes() + check.tobytes() + b"N"


def fcs_is_right(octets: bytes) -> bool:
    """Whether a frame ends in the CRC-32 of what is before it (9.2.4.8)."""
    return len(octets) > FCS_OCTETS and with_fcs(octets[:-FCS_OCTETS]) == octets


def with_fcs(octets: bytes) -> bytes:
    """The octets and their frame check sequence."""
    return octets + zlib.crc32(octets).to_bytes(FCS_OCTETS, "little")


def data(
    receiver: str,
    transmitter: str,
    third: str,
    body: bytes = b"",
    *,
    to_ds: bool = False,
    from_ds: bool = False,
    fourth: str | None = None,
    tid: int | None = None,
    sequence: int = 0,
    duration_us: int = 0,
) -> bytes:
    """A data frame (9.3.2.1), QoS data where `tid` (0 … 7) is given; `fourth` address where both DS bits are set."""
    if (to_ds and from_ds) != (fourth is not None):
        raise ConfigError(f"fourth address {fourth} with To DS {to_ds}, From DS {from_ds}; expected it with both only.")
    qos = b"" if tid is None else tid.to_bytes(2, "little")
    control = _control(_DATA, 0 if tid is None else 8, to_ds | from_ds << 1)
    addresses = _octets(receiver) + _octets(transmitter) + _octets(third)
    last = b"" if fourth is None else _octets(fourth)
    return with_fcs(control + _u16(duration_us) + addresses + _sequence(sequence) + last + qos + body)


def beacon(transmitter: str, ssid: str, *, timestamp_us: int = 0, interval_tu: int = 100, sequence: int = 0) -> bytes:
    """A beacon of an access point (9.3.3): timestamp, interval, capabilities (ESS), SSID and the OFDM rates."""
    name = ssid.encode()
    if len(name) > 32:
        raise ConfigError(f"SSID of {len(name)} octets; expected at most 32.")
    rates = bytes([0x8C, 0x12, 0x98, 0x24, 0xB0, 0x48, 0x60, 0x6C])
    header = _control(_MANAGEMENT, _BEACON) + _u16(0) + _octets(BROADCAST) + 2 * _octets(transmitter)
    body = timestamp_us.to_bytes(8, "little") + _u16(interval_tu) + _u16(1)
    return with_fcs(header + _sequence(sequence) + body + _element(0, name) + _element(1, rates))


def ack(receiver: str) -> bytes:
    """An acknowledgement (9.3.1.4): no transmitter."""
    return with_fcs(_control(_CONTROL, _ACK) + _u16(0) + _octets(receiver))


def cts(receiver: str, duration_us: int = 0) -> bytes:
    """Clear to send (9.3.1.3): no transmitter."""
    return with_fcs(_control(_CONTROL, _CTS) + _u16(duration_us) + _octets(receiver))


def rts(receiver: str, transmitter: str, duration_us: int = 0) -> bytes:
    """Request to send (9.3.1.2)."""
    return with_fcs(_control(_CONTROL, _RTS) + _u16(duration_us) + _octets(receiver) + _octets(transmitter))


def _control(frame_type: int, subtype: int, flags: int = 0) -> bytes:
    return bytes([frame_type << 2 | subtype << 4, flags])


def _u16(value: int) -> bytes:
    return value.to_bytes(2, "little")


def _sequence(number: int) -> bytes:
    """Sequence control of an unfragmented frame; numbers count modulo 4096."""
    return _u16(number % 4096 << 4)


def _element(identifier: int, content: bytes) -> bytes:
    return bytes([identifier, len(content)]) + content


def _octets(address: str) -> bytes:
    if not re.fullmatch(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}", address):
        raise ConfigError(f"address {address!r}; expected six octets as e8:de:27:90:6e:42.")
    return bytes.fromhex(address.replace(":", ""))


def _text(octets: bytes) -> str:
    return octets.hex(":")
