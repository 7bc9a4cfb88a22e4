"""Broadcom chips under nexmon_csi: tcpdump writes .pcap.

After the 24 bytes of the pcap header, a packet is 16 bytes of its own header (the third u32 its captured, the fourth
its whole length) and an Ethernet frame whose source address reads NEXMON: 42 bytes of Ethernet, IP and UDP, then

    0  0x1111, and the same again or RSSI and frame control    12  core, 3 bits, spatial stream, 3 bits; u16
    4  address of the sender                                   14  chanspec u16, 16  chip u16
    10  sequence number u16                                    18  64, 128 or 256 subcarriers of 4 bytes

little-endian. One packet is one core (receive chain) and one stream; those of a frame follow one another under one
sequence number. Chips 4339 and 43455c0 write real and imaginary i16; 4358 and 4366c0 floats: from the highest of M + M
+ E bits on sign and M − 1 bits of the real part, the same of the imaginary part, and the exponent of both, with M, E =
9, 5 and 12, 6. Subcarriers come as an FFT has them.

csiread's unpacker is not used: it scales every packet, hence every antenna, to ten bits of its own.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import ConfigError, unknown_name
from pisa_capc.signal.formats.base import CsiOptions
from pisa_capc.signal.formats.csi.cards import BadPacket, Bytes, CsiCard, FoundPacket, Kind, both_sides

ORDERS = {b"\xd4\xc3\xb2\xa1": "<", b"\xa1\xb2\xc3\xd4": ">", b"\x4d\x3c\xb2\xa1": "<", b"\xa1\xb2\x3c\x4d": ">"}
FILE_HEADER, PACKET_HEADER, AROUND = 24, 16, 42  # bytes; the last: of Ethernet, IP and UDP
HEADER = struct.Struct("<H2x6sHHHH")
ETHERNET, NEXMON, MAGIC = 1, b"NEXMON", 0x1111
BANDWIDTH_MHZ = {64: 20, 128: 40, 256: 80}
CHIPS = {0x0001: "4339", 0x0065: "43455c0", 0x0003: "4358", 0x006A: "4366c0"}  # by the number they give themselves
FLOATS = {"4358": (9, 5), "4366c0": (12, 6)}  # M, E
BAND_5_GHZ = 0xC000


class _Packet(NamedTuple):
    place: int
    core: int
    stream: int
    frame: tuple[bytes, int, int, float]  # what packets of one frame share: sender, number, bandwidth, carrier


class Nexmon(CsiCard):
    title = "Nexmon"
    suffix = ".pcap"

    def __init__(self, how: CsiOptions) -> None:
        super().__init__(how)
        if how.chip is not None and how.chip not in CHIPS.values():
            raise ConfigError("--chip: " + unknown_name("chip", how.chip, CHIPS.values()))

    def recognises(self, data: Bytes) -> bool:
        return bytes(data[:4]) in ORDERS

    def walk(self, data: Bytes) -> Iterator[FoundPacket | BadPacket]:
        """Packets of one sender and sequence number that follow one another are a frame, until a core comes again."""
        frame: dict[int, _Packet] = {}
        for packet in self._packets(data):
            if isinstance(packet, BadPacket):
                yield packet
            elif packet.stream == self.how.stream:
                if frame and (packet.core in frame or packet.frame != next(iter(frame.values())).frame):
                    yield _found(frame)
                    frame = {}
                frame[packet.core] = packet
        if frame:
            yield _found(frame)

    def _packets(self, data: Bytes) -> Iterator[_Packet | BadPacket]:
        order = ORDERS.get(bytes(data[:4]))
        if order is None or len(data) < FILE_HEADER or struct.unpack_from(f"{order}I", data, 20)[0] != ETHERNET:
            yield BadPacket(0, "no pcap file of Ethernet frames")
            return
        header = struct.Struct(f"{order}8xII")
        at = FILE_HEADER
        while at < len(data):
            captured, whole = header.unpack_from(data, at) if at + header.size <= len(data) else (len(data), 0)
            end = at + PACKET_HEADER + captured
            if end > len(data):
                yield BadPacket(at, "its length leads beyond the end of the file; what follows is lost with it")
                return
            if bytes(data[at + PACKET_HEADER + 6 : at + PACKET_HEADER + 12]) == NEXMON:
                yield self._packet(data, at, captured, whole)
            at = end

    def _packet(self, data: Bytes, at: int, captured: int, whole: int) -> _Packet | BadPacket:
        if captured != whole:
            return BadPacket(at, f"{captured} of its {whole} bytes were captured")
        tones = (captured - AROUND - HEADER.size) // 4
        if tones not in BANDWIDTH_MHZ or captured != AROUND + HEADER.size + 4 * tones:
            return BadPacket(at, f"{captured} bytes; expected {AROUND + HEADER.size} and 4 for each of 64, 128 or 256")
        magic, sender, number, route, spec, chip = HEADER.unpack_from(data, at + PACKET_HEADER + AROUND)
        if magic != MAGIC:
            return BadPacket(at, f"channel state begins with {magic:#06x}; expected {MAGIC:#06x}")
        if self.how.chip is None and chip not in CHIPS:
            return BadPacket(at, f"chip {chip:#06x} is not known; name it with --chip")
        route |= route >> 8  # some firmware has it in the upper byte
        carrier_hz = (5e9 if spec & BAND_5_GHZ == BAND_5_GHZ else 2.407e9) + 5e6 * (spec & 0xFF)
        return _Packet(at, route & 7, route >> 3 & 7, (sender, number, BANDWIDTH_MHZ[tones], carrier_hz))

    def subcarriers(self, kind: Kind) -> NDArray[np.int64]:
        """Those of HT and VHT. The others, at the carrier and the edges, hold what happens to be there, and often more
        of it than the channel: they are dropped."""
        return both_sides({20: range(1, 29), 40: range(2, 59), 80: range(2, 123)}[kind.bandwidth_mhz])

    def read(self, data: Bytes, places: NDArray[np.int64], kind: Kind) -> NDArray[np.complex64]:
        tones = next(n for n, bandwidth in BANDWIDTH_MHZ.items() if bandwidth == kind.bandwidth_mhz)
        start = PACKET_HEADER + AROUND + HEADER.size
        words = np.array([[np.frombuffer(data, "<u4", tones, at + start) for at in row] for row in places.tolist()])
        chip = self.how.chip or CHIPS[int.from_bytes(data[places[0, 0] + start - 2 : places[0, 0] + start], "little")]
        csi = unpack_floats(words, *FLOATS[chip]) if chip in FLOATS else unpack_integers(words)
        return csi[..., self.subcarriers(kind)]  # in the order of an FFT, −1 is the last


def _found(frame: dict[int, _Packet]) -> FoundPacket:
    cores = sorted(frame)
    sender, _, bandwidth_mhz, carrier_hz = frame[cores[0]].frame
    return FoundPacket(tuple(frame[c].place for c in cores), Kind(tuple(cores), bandwidth_mhz, carrier_hz), sender)


def unpack_integers(words: NDArray[np.uint32]) -> NDArray[np.complex64]:
    """Real part in the lower, imaginary part in the upper 16 bits."""
    parts = np.ascontiguousarray(words).view("<i2").astype(np.float32)
    return parts.view(np.complex64)


def unpack_floats(words: NDArray[np.uint32], mantissa: int, exponent: int) -> NDArray[np.complex64]:
    """(±m_re ± j m_im) 2^e from 2M + E bits."""

    def part(shift: int) -> NDArray[np.float64]:
        value = (words >> shift & (1 << mantissa - 1) - 1).astype(np.float64)
        return np.where(words >> shift + mantissa - 1 & 1, -value, value)

    power = (words & (1 << exponent) - 1).astype(np.int64)
    power -= (power >> exponent - 1) << exponent
    return ((part(exponent + mantissa) + 1j * part(exponent)) * np.exp2(power)).astype(np.complex64)
