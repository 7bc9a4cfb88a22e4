"""Intel AX200 and AX210, Atheros 9300 and Intel 5300 under PicoScenes: it writes .csi.

A packet is its length (u32, of what follows), 0x20150315, the version 1 (u16), the number of its segments (u8), the
segments, and the Wi-Fi frame as it was received, whose bytes 10 to 15 are the sender's address. A segment is its length
(u32, of what follows), the length of its name (u8), the name, its version (u16) and its content. That of "CSI" is

    device u16, firmware u8 (version 4), format i8, width [MHz] u16, carrier [Hz] u64, samples/s u64, spacing [Hz] u32,
    subcarriers u16, streams u8, antennas u8, extra streams u8, states u16 (3, 4), antenna_sel u8, offset of the
    subcarriers i16 (2, 3, 4), length of the state u32, state

little-endian, without gaps. States: AX200, AX210: stream × antenna × subcarrier × (real, imaginary) i16; 9300:
subcarrier × stream × antenna × (imaginary, real) of 10 bits; 5300: of each subcarrier 3 idle bits and antenna × stream
× (real, imaginary) of 8 bits. On AX200 and AX210 pilots hold nothing of use, and are dropped.

csiread reads such files too, but trusts every length in them, and for AX200 and AX210 drops another subcarrier from the
second pilot on (its source says that it may be incorrect). So it is not given any; for the other two a test compares.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pisa_capc.signal.formats.csi.cards import BadPacket, Bytes, CsiCard, FoundPacket, Kind, both_sides

FRAME, MAGIC = struct.Struct("<IIHB"), 0x20150315
SEGMENT = struct.Struct("<IB")
FIELDS = "bHQQIHBBB"  # what all versions of a content have in the middle
CONTENT = {  # by the version of the segment
    1: struct.Struct(f"<H{FIELDS}BI"),
    2: struct.Struct(f"<H{FIELDS}BhI"),
    3: struct.Struct(f"<H{FIELDS}HBhI"),
    4: struct.Struct(f"<HB{FIELDS}HBhI"),
}
DEVICES = {0x2000: "AX200", 0x2100: "AX210", 0x9300: "9300", 0x5300: "5300"}
SENDER = slice(10, 16)  # of a Wi-Fi frame
MOST = 4  # antennas, and streams

# Subcarriers beside the carrier, and pilots among them by place, by format and width: IEEE 802.11-2020, 17 to 21, 27.
NON_HT, HT, VHT, HE = range(4)
EDGES = {(NON_HT, 20): (1, 26), (HT, 20): (1, 28), (HT, 40): (2, 58), (VHT, 80): (2, 122)}
EDGES |= {(HE, 20): (2, 122), (HE, 40): (3, 244), (HE, 80): (3, 500)}
PILOTS = {
    (NON_HT, 20): (7, 21),
    (HT, 20): (7, 21),
    (HT, 40): (11, 25, 53),
    (VHT, 80): (11, 39, 75, 103),
    (HE, 20): (22, 48, 90, 116),
    (HE, 40): (10, 36, 78, 104, 144, 170, 212, 238),
    (HE, 80): (24, 92, 158, 226, 266, 334, 400, 468),
}
INTEL_5300 = {20: (*range(-28, -1, 2), -1, *range(1, 28, 2), 28), 40: tuple(range(-58, 59, 4))}


class _State(NamedTuple):
    """Channel state of a packet: where it begins, and its dimensions."""

    at: int
    device: str
    layout: tuple[int, int]  # format and width
    subcarriers: int
    streams: int  # with the extra ones
    antennas: int
    carrier_hz: float


class PicoScenes(CsiCard):
    title = "PicoScenes"
    suffix = ".csi"

    def recognises(self, data: Bytes) -> bool:
        return len(data) >= FRAME.size and FRAME.unpack_from(data)[1] == MAGIC

    def walk(self, data: Bytes) -> Iterator[FoundPacket | BadPacket]:
        at = 0
        while at < len(data):
            end = at + 4 + int.from_bytes(data[at : at + 4], "little")
            if at + FRAME.size > len(data) or not at + FRAME.size <= end <= len(data):
                why = "its length leads beyond the end of the file, or nowhere"
                yield BadPacket(at, f"{why}; what follows is lost with it")
                return
            yield self._found(data, at, end)
            at = end

    def _found(self, data: Bytes, at: int, end: int) -> FoundPacket | BadPacket:
        try:
            state, frame = _packet(data, at, end)
        except ValueError as error:
            return BadPacket(at, str(error))
        if self.how.stream >= state.streams:
            return BadPacket(at, f"streams 0 to {state.streams - 1}; --stream {self.how.stream} was asked for")
        sender = bytes(data[frame:end])[SENDER]
        width, layout = state.layout[1], f"{state.device} {state.layout[0]}"
        kind = Kind(tuple(range(state.antennas)), width, state.carrier_hz, layout)
        return FoundPacket((at,), kind, sender if len(sender) == 6 else b"")

    def subcarriers(self, kind: Kind) -> NDArray[np.int64]:
        device, form = kind.layout.split()
        numbers = _all_subcarriers(device, (int(form), kind.bandwidth_mhz))
        return numbers[_wanted(device, (int(form), kind.bandwidth_mhz), numbers)]

    def read(self, data: Bytes, places: NDArray[np.int64], kind: Kind) -> NDArray[np.complex64]:
        csi = np.empty((len(places), len(kind.chains), len(self.subcarriers(kind))), np.complex64)
        for frame, (at,) in zip(csi, places.tolist(), strict=True):
            state, _ = _packet(data, at, at + 4 + int.from_bytes(data[at : at + 4], "little"))
            whole = _unpacked(data, state)[self.how.stream]
            frame[:] = whole[:, _wanted(state.device, state.layout, _all_subcarriers(state.device, state.layout))]
        return csi


def _all_subcarriers(device: str, layout: tuple[int, int]) -> NDArray[np.int64]:
    if device == "5300":
        return np.array(INTEL_5300[layout[1]])
    lowest, highest = EDGES[layout]
    return both_sides(range(lowest, highest + 1))


def _wanted(device: str, layout: tuple[int, int], numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    """All but the pilots of cards that do not estimate them."""
    return ~np.isin(abs(numbers), PILOTS[layout] if device.startswith("AX") else ())


def _packet(data: Bytes, at: int, end: int) -> tuple[_State, int]:
    """Channel state of a packet, and where its Wi-Fi frame begins; ValueError where there is none that can be read."""
    _, magic, version, segments = FRAME.unpack_from(data, at)
    if (magic, version) != (MAGIC, 1):
        raise ValueError(f"begins with {magic:#010x} of version {version}; expected {MAGIC:#010x} of version 1")
    at += FRAME.size
    state = None
    for _ in range(segments):
        if at + SEGMENT.size > end:
            raise ValueError("a segment leads beyond the end of its packet")
        length, name_length = SEGMENT.unpack_from(data, at)
        after, content = at + 4 + length, at + SEGMENT.size + name_length + 2
        if not content <= after <= end:
            raise ValueError("a segment leads beyond the end of its packet, or into itself")
        if bytes(data[at + SEGMENT.size : content - 2]) == b"CSI":
            state = _state(data, content, after, int.from_bytes(data[content - 2 : content], "little"))
        at = after
    if state is None:
        raise ValueError("holds no channel state")
    return state, at


def _state(data: Bytes, at: int, end: int, version: int) -> _State:
    if version not in CONTENT:
        raise ValueError(f"channel state of version {version}; expected 1 to {max(CONTENT)}")
    header = CONTENT[version]
    if at + header.size > end:
        raise ValueError("its channel state ends within its header")
    code, *fields = header.unpack_from(data, at)
    form, width, carrier, _, _, subcarriers, sent, antennas, extra = fields[1:10] if version == 4 else fields[:9]
    if code not in DEVICES:
        raise ValueError(f"of device {code:#06x}; expected {', '.join(DEVICES.values())}")
    device = DEVICES[code]
    layout = (HT if form == VHT and width <= 40 else form, width)  # the same subcarriers
    if layout not in EDGES or (device == "5300" and width not in INTEL_5300):
        raise ValueError(f"format {form} of {width} MHz, which is not read")
    state = _State(at + header.size, device, layout, subcarriers, sent + extra, antennas, float(carrier))
    if not (1 <= state.streams <= MOST and 1 <= antennas <= MOST):
        raise ValueError(f"{antennas} antennas and {state.streams} streams; expected 1 to {MOST} of each")
    if subcarriers != (expected := len(_all_subcarriers(device, layout))):
        raise ValueError(f"{subcarriers} subcarriers at {width} MHz; expected {expected}")
    if not 1e8 <= carrier <= 1e11:
        raise ValueError(f"a carrier of {carrier:,} Hz; expected 100 MHz to 100 GHz")
    needed, there = _bytes_of(state), fields[-1]
    if not needed <= there <= end - state.at:
        raise ValueError(f"{there} bytes of channel state; {antennas} antennas, {state.streams} streams have {needed}")
    return state


def _bytes_of(state: _State) -> int:
    values = state.subcarriers * state.streams * state.antennas
    if state.device == "5300":
        return -(-(3 * state.subcarriers + 16 * values) // 8)
    return -(-20 * values // 8) if state.device == "9300" else 4 * values


def _unpacked(data: Bytes, state: _State) -> NDArray[np.complexfloating]:
    """(streams, antennas, subcarriers)"""
    raw = np.frombuffer(data[state.at : state.at + _bytes_of(state)], np.uint8)
    k, streams, antennas = state.subcarriers, state.streams, state.antennas
    if state.device == "9300":
        bits = np.unpackbits(raw, bitorder="little")[: 20 * k * streams * antennas]
        parts = _signed(bits.reshape(k, streams, antennas, 2, 10))
        return (parts[..., 1] + 1j * parts[..., 0]).transpose(1, 2, 0)
    if state.device == "5300":
        bits = np.unpackbits(raw, bitorder="little")[: k * (3 + 16 * streams * antennas)].reshape(k, -1)[:, 3:]
        parts = _signed(bits.reshape(k, antennas, streams, 2, 8))
        return (parts[..., 0] + 1j * parts[..., 1]).transpose(2, 1, 0)
    parts = raw.view("<i2").reshape(streams, antennas, k, 2).astype(np.float32)
    return parts[..., 0] + 1j * parts[..., 1]


def _signed(bits: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Numbers from their bits, lowest first, in two's complement."""
    weights = 2.0 ** np.arange(bits.shape[-1])
    weights[-1] *= -1
    return bits @ weights
