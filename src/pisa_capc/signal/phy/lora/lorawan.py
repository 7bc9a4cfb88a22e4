"""LoRaWAN frames as far as they are not encrypted: who sends, or who is addressed.

LoRaWAN 1.0.4, section 4: MHDR (type, 3 bits; major version, 2 bits), then for data frames DevAddr, FCtrl, FCnt (little
endian), options, port, payload, and a MIC of four octets; for join requests JoinEUI, DevEUI, DevNonce, MIC.
"""

from __future__ import annotations

from pisa_capc.core.errors import ConfigError
from pisa_capc.signal.phy.base import Header

SYNC_WORD = 0x34
KINDS = (
    "join-request",
    "join-accept",
    "unconfirmed-up",
    "unconfirmed-down",
    "confirmed-up",
    "confirmed-down",
    "rejoin-request",
    "proprietary",
)
SHORTEST_DATA = 12  # MHDR, DevAddr, FCtrl, FCnt, MIC
JOIN_REQUEST = 23


def data_frame(
    dev_addr: int,
    frame_counter: int,
    payload: bytes = b"",
    *,
    port: int = 1,
    kind: str = "unconfirmed-up",
    control: int = 0,
    mic: bytes = bytes(4),
) -> bytes:
    """A data frame. `mic` is a placeholder: who knows no keys can neither make nor check it."""
    if kind not in KINDS[2:6]:
        raise ConfigError(f"a data frame of kind {kind!r}; expected one of {', '.join(KINDS[2:6])}")
    if not 0 <= dev_addr < 1 << 32:
        raise ConfigError(f"DevAddr {dev_addr:#x}; expected 32 bits")
    header = bytes([KINDS.index(kind) << 5]) + dev_addr.to_bytes(4, "little") + bytes([control & 0xF0])
    return header + (frame_counter & 0xFFFF).to_bytes(2, "little") + bytes([port]) + payload + mic


def parse(frame: bytes) -> Header | None:
    """Who claims to send a frame, or whom it is for; None where it is not as LoRaWAN has it."""
    if not frame or frame[0] & 0x1F:  # version one of LoRaWAN has zeros there
        return None
    kind = KINDS[frame[0] >> 5]
    if kind == "join-request":
        if len(frame) != JOIN_REQUEST:
            return None
        return Header(kind, transmitter=_address(frame[9:17]), receiver=_address(frame[1:9]))
    if kind not in KINDS[2:6]:
        return Header(kind)
    if len(frame) < SHORTEST_DATA or len(frame) < SHORTEST_DATA + (frame[5] & 15):  # options may follow the counter
        return None
    address = _address(frame[1:5])
    return Header(kind, transmitter=address) if kind.endswith("up") else Header(kind, receiver=address)


def _address(octets: bytes) -> str:
    return octets[::-1].hex()
