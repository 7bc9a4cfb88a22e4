"""LoRa frames are found where they are, and nothing is found where there are none."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from pisa_capc.core.errors import ConfigError
from pisa_capc.signal.detection import FoundFrame
from pisa_capc.signal.detection.dataset import without_cfo
from pisa_capc.signal.detection.lora import LoraDetector
from pisa_capc.signal.phy.lora import lorawan, transmit
from tests.reference import lora as reference

CARRIER_HZ = 868e6


def noise(shape: tuple[int, int], snr_db: float, rng: np.random.Generator) -> NDArray[np.complex64]:
    """White noise against which a chirp of modulus one has this SNR within its bandwidth, an eighth of the rate."""
    scale = np.float32(np.sqrt(8 / 10 ** (snr_db / 10) / 2))
    parts = rng.standard_normal((*shape, 2), np.float32)
    return scale * parts.view(np.complex64)[..., 0]


def heard(x: NDArray[np.complex128], antennas: int, snr_db: float, rng: np.random.Generator) -> NDArray[np.complex64]:
    """(A, T) of one waveform, at a random phase on each antenna."""
    phases = np.exp(2j * np.pi * rng.uniform(size=(antennas, 1)))
    return (x * phases + noise((antennas, x.size), snr_db, rng)).astype(np.complex64)


def payload(number: int, octets: int = 4) -> bytes:
    return lorawan.data_frame(0x26010000 + number, number, bytes(octets))


def detect(
    samples: NDArray[np.complex64], spreading_factor: int | None = 7, block: int | None = None, **settings: float
) -> list[FoundFrame]:
    detector = LoraDetector(spreading_factor, **settings)  # type: ignore[arg-type]
    size = block or samples.shape[1]
    found = [d for at in range(0, samples.shape[1], size) for d in detector.push(samples[:, at : at + size])]
    return found + detector.finish()


def test_chirps_of_one_spreading_factor_are_not_taken_for_frames_of_others() -> None:
    rng, parts, starts, at = np.random.default_rng(1), list[NDArray[np.complex128]](), list[int](), 0
    for number, factor in enumerate((8, 7, 9, 8, 7)):
        sent = transmit(lorawan.data_frame(0x26010000, number, rng.bytes(50)), factor, 1, sync_word=lorawan.SYNC_WORD)
        gap = int(rng.integers(3000, 20000))
        parts += [np.zeros(gap, np.complex128), sent]
        starts.append(at + gap)
        at += gap + len(sent)
    found = detect(heard(np.concatenate(parts), 4, 25.0, rng), None)
    assert [one.at for one in found] == starts


def cfo_bound_hz(spreading_factor: int, snr_db: float) -> float:
    """Standard deviation of the best estimate from eight known upchirps: Rife & Boorstyn, 1974."""
    samples, per_sample = 8 * 2**spreading_factor * 8, 10 ** (snr_db / 10) / 8
    return float(np.sqrt(6 / (per_sample * samples**3)) / (2 * np.pi) * 1e6)


def recording(
    rng: np.random.Generator, frames: int, gap: int, antennas: int, snr_db: float, spreading_factor: int = 7
) -> tuple[NDArray[np.complex64], list[float], list[float]]:
    """Frames of random CFO at random fractional times, with where they begin and their CFO."""
    starts, offsets, pieces, at = [], [], [], 0
    for number in range(frames):
        chirps = reference.frame(payload(number), spreading_factor, 1 + number % 4, 0x34)
        cfo_hz, lead = rng.uniform(-20e3, 20e3), rng.uniform(1, gap)
        length = round(sum(part for _, part in chirps) * 2**spreading_factor * 8 + lead + 100)
        pieces.append(reference.received(chirps, spreading_factor, length, lead, cfo_hz, CARRIER_HZ))
        starts.append(at + lead)
        offsets.append(cfo_hz)
        at += length
    return heard(np.concatenate(pieces), antennas, snr_db, rng), starts, offsets


@pytest.mark.parametrize(("spreading_factor", "frames"), [(7, 10), (8, 6), (9, 4), (10, 3), (11, 2), (12, 2)])
def test_start_cfo_snr_and_address_are_right(spreading_factor: int, frames: int) -> None:
    rng = np.random.default_rng(spreading_factor)
    snr_db = 3.0
    samples, starts, offsets = recording(rng, frames, 4 * 2**spreading_factor * 8, 2, snr_db, spreading_factor)
    found = detect(samples, spreading_factor, block=100_000, carrier_hz=CARRIER_HZ)
    assert len(found) == frames
    bound = cfo_bound_hz(spreading_factor, snr_db)
    for number, (frame, start, cfo_hz) in enumerate(zip(found, starts, offsets, strict=True)):
        assert abs(frame.at - start) <= 1
        assert np.abs(frame.cfo_hz - cfo_hz).max() < 4 * bound + 0.02
        assert np.abs(frame.snr_db - snr_db).max() < 1
        assert abs(frame.quality - 2 / 3) < 0.05  # at 3 dB two thirds of the energy in the band are the chirp's
        assert frame.header.transmitter == f"2601{number:04x}"
        assert frame.header.fcs is True
        assert frame.samples == frame.iq.shape[1]
        assert_array_equal(frame.iq, samples[:, frame.at : frame.at + frame.iq.shape[1]])


def test_chirps_that_begin_between_samples_are_brought_to_where_those_on_a_sample_are() -> None:
    rng = np.random.default_rng(5)
    samples, starts, _ = recording(rng, 8, 9000, 2, 30.0)
    chirp = np.exp(2j * np.pi * np.cumsum((np.arange(320) + 0.5) / 1024 - 0.5) / 8)
    found = detect(samples, carrier_hz=CARRIER_HZ)
    late = np.array(starts) - [one.at for one in found]
    assert np.abs(late).max() > 0.3  # samples, or the example shows nothing

    def least(turns: bool) -> float:
        """Part of the energy that is the chirp's, of the worst frame."""
        frames = [one.iq[:, :320] for one in found]
        offsets = [one.cfo_hz + (one.turn_hz if turns else 0.0) for one in found]
        taken = [without_cfo(x, f, 1e6) for x, f in zip(frames, offsets, strict=True)]
        return min(float(np.min(np.abs(x @ chirp.conj()) ** 2 / (320 * np.sum(np.abs(x) ** 2, axis=1)))) for x in taken)

    assert least(turns=True) > least(turns=False)
    slopes = [one.turn_hz / (-125e3 / 1024e-6 * 1e-6) for one in found]
    np.testing.assert_allclose(slopes, late, atol=0.1)


def test_what_is_found_does_not_depend_on_the_blocks() -> None:
    rng = np.random.default_rng(0)
    samples, *_ = recording(rng, 6, 20_000, 2, 0.0)
    samples = samples[:, 3000:-5000]  # the first frame is whole, the last is cut
    whole = detect(samples)
    assert len(whole) == 6
    for size in (997, 65536, 100_001):
        cut = detect(samples, block=size)
        assert [d.at for d in cut] == [d.at for d in whole]
        for one, other in zip(cut, whole, strict=True):
            assert_array_equal(one.iq, other.iq)
            assert_array_equal(one.cfo_hz, other.cfo_hz)
            assert_array_equal(one.snr_db, other.snr_db)
            assert (one.quality, one.samples, one.header) == (other.quality, other.samples, other.header)


def test_antennas_have_a_cfo_of_their_own_within_a_bin_and_a_dead_one_does_no_harm() -> None:
    rng = np.random.default_rng(1)
    sent = np.concatenate([np.zeros(5000), transmit(payload(1), 7, 1, sync_word=0x34), np.zeros(3000)])
    own = np.array([12_000.0, 12_080.0, 11_900.0, 12_000.0])[:, None]
    samples = heard(sent, 4, 10.0, rng) * np.exp(2j * np.pi * own * np.arange(sent.size) / 1e6).astype(np.complex64)
    samples[3] = 0
    (found,) = detect(samples)
    assert abs(found.at - 5000) <= 1
    assert np.abs(found.cfo_hz - own[:, 0])[:3].max() < 4 * cfo_bound_hz(7, 10.0)
    assert np.isfinite(found.cfo_hz).all()
    assert found.snr_db[3] < -50
    assert found.header.transmitter == "26010001"


def test_frames_are_found_well_below_what_can_be_read() -> None:
    """At SF7 and −9 dB, 1.5 dB less than the sensitivity, one antenna finds nearly all; four do at −12 dB."""
    for antennas, snr_db in ((1, -9.0), (4, -12.0)):
        samples, starts, _ = recording(np.random.default_rng(antennas), 25, 5000, antennas, snr_db)
        found = np.array([d.at for d in detect(samples)])
        near = [np.abs(found - start).min() for start in starts]
        assert len(found) <= len(starts)
        assert np.mean(np.array(near) < 4) > 0.9


@pytest.mark.parametrize("spreading_factor", [7, 9, 12])
@pytest.mark.parametrize("antennas", [1, 4])
def test_noise_a_carrier_and_direct_current_are_no_frames(spreading_factor: int, antennas: int) -> None:
    rng = np.random.default_rng(spreading_factor)
    samples = noise((antennas, 1_000_000), 0.0, rng)
    n = np.arange(250_000)
    samples[:, 250_000:500_000] += 30
    samples[:, 500_000:750_000] += 30 * np.exp(2j * np.pi * 0.0123 * n)
    samples[:, 750_000:] *= 1 + 20 * (n // 10_000 % 2)
    assert detect(samples, spreading_factor) == []
    assert detect(np.zeros((antennas, 200_000), np.complex64) + 1, spreading_factor) == []


def test_triggers_of_noise_are_as_rare_as_the_threshold_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a threshold for ten triggers a second, noise makes fewer, since neighbouring bins are not independent."""
    from pisa_capc.signal.detection import lora

    seen: list[int] = []
    monkeypatch.setattr(lora, "TRIGGERS_PER_S", 10.0)
    monkeypatch.setattr(lora, "synchronise", lambda *given: seen.append(1))
    lora._run_threshold.cache_clear()
    detect(noise((2, 3_000_000), 0.0, np.random.default_rng(0)))
    lora._run_threshold.cache_clear()
    assert 0 < len(seen) <= 3 * 10


def test_a_loud_payload_is_no_preamble() -> None:
    rng = np.random.default_rng(0)
    sent = [transmit(rng.bytes(200), 7, 1 + number, sync_word=0x34) for number in range(4)]
    found = detect(heard(np.concatenate(sent), 4, 20.0, rng))
    assert [d.at for d in found] == [0, *np.cumsum([x.size for x in sent[:-1]])]


def test_all_spreading_factors_at_once() -> None:
    rng = np.random.default_rng(2)
    pieces: list[NDArray[np.complex128]] = []
    starts, at = [], 0
    for factor in (9, 7, 8, 10):
        sent = transmit(payload(factor), factor, 1, sync_word=0x34)
        starts.append(at + 10_000)
        pieces += [np.zeros(10_000, complex), sent]
        at += 10_000 + sent.size
    found = detect(heard(np.concatenate(pieces), 1, 10.0, rng), None, block=50_000)
    assert [d.at for d in found] == starts
    assert [d.header.transmitter for d in found] == [f"2601{factor:04x}" for factor in (9, 7, 8, 10)]


def test_frames_of_another_spreading_factor_are_not_found() -> None:
    for sent, sought in ((7, 8), (7, 12), (8, 7), (10, 7), (12, 7)):
        x = transmit(payload(1), sent, 1, sync_word=0x34)
        assert detect(heard(x, 4, 20.0, np.random.default_rng(sent)), sought) == []


def test_half_frames_at_either_end() -> None:
    """A frame whose preamble is cut is none; one that ends early is there, with what it says so far."""
    sent = transmit(payload(3, 20), 7, 1, sync_word=0x34)
    x = np.concatenate([sent[3000:], np.zeros(4000), sent[:30_000]])
    (found,) = detect(heard(x, 2, 10.0, np.random.default_rng(0)))
    assert found.at == x.size - 30_000
    assert found.samples == sent.size
    assert found.iq.shape == (2, 30_000)
    assert (found.header.length, found.header.fcs, found.header.transmitter) == (33, None, None)
    (at_once,) = detect(heard(sent, 1, 10.0, np.random.default_rng(0)))
    assert at_once.at == 0
    only_preamble = np.concatenate([np.zeros(5000), sent[: round(12.25 * 1024) + 10]])
    (short,) = detect(heard(only_preamble, 1, 10.0, np.random.default_rng(0)))
    assert (short.at, short.samples, short.header.kind) == (5000, None, None)
    assert detect(heard(only_preamble[:-1000], 1, 10.0, np.random.default_rng(0))) == []


def test_a_frame_without_a_readable_header_is_cut_after_it() -> None:
    sent = transmit(payload(3, 20), 7, 1, sync_word=0x34)
    broken = sent.copy()
    broken[13_000:20_000] = sent[12_000:19_000]
    (found,) = detect(
        heard(np.concatenate([np.zeros(3000), broken, np.zeros(3000)]), 1, 10.0, np.random.default_rng(0))
    )
    assert abs(found.at - 3000) <= 1
    assert found.samples is None
    assert found.iq.shape[1] == round(20.25 * 1024)


def test_a_frame_that_begins_in_anothers_payload_is_found_too() -> None:
    rng = np.random.default_rng(3)
    x = np.zeros(150_000, complex)
    for number, start in enumerate((10_000, 40_321)):
        sent = transmit(payload(number, 40), 7, 1, sync_word=0x34)
        x[start : start + sent.size] += sent * np.exp(2j * np.pi * 0.004 * number * np.arange(sent.size))
    found = detect(heard(x, 2, 10.0, rng))
    assert [abs(d.at - start) <= 1 for d, start in zip(found, (10_000, 40_321), strict=True)] == [True, True]


def test_of_a_longer_preamble_the_last_upchirps_are_taken() -> None:
    sent = transmit(payload(3), 7, 1, sync_word=0x12, preamble=20)
    (found,) = detect(heard(np.concatenate([np.zeros(7777), sent]), 1, 5.0, np.random.default_rng(5)))
    assert abs(found.at - 7777 - 12 * 1024) <= 1
    assert found.header.fcs is True
    (whole,) = detect(heard(np.concatenate([np.zeros(7777), sent]), 1, 5.0, np.random.default_rng(5)), preamble=20)
    assert abs(whole.at - 7777) <= 1


def test_bandwidths_and_rates_that_divide() -> None:
    sent = transmit(payload(3), 7, 1, sync_word=0x34, sample_rate_hz=500e3, bandwidth_hz=250e3)
    x = heard(np.concatenate([np.zeros(7777), sent, np.zeros(1000)]), 1, 15.0, np.random.default_rng(5))
    (found,) = detect(x, sample_rate_hz=500e3, bandwidth_hz=250e3)
    assert found.at == 7777
    assert found.header.transmitter == "26010003"
    with pytest.raises(ConfigError, match="whole number"):
        LoraDetector(7, sample_rate_hz=1.1e6)


def test_an_empty_stream_has_no_frames() -> None:
    detector = LoraDetector()
    assert detector.finish() == []
    assert detector.push(np.zeros((2, 0), np.complex64)) == []
    assert detector.finish() == []
