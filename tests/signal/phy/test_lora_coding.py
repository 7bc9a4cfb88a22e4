"""LoRa's bits are those that radios send."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from pisa_capc.core.errors import ConfigError
from pisa_capc.signal.phy import Header
from pisa_capc.signal.phy.lora import Modulation, coding, lorawan, transmit
from pisa_capc.signal.phy.lora.coding import ExplicitHeader
from pisa_capc.signal.waveforms import lora
from tests.reference import lora as reference


def test_header_whitening_and_checksum_are_those_of_a_radio() -> None:
    """What rpp0/gr-lora shows of frames that a radio sent: 04 90 40 de ad be ef 70 0d, CRC and payload de-whitened."""
    assert coding.header_nibbles(ExplicitHeader(4, 4, True)) == [0x0, 0x4, 0x9, 0x0, 0x4]
    payload = bytes.fromhex("deadbeef")
    assert coding.whiten(payload + coding.checksum(payload))[4:] == coding.whiten(payload + bytes.fromhex("80ec"))[4:]
    assert coding.whiten(bytes(4) + coding.checksum(payload))[4:] == bytes.fromhex("700d")


@pytest.mark.parametrize("spreading_factor", range(7, 13))
@pytest.mark.parametrize("coding_rate", range(1, 5))
def test_symbols_equal_a_bit_by_bit_encoder(spreading_factor: int, coding_rate: int) -> None:
    rng = np.random.default_rng([spreading_factor, coding_rate])
    modulation = Modulation(spreading_factor)
    assert modulation.low_data_rate == (spreading_factor > 10)
    for length, crc in ((2, False), (23, True), (255, True)):
        payload = rng.bytes(length)
        found = coding.encode(payload, coding_rate, crc, modulation)
        expected = reference.symbols(payload, spreading_factor, coding_rate, crc, modulation.low_data_rate)
        assert_array_equal(found, expected)
        header = ExplicitHeader(length, coding_rate, crc)
        assert len(found) == coding.HEADER_SYMBOLS + header.payload_symbols(modulation)


@pytest.mark.parametrize("oversampling", [1, 4, 8])
def test_a_frame_is_its_chirps_in_continuous_time(oversampling: int) -> None:
    payload = b"a frame"
    sent = transmit(payload, 8, 3, sync_word=0x12, sample_rate_hz=oversampling * 125e3)
    chirps = reference.frame(payload, 8, 3, 0x12)
    assert_allclose(sent, reference.waveform(np.arange(len(sent)) / oversampling, chirps, 8), atol=1e-7)
    steps = np.angle(sent[1:] * sent[:-1].conj())
    if oversampling > 1:  # without a step in phase: half the bandwidth is the most that a sample may turn
        assert np.abs(steps).max() < np.pi / oversampling + 1e-6


def test_the_preamble_is_the_simulators() -> None:
    assert_array_equal(transmit(b"", 7, 1, sync_word=0x34)[:8192], lora.upchirps())


def test_headers_with_an_error_are_refused() -> None:
    nibbles = coding.header_nibbles(ExplicitHeader(77, 2, True))
    assert coding.parse_header(nibbles) == ExplicitHeader(77, 2, True)
    for at in range(5):
        for bit in range(4):
            damaged = nibbles.copy()
            damaged[at] ^= 1 << bit
            assert coding.parse_header(damaged) is None, (at, bit)


def test_codewords_differ_as_much_as_their_rate_promises() -> None:
    for rate, distance in {1: 2, 2: 2, 3: 3, 4: 4}.items():
        book = coding.CODEBOOKS[rate]
        apart = (book[:, None] != book).sum(axis=2)
        assert apart[~np.eye(16, dtype=bool)].min() == distance


def test_settings_that_make_no_frame_are_refused() -> None:
    with pytest.raises(ConfigError, match="spreading factor 6"):
        transmit(b"", 6, 1, sync_word=0x34)
    with pytest.raises(ConfigError, match="coding rate 5"):
        transmit(b"", 7, 5, sync_word=0x34)
    with pytest.raises(ConfigError, match="256 octets"):
        transmit(bytes(256), 7, 1, sync_word=0x34)
    with pytest.raises(ConfigError, match="whole number"):
        transmit(b"", 7, 1, sync_word=0x34, sample_rate_hz=300e3)
    with pytest.raises(ConfigError, match="sync word"):
        transmit(b"", 7, 1, sync_word=0x134)


def test_lorawan_frames_tell_the_sender_of_an_uplink_and_the_addressee_of_a_downlink() -> None:
    up = lorawan.data_frame(0x26011BDA, 7, b"secret", port=2)
    assert len(up) == 13 + 6
    assert lorawan.parse(up) == Header("unconfirmed-up", transmitter="26011bda")
    down = lorawan.data_frame(0x26011BDA, 7, kind="confirmed-down")
    assert lorawan.parse(down) == Header("confirmed-down", receiver="26011bda")
    join = bytes([0]) + bytes(range(8)) + bytes(range(16, 24)) + bytes(6)
    assert lorawan.parse(join) == Header("join-request", transmitter="1716151413121110", receiver="0706050403020100")


def test_what_is_not_lorawan_claims_nothing() -> None:
    for octets in (
        b"",
        b"\x40",
        bytes([0x40]) + bytes(10),
        bytes([0x41]) + bytes(20),
        bytes(22),
        b"hello world, hello",
    ):
        claim = lorawan.parse(octets)
        assert claim is None or (claim.transmitter is None and claim.receiver is None)
    with pytest.raises(ConfigError, match="join-request"):
        lorawan.data_frame(1, 0, kind="join-request")
