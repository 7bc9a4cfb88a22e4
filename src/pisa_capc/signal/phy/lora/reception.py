"""From samples to the header of a frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pisa_capc.signal.phy.base import Header
from pisa_capc.signal.phy.lora import coding, lorawan
from pisa_capc.signal.phy.lora.despread import despread
from pisa_capc.signal.phy.lora.modulation import SYNC_SYMBOLS, Modulation
from pisa_capc.signal.phy.lora.synchronise import Preamble, header_at, measure, symbol_step

NEEDED = 15 / 16  # of the last symbol this much must be there


@dataclass(frozen=True)
class LoraHeader(Header):
    """The header of a LoRa frame. kind: "lora", or what LoRaWAN calls it. coding_rate: 1 … 4 for 4/5 … 4/8.

    samples: of the whole frame.
    """

    spreading_factor: int | None = None
    sync_word: int | None = None
    coding_rate: int | None = None
    samples: int | None = None


class Symbols:
    """Powers of a frame's symbols, antennas added up with the weights that suit their noise.

    Where amplitude and phase are not known, powers over noise times ρ/(1 + ρ) are best, ρ being the SNR of a symbol: an
    antenna that hears nothing says nothing.
    """

    def __init__(
        self,
        samples: NDArray[np.complexfloating],
        preamble: Preamble,
        modulation: Modulation,
        upchirps: int,
        carrier_hz: float | None,
    ) -> None:
        self._samples, self._modulation, self._preamble = samples, modulation, preamble
        signal, noise = preamble.signal, preamble.noise
        floor = np.maximum(noise, signal * np.finfo(np.float32).eps)  # a recording without noise has rounding
        self._weights = np.divide(signal, floor * (signal + floor), out=np.zeros_like(signal), where=signal > 0)
        self.step = symbol_step(modulation, preamble.common_cfo_hz, carrier_hz)
        self._upchirps = upchirps

    @property
    def after_header(self) -> float:
        """Where the first symbol after the explicit header begins."""
        return header_at(self._preamble.start, self.step, self._upchirps) + coding.HEADER_SYMBOLS * self.step

    def end(self, payload_symbols: int) -> int:
        """The frame's end."""
        return round(self.after_header + payload_symbols * self.step)

    def sync_word(self) -> int:
        """From two symbols, each eight bins for one of a nibble."""
        power = self._power(self._preamble.start + (self._upchirps + np.arange(SYNC_SYMBOLS)) * self.step)
        high, low = (round(int(best) / 8) % 16 for best in power.argmax(axis=1))
        return high << 4 | low

    def block(self, first: int, count: int) -> NDArray[np.floating] | None:
        """(count, N) powers of the symbols from the `first` after the downchirps on; None where samples are missing.

        A few may: a slow transmitter's frame is longer than its symbols say.
        """
        starts = header_at(self._preamble.start, self.step, self._upchirps) + (first + np.arange(count)) * self.step
        if starts[-1] + NEEDED * self._modulation.symbol_samples > self._samples.shape[1]:
            return None
        return self._power(starts)

    def _power(self, starts: NDArray[np.floating]) -> NDArray[np.floating]:
        found = despread(self._samples, starts, self._modulation, self._preamble.cfo_hz)[..., ::2]
        return np.einsum("a,ans->ns", self._weights, found.real**2 + found.imag**2)


def receive(
    frames: Sequence[NDArray[np.complexfloating]],
    cfo_hz: Sequence[NDArray[np.float64]],
    spreading_factor: int,
    *,
    carrier_hz: float | None = None,
    preamble: int = 8,
    sample_rate_hz: float = 1e6,
    bandwidth_hz: float = 125e3,
) -> list[LoraHeader]:
    """The header of each frame, as far as its samples go.

    frames: each (A, T), from its first preamble sample (to within half a chip) on. cfo_hz: of each frame (A,).
    carrier_hz: with it, the sampling offset is that of the carrier and is taken out; without, symbols are taken to be
    as long as they should: at 25 ppm and SF12 that holds for ten symbols or so, at SF7 for any frame.
    preamble: upchirps that a frame begins with.
    """
    modulation = Modulation(spreading_factor, bandwidth_hz, sample_rate_hz)
    return [
        receive_frame(frame, np.asarray(offsets, float), modulation, preamble, carrier_hz)
        for frame, offsets in zip(frames, cfo_hz, strict=True)
    ]


def receive_frame(
    samples: NDArray[np.complexfloating],
    cfo_hz: NDArray[np.float64],
    modulation: Modulation,
    upchirps: int,
    carrier_hz: float | None,
) -> LoraHeader:
    """The header of one frame (A, T)."""
    return _read(samples, cfo_hz, modulation, upchirps, carrier_hz)[0]


def rebuild(
    samples: NDArray[np.complexfloating],
    cfo_hz: NDArray[np.float64],
    modulation: Modulation,
    upchirps: int = 8,
    carrier_hz: float | None = None,
) -> NDArray[np.complex128] | None:
    """(T,) what was sent of a frame (A, T'), see `receive`, from its bits; None where no checksum says that all are
    right. Its symbols are as long as the carrier's offset makes them."""
    said, octets, step = _read(samples, cfo_hz, modulation, upchirps, carrier_hz)
    if not said.fcs or said.length is None or said.coding_rate is None or said.sync_word is None:
        return None
    symbols = coding.encode(octets[: said.length], said.coding_rate, True, modulation)
    return modulation.sampled(symbols, upchirps, said.sync_word, step)


def _read(
    samples: NDArray[np.complexfloating],
    cfo_hz: NDArray[np.float64],
    modulation: Modulation,
    upchirps: int,
    carrier_hz: float | None,
) -> tuple[LoraHeader, bytes, float]:
    """The header of a frame, its payload with checksum as far as it is there, and the length of its symbols."""
    symbols = Symbols(
        samples, measure(samples, 0.0, cfo_hz, modulation, upchirps, carrier_hz), modulation, upchirps, carrier_hz
    )
    said = LoraHeader(spreading_factor=modulation.spreading_factor, sync_word=symbols.sync_word())
    first = symbols.block(0, coding.HEADER_SYMBOLS)
    if first is None:
        return said, b"", symbols.step
    nibbles = coding.block_nibbles(first, modulation.spreading_factor - 2, modulation)
    header = coding.parse_header(nibbles)
    if header is None:
        return said, b"", symbols.step
    count = header.payload_symbols(modulation)
    bits_per_second = modulation.spreading_factor * modulation.bin_hz * 4 / (4 + header.coding_rate)
    said = replace(
        said,
        kind="lora",
        rate_mbps=bits_per_second / 1e6,
        length=header.length,
        coding_rate=header.coding_rate,
        samples=symbols.end(count),
    )
    payload = _payload(symbols, header, nibbles[coding.HEADER_NIBBLES :], modulation)
    said = said if payload is None else _with_payload(said, header, payload)
    return said, payload or b"", symbols.step


def _payload(
    symbols: Symbols, header: coding.ExplicitHeader, nibbles: list[int], modulation: Modulation
) -> bytes | None:
    """Payload and checksum, the payload without whitening; None where samples are missing."""
    size = 4 + header.coding_rate
    for at in range(0, header.payload_symbols(modulation), size):
        power = symbols.block(coding.HEADER_SYMBOLS + at, size)
        if power is None:
            return None
        nibbles = nibbles + coding.block_nibbles(power, coding.payload_bits(modulation), modulation)
    octets = coding.to_octets(nibbles)[: header.length + 2 * header.crc]
    return coding.whiten(octets[: header.length]) + octets[header.length :]


def _with_payload(said: LoraHeader, header: coding.ExplicitHeader, octets: bytes) -> LoraHeader:
    """With whether the checksum is right and, where that is not wrong and the network is LoRaWAN's, who sends."""
    payload, found = octets[: header.length], octets[header.length :]
    fcs = found == coding.checksum(payload) if header.crc else None
    claim = lorawan.parse(payload) if said.sync_word == lorawan.SYNC_WORD and fcs is not False else None
    if claim is None:
        return replace(said, fcs=fcs)
    return replace(said, fcs=fcs, kind=claim.kind, transmitter=claim.transmitter, receiver=claim.receiver)
