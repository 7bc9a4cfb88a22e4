"""ESP32 under the ESP32-CSI-Tool: lines of CSV, as its serial port prints them.

    CSI_DATA,role,mac,rssi,rate,sig_mode,mcs,bandwidth,smoothing,not_sounding,aggregation,stbc,fec_coding,sgi,
    noise_floor,ampdu_cnt,channel,secondary_channel,local_timestamp,ant,sig_len,rx_state,real_time_set,
    real_timestamp,len,[imaginary real imaginary real …]

i8 each, as many as `len` says. The first 64 pairs are of the legacy training field, which every frame has; HT fields
follow in HT frames, and are not read. Without a secondary channel they come as an FFT has them, with one from the
lowest to the highest. To check a line is to read it, so csiread has no part in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pisa_capc.signal.formats.csi.cards import BadPacket, Bytes, CsiCard, FoundPacket, Kind, both_sides

MARK, HEADING = b"CSI_DATA", b"type,"
COLUMNS = 26
MAC, CHANNEL, SECONDARY, RX_STATE, LENGTH, STATE = 2, 16, 17, 21, 24, 25
LENGTHS = (128, 256, 384, 612)  # numbers in a line: of one field, and with one or two of HT
LONGEST = 8192  # bytes of a line
LEGACY = 64  # subcarriers of its field
NUMBER = set(b"-0123456789 ")
CHANNEL_14_HZ = 2.484e9


class _Line(NamedTuple):
    sender: bytes
    channel: int
    shifted: bool  # whether subcarriers come as an FFT has them
    numbers: NDArray[np.int64]


class Esp32(CsiCard):
    title = "ESP32"
    suffix = ".csv"

    def recognises(self, data: Bytes) -> bool:
        return bytes(data[: len(MARK)]) == MARK or bytes(data[: len(HEADING)]) == HEADING

    def walk(self, data: Bytes) -> Iterator[FoundPacket | BadPacket]:
        at = 0
        while at < len(data):
            end = data.find(b"\n", at)
            end = len(data) if end < 0 else end
            heading = at == 0 and bytes(data[: len(HEADING)]) == HEADING
            if not heading and bytes(data[at : min(end, at + LONGEST)]).strip():
                yield self._found(data, at, end)
            at = end + 1

    def _found(self, data: Bytes, at: int, end: int) -> FoundPacket | BadPacket:
        if end - at > LONGEST:
            return BadPacket(at, f"a line of {end - at:,} bytes; expected at most {LONGEST:,}")
        try:
            line = _parse(bytes(data[at:end]))
        except ValueError as error:
            return BadPacket(at, str(error))
        if self.how.stream:
            return BadPacket(at, f"one transmit stream, 0; --stream {self.how.stream} was asked for")
        carrier_hz = CHANNEL_14_HZ if line.channel == 14 else 2.407e9 + 5e6 * line.channel
        return FoundPacket((at,), Kind((0,), 20, carrier_hz), line.sender)

    def subcarriers(self, kind: Kind) -> NDArray[np.int64]:
        """Those of the legacy training field; the carrier and the edges hold nothing, and are dropped."""
        return both_sides(range(1, 27))

    def read(self, data: Bytes, places: NDArray[np.int64], kind: Kind) -> NDArray[np.complex64]:
        numbers = self.subcarriers(kind)
        csi = np.empty((len(places), 1, len(numbers)), np.complex64)
        for frame, (at,) in zip(csi, places.tolist(), strict=True):
            end = data.find(b"\n", at)
            line = _parse(bytes(data[at : len(data) if end < 0 else end]))
            pairs = line.numbers[: 2 * LEGACY].reshape(LEGACY, 2)
            wanted = pairs[numbers if line.shifted else numbers + LEGACY // 2]
            frame[0] = wanted[:, 1] + 1j * wanted[:, 0]
        return csi


def _parse(line: bytes) -> _Line:
    """What a line says; ValueError where it says something else."""
    columns = line.strip().split(b",", COLUMNS - 1)
    if columns[0] != MARK or len(columns) != COLUMNS:
        raise ValueError(f"a line of {len(columns)} columns; expected CSI_DATA and {COLUMNS - 1} more")
    if any(not columns[i].isdigit() for i in (CHANNEL, SECONDARY, RX_STATE, LENGTH)):
        raise ValueError("channel, secondary channel, state and length are not all whole numbers")
    channel, secondary, wrong, length = (int(columns[i]) for i in (CHANNEL, SECONDARY, RX_STATE, LENGTH))
    if not 1 <= channel <= 14 or secondary > 2:
        raise ValueError(f"channel {channel} and secondary channel {secondary}; expected 1 to 14 and 0 to 2")
    if wrong:
        raise ValueError(f"received in state {wrong}; expected 0, without error")
    state = columns[STATE].strip(b'" ')
    if not (state.startswith(b"[") and state.endswith(b"]") and set(state[1:-1]) <= NUMBER):
        raise ValueError("its channel state is not [numbers]")
    numbers = np.array([int(number) for number in state[1:-1].split()])
    if len(numbers) != length or length not in LENGTHS:
        raise ValueError(f"{len(numbers)} numbers, and {length} in column len; expected one of {LENGTHS} for both")
    if numbers.min() < -128 or numbers.max() > 127:
        raise ValueError(f"channel state from {numbers.min()} to {numbers.max()}; expected −128 to 127")
    return _Line(columns[MAC], channel, secondary == 0, numbers)
