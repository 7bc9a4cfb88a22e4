"""Pictures of a recording: frequency and time are where they belong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pisa_capc.core.errors import DataError
from pisa_capc.evidence.figures.recording import BINS, COLUMNS, Box, draw_spectrogram, draw_timeline, power_spectrum_db


def tone(frequency: float, samples: int) -> np.ndarray:
    return np.exp(2j * np.pi * frequency * np.arange(samples)).astype(np.complex64)


@pytest.mark.parametrize("frequency", [-0.25, 0.0, 0.375])
def test_a_tone_is_a_line_at_its_frequency(frequency: float) -> None:
    spectrum = power_spectrum_db(tone(frequency, 100 * BINS))
    assert spectrum.shape == (BINS, 100)
    np.testing.assert_array_equal(spectrum.argmax(axis=0), BINS * (frequency + 0.5))


def test_a_burst_is_where_it_was_sent_however_long_the_block() -> None:
    block = 0.001 * tone(0.1, 3 * COLUMNS * BINS)
    block[COLUMNS * BINS : 2 * COLUMNS * BINS] *= 1000
    power = power_spectrum_db(block).max(axis=0)
    assert power.shape == (COLUMNS,)
    loud = np.flatnonzero(power > power.max() - 30)
    assert (loud[0], loud[-1]) == (pytest.approx(COLUMNS / 3, abs=1), pytest.approx(2 * COLUMNS / 3, abs=1))


def test_pictures_are_written_with_names_as_they_are(tmp_path: Path) -> None:
    boxes = [Box(i * 1e-4, i * 1e-4 + 5e-5, -8e6, 8e6, f"D{i:02d} $x^") for i in range(30)]
    seen = draw_spectrogram(tone(0.1, 40 * BINS), 20e6, boxes, tmp_path / "seen.svg")
    assert "D00 $x^" in seen.path.read_text()
    assert "30 frames" in seen.caption
    drawn = draw_timeline(
        np.array([0.1, 0.2, 3.0]),
        [0, 1, 0],
        ["D01 $x^", "<D02>"],
        tmp_path / "time.svg",
        durations_s=np.array([0.01, 0.0, 0.5]),
        groups=["known", "spoofed", "known"],
    )
    text = drawn.path.read_text()
    assert "D01 $x^" in text
    assert "spoofed" in text
    assert "time in s" in text


def test_an_empty_recording_can_be_drawn(tmp_path: Path) -> None:
    draw_spectrogram(np.zeros(BINS, dtype=np.complex64), 20e6, [], tmp_path / "seen.png")
    draw_timeline(np.zeros(0), [], [], tmp_path / "time.png", groups=[])


def test_what_does_not_fit_together_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="a spectrogram needs 256"):
        draw_spectrogram(tone(0.1, 100), 20e6, [], tmp_path / "seen.png")
    with pytest.raises(DataError, match="a timeline of 2 times, 1 rows"):
        draw_timeline(np.zeros(2), [0], ["D01"], tmp_path / "time.png")
    assert not list(tmp_path.iterdir())
