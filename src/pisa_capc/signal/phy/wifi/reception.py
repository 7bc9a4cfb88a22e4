"""From samples to headers of frames (IEEE Std 802.11-2020, clauses 9, 17, 19), many frames at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pisa_capc.signal.phy.base import Header
from pisa_capc.signal.phy.wifi import mac, viterbi
from pisa_capc.signal.phy.wifi.coding import HT, LEGACY, SERVICE_BITS, TAIL_BITS, Coding, ht_pilots
from pisa_capc.signal.phy.wifi.demodulate import SHORT, Fronts, whole_symbols
from pisa_capc.signal.phy.wifi.signal import (
    DATA_START,
    HT_DATA_START,
    HT_LTF_START,
    SignalField,
    read_formats,
    read_signals,
)
from pisa_capc.signal.phy.wifi.transmission import HT_DATA_SUBCARRIERS, SHORT_GUARD_SAMPLES, transmit, transmit_ht
from pisa_capc.signal.waveforms import wifi

_FRAMES_TOGETHER = 256
_SAMPLES_TOGETHER = 2_000_000  # bounds memory, whatever the frames say of themselves
_HEADER_OCTETS = mac.DELIMITER_OCTETS + mac.ADDRESSES_OCTETS
_SETTLE_BITS = 64  # bits beyond the header after which its own are decided
_HEADER_BITS = SERVICE_BITS + 8 * _HEADER_OCTETS + _SETTLE_BITS
_HEADER_SAMPLES = HT_DATA_START + wifi.SYMBOL_SAMPLES * -(-_HEADER_BITS // LEGACY[wifi.RATE_6_MBPS].data_bits)

Cfo = Sequence[float] | Sequence[float | NDArray[np.float64]] | NDArray[np.float64]


@dataclass(frozen=True)
class _Data:
    """How a DATA field was sent, and what of it is demodulated: the symbols that `bits` need.

    whole: they are all up to the tail.
    """

    coding: Coding
    length: int
    aggregated: bool
    spacing: int
    bits: int
    whole: bool

    @staticmethod
    def of(
        coding: Coding,
        length: int,
        samples: int,
        header_only: bool,
        aggregated: bool = False,
        short_guard: bool = False,
    ) -> _Data:
        """samples: how many there are from the field's beginning on."""
        spacing = 64 + (SHORT_GUARD_SAMPLES if short_guard else wifi.GUARD_SAMPLES)
        sent = SERVICE_BITS + 8 * length + TAIL_BITS
        there = whole_symbols(samples, 0, spacing) * coding.data_bits
        bits = min(sent, there, _HEADER_BITS if header_only or there < sent else sent)
        return _Data(coding, length, aggregated, spacing, bits, bits == sent)

    @property
    def ht(self) -> bool:
        return self.coding.carriers == len(HT_DATA_SUBCARRIERS)

    @property
    def symbols(self) -> int:
        return -(-self.bits // self.coding.data_bits)

    def header(self) -> Header:
        """What is known before any bit of it is decoded."""
        rate_mbps = round(self.coding.rate_mbps * wifi.SYMBOL_SAMPLES / self.spacing, 1)
        return Header(kind="ht-mixed" if self.ht else "non-ht", rate_mbps=rate_mbps, length=self.length)

    def waveform(self, bits: NDArray[np.uint8]) -> NDArray[np.complex128] | None:
        """(T,) the whole frame whose DATA field has these bits, as received; None where they are not all right."""
        octets = _octets(bits)
        service, psdu = octets[:2], octets[2 : 2 + self.length]
        right = mac.aggregate_is_right if self.aggregated else mac.fcs_is_right
        if not self.whole or service != bytes(2) or not right(psdu) or not bits[:7].any():
            return None
        scrambler = _SCRAMBLERS[bytes(bits[:7].tolist())]
        if self.ht:
            short = self.spacing < wifi.SYMBOL_SAMPLES
            return transmit_ht(psdu, HT.index(self.coding), scrambler, aggregated=self.aggregated, short_guard=short)
        return transmit(psdu, self.coding.rate_mbps, scrambler)


@dataclass(frozen=True, eq=False)
class Front:
    """What the first 400 samples of a frame tell: its array's CFO, channel (A, 64) and noise (A,) as of `Fronts`, and
    its L-SIG, where that is valid."""

    cfo_hz: float
    channel: NDArray[np.complex64]
    noise: NDArray[np.float32]
    signal: SignalField | None


def receive(
    frames: Sequence[NDArray[np.complex64]],
    cfo_hz: Cfo,
    *,
    header_only: bool = False,
    known: Sequence[Front | None] | None = None,
) -> list[Header]:
    """The header of each frame.

    frames: each (A, T) at 20 MS/s from its first preamble sample to its end or the end of what there is.
    cfo_hz: of each frame, one number or (A,). header_only: decode no more than the addresses need; checksums of longer
    frames are then not known. known: `fronts` of the frames, as far as they were read before.

    Where the checksum is right, all fields are. Where it is wrong, no address is given, for a wrong one is worse than
    none, and kind is only the format, "non-ht" or "ht-mixed". Where it was not checked (fcs None: header_only, or a
    frame that is cut), addresses are as received: likely right, since SERVICE bits and frame type were plausible.

    A frame whose L-SIG is not valid gives an empty header. Of aggregated frames the first is read. Of HT frames with
    several streams, in 40 MHz or with another code only HT-SIG is read; VHT frames are told by their kind alone.
    """
    if header_only:
        frames = [frame[:, :_HEADER_SAMPLES] for frame in frames]
    own: list[Front | None] = list(known) if known is not None else [None] * len(frames)
    unknown = [i for i, front in enumerate(own) if front is None]
    for i, front in zip(unknown, fronts([frames[i] for i in unknown], [cfo_hz[i] for i in unknown]), strict=True):
        own[i] = front
    headers = [Header() for _ in frames]
    for chosen, joined, signals in _joined(frames, own):
        for i, header in zip(chosen, _receive(joined, signals, header_only), strict=True):
            headers[i] = header
    return headers


def rebuild(frames: Sequence[NDArray[np.complex64]], cfo_hz: Cfo) -> list[NDArray[np.complex128] | None]:
    """(T,) what was sent of each frame, see `receive`, from its bits; None where no checksum says that all are right.

    Of an aggregate the checksums of all its frames have to be right.
    """
    found: list[NDArray[np.complex128] | None] = [None] * len(frames)
    for chosen, joined, signals in _joined(frames, fronts(frames, cfo_hz)):
        for i, data, bits in _decoded(joined, signals, header_only=False)[1]:
            found[chosen[i]] = data.waveform(bits)
    return found


def fronts(frames: Sequence[NDArray[np.complex64]], cfo_hz: Cfo) -> list[Front | None]:
    """What the first 400 samples of each frame tell; its `signal.samples` is how much to cut. None of shorter ones."""
    frames = [frame[:, :DATA_START] for frame in frames]
    found: list[Front | None] = [None] * len(frames)
    for chosen in _together(frames):
        some = _fronts(frames, cfo_hz, chosen)
        each = zip(some.cfo_hz.tolist(), some.channel, some.noise, read_signals(some), strict=True)
        for i, front in zip(chosen, each, strict=True):
            found[i] = Front(*front)
    return found


def _together(frames: Sequence[NDArray[np.complex64]]) -> Iterator[list[int]]:
    """Frames that are worked on together: of as many antennas, with a whole L-SIG, and not too many."""
    waiting: dict[int, list[int]] = defaultdict(list)
    samples: dict[int, int] = defaultdict(int)
    for i, frame in enumerate(frames):
        antennas, length = frame.shape
        if length < DATA_START or antennas == 0:
            continue
        if len(waiting[antennas]) == _FRAMES_TOGETHER or samples[antennas] + frame.size > _SAMPLES_TOGETHER:
            yield waiting.pop(antennas)
            samples[antennas] = 0
        waiting[antennas].append(i)
        samples[antennas] += frame.size
    yield from waiting.values()


def _joined(
    frames: Sequence[NDArray[np.complex64]], known: Sequence[Front | None]
) -> Iterator[tuple[list[int], Fronts, list[SignalField | None]]]:
    """Frames that are worked on together, with what is known of them."""
    for chosen in _together(frames):
        there = [front for i in chosen if (front := known[i]) is not None]
        joined = Fronts(
            [frames[i] for i in chosen],
            np.array([front.cfo_hz for front in there]),
            np.stack([front.channel for front in there]),
            np.stack([front.noise for front in there]),
        )
        yield chosen, joined, [front.signal for front in there]


def _fronts(frames: Sequence[NDArray[np.complex64]], cfo_hz: Cfo, chosen: Sequence[int]) -> Fronts:
    antennas = len(frames[chosen[0]])
    each = np.stack([np.broadcast_to(np.asarray(cfo_hz[i], dtype=np.float64), antennas) for i in chosen])
    return Fronts.of([frames[i] for i in chosen], each)


def _receive(fronts: Fronts, signals: Sequence[SignalField | None], header_only: bool) -> list[Header]:
    headers, decoded = _decoded(fronts, signals, header_only)
    for i, data, bits in decoded:
        headers[i] = _header(data, headers[i], _octets(bits))
    return headers


def _decoded(
    fronts: Fronts, signals: Sequence[SignalField | None], header_only: bool
) -> tuple[list[Header], list[tuple[int, _Data, NDArray[np.uint8]]]]:
    """What SIGNAL fields say of each frame; and the number of each whose DATA field was demodulated, with its bits."""
    headers = [Header() for _ in range(len(fronts))]
    alike: dict[tuple[Coding, int, int], dict[int, _Data]] = defaultdict(dict)
    for i, data in _data_fields(fronts, signals, header_only).items():
        if isinstance(data, Header):
            headers[i] = data
        else:
            headers[i] = data.header()
            if data.bits:
                alike[data.coding, data.spacing, max(data.symbols, SHORT)][i] = data
    demodulated = [
        (i, data, soft[: 2 * data.bits])
        for group in alike.values()
        for (i, data), soft in zip(group.items(), _soft_bits(fronts, group), strict=True)
    ]
    decoded = viterbi.decode([soft for _, _, soft in demodulated], [data.whole for _, data, _ in demodulated])
    return headers, [(i, data, bits) for (i, data, _), bits in zip(demodulated, decoded, strict=True)]


def _data_fields(fronts: Fronts, signals: Sequence[SignalField | None], header_only: bool) -> dict[int, _Data | Header]:
    """How each frame with a valid L-SIG was sent; a header where its DATA field cannot be demodulated."""
    read = {i: signal for i, signal in enumerate(signals) if signal is not None}
    samples = [frame.shape[1] for frame in fronts.frames]
    slow = [i for i, signal in read.items() if signal.may_be_newer]
    told = [i for i in slow if whole_symbols(samples[i], DATA_START) >= 2]
    formats = dict(zip(told, read_formats(fronts.of_frames(told)) if told else [], strict=True))
    fields: dict[int, _Data | Header] = {}
    for i, signal in read.items():
        kind, ht = formats.get(i, (None if signal.may_be_newer else "non-ht", None))
        if kind == "non-ht":
            fields[i] = _Data.of(signal.coding, signal.length, samples[i] - DATA_START, header_only)
        elif ht and ht.coding and ht.length and samples[i] >= HT_DATA_START:
            there = samples[i] - HT_DATA_START
            fields[i] = _Data.of(ht.coding, ht.length, there, header_only, ht.aggregated, ht.short_guard)
        else:
            fields[i] = Header(kind) if ht is None else Header(kind, ht.rate_mbps, ht.length)
    return fields


def _soft_bits(fronts: Fronts, group: dict[int, _Data]) -> NDArray[np.float32]:
    """(F, 2 bits) soft bits of DATA fields at one rate that have as many symbols, or are short: zeros follow the
    shorter ones, which add nothing to what the pilots say."""
    data, counts = next(iter(group.values())), [data.symbols for data in group.values()]
    symbols, chosen = max(counts), fronts.of_frames(list(group))
    if data.ht:
        chosen = chosen.with_ht_channel(HT_LTF_START)
        first, pilots, subcarriers = HT_DATA_START, ht_pilots(symbols), HT_DATA_SUBCARRIERS
    else:
        first, pilots, subcarriers = DATA_START, wifi.pilot_tones(symbols, 1), wifi.DATA_SUBCARRIERS
    tones = chosen.tones(first, symbols, data.spacing, guard=data.spacing - 64, counts=counts)
    return data.coding.soft_bits(*chosen.points(tones, pilots, subcarriers)).reshape(len(group), -1)


def _descramblers() -> list[bytes]:
    """What to add to the octets of a frame, again and again, by its first seven bits, lowest bit first.

    SERVICE begins with seven zeros, so the first seven bits received are the scrambler's, and its state after them. Its
    period of 127 bits is one of 127 octets, too.
    """
    first = (np.arange(128)[:, None] >> np.arange(7)) & 1
    states = first @ (1 << np.arange(6, -1, -1))
    rest = wifi.scrambler_sequence(states, wifi.SCRAMBLER_PERIOD - 7)
    period = np.concatenate([first.astype(np.uint8), rest], axis=1)
    return [row.tobytes() for row in np.packbits(np.tile(period, 8), axis=1, bitorder="little")]


_DESCRAMBLERS = _descramblers()
_SCRAMBLERS = {bytes(wifi.scrambler_sequence(np.array(state), 7).tolist()): state for state in range(1, 128)}


def _octets(bits: NDArray[np.uint8]) -> bytes:
    """Descrambled octets of SERVICE and PSDU, as far as they are whole; nothing where the scrambler is not seen."""
    count = len(bits) // 8
    if not count:
        return b""
    received = np.packbits(bits[: 8 * count], bitorder="little").tobytes()
    sequence = _DESCRAMBLERS[received[0] & 127]
    added = (sequence * -(-count // len(sequence)))[:count]
    return (int.from_bytes(received, "little") ^ int.from_bytes(added, "little")).to_bytes(count, "little")


def _header(data: _Data, known: Header, octets: bytes) -> Header:
    """What SERVICE and PSDU octets say besides what is known."""
    service, psdu = octets[:2], octets[2 : 2 + data.length]
    if not data.whole:
        psdu = psdu[:_HEADER_OCTETS]  # what comes after has not settled
    first = mac.first_of_aggregate(psdu) if data.aggregated else (psdu, data.length)
    if first is None:
        return replace(known, fcs=False if data.whole else None)
    frame, length = first
    fcs = mac.fcs_is_right(frame) if data.whole or len(frame) == length else None
    said = mac.parse(frame) if service == bytes(2) else None
    if fcs is False or said is None:
        return replace(known, fcs=fcs)
    return replace(known, kind=said.kind, transmitter=said.transmitter, receiver=said.receiver, fcs=fcs)
