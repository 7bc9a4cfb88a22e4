"""ADS-B: published messages, whole frames in noise, damaged ones, and what is no squitter."""

from __future__ import annotations

import numpy as np
import pytest

from pisa_capc.core.errors import ConfigError
from pisa_capc.signal.phy.adsb import parse, receive, squitter, transmit
from pisa_capc.signal.waveforms.adsb import GENERATOR, RATE_HZ, SAMPLES, decide, parity, with_parity
from tests.signal.phy.noise import at_receiver

# From "The 1090 Megahertz Riddle" (J. Sun, TU Delft, 2021) and the tests of decoders: message, address, kind.
PUBLISHED = [
    ("8D4840D6202CC371C32CE0576098", "4840d6", "identification"),
    ("8D40621D58C382D690C8AC2863A7", "40621d", "airborne-position"),
    ("8D485020994409940838175B284F", "485020", "velocity"),
    ("8DA05F219B06B6AF189400CBC33F", "a05f21", "velocity"),
    ("8C4841753AAB238733C8CD4020B1", "484175", "surface-position"),
]


@pytest.mark.parametrize(("message", "address", "kind"), PUBLISHED)
def test_published_messages_are_read(message: str, address: str, kind: str) -> None:
    header = parse(bytes.fromhex(message))
    assert header is not None
    assert (header.transmitter, header.kind, header.fcs, header.length) == (address, kind, True, 14)


@pytest.mark.parametrize("message", [message for message, *_ in PUBLISHED])
def test_the_parity_notices_every_wrong_bit_and_every_short_burst(message: str) -> None:
    octets = bytes.fromhex(message)
    assert with_parity(octets[:11]) == octets
    whole = int.from_bytes(octets, "big")
    for place in range(112):
        for error in (0b1, 0b11, 0b101, 0xFFFFFF):
            wrong = whole ^ (error << place & (1 << 112) - 1)
            assert parity(wrong.to_bytes(14, "big")) != 0


def test_the_parity_is_the_remainder_of_a_long_division() -> None:
    rng = np.random.default_rng(0)
    divisor = np.array([int(digit) for digit in f"{GENERATOR:025b}"])
    for _ in range(20):
        octets = rng.bytes(14)
        bits = np.unpackbits(np.frombuffer(octets, np.uint8)).astype(int)
        for place in range(88):
            if bits[place]:
                bits[place : place + 25] ^= divisor
        assert parity(octets) == int("".join(map(str, bits[88:])), 2)


@pytest.mark.parametrize("snr_db", [15.0, 25.0])
@pytest.mark.parametrize("cfo_hz", [-250e3, 0.0, 120e3])
def test_a_frame_in_noise_is_read_wherever_it_begins_between_samples(snr_db: float, cfo_hz: float) -> None:
    rng = np.random.default_rng(1)
    for late in (-0.5, -0.2, 0.0, 0.3, 0.5):
        message = squitter(rng.bytes(3).hex(), rng.bytes(7))
        iq = at_receiver(transmit(message), rng, snr_db, cfo_hz / RATE_HZ, late)
        [header] = receive([iq])
        assert header == parse(message)
        found = decide(iq[None])
        # Cramér–Rao for a tone of known amplitudes, with a margin for the pulses' shape.
        bound = np.sqrt(6 / (10 ** (snr_db / 10) * SAMPLES**3)) / (2 * np.pi)
        np.testing.assert_allclose(found.offset[0], cfo_hz / RATE_HZ, atol=6 * bound)
        assert found.late[0] == pytest.approx(late, abs=0.1)


def test_a_damaged_frame_claims_nothing() -> None:
    message = bytearray(squitter("4840d6", bytes(7)))
    message[6] ^= 0x10
    header = parse(bytes(message))
    assert header is not None
    assert header.fcs is False


def test_control_fields_of_others_give_no_address_of_the_emitter() -> None:
    own, about_another = (with_parity(bytes([18 << 3 | control]) + bytes(10)) for control in (1, 2))
    assert parse(own).transmitter == "000000"  # type: ignore[union-attr]
    assert parse(about_another).transmitter is None  # type: ignore[union-attr]


def test_what_is_no_squitter_is_none() -> None:
    assert parse(b"") is None
    assert parse(bytes(7)) is None
    assert parse(with_parity(bytes([20 << 3]) + bytes(10))) is None  # a reply, whose parity is with its address
    assert parse(bytes.fromhex(PUBLISHED[0][0]) + b"\0") is None


def test_samples_of_any_kind_do_no_harm() -> None:
    rng = np.random.default_rng(2)
    noise = (rng.normal(size=(3, 2, SAMPLES, 2)) @ [1, 1j]).astype(np.complex64)
    odd = np.stack([np.zeros((2, SAMPLES)), np.full((2, SAMPLES), np.nan), np.full((2, SAMPLES), np.inf)])
    found = decide(np.concatenate([noise, odd.astype(np.complex64)]))
    assert np.isfinite(found.quality).all()
    assert found.quality.max() < 0.3
    for header in receive(list(noise)):
        assert header is None or not header.fcs


def test_what_cannot_be_sent_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"squitter of '4840D6'.*expected six hexadecimal digits"):
        squitter("4840D6", bytes(7))
    with pytest.raises(ConfigError, match="a message of 7 octets; expected 14"):
        transmit(bytes(7))


@pytest.mark.slow
def test_pymodes_reads_the_same() -> None:
    modes = pytest.importorskip("pyModeS")
    rng = np.random.default_rng(3)
    for code in [*range(1, 23), 28, 29, 31]:
        for damaged in (False, True):
            content = (code << 51 | int(rng.integers(1 << 51))).to_bytes(7, "big")
            octets = bytearray(squitter(rng.bytes(3).hex(), content))
            octets[int(rng.integers(5, 14))] ^= 0x40 * damaged
            header = parse(bytes(octets))
            assert header is not None
            assert header.fcs == (modes.crc(octets.hex()) == 0)
            assert header.transmitter == modes.icao(octets.hex()).lower()
            assert modes.typecode(octets.hex()) == code
