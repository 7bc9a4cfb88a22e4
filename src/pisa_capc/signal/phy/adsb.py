"""ADS-B: bits to what a squitter says, as far as it identifies who sends it.

ICAO Annex 10, volume IV, 3.1.2; 112 bits, the highest first:

    DF 5   downlink format: 17 squitter of a transponder, 18 of another emitter
    CA 3   capability; for DF 18 the control field: 0 and 1 have an address of the emitter's own behind them
    AA 24  ICAO address
    ME 56  message, whose first five bits are its type code
    PI 24  parity of all that is before it

    8D4840D6 202CC371C32CE0 576098    DF 17, CA 5, address 4840d6, type 4: identification KLM1023
    8D485020 994409940838 175B284F    DF 17, CA 5, address 485020, type 19: velocity
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import ConfigError
from pisa_capc.signal.phy.base import Header
from pisa_capc.signal.waveforms.adsb import BITS, bits_of, decide, modulate, parity, with_parity

OCTETS = BITS // 8
TRANSPONDER, OTHER = 17, 18  # downlink formats that are squitters with an address
OWN_ADDRESS = (0, 1)  # control fields of DF 18; in the others the address is of whom the message is about
RATE_MBPS = 1.0
KINDS = {
    **dict.fromkeys(range(1, 5), "identification"),
    **dict.fromkeys(range(5, 9), "surface-position"),
    **dict.fromkeys([*range(9, 19), *range(20, 23)], "airborne-position"),
    19: "velocity",
    28: "aircraft-status",
    29: "target-state",
    31: "operation-status",
}


def parse(message: bytes) -> Header | None:
    """Who sends 14 octets; None where they are no extended squitter. What has a wrong parity claims nothing.

    >>> parse(bytes.fromhex("8D4840D6202CC371C32CE0576098"))
    Header(kind='identification', rate_mbps=1.0, length=14, transmitter='4840d6', receiver=None, fcs=True)
    """
    if len(message) != OCTETS:
        return None
    downlink, control = message[0] >> 3, message[0] & 7
    if downlink not in (TRANSPONDER, OTHER):
        return None
    own = downlink == TRANSPONDER or control in OWN_ADDRESS
    kind = KINDS.get(message[4] >> 3, "squitter")
    return Header(kind, RATE_MBPS, OCTETS, message[1:4].hex() if own else None, fcs=parity(message) == 0)


def squitter(address: str, content: bytes, capability: int = 5) -> bytes:
    """The squitter of a transponder: six hexadecimal digits of its address, 7 octets of content."""
    if len(address) != 6 or set(address) - set("0123456789abcdef") or len(content) != 7 or not 0 <= capability <= 7:
        raise ConfigError(
            f"squitter of {address!r}, {len(content)} octets, capability {capability}: expected six hexadecimal "
            "digits, 7 octets and 0 … 7."
        )
    return with_parity(bytes([TRANSPONDER << 3 | capability]) + bytes.fromhex(address) + content)


def transmit(message: bytes) -> NDArray[np.complex128]:
    """(T,) a whole frame of 14 octets; of its power the preamble has one in the mean, and the bits 1.7."""
    if len(message) != OCTETS:
        raise ConfigError(f"a message of {len(message)} octets; expected {OCTETS}.")
    return modulate(bits_of(np.frombuffer(message, dtype=np.uint8)))


def receive(frames: Sequence[NDArray[np.complex64]]) -> list[Header | None]:
    """What frames (A, T) say that begin with their first sample."""
    return [parse(np.packbits(decide(iq[None]).bits[0]).tobytes()) for iq in frames]
