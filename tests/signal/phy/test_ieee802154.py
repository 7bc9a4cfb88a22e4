"""IEEE 802.15.4: the standard's chips and check sequence, headers, whole frames in noise, and what lies."""

from __future__ import annotations

import numpy as np
import pytest

from pisa_capc.core.errors import ConfigError
from pisa_capc.signal.phy.ieee802154 import acknowledgment, data_frame, parse, rebuild, receive, transmit
from pisa_capc.signal.waveforms.ieee802154 import (
    RATE_HZ,
    SEQUENCES,
    check_sequence,
    frame_samples,
    modulate,
    octets_of,
    symbols_of,
)
from tests.signal.phy.noise import at_receiver

CHIPS = {  # rows of table 12-1
    0: "11011001110000110101001000101110",
    1: "11101101100111000011010100100010",
    5: "00110101001000101110110110011100",
    8: "10001100100101100000011101111011",
    15: "11001001011000000111011110111000",
}
LONG = "00:12:4b:00:01:02:03:04"


@pytest.mark.parametrize("symbol", CHIPS)
def test_chips_are_those_of_the_table(symbol: int) -> None:
    assert "".join(map(str, SEQUENCES[symbol])) == CHIPS[symbol]


def test_check_sequences_are_those_of_the_standard_and_of_the_catalogue() -> None:
    assert check_sequence(bytes.fromhex("02006a")) == bytes.fromhex("e479")  # 7.2.11
    assert check_sequence(b"123456789") == (0x2189).to_bytes(2, "little")  # CRC-16/KERMIT
    assert acknowledgment(0x6A) == bytes.fromhex("02006ae479")


def test_octets_are_sent_with_the_lower_four_bits_first() -> None:
    octets = np.array([0xA7, 0x3C], dtype=np.uint8)
    assert symbols_of(octets).tolist() == [7, 10, 12, 3]
    np.testing.assert_array_equal(octets_of(symbols_of(octets)), octets)


def test_the_envelope_is_constant_and_each_chip_turns_it_by_a_quarter() -> None:
    x = modulate(np.arange(16, dtype=np.uint8))[2:-2]
    np.testing.assert_allclose(np.abs(x), np.abs(x).mean(), rtol=1e-9)
    turn = np.angle(x[1:] * x[:-1].conj())
    np.testing.assert_allclose(np.abs(turn), np.pi / 4, rtol=1e-9)


@pytest.mark.parametrize("snr_db", [3.0, 10.0, 25.0])
@pytest.mark.parametrize("cfo_hz", [-90e3, 0.0, 40e3])
def test_a_frame_in_noise_is_read_and_rebuilt(snr_db: float, cfo_hz: float) -> None:
    rng = np.random.default_rng(1)
    for late in (-0.4, 0.0, 0.4):
        psdu = data_frame("1a62:1234", "1a62:0001", 7, rng.bytes(30))
        sent = transmit(psdu)
        iq = at_receiver(sent, rng, snr_db, cfo_hz / RATE_HZ, late)
        header, samples = receive(iq, np.full(2, cfo_hz + 200.0))
        assert header == parse(psdu)
        assert (header.transmitter, header.receiver, header.fcs) == ("1a62:1234", "1a62:0001", True)
        assert samples == frame_samples(len(psdu)) == len(sent)
        np.testing.assert_array_equal(rebuild(iq, np.full(2, cfo_hz)), sent)


def test_headers_of_every_kind_of_address() -> None:
    long = parse(data_frame(LONG, "00:12:4b:00:01:02:03:05", 1, b"x"))
    assert (long.transmitter, long.receiver) == (LONG, "00:12:4b:00:01:02:03:05")
    ack = parse(acknowledgment(3))
    assert (ack.kind, ack.transmitter, ack.fcs) == ("ack", None, True)
    # A beacon names its own PAN alone; FFFE is no address; of version 2 the number may be missing.
    for octets, address in (
        ("0080056634121122", "3466:1112"),
        ("418801621afffffeff", None),
        ("41a9621a01003412", "1a62:1234"),
    ):
        content = bytes.fromhex(octets)
        assert parse(content + check_sequence(content)).transmitter == address


def test_damaged_frames_claim_nothing() -> None:
    rng = np.random.default_rng(2)
    psdu = data_frame("1a62:1234", "1a62:0001", 7, bytes(20))
    for _ in range(100):
        wrong = bytearray(psdu)
        wrong[int(rng.integers(len(wrong)))] ^= 1 << int(rng.integers(8))
        assert parse(bytes(wrong)).fcs is False


def test_lengths_that_lie_and_random_octets_do_no_harm() -> None:
    rng = np.random.default_rng(3)
    for count in range(140):
        header = parse(rng.bytes(count))
        assert header.length == count
    x = transmit(data_frame("1a62:1234", "1a62:0001", 7, bytes(20)))
    cut, samples = receive(x[None, :2000], np.zeros(1))
    assert (cut.transmitter, cut.fcs, samples) == (None, None, len(x))
    assert rebuild(x[None, :2000], np.zeros(1)) is None
    for x in (np.zeros((2, 5000)), np.full((1, 700), np.nan), rng.normal(size=(1, 9000)), np.zeros((1, 3))):
        header, _ = receive(x.astype(np.complex64), np.full(len(x), np.nan if np.isnan(x).any() else 0.0))
        assert not header.fcs


def test_what_cannot_be_sent_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected short addresses of one PAN"):
        data_frame("1a62:1234", "1a63:0001", 1, b"")
    with pytest.raises(ConfigError, match="a frame of 132 octets; expected 127 or fewer"):
        data_frame("1a62:1234", "1a62:0001", 1, bytes(121))
    with pytest.raises(ConfigError, match="a PSDU of 0 octets"):
        transmit(b"")


@pytest.mark.slow
def test_scapy_reads_the_same() -> None:
    layers = pytest.importorskip("scapy.layers.dot15d4")
    rng = np.random.default_rng(4)
    for _ in range(200):
        short = rng.random() < 0.5
        names = [f"1a62:{rng.bytes(2).hex()}" if short else rng.bytes(8).hex(":") for _ in range(2)]
        psdu = data_frame(names[0], names[1], int(rng.integers(256)), rng.bytes(int(rng.integers(1, 40))))
        theirs = layers.Dot15d4FCS(psdu)
        ours = parse(psdu)
        source = theirs[layers.Dot15d4Data].src_addr
        if ours.transmitter is not None:
            assert int(ours.transmitter.replace(":", "")[-4 if short else 0 :], 16) == source
        assert theirs.fcs == int.from_bytes(check_sequence(psdu[:-2]), "little")
        assert theirs.fcf_frametype == 1
