"""IEEE 802.15.4: samples to octets, and the MAC header as far as it says who sends.

IEEE Std 802.15.4-2020, clauses 7 and 12. Behind preamble and delimiter: a length of 7 bits, and so many octets:

    frame control 2   type (3 bits), security, pending, acknowledgment wanted, PAN ID compression, reserved, sequence
                      number suppressed, information elements, destination's address (2 bits), version (2), source's (2)
    sequence number 1, addresses 0 … 20, content, FCS 2

    02 00 6a e4 79                            acknowledgment of sequence number 0x6a, no address
    41 88 01 62 1a ff ff 34 12 … fcs          data of 1234 to all in PAN 1a62

Addresses of modes 2 and 3 have two and eight octets, the lowest first. A short address is one only within its PAN: it
is given as PAN:address. What is encrypted is the content, not the addresses.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import ConfigError
from pisa_capc.signal.phy.base import Header
from pisa_capc.signal.waveforms.ieee802154 import (
    HEADER_SAMPLES,
    LONGEST_OCTETS,
    RATE_HZ,
    SYMBOL_SAMPLES,
    check_sequence,
    frame,
    frame_samples,
    modulate,
    octets_of,
)

RATE_MBPS = 0.25
KINDS = ("beacon", "data", "ack", "command", "reserved", "multipurpose", "fragment", "extended")
NO_SHORT = "fffe"  # of a device that has only its long address
SHORT, LONG = 2, 3  # modes
SHORTEST = 3  # frame control and FCS less one: an acknowledgment without a sequence number has four octets

Complex = NDArray[np.complexfloating[Any, Any]]


def data_frame(source: str, destination: str, sequence: int, content: bytes, *, acknowledge: bool = True) -> bytes:
    """A data frame with its FCS; addresses as `parse` gives them, both short and of one PAN, or both long.

    >>> data_frame("1a62:1234", "1a62:ffff", 1, b"", acknowledge=False).hex()
    '418801621affff34126a44'
    """
    pan, own, other = ("ffff", source, destination)
    mode = LONG
    if source.count(":") == 1:
        (pan, own), (theirs, other), mode = source.split(":"), destination.split(":"), SHORT
        if theirs != pan:
            raise ConfigError(f"from {source} to {destination}: expected short addresses of one PAN.")
    control = 1 | acknowledge << 5 | 1 << 6 | mode << 10 | mode << 14
    to, from_ = (bytes.fromhex(address.replace(":", ""))[::-1] for address in (other, own))
    octets = control.to_bytes(2, "little") + bytes([sequence & 0xFF]) + bytes.fromhex(pan)[::-1] + to + from_ + content
    if len(octets) > LONGEST_OCTETS - 2:
        raise ConfigError(f"a frame of {len(octets) + 2} octets; expected {LONGEST_OCTETS} or fewer.")
    return octets + check_sequence(octets)


def acknowledgment(sequence: int) -> bytes:
    """The answer to a frame; it has no address."""
    octets = bytes([2, 0, sequence & 0xFF])
    return octets + check_sequence(octets)


def parse(psdu: bytes) -> Header:
    """What a whole PSDU says; addresses as far as its header is as the standard has it."""
    right = len(psdu) >= 2 and check_sequence(psdu[:-2]) == psdu[-2:]
    if len(psdu) <= SHORTEST:
        return Header(length=len(psdu), rate_mbps=RATE_MBPS, fcs=right)
    control = int.from_bytes(psdu[:2], "little")
    kind = KINDS[control & 7]
    source, destination = _addresses(control, psdu[2:-2]) if control & 7 < 4 else (None, None)
    return Header(kind, RATE_MBPS, len(psdu), source, destination, right)


def _addresses(control: int, rest: bytes) -> tuple[str | None, str | None]:
    """Source and destination, of what follows frame control."""
    version, compressed = control >> 12 & 3, bool(control >> 6 & 1)
    to, from_ = control >> 10 & 3, control >> 14 & 3
    if 1 in (to, from_) or version == 3:
        return None, None
    at = 0 if version == 2 and control >> 8 & 1 else 1
    to_pan, from_pan = _pans(version, compressed, to, from_)
    sizes = [2 * to_pan, _octets(to), 2 * from_pan, _octets(from_)]
    if len(rest) < at + sum(sizes):
        return None, None
    parts = []
    for size in sizes:
        parts.append(rest[at : at + size][::-1])
        at += size
    pan, other, own_pan, own = parts
    return _name(own_pan or pan, own), _name(pan, other)


def _pans(version: int, compressed: bool, to: int, from_: int) -> tuple[bool, bool]:
    """Whether the PANs of destination and source are there: 7.2.2.6 and table 7-2."""
    if version < 2:
        return to > 0, from_ > 0 and not (compressed and to > 0)
    if not to and not from_:
        return compressed, False
    if not to or not from_:
        return to > 0 and not compressed, from_ > 0 and not compressed
    if to == from_ == LONG:
        return not compressed, False
    return True, not compressed


def _octets(mode: int) -> int:
    return {SHORT: 2, LONG: 8}.get(mode, 0)


def _name(pan: bytes, address: bytes) -> str | None:
    if len(address) == 8:
        return address.hex(":")
    if not address or address.hex() == NO_SHORT:
        return None
    return ":".join(part.hex() for part in (pan, address) if part)


def transmit(psdu: bytes) -> NDArray[np.complex128]:
    """(T,) a whole frame at 4 MS/s, its FCS included, of modulus one."""
    if not 1 <= len(psdu) <= LONGEST_OCTETS:
        raise ConfigError(f"a PSDU of {len(psdu)} octets; expected 1 … {LONGEST_OCTETS}.")
    return frame(psdu)


def receive(iq: Complex, cfo_hz: NDArray[np.float64]) -> tuple[Header, int | None]:
    """What a frame (A, T) says that begins with its first sample, with offsets (A,); its samples, where it says them.

    Each symbol is the one of 16 that explains most of the energy on all antennas, whatever its phase.
    """
    length, psdu = _psdu(iq, cfo_hz)
    if length is None:
        return Header(), None
    header = Header(length=length, rate_mbps=RATE_MBPS) if psdu is None else parse(psdu)
    return header, frame_samples(length)


def rebuild(iq: Complex, cfo_hz: NDArray[np.float64]) -> NDArray[np.complex128] | None:
    """(T,) a whole frame as it was sent; None where its FCS is not right."""
    _, psdu = _psdu(iq, cfo_hz)
    return None if psdu is None or not parse(psdu).fcs else frame(psdu)


def _psdu(iq: Complex, cfo_hz: NDArray[np.float64]) -> tuple[int | None, bytes | None]:
    """The length that a frame says, if it can be one, and its octets where they were received whole."""
    known = np.isfinite(cfo_hz)
    turn = np.exp(-2j * np.pi * np.where(known, cfo_hz, 0)[:, None] / RATE_HZ * np.arange(iq.shape[1]))
    still = np.where(known[:, None], np.nan_to_num(iq, posinf=0, neginf=0) * turn, 0)[:, HEADER_SAMPLES:]
    said = _decided(still[:, : 2 * SYMBOL_SAMPLES])
    length = int(octets_of(said)[0]) if len(said) == 2 else 0
    if not 1 <= length <= LONGEST_OCTETS:
        return None, None
    symbols = _decided(still[:, 2 * SYMBOL_SAMPLES : (2 + 2 * length) * SYMBOL_SAMPLES])
    return length, octets_of(symbols).tobytes() if len(symbols) == 2 * length else None


def _decided(still: Complex) -> NDArray[np.uint8]:
    """(S,) the symbols of whole symbols' samples (A, T)."""
    count = still.shape[1] // SYMBOL_SAMPLES
    parts = still[:, : count * SYMBOL_SAMPLES].reshape(len(still), count, SYMBOL_SAMPLES)
    power = np.sum(np.abs(parts @ _shapes().conj().T) ** 2, axis=0)
    return np.argmax(power, axis=1).astype(np.uint8)


def _shapes() -> Complex:
    """(16, 64) symbols as they are sent between others."""
    return np.stack(
        [modulate(np.array([s, s], dtype=np.uint8))[SYMBOL_SAMPLES : 2 * SYMBOL_SAMPLES] for s in range(16)]
    )
