"""Bluetooth LE advertising: whitening and CRC as published, whole packets in noise, and lengths that lie."""

from __future__ import annotations

import numpy as np
import pytest

from pisa_capc.core.errors import ConfigError
from pisa_capc.signal.phy.ble import advertisement, parse, rebuild, receive, transmit
from pisa_capc.signal.waveforms.ble import (
    BEGINNING,
    CHANNELS,
    PER_BIT,
    RATE_HZ,
    bits_of,
    crc,
    frame_samples,
    modulate,
    octets_of,
    whitened,
    whitening,
)
from tests.signal.phy.noise import at_receiver

ADDRESS = "c1:c2:c3:c4:c5:c6"


def test_the_whitening_of_channel_37_is_the_published_one() -> None:
    known = "8dd257a13da766b0753111489677f8e346e9abd09e5333d8ba980824cb3bfc71a3f45568cfa9196c5d4c"
    assert octets_of(whitening(37, 4 * len(known))).hex() == known


@pytest.mark.parametrize("channel", CHANNELS)
def test_the_whitening_is_the_register_of_the_specification_and_undoes_itself(channel: int) -> None:
    register = [1, *(int(bit) for bit in f"{channel:06b}")]  # positions 0 … 6
    slow = []
    for _ in range(300):
        out = register[6]
        slow.append(out)
        register = [out, *register[:3], register[3] ^ out, *register[4:6]]
    assert whitening(channel, 300).tolist() == slow
    octets = bytes(range(50))
    assert whitened(whitened(octets, channel), channel) == octets


def test_the_crc_is_the_register_of_the_specification_and_notices_each_wrong_bit() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        pdu = rng.bytes(int(rng.integers(2, 40)))
        register = [int(bit) for bit in f"{0x555555:024b}"][::-1]  # positions 0 … 23
        for bit in bits_of(pdu).tolist():
            out = register[23] ^ bit
            register = [out, *register[:23]]
            for place in (1, 3, 4, 6, 9, 10):
                register[place] ^= out
        assert bits_of(crc(pdu)).tolist() == register[::-1]  # sent with position 23 first
        wrong = bytearray(pdu)
        wrong[int(rng.integers(len(pdu)))] ^= 1 << int(rng.integers(8))
        assert crc(bytes(wrong)) != crc(pdu)


def test_bits_turn_the_phase_by_a_quarter_and_the_envelope_is_constant() -> None:
    x = modulate(np.ones(40, dtype=np.uint8))
    np.testing.assert_allclose(np.abs(x), 1)
    np.testing.assert_allclose(np.angle(x[24::PER_BIT][1:] * x[24::PER_BIT][:-1].conj())[:-3], np.pi / 2, rtol=1e-9)
    assert BEGINNING.hex() == "aad6be898e"


@pytest.mark.parametrize("snr_db", [6.0, 15.0, 30.0])
@pytest.mark.parametrize("cfo_hz", [-90e3, 0.0, 60e3])
def test_a_packet_in_noise_is_read_and_rebuilt(snr_db: float, cfo_hz: float) -> None:
    rng = np.random.default_rng(1)
    for channel, late in zip(CHANNELS, (-0.4, 0.0, 0.4), strict=True):
        pdu = advertisement(ADDRESS, rng.bytes(24))
        sent = transmit(pdu, channel)
        iq = at_receiver(sent, rng, snr_db, cfo_hz / RATE_HZ, late)
        header, samples = receive(iq, np.full(2, cfo_hz + 1e3))
        assert header == parse(pdu, True)
        assert (header.kind, header.transmitter, header.length) == ("adv-nonconn-ind", ADDRESS, 30)
        assert samples == frame_samples(30) == len(sent)
        np.testing.assert_array_equal(rebuild(iq, np.full(2, cfo_hz)), sent)


def test_who_sends_each_kind_of_pdu() -> None:
    own, other = bytes.fromhex("060504030201"), bytes.fromhex("161514131211")
    scan = parse(bytes([0x03, 12]) + own + other, True)
    assert (scan.kind, scan.transmitter, scan.receiver) == ("scan-req", "01:02:03:04:05:06", "11:12:13:14:15:16")
    extended = parse(bytes([0x07, 9, 7, 1]) + own + b"\0", True)
    assert (extended.kind, extended.transmitter) == ("adv-ext-ind", "01:02:03:04:05:06")
    assert parse(bytes([0x07, 9, 7, 0]) + own + b"\0", True).transmitter is None
    assert parse(bytes([0x0F, 9, 7, 0]) + own + b"\0", True).transmitter is None
    assert parse(bytes([0x00, 3, 1, 2, 3]), True).transmitter is None


def test_damaged_and_cut_packets_claim_nothing_and_noise_does_no_harm() -> None:
    rng = np.random.default_rng(2)
    sent = transmit(advertisement(ADDRESS, bytes(10)), 37)
    for cut in (0, 3, 300, 330, 500, len(sent) - 8):
        header, samples = receive(sent[None, :cut], np.zeros(1))
        assert (header.fcs, header.transmitter, samples) == (False, None, None)
    wrong = sent.copy()
    wrong[600:640] = wrong[600:640].conj()
    assert receive(wrong[None], np.zeros(1))[0].fcs is False
    for x in (np.zeros((2, 5000)), np.full((1, 700), np.nan), rng.normal(size=(1, 20_000))):
        assert receive(x.astype(np.complex64), np.full(len(x), np.nan if np.isnan(x).any() else 0.0))[0].fcs is False
    assert rebuild(rng.normal(size=(1, 3000)) + 0j, np.zeros(1)) is None


def test_what_cannot_be_sent_is_refused() -> None:
    with pytest.raises(ConfigError, match="channel 12 is none that is advertised on"):
        transmit(advertisement(ADDRESS, b""), 12)
    with pytest.raises(ConfigError, match="a PDU of 3 octets"):
        transmit(b"\x42\x09\x00", 37)
    with pytest.raises(ConfigError, match="expected an address of six octets"):
        advertisement("c1:c2", b"")


@pytest.mark.slow
def test_scapy_reads_the_same() -> None:
    layers = pytest.importorskip("scapy.layers.bluetooth4LE")
    rng = np.random.default_rng(4)
    for _ in range(200):
        pdu = advertisement("c0:" + rng.bytes(5).hex(":"), rng.bytes(int(rng.integers(0, 31))), kind=2)
        theirs = layers.BTLE(BEGINNING[1:] + pdu + crc(pdu))
        assert layers.BTLE.compute_crc(pdu) == crc(pdu)
        assert theirs[layers.BTLE_ADV_NONCONN_IND].AdvA == parse(pdu, True).transmitter
        assert theirs[layers.BTLE_ADV].Length == len(pdu) - 2
