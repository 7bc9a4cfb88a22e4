"""Samples to what a frame says of itself (IEEE Std 802.11-2020, clauses 9, 17, 19), many frames at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pisa_capc.phy.base import Header
from pisa_capc.phy.wifi import mac, viterbi
from pisa_capc.phy.wifi.coding import SERVICE_BITS, TAIL_BITS, Coding, ht_pilots
from pisa_capc.phy.wifi.demodulate import Front
from pisa_capc.phy.wifi.signal import (
    DATA_START,
    HT_DATA_START,
    HT_LTF_START,
    Signal,
    is_high_throughput,
    read_ht_signals,
    read_signals,
)
from pisa_capc.phy.wifi.transmit import HT_DATA_SUBCARRIERS
from pisa_capc.waveforms import wifi

_FRAMES_TOGETHER = 256
_SAMPLES_TOGETHER = 2_000_000  # bounds memory, whatever the frames say of themselves
_HEADER_OCTETS = mac.DELIMITER_OCTETS + mac.ADDRESSES_OCTETS
_SETTLE_BITS = 64  # bits beyond the header after which its own are decided
_SHORT_GUARD_SAMPLES = 72

Cfo = Sequence[float] | Sequence[NDArray[np.float64]] | NDArray[np.float64]


@dataclass(frozen=True)
class _Data:
    """Where a frame's DATA field is and how it was sent."""

    front: Front
    coding: Coding
    length: int
    first: int
    spacing: int
    kind: str
    rate_mbps: float
    aggregated: bool = False

    @property
    def whole(self) -> bool:
        return self.front.available(self.first, self.spacing) >= self.coding.symbols(self.length)


def receive(frames: Sequence[NDArray[np.complex64]], cfo_hz: Cfo, *, header_only: bool = False) -> list[Header]:
    """What each frame says of itself.

    frames: each (A, T) at 20 MS/s from its first preamble sample to its end or the end of what there is.
    cfo_hz: of each frame, one number or (A,). header_only: decode no more than the addresses need; checksums of longer
    frames are then not known.

    Where the checksum is right, all fields are. Where it is wrong, no address is given, for a wrong one is worse than
    none, and kind is "non-ht" or "ht-mixed". Where it was not checked (fcs None: header_only, or a frame that is cut),
    addresses are as received: likely right, since SERVICE bits and frame type were plausible. A frame whose L-SIG is
    not valid gives an empty header. Of aggregated frames the first is read.
    """
    headers: list[Header] = []
    for part in _chunks(frames):
        headers += _receive(frames[part], cfo_hz[part], header_only)
    return headers


def signals(frames: Sequence[NDArray[np.complex64]], cfo_hz: Cfo) -> list[Signal | None]:
    """L-SIG of each frame, of which the first 400 samples are enough: its `samples` tell how much to cut.

    None where there are fewer, or where it is not valid.
    """
    found: list[Signal | None] = []
    for part in _chunks(frames):
        heads = [frame[:, :DATA_START] for frame in frames[part]]
        found += _with_signals(heads, cfo_hz[part])[1]
    return found


def _chunks(frames: Sequence[NDArray[np.complex64]]) -> Iterator[slice]:
    """Runs of frames that are worked on together."""
    first = samples = 0
    for i, frame in enumerate(frames):
        if i > first and (i - first == _FRAMES_TOGETHER or samples + frame.size > _SAMPLES_TOGETHER):
            yield slice(first, i)
            first, samples = i, 0
        samples += frame.size
    yield slice(first, len(frames))


def _with_signals(
    frames: Sequence[NDArray[np.complex64]], cfo_hz: Cfo
) -> tuple[list[Front | None], list[Signal | None]]:
    """Fronts of the frames that have a whole L-SIG, and what it says."""
    fronts = [
        Front.of(frame, cfo) if frame.shape[1] >= DATA_START else None for frame, cfo in zip(frames, cfo_hz, strict=True)
    ]
    read = iter(read_signals([front for front in fronts if front is not None]))
    return fronts, [None if front is None else next(read) for front in fronts]


def _receive(frames: Sequence[NDArray[np.complex64]], cfo_hz: Cfo, header_only: bool) -> list[Header]:
    fronts, found = _with_signals(frames, cfo_hz)
    headers = [Header() for _ in frames]
    ht: dict[int, Front] = {}
    data: dict[int, _Data] = {}
    for i, (front, signal) in enumerate(zip(fronts, found, strict=True)):
        if front is None or signal is None:
            continue
        if is_high_throughput(front, signal):
            ht[i] = front
        else:
            rate_mbps = signal.coding.rate_mbps
            data[i] = _Data(
                front, signal.coding, signal.length, DATA_START, wifi.SYMBOL_SAMPLES, "non-ht", rate_mbps
            )
    for (i, front), signal in zip(ht.items(), read_ht_signals(list(ht.values())), strict=True):
        headers[i] = Header(kind="ht-mixed", length=None if signal is None else signal.length)
        if signal is not None and signal.coding is not None and signal.length and front.available(HT_DATA_START):
            spacing = _SHORT_GUARD_SAMPLES if signal.short_guard else wifi.SYMBOL_SAMPLES
            data[i] = _Data(
                front.with_ht_channel(HT_LTF_START),
                signal.coding,
                signal.length,
                HT_DATA_START,
                spacing,
                "ht-mixed",
                signal.coding.rate_mbps * wifi.SYMBOL_SAMPLES / spacing,
                signal.aggregated,
            )
    soft = [_soft_bits(d, header_only or not d.whole) for d in data.values()]
    bits = viterbi.decode([s for s, _ in soft], [ended for _, ended in soft])
    for (i, d), decoded, (_, ended) in zip(data.items(), bits, soft, strict=True):
        headers[i] = _header(d, _octets(decoded), ended)
    return headers


def _soft_bits(data: _Data, header_only: bool) -> tuple[NDArray[np.float32], bool]:
    """Soft bits of the DATA field up to its tail, or as far as the header needs; and whether that was all."""
    wanted = SERVICE_BITS + 8 * data.length + TAIL_BITS
    if header_only:
        wanted = min(wanted, SERVICE_BITS + 8 * _HEADER_OCTETS + _SETTLE_BITS)
    needed = -(-wanted // data.coding.data_bits)
    symbols = min(needed, data.front.available(data.first, data.spacing))
    bits = min(wanted, symbols * data.coding.data_bits)
    tones = data.front.tones(data.first, symbols, data.spacing, data.spacing - 64)
    if data.kind == "ht-mixed":
        field = data.front.points(tones, ht_pilots(symbols), HT_DATA_SUBCARRIERS)
    else:
        field = data.front.points(tones, wifi.pilot_tones(symbols, 1), wifi.DATA_SUBCARRIERS)
    soft = data.coding.soft_bits(field.points, field.weight).reshape(-1)[: 2 * bits]
    return soft, bits == SERVICE_BITS + 8 * data.length + TAIL_BITS


def _descramblers() -> NDArray[np.uint8]:
    """(128, 127) what to add to the bits of a frame whose first seven are the row's number, the first being highest.

    SERVICE begins with seven zeros, so the first seven bits received are the scrambler's, and its state after them.
    """
    states = np.arange(128)
    start = (states[:, None] >> np.arange(6, -1, -1)) & 1
    rest = wifi.scrambler_sequence(states, wifi.SCRAMBLER_PERIOD - 7)
    return np.concatenate([start.astype(np.uint8), rest], axis=1)


_DESCRAMBLERS = _descramblers()


def _octets(bits: NDArray[np.uint8]) -> bytes:
    """Descrambled octets of SERVICE and PSDU, as far as they are whole; nothing where the scrambler is not seen."""
    if len(bits) < 7:
        return b""
    sequence = _DESCRAMBLERS[int(bits[:7] @ (1 << np.arange(6, -1, -1)))]
    plain = bits ^ np.resize(sequence, len(bits))
    return np.packbits(plain[: len(plain) // 8 * 8], bitorder="little").tobytes()


def _header(data: _Data, octets: bytes, whole: bool) -> Header:
    """What SERVICE and PSDU octets say."""
    service, psdu = octets[:2], octets[2 : 2 + data.length]
    known = Header(kind=data.kind, rate_mbps=data.rate_mbps, length=data.length)
    first = mac.first_of_aggregate(psdu) if data.aggregated else (psdu, data.length)
    if first is None:
        return replace(known, fcs=False if whole else None)
    frame, length = first
    fcs = mac.fcs_is_right(frame) if whole or len(frame) == length else None
    said = mac.parse(frame) if any(service) is False else None
    if fcs is False or said is None:
        return replace(known, fcs=fcs)
    return replace(known, kind=said.kind, transmitter=said.transmitter, receiver=said.receiver, fcs=fcs)
