"""Plain samples: what is read is what was written, and what cannot be is refused in words."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.signal.recordings import open_recording
from pisa_capc.signal.recordings.encoding import ENDINGS, Encoding
from tests.signal.recordings.tools import encoded, noise

STEP = {"cs8": 1 / 128, "cu8": 1 / 127.5, "cs16": 2**-15, "cs16_be": 2**-15, "cf32": 1e-8, "cf32_be": 1e-8}


@pytest.mark.parametrize("format", STEP)
@pytest.mark.parametrize("antennas", [1, 4])
def test_samples_come_back_to_half_a_step(format: str, antennas: int, tmp_path: Path) -> None:
    x = noise(antennas)
    path = tmp_path / f"roof.{format.removesuffix('_be')}"
    path.write_bytes(encoded(x, format))
    recording = open_recording(path, format=format, sample_rate_hz=20e6, antennas=antennas)
    assert recording.about.length == x.shape[1]
    read = recording.read(0, 10**9)
    assert read.dtype == np.complex64
    assert np.abs((read - x).view(np.float32)).max() <= STEP[format] / 2 + 1e-7


def test_the_bytes_of_a_sample_are_i_then_q_of_each_antenna_in_turn(tmp_path: Path) -> None:
    (tmp_path / "a.cs16").write_bytes(bytes.fromhex("0040 00e0 0000 0080 ff7f 0100 0000 0000"))
    x = open_recording(tmp_path / "a.cs16", format="cs16", sample_rate_hz=1e6, antennas=2).read(0, 2)
    expected = np.array([[0.5 - 0.25j, (32767 + 1j) / 32768], [-1j, 0]])
    assert np.array_equal(x, expected.astype(np.complex64))


@pytest.mark.parametrize("size", [1, 7, 1000, 4999, 10**6])
def test_blocks_are_the_recording_cut_anywhere(size: int, tmp_path: Path) -> None:
    (tmp_path / "a.cf32").write_bytes(encoded(noise(samples=200), "cf32"))
    recording = open_recording(tmp_path / "a.cf32", sample_rate_hz=20e6, antennas=2)
    blocks = list(recording.blocks(size))
    assert max(block.shape[1] for block in blocks) <= size
    assert np.array_equal(np.concatenate(blocks, axis=1), recording.read(0, 200))


def test_files_of_one_antenna_each_are_one_recording_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    x = noise(12, 300)
    for i, row in enumerate(x):
        (tmp_path / f"rx{i}.cf32").write_bytes(encoded(row[None], "cf32"))
    recording = open_recording(str(tmp_path / "rx*.cf32"), sample_rate_hz=20e6)
    assert recording.about.antennas == 12
    assert np.array_equal(recording.read(10, 50), x[:, 10:60])


def test_memory_does_not_follow_the_file(tmp_path: Path) -> None:
    with (tmp_path / "long.cs16").open("wb") as file:
        file.truncate(400 << 20)  # a hole: no disk is used
    recording = open_recording(tmp_path / "long.cs16", sample_rate_hz=20e6, antennas=4)
    tracemalloc.start()
    for i, _ in enumerate(recording.blocks(1 << 16)):
        if i == 40:
            break
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_ending_names_an_encoding(ending: str) -> None:
    found = Encoding.named(ending)
    assert Encoding.named(found.name) == found


class TestWhatIsRefused:
    def open(self, path: Path, content: bytes, **options: object) -> object:
        path.write_bytes(content)
        return open_recording(path, **{"sample_rate_hz": 20e6, **options})  # type: ignore[arg-type]

    def test_an_empty_file(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="holds 0 bytes; a sample of 4 antennas as ci16_le has 16"):
            self.open(tmp_path / "a.cs16", b"", antennas=4)

    def test_a_rate_that_nobody_gave(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="Give --sample-rate"):
            self.open(tmp_path / "a.cs16", bytes(64), sample_rate_hz=None)

    def test_an_ending_that_says_nothing(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"cannot tell its format from its ending '.dat'.*Give --format"):
            self.open(tmp_path / "a.dat", bytes(64))

    @pytest.mark.parametrize("format", ["rf32", "cs12", "cf16x", "", "ci64", "cf8"])
    def test_a_format_that_is_none(self, format: str, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="expected complex samples, as cs8"):
            self.open(tmp_path / "a.dat", bytes(64), format=format)

    def test_antennas_of_other_lengths(self, tmp_path: Path) -> None:
        (tmp_path / "rx0.cs16").write_bytes(bytes(400))
        (tmp_path / "rx1.cs16").write_bytes(bytes(360))
        with pytest.raises(DataError, match=r"rx1.cs16 has 90 samples and rx0.cs16 100"):
            open_recording([tmp_path / "rx0.cs16", tmp_path / "rx1.cs16"], sample_rate_hz=20e6)

    def test_antennas_that_the_files_cannot_share(self, tmp_path: Path) -> None:
        for name in "ab":
            (tmp_path / f"{name}.cs16").write_bytes(bytes(400))
        with pytest.raises(ConfigError, match="--antennas 3 in 2 files"):
            open_recording([tmp_path / "a.cs16", tmp_path / "b.cs16"], sample_rate_hz=20e6, antennas=3)

    @pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
    def test_a_rate_that_is_none(self, rate: float, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="expected Hz, more than zero"):
            self.open(tmp_path / "a.cs16", bytes(64), sample_rate_hz=rate)

    def test_files_that_are_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"no such file"):
            open_recording(str(tmp_path / "rx*.cs16"), sample_rate_hz=20e6)

    def test_a_file_that_shrinks_while_it_is_read(self, tmp_path: Path) -> None:
        recording = open_recording(self._written(tmp_path), sample_rate_hz=20e6)
        (tmp_path / "a.cs16").write_bytes(bytes(100))
        with pytest.raises(DataError, match="has become shorter"):
            recording.read(0, 100)

    def _written(self, tmp_path: Path) -> Path:
        (tmp_path / "a.cs16").write_bytes(bytes(400))
        return tmp_path / "a.cs16"


def test_a_cut_file_is_read_as_far_as_it_goes_and_said_to_be_cut(tmp_path: Path) -> None:
    x = noise(4, 100)
    (tmp_path / "a.cs16").write_bytes(encoded(x, "cs16")[:-3])
    with pytest.warns(UserWarning, match=r"its last 13 bytes are no whole sample of 16 bytes, 4 antennas as ci16_le"):
        recording = open_recording(tmp_path / "a.cs16", sample_rate_hz=20e6, antennas=4)
    assert recording.read(0, 1000).shape == (4, 99)
