"""ADS-B: 1090 MHz extended squitter, pulse position modulation at 1 Mb/s, sampled at 2.5 MS/s.

ICAO Annex 10, volume IV, 3.1.2.2 (Mode S downlink): four pulses of 0.5 µs at 0, 1, 3.5 and 4.5 µs; from 8 µs on 112
bits of 1 µs, a pulse in the first half for 1 and in the second half for 0. A squitter begins with the bits 10001
(downlink format 17): that much all have in common. The pulses are seen through a receiver's filter, a Hann window of
1.6 µs, which has its first zero where the band at 2.5 MS/s ends.

What a frame sends is decided from the frame itself: on-off keying has a carrier, whose line in the spectrum tells the
frequency offset; then every pulse has one of two places. Behind the filter pulses of neighbouring bits overlap, so the
most likely sequence of all bits is decided on (Ungerboeck, IEEE Trans. Communications 22(5), 1974).
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pisa_capc.signal.waveforms.base import Draw, Waveform, register_waveform

RATE_HZ = 2.5e6
BITS = 112
SLOT_S = 0.5e-6  # of a pulse, half a bit
FIRST_SLOT = 16  # of the bits
PULSES = (0, 2, 7, 9)  # slots of the preamble
SQUITTER = (1, 0, 0, 0, 1)  # downlink format 17
FILTER_S = 1.6e-6
LEAD = 2  # samples before the first pulse begins: its filtered flank
SAMPLES = 304  # LEAD, 120 µs and the last flank
PREAMBLE_SAMPLES = 33  # that the sixth bit does not reach
SHIFTS = (-0.6, -0.3, 0.0, 0.3, 0.6)  # samples by which a frame may begin off its place
WIDEST = 0.2  # cycles a sample: offsets up to ±500 kHz
GENERATOR = 0x1FFF409  # of the parity, 3.1.2.3.3: x²⁴ + x²³ + … + x¹² + x¹⁰ + x³ + 1

Complex = NDArray[np.complexfloating[Any, Any]]
Bits = NDArray[np.uint8]


def parity(message: bytes) -> int:
    """The remainder of a message of whole octets by the generator: zero where its last three are its parity.

    >>> parity(bytes.fromhex("8D4840D6202CC371C32CE0576098"))
    0
    """
    register = int.from_bytes(message, "big")
    for place in range(8 * len(message) - 1, 23, -1):
        if register >> place & 1:
            register ^= GENERATOR << (place - 24)
    return register


def with_parity(message: bytes) -> bytes:
    """A message of 11 octets and its parity."""
    return message + parity(message + bytes(3)).to_bytes(3, "big")


@cache
def pulses(shift: float = 0.0) -> NDArray[np.float64]:
    """(SAMPLES, slots) what each slot's pulse is behind the filter, for frames that begin `shift` samples late."""
    time = (np.arange(SAMPLES) - LEAD - shift) / RATE_HZ
    since = time[:, None] - SLOT_S * np.arange(FIRST_SLOT + 2 * BITS)
    return _step(since) - _step(since - SLOT_S)


def _step(time: NDArray[np.float64]) -> NDArray[np.float64]:
    """The filter's answer to a step: ∫ (1 + cos 2πt/W)/W, from −W/2 to W/2."""
    part = np.clip(time / FILTER_S, -0.5, 0.5)
    return np.asarray(part + 0.5 + np.sin(2 * np.pi * part) / (2 * np.pi))


def slots(bits: Bits) -> NDArray[np.float64]:
    """(…, slots) of (…, 112) bits: one where there is a pulse."""
    found = np.zeros((*bits.shape[:-1], FIRST_SLOT + 2 * BITS))
    found[..., PULSES] = 1
    found[..., FIRST_SLOT::2], found[..., FIRST_SLOT + 1 :: 2] = bits, 1 - bits
    return found


def modulate(bits: Bits) -> NDArray[np.complex128]:
    """(…, SAMPLES) frames of (…, 112) bits, as strong as the preamble of unit mean power is."""
    # No product of matrices: a frame is the same to the last bit, whichever others are made with it.
    return (np.einsum("...s,ts->...t", slots(bits), pulses()) / _scale()).astype(np.complex128)


@cache
def _scale() -> float:
    known = np.zeros(BITS, dtype=np.uint8)
    known[: len(SQUITTER)] = SQUITTER
    beginning = (pulses() @ slots(known))[:PREAMBLE_SAMPLES]
    return float(np.sqrt(np.mean(beginning**2)))


def bits_of(messages: NDArray[np.uint8]) -> Bits:
    """(…, 8 n) of (…, n) octets, the highest bit first."""
    return np.unpackbits(messages, axis=-1)


class Decided(NamedTuple):
    """Frames (N, A, T) as decided. bits: (N, 112). offset: (N, A) in cycles a sample.

    quality: (N,) part of the energy that these bits explain. snr: (N, A) that part over the rest, zero of an antenna
    that is silent. late: (N,) samples by which it begins behind its first.
    """

    bits: Bits
    offset: NDArray[np.float64]
    quality: NDArray[np.float64]
    snr: NDArray[np.float64]
    late: NDArray[np.float64]


def decide(iq: Complex) -> Decided:
    """The bits of frames (N, A, SAMPLES or more) that begin with their first sample, within a sample."""
    y = np.nan_to_num(iq[..., :SAMPLES].astype(np.complex128), posinf=0, neginf=0)
    n = np.arange(SAMPLES)
    energy = (np.abs(y) ** 2).sum(-1)
    rough = _line(y.astype(np.complex128)).mean(1)
    still = y * np.exp(-2j * np.pi * rough[:, None, None] * n)
    quality, bits = np.full(len(y), -1.0), np.zeros((len(y), BITS), dtype=np.uint8)
    sent, late = np.zeros((len(y), SAMPLES)), np.zeros(len(y))
    for shift in SHIFTS:
        common, change, overlap = _decision(shift)
        weight = still @ common / (common @ common)  # (N, A)
        together = (still * weight.conj()[..., None]).sum(1).real
        level = np.maximum((np.abs(weight) ** 2).sum(1), np.finfo(np.float64).tiny)
        found = _most_likely((together / level[:, None] - common) @ change, overlap)
        x = common + np.where(found, 1.0, -1.0) @ change.T
        good = _explained(still, x) / np.maximum(energy.sum(1), np.finfo(np.float64).tiny)
        better = good > quality
        quality[better], bits[better], sent[better], late[better] = good[better], found[better], x[better], shift
    # Without the pulses a tone is left.
    tone = y * sent[:, None]
    offset = _line(tone)
    product = tone * np.exp(-2j * np.pi * offset[..., None] * n)
    own = (sent**2).sum(1)[:, None]
    gain = product.sum(-1) / own
    # Between the shifts that were tried, x(n − d) = x(n) − d x'(n).
    slope: NDArray[np.float64] = np.asarray(np.gradient(sent, axis=1))
    slope -= ((slope * sent).sum(1) / own[:, 0])[:, None] * sent
    steep = (slope**2).sum(1)[:, None]
    moved = (y * slope[:, None] * np.exp(-2j * np.pi * offset[..., None] * n)).sum(-1) / steep
    late -= (moved * gain.conj()).real.sum(1) / np.maximum((np.abs(gain) ** 2).sum(1), 1e-300)
    explained = np.abs(gain) ** 2 * own + np.abs(moved) ** 2 * steep
    quality = explained.sum(1) / np.maximum(energy.sum(1), 1e-300)
    snr = explained / np.maximum(energy - explained, 1e-9 * energy + 1e-300)
    return Decided(bits, offset, quality, snr, late)


@cache
def _decision(shift: float) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """What all messages have in common (T,), D (T, 112) what each bit changes, and DᵀD (112, 112)."""
    shape = pulses(shift)
    early, late = shape[:, FIRST_SLOT::2], shape[:, FIRST_SLOT + 1 :: 2]
    change = (early - late) / 2
    common = shape[:, list(PULSES)].sum(1) + (early + late).sum(1) / 2
    return common, change, change.T @ change


def _most_likely(matched: NDArray[np.float64], overlap: NDArray[np.float64]) -> NDArray[np.bool_]:
    """(N, 112) the b in ±1 with the least ‖r − D b‖², matched: Dᵀr (N, 112), by Viterbi's algorithm.

    −‖r − D b‖² = Σ_k b_k (2 (Dᵀr)_k − 2 Σ_{j<k} (DᵀD)_kj b_j) but for what is the same for all b; bits overlap with
    the two before them, which are the state.
    """
    sign = np.array([-1.0, 1.0])
    score = np.zeros((len(matched), 2, 2))  # of the best sequence that ends with these two bits
    came = np.zeros((BITS, len(matched), 2, 2), dtype=bool)
    for k in range(BITS):
        before = [overlap[k, k - j] if k >= j else 0.0 for j in (1, 2)]
        isi = before[1] * sign[:, None, None] + before[0] * sign[None, :, None]  # of (two before, one before)
        total = score[..., None] + sign * (matched[:, k, None, None, None] - isi)
        came[k] = total[:, 1] > total[:, 0]
        score = total.max(axis=1)
    bits = np.zeros(matched.shape, dtype=bool)
    rows = np.arange(len(matched))
    last = score.reshape(len(matched), 4).argmax(axis=1)
    one, two = last // 2, last % 2
    for k in range(BITS - 1, -1, -1):
        bits[:, k] = two
        one, two = came[k, rows, one, two].astype(int), one
    return bits


def _explained(still: NDArray[np.complex128], x: NDArray[np.float64]) -> NDArray[np.float64]:
    """(N,) energy on all antennas that x (N, T) explains."""
    return np.asarray((np.abs((still * x[:, None]).sum(-1)) ** 2).sum(1) / np.maximum((x**2).sum(1), 1e-300))


def _line(y: NDArray[np.complex128]) -> NDArray[np.float64]:
    """(N, A) where the spectrum of frames (N, A, T) has its line, in cycles a sample; common to all but for its noise.

    Its bin is that of all antennas together; within it each antenna has a parabola of its own.
    """
    size = 4 * 512
    spectrum = np.abs(np.fft.fft(y, size))
    spectrum[..., int(WIDEST * size) : size - int(WIDEST * size)] = 0
    peak = np.argmax((spectrum**2).sum(1), axis=1)[:, None]
    left, middle, right = (
        np.take_along_axis(spectrum, np.broadcast_to((peak + d) % size, spectrum.shape[:2])[..., None], -1)[..., 0]
        for d in (-1, 0, 1)
    )
    bend = left - 2 * middle + right
    part = np.where(bend < 0, (left - right) / np.where(bend < 0, 2 * bend, 1), 0)
    return ((peak + size // 2) % size - size // 2 + np.clip(part, -1, 1)) / size


@register_waveform("adsb")
class ADSB(Waveform):
    """Only 13 µs are the same in every squitter; the rest is decided from the frame: all of it is a reference."""

    title = "ADS-B"
    sample_rate_hz = RATE_HZ
    occupied = 0.67
    longest_samples = 320
    taps = (4, 6)  # a sample is 120 m; fewer would take the tails of a fractional delay for leakage
    ridge = 1e-3
    rebuilds = True

    def preamble(self) -> NDArray[np.complex128]:
        known = np.zeros(BITS, dtype=np.uint8)
        known[: len(SQUITTER)] = SQUITTER
        return modulate(known)[:PREAMBLE_SAMPLES]

    def head(self, samples: int) -> NDArray[np.complex128] | None:
        return self.preamble()[:samples] if samples <= PREAMBLE_SAMPLES else None

    def frames(self, count: int, draw: Draw) -> NDArray[np.complex128]:
        """Airborne squitters of random addresses and content, with their parity."""
        octets = draw("payload").integers(0, 256, (count, 12), dtype=np.uint8)[:, :11]  # words are drawn whole
        octets[:, 0] = 0x8D  # format 17, capability 5
        whole = np.stack([np.frombuffer(with_parity(row.tobytes()), np.uint8) for row in octets])
        return np.pad(modulate(bits_of(whole)), ((0, 0), (0, self.longest_samples - SAMPLES)))

    def rebuilt(self, iq: Complex) -> list[NDArray[np.complex128] | None]:
        """Whatever their parity: a wrong bit or two among 112 widen the bars by the misfit, and do no more."""
        if iq.shape[-1] < SAMPLES:
            return [None] * len(iq)
        return list(modulate(decide(iq).bits))
