"""A frame is rebuilt from its bits exactly, and only where a checksum says that they are right."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from pisa_capc.signal.phy import lora, wifi
from pisa_capc.signal.phy.wifi import mac
from tests.signal.detection.air import Air

AP, PHONE = "02:00:00:00:00:0a", "02:00:00:00:00:0b"
FRAME = mac.data(AP, PHONE, PHONE, bytes(range(60)))
CFO_HZ = 20_000.0


def heard(sent: NDArray[np.complex128], snr_db: float = 25.0) -> NDArray[np.complex64]:
    """On two antennas, behind an echo, with a carrier offset."""
    air = Air(2, len(sent))
    air.add(sent, 0, snr_db, CFO_HZ, ((0, 1.0), (2, 0.3)))
    return air.iq


def of_wifi(sent: NDArray[np.complex128], snr_db: float = 25.0) -> NDArray[np.complex128] | None:
    [found] = wifi.rebuild([heard(sent, snr_db)], [CFO_HZ])
    return found


@pytest.mark.parametrize(("rate_mbps", "scrambler"), [(6, 1), (9, 127), (24, 64), (54, 93)])
def test_wifi_of_every_kind(rate_mbps: float, scrambler: int) -> None:
    sent = wifi.transmit(FRAME, rate_mbps, scrambler)
    np.testing.assert_allclose(of_wifi(sent, 35), sent, atol=1e-12)


@pytest.mark.parametrize("short_guard", [False, True])
def test_wifi_of_high_throughput_and_aggregated(short_guard: bool) -> None:
    sent = wifi.transmit_ht(mac.aggregate([FRAME, FRAME]), 3, 17, aggregated=True, short_guard=short_guard)
    np.testing.assert_allclose(of_wifi(sent), sent, atol=1e-12)


def test_without_a_right_checksum_nothing_is_rebuilt() -> None:
    """Of an aggregate all frames have to be right."""
    wrong = FRAME[:-1] + bytes([FRAME[-1] ^ 1])
    assert of_wifi(wifi.transmit(wrong, 6, 5)) is None
    assert of_wifi(wifi.transmit_ht(mac.aggregate([FRAME, wrong]), 2, 5, aggregated=True)) is None
    assert of_wifi(wifi.transmit(FRAME, 6, 5)[:900]) is None
    assert of_wifi(wifi.transmit(FRAME, 54, 5), snr_db=5) is None
    assert mac.aggregate_is_right(mac.aggregate([FRAME]))
    assert not mac.aggregate_is_right(b"")
    assert not mac.aggregate_is_right(mac.aggregate([FRAME])[:-5])


def test_lora() -> None:
    modulation = lora.Modulation(7)
    sent = lora.transmit(b"whole frames", 7, 2, sync_word=0x34)
    noise = 0.3 * np.random.default_rng(1).standard_normal((2, len(sent), 2)) @ [1, 1j]
    np.testing.assert_allclose(lora.rebuild(sent + noise, np.zeros(2), modulation), sent, atol=1e-9)
    unchecked = lora.transmit(b"whole frames", 7, 2, sync_word=0x34, crc=False)
    assert lora.rebuild(unchecked + noise[:, : len(unchecked)], np.zeros(2), modulation) is None
    assert lora.rebuild((sent + noise)[:, :20_000], np.zeros(2), modulation) is None


def test_lora_of_a_transmitter_whose_clock_is_slow() -> None:
    """20 ppm: symbols last longer by that, and the carrier is as much too low."""
    carrier_hz, slow = 868e6, 20e-6
    modulation = lora.Modulation(7)
    sent = lora.transmit(bytes(60), 7, 1, sync_word=0x34)
    n = np.arange(len(sent))
    late = np.interp(n * (1 - slow), n, sent.real) + 1j * np.interp(n * (1 - slow), n, sent.imag)
    received = late * np.exp(-2j * np.pi * slow * carrier_hz / 1e6 * n)
    rebuilt = lora.rebuild(received[None], np.array([-slow * carrier_hz]), modulation, carrier_hz=carrier_hz)
    assert rebuilt is not None
    off = [np.abs(np.vdot(own[-2048:-100], late[-2048:-100])) / 1948 for own in (rebuilt[: len(sent)], sent)]
    assert off[0] > 0.95 > off[1]
