"""Atheros cards under the Atheros CSI Tool (ath9k): `recv_csi` writes .dat.

A record is its length (2 bytes, of what follows) and

    0  timestamp u64            12  PHY error u8    16  subcarriers u8   19  RSSI u8, and of three chains
    8  length of the state u16  13  noise floor u8  17  antennas u8      23  length of the payload u16
    10  channel [MHz] u16       14  rate u8         18  streams u8       25  channel state, payload
                                15  0: 20 MHz, 1: 40 MHz

in the byte order of the machine that received. State: subcarriers × antennas × streams × (imaginary, real) of 10 bits,
lowest bits first. Packets that have none were not sounding; they are not frames, and not an error.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import MissingExtraError
from pisa_capc.signal.formats.csi.cards import BadPacket, Bytes, CsiCard, FoundPacket, Kind, both_sides

MOST = 3  # antennas, and streams
HEADERS = {"little": struct.Struct("<HQHH11BH"), "big": struct.Struct(">HQHH11BH")}  # with the length before it
TONES = {0: (20, 56), 1: (40, 114)}  # bandwidth in MHz, and subcarriers


class Atheros(CsiCard):
    title = "Atheros"
    suffix = ".dat"

    def recognises(self, data: Bytes) -> bool:
        return any(_end(data, 0, order) is not None for order in HEADERS)

    def walk(self, data: Bytes) -> Iterator[FoundPacket | BadPacket]:
        order, at = _order(data), 0
        while at < len(data):
            end = _end(data, at, order)
            if end is None:
                why = "its lengths do not agree, or lead beyond the end of the file"
                yield BadPacket(at, f"{why}; what follows is lost with it")
                return
            header = HEADERS[order].unpack_from(data, at)
            if header[2]:
                yield self._found(header, at)
            at = end

    def _found(self, header: tuple[int, ...], at: int) -> FoundPacket | BadPacket:
        _, _, state, channel_mhz, wrong, _, _, width, tones, received, sent, *_ = header
        if wrong:
            return BadPacket(at, f"received with PHY error {wrong}")
        if not (1 <= received <= MOST and 1 <= sent <= MOST):
            return BadPacket(at, f"{received} antennas and {sent} streams; expected 1 to {MOST} of each")
        if width not in TONES or TONES[width][1] != tones:
            return BadPacket(at, f"{tones} subcarriers, and {width} for the width; expected 56 and 0, or 114 and 1")
        needed = -(-20 * tones * received * sent // 8)
        if state < needed:
            return BadPacket(at, f"{state} bytes of channel state; {tones} × {received} × {sent} have {needed}")
        if not channel_mhz:
            return BadPacket(at, "a channel at 0 MHz")
        if self.how.stream >= sent:
            return BadPacket(at, f"transmit streams 0 to {sent - 1}; --stream {self.how.stream} was asked for")
        return FoundPacket((at,), Kind(tuple(range(received)), TONES[width][0], channel_mhz * 1e6))

    def subcarriers(self, kind: Kind) -> NDArray[np.int64]:
        return both_sides(range(2, 59) if kind.bandwidth_mhz == 40 else range(1, 29))

    def read(self, data: Bytes, places: NDArray[np.int64], kind: Kind) -> NDArray[np.complex64]:
        try:
            import csiread
        except ImportError as error:
            raise MissingExtraError("csiread", "csi", f"Reading channel state of {self.title}") from error
        order, tones = _order(data), len(self.subcarriers(kind))
        parser = csiread.Atheros(None, nrxnum=MOST, ntxnum=MOST, tones=tones, if_report=False)
        csi = np.empty((len(places), len(kind.chains), tones), np.complex64)
        for frame, (at,) in zip(csi, places.tolist(), strict=True):
            record = bytes(data[at + 2 : _end(data, at, order)])
            parser.pmsg(record + bytes(1), order)  # it reads words of 16 bits, of which the last may be half there
            frame[:] = parser.csi[0, :, : len(kind.chains), self.how.stream].T
        return csi


def _order(data: Bytes) -> str:
    """The byte order in which the lengths of the first record agree."""
    return "little" if _end(data, 0, "little") is not None else "big"


def _end(data: Bytes, at: int, order: str) -> int | None:
    """Where a record ends; None where its lengths do not agree, or it ends beyond the file."""
    header = HEADERS[order]
    if at + header.size > len(data):
        return None
    length, _, state, *_, payload = header.unpack_from(data, at)
    end: int = at + header.size + state + payload
    return end if length == end - at - 2 and end <= len(data) else None
