"""ESP32 under the ESP32-CSI-Tool or Espressif's esp-csi: lines of CSV, as their serial ports print them.

    ESP32-CSI-Tool      CSI_DATA,role,mac,…,channel,secondary_channel,…,rx_state,real_time_set,real_timestamp,len,[…]
    esp-csi             CSI_DATA,id,mac,…,channel,secondary_channel,…,rx_state,len,first_word,"[…]"
    esp-csi, C5 and C6  CSI_DATA,seq,mac,rssi,rate,noise_floor,fft_gain,agc_gain,channel,…,rx_state,len,first_word,"[…]"

26, 25 and 15 columns; the list holds imaginary and real part in turn, i8 each, as many as `len` says, between spaces or
commas. In the first two, 64 pairs of the legacy training field come first, which every frame has; HT fields follow in
HT frames, and are not read. Without a secondary channel they come as an FFT has them, with one from the lowest to the
highest. C5 and C6 print one field, whose length says which. They do not say the order, and Espressif's guide and
program differ on it; the empty pairs, at the carrier and the edges, show it. To check a line is to read it, so csiread
has no part in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pisa_capc.signal.formats.csi.cards import BadPacket, Bytes, CsiCard, FoundPacket, Kind, both_sides

MARK, HEADING = b"CSI_DATA", b"type,"
MONITOR = re.compile(rb"(\x1b\[[\d;]*m)?[EWIDV] \(\d+\) ")  # what else ESP-IDF prints to the same port
BEGINNING = 4096  # bytes in which the first line of channel state is looked for
LENGTHS = (128, 256, 376, 380, 384, 612)  # numbers in a line: of one field, and with one or two of HT
LONGEST = 8192  # bytes of a line
NUMBER = set(b"-0123456789, ")
CHANNEL_14_HZ = 2.484e9


class _Columns(NamedTuple):
    """Where a line has what, by the number of its columns."""

    mac: int
    channel: int
    secondary: int | None
    rx_state: int
    length: int


COLUMNS = {26: _Columns(2, 16, 17, 21, 24), 25: _Columns(2, 16, 17, 21, 22), 15: _Columns(2, 8, None, 11, 12)}


class _Field(NamedTuple):
    """A training field: pairs of numbers, subcarriers from ±lowest to ±highest that hold something, and bandwidth."""

    pairs: int
    lowest: int
    highest: int
    bandwidth_mhz: int


LEGACY = _Field(64, 1, 26, 20)
FIELDS = {  # of C5 and C6, by the numbers in a line: legacy, HT of 20 MHz, of 40 MHz, HE of 20 MHz
    106: _Field(53, 1, 26, 20),
    114: _Field(57, 1, 28, 20),
    128: _Field(64, 1, 28, 20),
    234: _Field(117, 2, 58, 40),
    256: _Field(128, 2, 58, 40),
    490: _Field(245, 2, 122, 20),
}
BY_PAIRS = {field.pairs: field for field in FIELDS.values()}


class _Line(NamedTuple):
    sender: bytes
    carrier_hz: float
    field: _Field
    shifted: bool  # whether subcarriers come as an FFT has them
    numbers: NDArray[np.int64]


class Esp32(CsiCard):
    title = "ESP32"
    suffix = ".csv"

    def recognises(self, data: Bytes) -> bool:
        return any(line.startswith((MARK, HEADING)) for line in bytes(data[:BEGINNING]).split(b"\n"))

    def walk(self, data: Bytes) -> Iterator[FoundPacket | BadPacket]:
        at = 0
        while at < len(data):
            end = data.find(b"\n", at)
            end = len(data) if end < 0 else end
            beginning = bytes(data[at : min(end, at + LONGEST)])
            if beginning.strip() and not beginning.startswith(HEADING) and not MONITOR.match(beginning):
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
        layout = "" if line.field is LEGACY else str(line.field.pairs)
        return FoundPacket((at,), Kind((0,), line.field.bandwidth_mhz, line.carrier_hz, layout), line.sender)

    def subcarriers(self, kind: Kind) -> NDArray[np.int64]:
        """Those of the training field; the carrier and the edges hold nothing, and are dropped."""
        field = BY_PAIRS[int(kind.layout)] if kind.layout else LEGACY
        return both_sides(range(field.lowest, field.highest + 1))

    def read(self, data: Bytes, places: NDArray[np.int64], kind: Kind) -> NDArray[np.complex64]:
        numbers = self.subcarriers(kind)
        csi = np.empty((len(places), 1, len(numbers)), np.complex64)
        for frame, (at,) in zip(csi, places.tolist(), strict=True):
            end = data.find(b"\n", at)
            line = _parse(bytes(data[at : len(data) if end < 0 else end]))
            pairs = line.numbers[: 2 * line.field.pairs].reshape(-1, 2)
            wanted = pairs[numbers if line.shifted else numbers + line.field.pairs // 2]
            frame[0] = wanted[:, 1] + 1j * wanted[:, 0]
        return csi


def _parse(line: bytes) -> _Line:
    """What a line says; ValueError where it says something else."""
    before, bracket, state = line.strip().partition(b"[")
    columns = before.split(b",")
    where = COLUMNS.get(len(columns))
    if columns[0] != MARK or not bracket or where is None:
        expected = f"{', '.join(map(str, sorted(COLUMNS)[:-1]))} or {max(COLUMNS)}"
        raise ValueError(f"a line of {len(columns)} columns; expected CSI_DATA and [numbers] in {expected}")
    wanted = (where.channel, where.rx_state, where.length, *(() if where.secondary is None else (where.secondary,)))
    if any(not columns[i].isdigit() for i in wanted):
        raise ValueError("channel, secondary channel, state and length are not all whole numbers")
    channel, wrong, length, secondary = (*(int(columns[i]) for i in wanted), 0)[:4]
    carrier_hz = _carrier_hz(channel, five_ghz=where.secondary is None)
    if carrier_hz is None or secondary > 2:
        raise ValueError(f"channel {channel} and secondary channel {secondary}; expected 1 to 14 and 0 to 2")
    if wrong:
        raise ValueError(f"received in state {wrong}; expected 0, without error")
    state = state.rstrip(b'" ')
    if not (state.endswith(b"]") and set(state[:-1]) <= NUMBER):
        raise ValueError("its channel state is not [numbers]")
    numbers = np.array([int(number) for number in state[:-1].replace(b",", b" ").split()])
    lengths = LENGTHS if where.secondary is not None else tuple(FIELDS)
    if len(numbers) != length or length not in lengths:
        raise ValueError(f"{len(numbers)} numbers, and {length} in column len; expected one of {lengths} for both")
    if numbers.min() < -128 or numbers.max() > 127:
        raise ValueError(f"channel state from {numbers.min()} to {numbers.max()}; expected −128 to 127")
    sender = _address(columns[where.mac])
    if where.secondary is not None:
        return _Line(sender, carrier_hz, LEGACY, secondary == 0, numbers)
    return _Line(sender, carrier_hz, FIELDS[length], _shifted(numbers.reshape(-1, 2)), numbers)


def _shifted(pairs: NDArray[np.int64]) -> bool:
    """Whether a field comes as an FFT has it, by the pairs that are empty.

    With the empty edges the lowest subcarriers come first, and pairs 2 and 3 are of them (0 and 1 may be of no use);
    without them the carrier is in the middle or at the beginning.
    """
    filled: NDArray[np.bool_] = np.any(pairs, axis=1)
    if len(pairs) % 2 == 0:
        return bool(filled[2:4].any())
    if filled[0] == filled[len(pairs) // 2]:
        raise ValueError("neither its first nor its middle pair alone is empty, so the order cannot be told")
    return not filled[0]


def _carrier_hz(channel: int, five_ghz: bool) -> float | None:
    if 1 <= channel <= 14:
        return CHANNEL_14_HZ if channel == 14 else 2.407e9 + 5e6 * channel
    return 5e9 + 5e6 * channel if five_ghz and 32 <= channel <= 177 else None


def _address(text: bytes) -> bytes:
    """Six bytes of aa:bb:cc:dd:ee:ff; none where it is no address."""
    parts = text.strip().split(b":")
    if len(parts) != 6 or any(len(part) != 2 for part in parts):
        return b""
    try:
        return bytes.fromhex(b"".join(parts).decode("ascii"))
    except ValueError:
        return b""
