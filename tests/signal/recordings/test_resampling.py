"""Another rate: the same signal, wherever the reading is cut."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import resample_poly

from pisa_capc.core.errors import DataError
from pisa_capc.signal.recordings import Annotation, Recording, resampled
from pisa_capc.signal.recordings.resample import Resampled
from tests.signal.recordings.tools import InMemory, noise

RATES = [25e6, 40e6, 30.72e6, 61.44e6, 10e6, 16e6, 20e6 / 7]


def at_20(rate_hz: float, samples: int = 9000, antennas: int = 2) -> tuple[Recording, InMemory]:
    recording = InMemory(noise(antennas, samples), rate_hz)
    return resampled(recording, 20e6), recording


@pytest.mark.parametrize("rate_hz", RATES)
def test_a_tone_keeps_its_frequency_phase_and_size(rate_hz: float) -> None:
    """Tones inside the band that both rates hold; the filter's stop band is at −80 dB."""
    slower = min(rate_hz, 20e6)
    for frequency in (-0.4 * slower, 0.0, 0.21 * slower):
        tone = np.exp(2j * np.pi * frequency / rate_hz * np.arange(20_000))[None].astype(np.complex64)
        y = resampled(InMemory(tone, rate_hz), 20e6).read(0, 10**6)
        expected = np.exp(2j * np.pi * frequency / 20e6 * np.arange(y.shape[1]))
        inner = slice(2000, y.shape[1] - 2000)
        assert np.abs(y[0, inner] - expected[inner]).max() < 3e-4


@pytest.mark.parametrize("rate_hz", [25e6, 40e6, 30.72e6])
def test_what_the_new_rate_cannot_hold_is_gone(rate_hz: float) -> None:
    frequency = min(0.495 * rate_hz, 12e6)
    tone = np.exp(2j * np.pi * frequency / rate_hz * np.arange(20_000))[None].astype(np.complex64)
    y = resampled(InMemory(tone, rate_hz), 20e6).read(0, 10**6)
    assert np.abs(y[0, 1000:-1000]).max() < 3e-4


@pytest.mark.parametrize("rate_hz", RATES)
def test_the_ends_too_are_those_of_the_plain_sum(rate_hz: float) -> None:
    found, recording = at_20(rate_hz, 3000, 1)
    assert isinstance(found, Resampled)
    p, q = found.p, found.q
    from scipy.signal import firwin

    h = firwin(32 * max(p, q) + 1, 1 / max(p, q), window=("kaiser", 8.0))
    expected = resample_poly(recording.x[0].astype(np.complex128), p, q, window=h)
    y = found.read(0, 10**6)[0]
    assert len(y) == len(expected) == found.about.length
    assert np.abs(y - expected).max() < 2e-6 * np.abs(expected).max()


@pytest.mark.parametrize("rate_hz", [25e6, 30.72e6, 10e6])
@pytest.mark.parametrize("size", [1, 977, 4096])
def test_samples_are_the_same_to_the_last_bit_however_they_are_read(rate_hz: float, size: int) -> None:
    found, _ = at_20(rate_hz, 700 if size == 1 else 9000)
    whole = found.read(0, 10**6)
    assert np.array_equal(np.concatenate(list(found.blocks(size)), axis=1), whole)
    assert np.array_equal(found.read(123, 45), whole[:, 123:168])


def test_the_own_rate_is_left_alone() -> None:
    recording = InMemory(noise(), 20e6 * (1 + 1e-9))
    assert resampled(recording, 20e6) is recording


def test_annotations_move_with_the_samples() -> None:
    recording = InMemory(noise(), 40e6, (Annotation(1000, 400, "a"), Annotation(3000, None, None)))
    assert resampled(recording, 20e6).annotations == (Annotation(500, 200, "a"), Annotation(1500, None, None))


@pytest.mark.parametrize("rate_hz", [20.001e6, 1e3, 3.3333e9, 19.2e6 + 100])
def test_other_rates_are_refused_with_the_nearest_that_works(rate_hz: float) -> None:
    recording = InMemory(noise(samples=100), rate_hz)
    with pytest.raises(DataError, match="The nearest that is one is") as refused:
        resampled(recording, 20e6)
    nearest = float(str(refused.value).split("The nearest that is one is ")[1].split(";")[0].replace(",", ""))
    resampled(InMemory(noise(samples=100), nearest), 20e6)


def test_a_band_too_narrow_for_the_signal_is_refused() -> None:
    recording = InMemory(noise(), 16e6)
    with pytest.raises(DataError, match=r"16 MS/s do not hold the 16.25 MHz of the signal"):
        resampled(recording, 20e6, occupied=26 / 32)
    assert resampled(InMemory(noise(), 0.5e6), 1e6, occupied=1 / 8).about.sample_rate_hz == 1e6
