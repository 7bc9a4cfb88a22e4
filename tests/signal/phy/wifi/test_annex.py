"""The example of the standard: IEEE Std 802.11, annex I.1 (annex G of 802.11a), 100 octets at 36 Mb/s."""

from __future__ import annotations

import numpy as np

from pisa_capc.signal.phy.wifi import mac, receive, transmit
from pisa_capc.signal.waveforms import wifi

HEADER = bytes.fromhex("0402002e006008cd37a60020d6013cf1006008ad3baf0000")
TEXT = b"Joy, bright spark of divinity,\nDaughter of Elysium,\nFire-insired we trea"
SCRAMBLER = 0b1011101
# Coded and interleaved bits of the first DATA symbol.
FIRST_SYMBOL = "77f0efc47300bf11109a1d126e38f5691b6b9843000db36d"
# Samples of the packet at the annex's scale, to its three digits: inside SIGNAL and inside the first DATA symbol.
SAMPLES = {
    321: (0.033 - 0.044j, -0.002 - 0.038j, -0.081 + 0.084j, 0.007 - 0.100j, -0.001 - 0.113j),
    401: (0.004 + 0.014j, 0.011 - 0.100j, -0.097 - 0.020j, 0.062 + 0.081j, 0.124 + 0.139j),
}


def _packet() -> np.ndarray:
    return transmit(mac.with_fcs(HEADER + TEXT), 36, SCRAMBLER)


def test_checksum_of_the_message() -> None:
    assert mac.with_fcs(HEADER + TEXT)[-4:].hex() == "673321b6"


def test_bits_of_the_signal_field() -> None:
    bits = np.array([int(b) for b in "101100010011000000000000"], dtype=np.uint8)
    expected = wifi.data_symbols(wifi.bpsk_points(bits), first_symbol=0)
    np.testing.assert_allclose(_packet()[320:400], expected, atol=1e-12)
    coded = "".join(map(str, wifi.convolutional_code(bits)))
    assert coded == "110100011010000100000010001111100111000000000000"


def test_points_of_the_first_data_symbol() -> None:
    bits = np.unpackbits(np.frombuffer(bytes.fromhex(FIRST_SYMBOL), dtype=np.uint8)).reshape(48, 2, 2)
    level = np.array([[-3, -1], [3, 1]])  # b0, b1
    expected = (level[bits[:, 0, 0], bits[:, 0, 1]] + 1j * level[bits[:, 1, 0], bits[:, 1, 1]]) / np.sqrt(10)
    tones = np.fft.fft(_packet()[416:480]) * np.sqrt(52) / 64
    np.testing.assert_allclose(tones[wifi.DATA_SUBCARRIERS], expected, atol=1e-9)


def test_samples_of_the_packet() -> None:
    x = _packet() * np.sqrt(52) / 64
    assert len(x) == 880
    for first, values in SAMPLES.items():
        np.testing.assert_allclose(x[first : first + len(values)], values, atol=0.00072)


def test_the_packet_is_received() -> None:
    (header,) = receive([_packet()[None].astype(np.complex64)], [0.0])
    assert (header.rate_mbps, header.length, header.fcs) == (36, 100, True)
    assert header.kind == "non-ht"  # its frame control is of no type that the standard knows
