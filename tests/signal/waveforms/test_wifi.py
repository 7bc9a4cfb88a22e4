"""The Wi-Fi waveform is that of the standard, sample for sample."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from pisa_capc.signal.waveforms import wifi


def test_preamble_has_the_sample_values_of_the_standard() -> None:
    x = wifi.preamble()
    assert x.shape == (320,)
    known = {
        0: 0.408248 * (1 + 1j),
        1: -1.175465 + 0.020764j,
        160: -1.386750,
        192: 1.386750,
        193: -0.045452 - 1.067910j,
    }
    for index, value in known.items():
        assert x[index] == pytest.approx(value, abs=1e-6)


def test_short_symbols_repeat_every_16_samples_and_long_ones_every_64() -> None:
    x = wifi.preamble()
    np.testing.assert_allclose(x[:144], x[16:160], atol=1e-12)
    np.testing.assert_allclose(x[160:256], x[224:320], atol=1e-12)


@pytest.mark.parametrize(("field", "papr_db"), [(slice(0, 160), 2.09), (slice(160, 320), 3.17)])
def test_both_fields_have_unit_power_and_their_known_peak(field: slice, papr_db: float) -> None:
    power = np.abs(wifi.preamble()[field]) ** 2
    assert power.mean() == pytest.approx(1)
    assert 10 * np.log10(power.max()) == pytest.approx(papr_db, abs=0.005)


def test_scrambler_gives_the_127_bits_printed_in_the_standard() -> None:
    printed = (
        "0000111011110010110010010000001000100110001011101011011000001100"
        "110101001110011110110100001010101111101001010001101110001111111"
    )
    bits = wifi.scrambler_sequence(np.array(0x7F), 254)
    assert "".join(map(str, bits)) == printed * 2


def test_a_receiver_decodes_signal_and_data_fields_to_a_frame_with_a_correct_checksum() -> None:
    rng = np.random.default_rng(0)
    psdu = wifi.random_psdu(rng, 3)
    x = wifi.ppdu(psdu, np.array([1, 93, 127]))
    assert x.shape == (3, 3920)
    for sent, frame in zip(psdu, x, strict=True):
        signal = _decode(frame[320:400], first_symbol=0)
        assert list(signal[:5]) == [1, 1, 0, 1, 0]  # 6 Mb/s and the reserved bit
        assert signal[5:17] @ (1 << np.arange(12)) == 128
        assert signal[:18].sum() % 2 == 0
        bits = _decode(frame[400:], first_symbol=1)
        # The first seven SERVICE bits are zero, so what is received there is the state of the scrambler.
        sequence = list(bits[:7])
        while len(sequence) < len(bits):
            sequence.append(sequence[-7] ^ sequence[-4])
        plain = bits ^ np.array(sequence, dtype=np.uint8)
        received = np.packbits(plain[16 : 16 + 1024], bitorder="little")
        assert received.tobytes() == sent.tobytes()
        assert zlib.crc32(received[:-4].tobytes()) == int.from_bytes(received[-4:].tobytes(), "little")


def _decode(samples: np.ndarray, first_symbol: int) -> np.ndarray:
    """OFDM demodulation, de-interleaving and decoding of a noiseless field, written down from the standard."""
    tones = np.fft.fft(samples.reshape(-1, 80)[:, 16:]) * np.sqrt(52) / 64
    pilots = tones[:, [-21, -7, 7, 21]].real * [1, 1, 1, -1]
    polarity = 1 - 2.0 * wifi.scrambler_sequence(np.array(127), 127)
    np.testing.assert_allclose(pilots, np.repeat(polarity[first_symbol:][: len(tones), None], 4, axis=1), atol=1e-9)
    data = [k for k in range(-26, 27) if k not in (0, -21, -7, 7, 21)]
    symbols = (tones[:, data].real > 0).astype(np.uint8)
    k = np.arange(48)
    coded = symbols[:, 3 * (k % 16) + k // 16].reshape(-1, 2)
    register, bits = [0] * 6, []
    for a, b in coded:
        bit = a ^ register[1] ^ register[2] ^ register[4] ^ register[5]
        assert b == bit ^ register[0] ^ register[1] ^ register[2] ^ register[5]
        bits.append(bit)
        register = [bit, *register[:5]]
    return np.array(bits, dtype=np.uint8)
