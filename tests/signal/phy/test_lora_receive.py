"""LoRa frames are read behind noise, carrier and sampling offsets."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from pisa_capc.signal.phy.lora import LoraHeader, Modulation, lorawan, receive, transmit
from pisa_capc.signal.phy.lora.despread import correlate
from tests.reference import lora as reference

CARRIER_HZ = 868e6
SENSITIVITY_DB = {7: -7.5, 8: -10.0, 9: -12.5, 10: -15.0, 11: -17.5, 12: -20.0}  # in band, Semtech SX1276 data sheet


def with_noise(
    x: NDArray[np.complex128], snr_db: float, rng: np.random.Generator, oversampling: int = 8
) -> NDArray[np.complex64]:
    """White noise such that a chirp of modulus one has this SNR within its bandwidth."""
    scale = np.sqrt(oversampling / 10 ** (snr_db / 10) / 2)
    return (x + scale * (rng.standard_normal(x.shape) + 1j * rng.standard_normal(x.shape))).astype(np.complex64)


@pytest.mark.parametrize("oversampling", [1, 2, 8])
def test_correlations_equal_those_with_each_chirp(oversampling: int) -> None:
    rng = np.random.default_rng(1)
    modulation = Modulation(7, 125e3, oversampling * 125e3)
    n = np.arange(modulation.symbol_samples)
    clean = sum(
        reference.waveform(n / oversampling, [(symbol, 1.0)], 7) * amplitude
        for symbol, amplitude in ((0, 1.0), (33, 0.5j), (127, -0.3))
    )
    found = correlate(clean.astype(np.complex64), modulation)[:: 1 if oversampling > 1 else 2]
    expected = reference.correlations(clean, 7, oversampling)[:: 1 if oversampling > 1 else 2]
    assert_allclose(found, expected, atol=6e-3)  # the reference keeps what the chirp has beyond its band
    noise = with_noise(np.zeros((200, modulation.symbol_samples), complex), 0.0, rng, oversampling)
    per_bin = (np.abs(correlate(noise, modulation)) ** 2).mean()
    assert_allclose(per_bin, oversampling / modulation.symbol_samples, rtol=0.02)


@pytest.mark.parametrize("spreading_factor", range(7, 13))
@pytest.mark.parametrize("coding_rate", range(1, 5))
def test_frames_are_read_at_the_sensitivity_that_is_known(spreading_factor: int, coding_rate: int) -> None:
    rng = np.random.default_rng([spreading_factor, coding_rate])
    frame = lorawan.data_frame(0x26011000 + coding_rate, 99, rng.bytes(3 if spreading_factor > 9 else 20))
    chirps = reference.frame(frame, spreading_factor, coding_rate, 0x34)
    cfo_hz = rng.uniform(-20e3, 20e3)
    length = round(sum(part for _, part in chirps) * 2**spreading_factor * 8 / (1 + cfo_hz / CARRIER_HZ))
    x = reference.received(chirps, spreading_factor, length, rng.uniform(-0.5, 0.5), cfo_hz, CARRIER_HZ)
    seen = with_noise(x[None], SENSITIVITY_DB[spreading_factor], rng)
    (header,) = receive([seen], [np.array([cfo_hz])], spreading_factor, carrier_hz=CARRIER_HZ)
    assert header.fcs is True
    assert (header.kind, header.transmitter, header.receiver) == ("unconfirmed-up", f"2601100{coding_rate}", None)
    assert (header.length, header.coding_rate, header.sync_word) == (len(frame), coding_rate, 0x34)
    assert header.samples is not None
    assert abs(header.samples - length) <= 2
    rate = spreading_factor * 125e3 / 2**spreading_factor * 4 / (4 + coding_rate)
    assert header.rate_mbps == pytest.approx(rate / 1e6)


def test_a_long_frame_needs_its_sampling_offset_taken_out() -> None:
    """At SF12 and 23 ppm a frame of 68 symbols drifts by more than the two chips that a symbol may be off."""
    frame = lorawan.data_frame(0x26011BDA, 1, bytes(30))
    chirps = reference.frame(frame, 12, 4, 0x34)
    length = round(sum(part for _, part in chirps) * 4096 * 8)
    x = reference.received(chirps, 12, length, 0.0, 20e3, CARRIER_HZ)
    seen = with_noise(x[None], 0.0, np.random.default_rng(0))
    (known,) = receive([seen], [np.array([20e3])], 12, carrier_hz=CARRIER_HZ)
    (unknown,) = receive([seen], [np.array([20e3])], 12)
    assert known.fcs is True
    assert unknown.fcs is False


def test_antennas_help_each_other_and_a_dead_or_a_deaf_one_does_no_harm() -> None:
    """Each of three antennas hears 4 dB less than one alone needs; a fourth hears only its own loud noise."""
    rng = np.random.default_rng(4)
    sent = transmit(lorawan.data_frame(0x26011BDA, 1, bytes(20)), 7, 1, sync_word=0x34)
    trials = 40
    alone = together = 0
    for _ in range(trials):
        heard = with_noise(sent * np.exp(2j * np.pi * rng.uniform(size=(3, 1))), SENSITIVITY_DB[7] - 4, rng)
        deaf = with_noise(np.zeros((1, sent.size), complex), -40.0, rng)
        array = np.concatenate([heard, np.zeros_like(deaf), deaf])
        first, combined = receive([heard[:1], array], [np.zeros(1), np.zeros(5)], 7)
        alone += first.fcs is True
        together += combined.fcs is True
    assert together >= 0.9 * trials
    assert alone <= 0.2 * trials


@pytest.mark.parametrize("oversampling", [1, 2, 16])
def test_other_rates_that_divide(oversampling: int) -> None:
    rng = np.random.default_rng(oversampling)
    rate = 250e3 * oversampling
    sent = transmit(b"wider", 9, 2, sync_word=0x12, sample_rate_hz=rate, bandwidth_hz=250e3)
    seen = with_noise(sent[None], -8.0, rng, oversampling)
    (header,) = receive([seen], [np.zeros(1)], 9, sample_rate_hz=rate, bandwidth_hz=250e3)
    assert (header.kind, header.length, header.fcs, header.sync_word) == ("lora", 5, True, 0x12)


@pytest.mark.parametrize("sync_word", [0x00, 0x12, 0x34, 0x5F, 0xF8])
def test_sync_words(sync_word: int) -> None:
    sent = transmit(b"x", 7, 1, sync_word=sync_word)[None].astype(np.complex64)
    assert receive([sent], [np.zeros(1)], 7)[0].sync_word == sync_word


def test_a_frame_says_only_what_its_samples_and_checksums_bear_out() -> None:
    payload = lorawan.data_frame(0x26011BDA, 1, bytes(20))
    sent = transmit(payload, 7, 1, sync_word=0x34)[None].astype(np.complex64)
    header_end = round(20.25 * 1024)

    def read(samples: NDArray[np.complex64]) -> LoraHeader:
        return receive([samples], [np.zeros(1)], 7)[0]

    cut = read(sent[:, : header_end + 2000])
    assert (cut.kind, cut.length, cut.fcs, cut.transmitter) == ("lora", len(payload), None, None)
    assert cut.samples == sent.shape[1]
    preamble_only = read(sent[:, :13000])
    assert (preamble_only.kind, preamble_only.length) == (None, None)
    bad_header = sent.copy()
    bad_header[:, header_end - 6144 : header_end] = bad_header[:, header_end - 7168 : header_end - 1024]
    assert (read(bad_header).kind, read(bad_header).sync_word) == (None, 0x34)
    bad_payload = sent.copy()
    bad_payload[:, header_end : header_end + 4096] = bad_payload[:, header_end + 4096 : header_end + 8192]
    assert (read(bad_payload).fcs, read(bad_payload).transmitter) == (False, None)
    other_network = read(transmit(payload, 7, 1, sync_word=0x12)[None].astype(np.complex64))
    assert (other_network.kind, other_network.fcs, other_network.transmitter) == ("lora", True, None)
    unchecked = transmit(lorawan.data_frame(5, 1, kind="unconfirmed-down"), 7, 1, sync_word=0x34, crc=False)
    header = read(unchecked[None].astype(np.complex64))
    assert (header.kind, header.fcs, header.receiver) == ("unconfirmed-down", None, "00000005")
