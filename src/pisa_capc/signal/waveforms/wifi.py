"""Wi-Fi: IEEE Std 802.11-2020, clause 17 (OFDM PHY), 20 MHz non-HT format, whole PPDUs at MCS 0."""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

from pisa_capc.signal.waveforms.base import Draw, Waveform, register_waveform

PREAMBLE_SAMPLES = 320  # L-STF and L-LTF, 8 µs each at 20 MS/s
GUARD_SAMPLES = 16
SYMBOL_SAMPLES = 64 + GUARD_SAMPLES
PSDU_BYTES = 128
SCRAMBLER_PERIOD = 127

STF_TONES = np.array([1, -1, 1, -1, -1, 1, -1, -1, 1, 1, 1, 1]) * (1 + 1j) * np.sqrt(13 / 6)
STF_SUBCARRIERS = np.r_[-24:0:4, 4:28:4]
LTF_TONES = np.array(
    [int(s + "1") for s in "++--++-+-++++++--++-+-++++"] + [0] + [int(s + "1") for s in "+--++-+-+-----++--+-+-++++"]
)
LTF_SUBCARRIERS = np.r_[-26:27]
PILOT_SUBCARRIERS = np.array([-21, -7, 7, 21])
PILOT_TONES = np.array([1, 1, 1, -1])
DATA_SUBCARRIERS = np.setdiff1d(LTF_SUBCARRIERS, [0, *PILOT_SUBCARRIERS])
RATE_6_MBPS = (1, 1, 0, 1)
_BITS_PER_SYMBOL = 24  # data bits of one BPSK, rate 1/2 symbol


def ofdm(tones: NDArray[np.complex128], subcarriers: NDArray[np.int64]) -> NDArray[np.complex128]:
    """(…, 64) time samples of (…, K) tones: 64/√52 times the inverse DFT, so 52 unit tones have unit mean power."""
    spectrum = np.zeros((*tones.shape[:-1], 64), dtype=np.complex128)
    spectrum[..., subcarriers % 64] = tones
    return np.fft.ifft(spectrum) * 64 / np.sqrt(52)


def preamble() -> NDArray[np.complex128]:
    """(320,) L-STF and L-LTF (17.3.3): ten short symbols of 16 samples; a guard of 32 and two long symbols of 64.

    No windowing between the fields, which the standard leaves to the implementer (17.3.2.5).
    """
    short = np.tile(ofdm(STF_TONES, STF_SUBCARRIERS), 3)[:160]
    long = ofdm(LTF_TONES.astype(np.complex128), LTF_SUBCARRIERS)
    return np.concatenate([short, long[32:], long, long])


def scrambler_sequence(state: NDArray[np.int64], length: int) -> NDArray[np.uint8]:
    """(…, length) output of the scrambler x⁷ + x⁴ + 1 (17.3.5.5) from 7-bit initial states; X7 is the highest bit."""
    register = np.asarray(state)
    bits = np.empty((*register.shape, SCRAMBLER_PERIOD), dtype=np.uint8)
    for n in range(SCRAMBLER_PERIOD):
        feedback = ((register >> 6) ^ (register >> 3)) & 1
        bits[..., n] = feedback
        register = ((register << 1) & 0x7F) | feedback
    return bits[..., np.arange(length) % SCRAMBLER_PERIOD]


_POLARITY = 1.0 - 2.0 * scrambler_sequence(np.array(0x7F), SCRAMBLER_PERIOD).astype(np.float64)


def convolutional_code(bits: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """(…, 2n) rate-1/2 code with generators 133 and 171 octal (17.3.5.6), outputs A and B alternating."""
    n = bits.shape[-1]
    padded = np.concatenate([np.zeros((*bits.shape[:-1], 6), dtype=np.uint8), bits], axis=-1)
    delayed = [padded[..., 6 - d : 6 - d + n] for d in range(7)]
    a = delayed[0] ^ delayed[2] ^ delayed[3] ^ delayed[5] ^ delayed[6]
    b = delayed[0] ^ delayed[1] ^ delayed[2] ^ delayed[3] ^ delayed[6]
    return np.stack([a, b], axis=-1).reshape(*bits.shape[:-1], 2 * n)


def interleave(coded: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Each group of 48 coded bits permuted by i = 3 (k mod 16) + ⌊k/16⌋ (17.3.5.7; the second permutation is the
    identity for BPSK)."""
    k = np.arange(48)
    groups = coded.reshape(*coded.shape[:-1], -1, 48)
    out = np.empty_like(groups)
    out[..., 3 * (k % 16) + k // 16] = groups
    return out.reshape(coded.shape)


def pilot_polarity(symbols: int, first_symbol: int) -> NDArray[np.float64]:
    """(symbols,) signs of the pilots from `first_symbol` on, L-SIG being symbol 0 (17.3.5.10)."""
    return _POLARITY[(first_symbol + np.arange(symbols)) % SCRAMBLER_PERIOD]


def pilot_tones(symbols: int, first_symbol: int) -> NDArray[np.float64]:
    """(symbols, 4) pilots of non-HT symbols."""
    return pilot_polarity(symbols, first_symbol)[:, None] * PILOT_TONES


def guarded(
    tones: NDArray[np.complex128], subcarriers: NDArray[np.int64], guard: int = GUARD_SAMPLES
) -> NDArray[np.complex128]:
    """(…, (64 + guard) S) OFDM symbols with their guard intervals from (…, S, K) tones."""
    body = ofdm(tones, subcarriers)
    return np.concatenate([body[..., -guard:], body], axis=-1).reshape(*tones.shape[:-2], -1)


def data_symbols(points: NDArray[np.complex128], first_symbol: int) -> NDArray[np.complex128]:
    """(…, 80 S) OFDM symbols of (…, S, 48) constellation points, with their four pilots."""
    pilots = np.broadcast_to(pilot_tones(points.shape[-2], first_symbol), (*points.shape[:-1], 4))
    return guarded(np.concatenate([points, pilots], axis=-1), np.concatenate([DATA_SUBCARRIERS, PILOT_SUBCARRIERS]))


def bpsk_points(bits: NDArray[np.uint8]) -> NDArray[np.complex128]:
    """(…, S, 48) points of (…, 24 S) bits at rate 1/2."""
    coded = interleave(convolutional_code(bits)).reshape(*bits.shape[:-1], -1, 48)
    return (coded * 2.0 - 1.0).astype(np.complex128)


def signal_field(psdu_bytes: int = PSDU_BYTES, rate: tuple[int, int, int, int] = RATE_6_MBPS) -> NDArray[np.complex128]:
    """(80,) L-SIG (17.3.4): RATE, LENGTH least significant bit first, even parity, six tail zeros."""
    head = [*rate, 0, *((psdu_bytes >> i) & 1 for i in range(12))]
    bits = np.array([*head, sum(head) % 2, 0, 0, 0, 0, 0, 0], dtype=np.uint8)
    return data_symbols(bpsk_points(bits), first_symbol=0)


def data_field(psdu: NDArray[np.uint8], scrambler_state: NDArray[np.int64]) -> NDArray[np.complex128]:
    """(F, 80 S) DATA field at MCS 0 of (F, B) octets: 16 SERVICE bits, PSDU, six tail zeros, padding (17.3.5)."""
    frames, octets = psdu.shape
    content = 16 + 8 * octets
    symbols = -(-(content + 6) // _BITS_PER_SYMBOL)
    bits = np.zeros((frames, symbols * _BITS_PER_SYMBOL), dtype=np.uint8)
    bits[:, 16:content] = np.unpackbits(psdu, axis=1, bitorder="little")
    bits ^= scrambler_sequence(scrambler_state, bits.shape[1])
    bits[:, content : content + 6] = 0  # the tail returns the encoder to state zero, so it is not scrambled
    return data_symbols(bpsk_points(bits), first_symbol=1)


def random_psdu(rng: np.random.Generator, frames: int, octets: int = PSDU_BYTES) -> NDArray[np.uint8]:
    """(F, octets) random octets that end in their own CRC-32 frame check sequence (9.2.4.8)."""
    psdu = rng.integers(0, 256, (frames, octets), dtype=np.uint8)
    for row in psdu:
        row[-4:] = np.frombuffer(zlib.crc32(row[:-4].tobytes()).to_bytes(4, "little"), dtype=np.uint8)
    return psdu


def ppdu_samples(octets: int = PSDU_BYTES) -> int:
    """Samples of a whole PPDU: preamble, L-SIG and DATA."""
    symbols = -(-(16 + 8 * octets + 6) // _BITS_PER_SYMBOL)
    return PREAMBLE_SAMPLES + SYMBOL_SAMPLES * (1 + symbols)


def ppdu(psdu: NDArray[np.uint8], scrambler_state: NDArray[np.int64]) -> NDArray[np.complex128]:
    """(F, T) whole non-HT PPDUs of (F, B) octets; scrambler states 1 … 127, one per frame."""
    head = np.concatenate([preamble(), signal_field(psdu.shape[1])])
    data = data_field(psdu, scrambler_state)
    return np.concatenate([np.broadcast_to(head, (len(psdu), len(head))), data], axis=1)


@register_waveform("wifi")
class WiFi(Waveform):
    """Preamble and L-SIG are the same in every frame, the DATA field is not. L-STF repeats and tells the CFO alone."""

    title = "Wi-Fi"
    sample_rate_hz = 20e6
    occupied = 26 / 32  # subcarriers on either side
    longest_samples = ppdu_samples()
    periodic = 160

    def preamble(self) -> NDArray[np.complex128]:
        return preamble()

    def head(self, samples: int) -> NDArray[np.complex128] | None:
        known = np.concatenate([preamble(), signal_field()])
        return known[:samples] if samples <= len(known) else None

    def frames(self, count: int, draw: Draw) -> NDArray[np.complex128]:
        """Random octets with a correct checksum, scrambled from a random state."""
        return ppdu(random_psdu(draw("payload"), count), draw("scrambler").integers(1, 128, count))
