"""Samples that no receiver has measured, and antennas that did not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from pisa_capc.core.errors import DataError
from pisa_capc.signal.recordings import WatchedRecording, open_recording
from tests.signal.recordings.tools import InMemory, encoded, noise


class TestPlausibility:
    @pytest.mark.parametrize(
        ("written", "ending", "right"),
        [
            ("cs16_be", "cs16", "ci16_be"),
            ("cu8", "cs8", "cu8"),
            ("cs8", "cu8", "ci8"),
            ("cf32_be", "cf32", "cf32_be"),
        ],
    )
    @pytest.mark.parametrize("scale", [0.02, 0.1])
    def test_what_is_read_in_the_wrong_way_is_refused_with_the_right_one(
        self, written: str, ending: str, right: str, scale: float, tmp_path: Path
    ) -> None:
        path = tmp_path / f"a.{ending}"
        path.write_bytes(encoded(noise(4, 20_000, scale), written))
        with pytest.raises(DataError, match=f"Give --format {right}, or --format .* if you are sure"):
            open_recording(path, sample_rate_hz=20e6, antennas=4)
        open_recording(path, sample_rate_hz=20e6, antennas=4, format=right)
        with pytest.warns(UserWarning, match=f"Give --format {right}"):
            open_recording(path, sample_rate_hz=20e6, antennas=4, format=ending)

    @pytest.mark.filterwarnings("error")
    @pytest.mark.parametrize("format", ["cs8", "cu8", "cs16", "cf32"])
    @pytest.mark.parametrize("scale", [1e-3, 0.02, 0.3, 3.0])
    def test_signals_of_any_strength_pass_clipped_ones_too(self, format: str, scale: float, tmp_path: Path) -> None:
        path = tmp_path / f"a.{format}"
        path.write_bytes(encoded(noise(2, 20_000, scale), format))
        open_recording(path, sample_rate_hz=20e6, antennas=2)

    @pytest.mark.filterwarnings("error")
    def test_twelve_bits_at_the_upper_end_of_sixteen_pass(self, tmp_path: Path) -> None:
        values = np.clip(np.round(noise(2, 20_000, 0.2).T.copy().view(np.float32) * 2048), -2048, 2047) * 16
        (tmp_path / "a.cs16").write_bytes(values.astype("<i2").tobytes())
        open_recording(tmp_path / "a.cs16", sample_rate_hz=20e6, antennas=2)

    def test_integers_named_as_floats_are_refused(self, tmp_path: Path) -> None:
        (tmp_path / "a.cf32").write_bytes(encoded(noise(2, 20_000), "cs16"))
        with pytest.raises(DataError, match="NaN, infinite or of absurd size"):
            open_recording(tmp_path / "a.cf32", sample_rate_hz=20e6)


def notes(x: NDArray[np.complex64], full_scale: float = 1 - 2**-15) -> list[str]:
    recording = InMemory(x)
    recording.about = replace(recording.about, full_scale=full_scale)
    watched = WatchedRecording(recording)
    for _ in watched.blocks(700):
        pass
    return watched.notes()


class TestWatched:
    def test_nothing_is_said_of_a_good_recording(self) -> None:
        assert notes(noise(4)) == []

    def test_a_dead_antenna_is_named(self) -> None:
        x = noise(4)
        x[2] = 0
        assert notes(x) == ["memory: antenna 2 is dead: it has none of the power of the strongest one."]
        x[2] = 1e-5 * x[1]
        assert "antenna 2 is dead: it has -100 dB" in notes(x)[0]

    def test_a_clipped_antenna_is_named(self) -> None:
        x = noise(3, scale=0.1)
        parts = x.view(np.float32)
        parts[1] = np.clip(parts[1] * 5, -1, 1 - 2**-15)
        share = np.mean(np.abs(parts[1]) >= 1 - 2**-15)
        (note,) = notes(x)
        assert f"antenna 1 clips: {share:.2%} of its values are at full scale" in note

    def test_floats_in_units_of_their_own_are_not_said_to_clip(self) -> None:
        assert notes(100 * noise(3)) == []

    def test_a_few_large_values_are_no_clipping(self) -> None:
        x = noise(2)
        x[0, :5] = 1
        assert notes(x) == []

    def test_nan_becomes_zero_and_is_counted_with_its_place(self) -> None:
        x = noise(2)
        x[1, 1234:1300] = np.nan
        x[0, 2000:2002] = np.inf, 1e30
        watched = WatchedRecording(InMemory(x))
        seen = np.concatenate(list(watched.blocks(700)), axis=1)
        good = np.abs(x) < 1e18
        assert np.array_equal(seen[good], x[good])
        assert (seen[~good] == 0).all()
        assert "68 samples are NaN, infinite or absurdly large, the first at 1,234" in watched.notes()[0]

    def test_what_is_read_again_is_counted_once(self) -> None:
        x = noise(2)
        x[1, 1234:1300] = np.nan
        watched = WatchedRecording(InMemory(x))
        for first, count in ((0, 2000), (1200, 300), (1500, 1000), (2500, 0), (2500, 2500), (4900, 500)):
            watched.read(first, count)
        assert "66 samples are NaN, infinite or absurdly large, the first at 1,234" in watched.notes()[0]

    def test_integers_are_judged_as_they_lie_in_the_file(self, tmp_path: Path) -> None:
        x = noise(4, scale=0.1)
        x[2] = 0
        x[1] *= 8
        (tmp_path / "a.cs16").write_bytes(encoded(x, "cs16"))
        recording = open_recording(tmp_path / "a.cs16", sample_rate_hz=20e6, antennas=4)
        decoded, as_they_lie = WatchedRecording(recording), WatchedRecording(recording)
        blocks = np.concatenate(list(decoded.blocks(700)), axis=1)
        assert as_they_lie.integers is not None
        data = np.concatenate(list(as_they_lie.pieces(as_they_lie.integers, 700)))
        assert np.array_equal(as_they_lie.integers.encoding.decode(data, 4), blocks)
        assert as_they_lie.notes() == decoded.notes()
        assert len(decoded.notes()) == 2

    def test_integers_of_one_antenna_are_judged_too(self, tmp_path: Path) -> None:
        (tmp_path / "a.cs16").write_bytes(encoded(noise(1, scale=0.8), "cs16"))
        watched = WatchedRecording(open_recording(tmp_path / "a.cs16", sample_rate_hz=20e6, format="cs16"))
        assert watched.integers is not None
        for _ in watched.pieces(watched.integers, 700):
            pass
        assert [note.split(":")[1] for note in watched.notes()] == [" antenna 0 clips"]

    def test_silence_is_said(self) -> None:
        assert notes(np.zeros((2, 900), np.complex64)) == ["memory: all samples are zero."]

    def test_what_is_read_is_what_is_there(self) -> None:
        x = noise(2)
        assert np.array_equal(WatchedRecording(InMemory(x)).read(100, 50), x[:, 100:150])
