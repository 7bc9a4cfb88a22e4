"""Whole PPDUs are those of the standard."""

from __future__ import annotations

import numpy as np
import pytest

from pisa_capc.core.errors import ConfigError
from pisa_capc.signal.phy.wifi import transmit, transmit_ht
from pisa_capc.signal.phy.wifi.coding import HT, LEGACY, Coding, crc8
from pisa_capc.signal.waveforms import wifi

RATES = [coding.rate_mbps for coding in LEGACY.values()]


def test_six_megabits_are_the_samples_of_the_waveform() -> None:
    psdu = wifi.random_psdu(np.random.default_rng(0), 1, 77)
    np.testing.assert_array_equal(transmit(psdu.tobytes(), 6, 93), wifi.ppdu(psdu, np.array([93]))[0])


@pytest.mark.parametrize("rate", RATES)
def test_a_frame_lasts_as_long_as_its_rate_says_and_has_unit_power(rate: float) -> None:
    x = transmit(np.random.default_rng(1).bytes(500), rate, 1)
    assert len(x) == 400 + 80 * int(np.ceil((16 + 4000 + 6) / (rate * 4)))
    assert np.mean(np.abs(x) ** 2) == pytest.approx(1, rel=0.1)


@pytest.mark.parametrize("mcs", range(8))
def test_ht_frames_last_as_long_as_their_legacy_length_pretends(mcs: int) -> None:
    x = transmit_ht(np.random.default_rng(1).bytes(500), mcs, 1)
    symbols = int(np.ceil((16 + 4000 + 6) / HT[mcs].data_bits))
    assert len(x) == 400 + 4 * 80 + 80 * symbols
    assert HT[mcs].data_bits / 4 == pytest.approx(HT[mcs].rate_mbps)
    for field in (slice(400, 560), slice(560, 640), slice(640, 720), slice(720, None)):
        assert np.mean(np.abs(x[field]) ** 2) == pytest.approx(1, rel=0.15)


@pytest.mark.parametrize("coding", [*LEGACY.values(), *HT])
def test_interleaving_is_a_permutation_that_parts_neighbours(coding: Coding) -> None:
    assert sorted(coding.places) == list(range(coding.coded_bits))
    carrier = coding.places // coding.bits_per_carrier
    assert np.abs(np.diff(carrier)).min() >= 3


def test_neighbouring_points_differ_in_one_bit() -> None:
    coding = LEGACY[(0, 0, 1, 1)]
    bits = (np.arange(64)[:, None] >> np.arange(6)) & 1
    points = coding._mapped(bits.astype(np.uint8))
    assert np.mean(np.abs(points) ** 2) == pytest.approx(1)
    apart = np.abs(points[:, None] - points[None])
    neighbours = (apart > 0) & (apart < 1.01 * apart[apart > 0].min())
    assert np.all((bits[:, None] != bits[None]).sum(-1)[neighbours] == 1)


def test_crc_of_ht_sig_is_that_of_the_example_in_the_standard() -> None:
    covered = np.array([int(b) for b in "111100010010011000000000" + "1110000000"], dtype=np.uint8)
    assert list(crc8(covered)) == [1, 0, 1, 0, 1, 0, 0, 0]


def test_an_ht_frame_begins_with_the_samples_that_another_program_gives() -> None:
    """L-SIG, half of HT-SIG and HT-LTF of 14 octets at MCS 7 with the short guard interval, from the test inputs of
    openofdm (simulated/ht_mcs7_gi1_aggr0_len14). Its scale is 2¹⁵ for an inverse DFT of 1/64, in HT fields too; the
    other half of HT-SIG differs in what it recommends for smoothing."""
    x = transmit_ht(bytes(14), 7, 1, short_guard=True) * 2**15 * np.sqrt(52) / 64
    x[640:] *= np.sqrt(56 / 52)
    theirs = {
        320: (-4096 + 4096j, -4186 + 1247j, -1412 - 2205j, -4239 - 3420j),
        400: (4096 - 2048j, -2404 - 1305j, 116 - 1908j, -366 + 375j),
        640: (2048 + 1024j, 3907 + 645j, -737 - 5109j, 1922 - 356j),
    }
    for first, samples in theirs.items():
        np.testing.assert_allclose(x[first : first + len(samples)], samples, atol=1.5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: transmit(b"abcde", 11, 1), "11 Mb/s"),
        (lambda: transmit(b"", 6, 1), "0 octets"),
        (lambda: transmit(bytes(4096), 6, 1), "4096 octets"),
        (lambda: transmit(b"abcde", 6, 0), "scrambler state 0"),
        (lambda: transmit_ht(b"abcde", 8, 1), "MCS 8"),
        (lambda: transmit_ht(bytes(60000), 0, 1), "longer than L-SIG"),
    ],
)
def test_what_cannot_be_sent_is_refused(call: object, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        call()  # type: ignore[operator]
