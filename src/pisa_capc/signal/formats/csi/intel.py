"""Intel 5300 under the Linux 802.11n CSI Tool: `log_to_file` writes .dat.

A record is its length (2 bytes, big-endian, of what follows), a code, and the rest. Code 0xbb is channel state:

    0  timestamp_low u32    8  Nrx u8     10  RSSI of A, B, C  u8 each   15  antenna_sel u8
    4  bfee_count u16       9  Ntx u8     13  noise i8, 14  AGC u8       16  length of the rest u16, 18  rate u16
    20  30 subcarriers, each 3 bits of nothing and Nrx × Ntx × (real, imaginary) of 8 bits, without gaps

little-endian. Two bits of antenna_sel for each chain, the lowest first, say which antenna it was put on; bit 11 of the
rate is a 40 MHz channel. Code 0xc1 is the packet itself, which is not read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import MissingExtraError
from pisa_capc.signal.formats.csi.cards import BadPacket, Bytes, CsiCard, FoundPacket, Kind

CHANNEL_STATE, PACKET = 0xBB, 0xC1
HEADER = struct.Struct("<IHH8BHH")
MOST = 3  # antennas, and streams
HT40 = 0x800


class Intel(CsiCard):
    title = "Intel 5300"
    suffix = ".dat"

    def recognises(self, data: Bytes) -> bool:
        return len(data) > 3 and data[2] in (CHANNEL_STATE, PACKET) and 3 + HEADER.size <= _end(data, 0) <= len(data)

    def walk(self, data: Bytes) -> Iterator[FoundPacket | BadPacket]:
        at = 0
        while at < len(data):
            if at + 3 > len(data) or not at + 3 <= _end(data, at) <= len(data):
                yield BadPacket(
                    at, "its length leads beyond the end of the file, or nowhere; what follows is lost with it"
                )
                return
            if data[at + 2] == CHANNEL_STATE:
                yield self._found(data, at)
            elif data[at + 2] != PACKET:
                yield BadPacket(
                    at, f"a record of code {data[at + 2]:#04x}; expected 0xbb, channel state, or 0xc1, a packet"
                )
            at = _end(data, at)

    def _found(self, data: Bytes, at: int) -> FoundPacket | BadPacket:
        length = _end(data, at) - at - 3
        if length < HEADER.size:
            return BadPacket(at, f"{length} bytes; its header alone has {HEADER.size}")
        _, _, _, received, sent, *_, selected, size, rate = HEADER.unpack_from(data, at + 3)
        if not (1 <= received <= MOST and 1 <= sent <= MOST):
            return BadPacket(at, f"{received} antennas and {sent} streams; expected 1 to {MOST} of each")
        needed = 60 * received * sent + 12
        if not size == length - HEADER.size == needed:
            return BadPacket(at, f"{size} bytes of channel state; {received} antennas and {sent} streams have {needed}")
        antennas = [selected >> 2 * i & 3 for i in range(received)]
        if sorted(antennas) != list(range(received)):
            return BadPacket(at, f"its chains claim the antennas {antennas}; expected an order of {received}")
        if self.how.stream >= sent:
            return BadPacket(at, f"transmit streams 0 to {sent - 1}; --stream {self.how.stream} was asked for")
        return FoundPacket((at,), Kind(tuple(range(received)), 40 if rate & HT40 else 20))

    def subcarriers(self, kind: Kind) -> NDArray[np.int64]:
        """Those that IEEE 802.11-2016, table 9-54, groups by two in 20 MHz and by four in 40 MHz: 30 in either."""
        if kind.bandwidth_mhz == 40:
            return np.arange(-58, 59, 4)
        return np.concatenate([np.arange(-28, -1, 2), [-1], np.arange(1, 28, 2), [28]])

    def read(self, data: Bytes, places: NDArray[np.int64], kind: Kind) -> NDArray[np.complex64]:
        try:
            import csiread
        except ImportError as error:
            raise MissingExtraError("csiread", "csi", f"Reading channel state of {self.title}") from error
        parser = csiread.Intel(None, nrxnum=MOST, ntxnum=MOST, if_report=False)
        csi = np.empty((len(places), len(kind.chains), 30), np.complex64)
        for frame, (at,) in zip(csi, places.tolist(), strict=True):
            parser.pmsg(bytes(data[at + 2 : _end(data, at)]))  # puts each chain back on its antenna
            frame[:] = parser.csi[0, :, : len(kind.chains), self.how.stream].T
        return csi


def _end(data: Bytes, at: int) -> int:
    return at + 2 + int.from_bytes(data[at : at + 2], "big")
