"""A signal that is known from a file is found in frames that begin anywhere in it, and measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pisa_capc import Frames
from pisa_capc.core.errors import DataError
from pisa_capc.signal.measurement.reference import SentReference, align, measure_against
from tests.cli.test_model_commands import Command, pisa  # noqa: F401  (fixture)

RATE_HZ = 5e6
IMAGES = {"A": 0.02 * np.exp(-0.7j), "B": 0.02 * np.exp(1.4j)}


def waveform(samples: int = 9000) -> np.ndarray:
    """Noise in seven tenths of the band, as OFDM is."""
    spectrum = np.random.default_rng(5).normal(size=(samples, 2)) @ [1, 1j]
    spectrum[np.abs(np.fft.fftfreq(samples)) > 0.35] = 0
    x = np.fft.ifft(spectrum)
    return np.asarray(x / np.sqrt(np.mean(np.abs(x) ** 2)))


def received(image: complex, begin: int, cfo_hz: float, seed: int, samples: int = 3000) -> np.ndarray:
    """From any sample on, half a sample late, behind a second path, with an image and an offset."""
    x = waveform()
    frequency = np.fft.fftfreq(len(x))
    sent = x + image * x.conj()
    channel = np.exp(-2j * np.pi * frequency * 0.5) * (1 + 0.3j * np.exp(-2j * np.pi * frequency * 3))
    y = np.roll(np.fft.ifft(np.fft.fft(sent) * channel), -begin)[:samples]
    noise = np.random.default_rng(seed).normal(scale=0.02, size=(samples, 2)) @ [1, 1j]
    return np.asarray(y * np.exp(2j * np.pi * cfo_hz / RATE_HZ * np.arange(samples)) + noise)


def frames() -> Frames:
    begin = {"A": (10, 8000, 2500), "B": (4000, 8999, 700)}  # some go on behind the end
    iq = [
        received(image, at, 1000.0 * k - 4000, k) for name, image in IMAGES.items() for k, at in enumerate(begin[name])
    ]
    return Frames.from_arrays(
        np.stack(iq)[:, None], device=["A"] * 3 + ["B"] * 3, environment=["lab"] * 6, sample_rate_hz=RATE_HZ
    )


def test_where_a_frame_begins_and_its_offset_are_found() -> None:
    reference = SentReference(waveform(), RATE_HZ)
    for at in (0, 1234, 8999):
        found = align(reference, received(0.02, at, -31_000.0, at))
        assert abs((found.at - at + 2) % 9000 - 2) <= 1
        assert found.offset * RATE_HZ == pytest.approx(-31_000, abs=500)


def test_flaws_are_measured_within_their_bars_wherever_frames_begin() -> None:
    found = measure_against(frames(), SentReference(7.0 * waveform(), RATE_HZ))
    image = found.measurement.flaws.index("image")
    truth = np.array([IMAGES[found.names[k]] for k in found.sender])
    off = np.abs(found.measurement.value[:, image] - truth)
    assert (off < 4 * np.sqrt(found.measurement.covariance[:, image, image].real)).all()
    np.testing.assert_allclose(found.cfo_hz, [-4000, -3000, -2000] * 2, atol=5)
    assert (found.measurement.misfit < 2).all()


def test_frames_of_another_signal_are_refused() -> None:
    rng = np.random.default_rng(0)
    other = Frames.from_arrays(
        rng.normal(size=(4, 1, 3000, 2)) @ [1, 1j], device=["A"] * 4, environment=["lab"] * 4, sample_rate_hz=RATE_HZ
    )
    with pytest.raises(DataError, match="none of 4 frames holds the reference"):
        measure_against(other, SentReference(waveform(), RATE_HZ))
    with pytest.raises(DataError, match="Resample one of them"):
        measure_against(other, SentReference(waveform(), 1e6))
    for nothing in (np.zeros(5000), np.ones((2, 5000)), waveform()[:100]):
        with pytest.raises(DataError, match="expected 256 samples or more"):
            SentReference(nothing, RATE_HZ)


def test_the_command_takes_a_file(pisa: Command, tmp_path: Path) -> None:  # noqa: F811
    frames().save(tmp_path / "set")
    np.save(tmp_path / "sent.npy", waveform())
    done = pisa("measure", tmp_path / "set", "--reference", tmp_path / "sent.npy", "--json")
    assert done.code == 0, done.err
    assert '"waveform": "reference"' in done.out
    done = pisa("measure", tmp_path / "set", "--reference", tmp_path / "sent.npy", "--waveform", "wifi")
    assert (done.code, "no --waveform" in done.err) == (2, True)
