"""Export, then import: the same frames come back, whatever the format."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pisa_capc import Frames, load
from pisa_capc.data.geometry import custom
from pisa_capc.signal.formats import ExportOptions, ImportOptions, export_dataset, import_dataset
from tests.datasets import write_random

CASES = {
    "mat v5": ("mat", ExportOptions(version="5")),
    "mat v7.3": ("mat", ExportOptions(version="7.3")),
    "sigmf": ("sigmf", ExportOptions()),
    "npz": ("npz", ExportOptions()),
}


def names(frames: Frames) -> list[tuple[str, str, str, int]]:
    return [
        (frames.environments[e], frames.devices[d], frames.captures[c], int(t))
        for e, d, c, t in zip(frames.environment, frames.device, frames.capture, frames.frame, strict=True)
    ]


def there_and_back(name: str, frames: Frames, tmp_path: Path, export: ExportOptions, back: ImportOptions) -> Frames:
    foreign = tmp_path / ("foreign.npz" if name == "npz" else "foreign")
    export_dataset(name, frames, foreign, export)
    import_dataset(name, foreign, tmp_path / "back", back)
    return load(tmp_path / "back")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("cfo", [True, False])
def test_frames_come_back_bit_for_bit(case: str, cfo: bool, tmp_path: Path) -> None:
    name, options = CASES[case]
    frames = load(write_random(tmp_path / "set", cfo=cfo, frames=7))
    back = there_and_back(name, frames, tmp_path, options, ImportOptions(samples=16))
    assert names(back) == names(frames)
    np.testing.assert_array_equal(back.iq, frames.iq)
    np.testing.assert_array_equal(back.cfo_hz, frames.cfo_hz)
    assert (back.sample_rate_hz, back.carrier_hz) == (frames.sample_rate_hz, frames.carrier_hz)
    assert back.geometry.coordinates == frames.geometry.coordinates


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("antennas", "frames"), [(1, 5), (3, 1), (1, 1)])
def test_single_antennas_and_single_frames_survive(case: str, antennas: int, frames: int, tmp_path: Path) -> None:
    name, options = CASES[case]
    there = load(write_random(tmp_path / "set", antennas=antennas, frames=frames, samples=12))
    back = there_and_back(name, there, tmp_path, options, ImportOptions(antennas=antennas, samples=12))
    np.testing.assert_array_equal(back.iq, there.iq)
    np.testing.assert_array_equal(back.cfo_hz, there.cfo_hz)


@pytest.mark.parametrize("name", ["sigmf", "npz"])
def test_formats_that_can_carry_it_keep_an_own_array_geometry(name: str, tmp_path: Path) -> None:
    odd = custom([[0, 0], [0.3, 0.1], [1.5, 2.0]])
    frames = Frames.from_arrays(
        np.ones((4, 3, 8)), device=["x", "y"] * 2, geometry=odd, sample_rate_hz=1e6, carrier_hz=868.1e6
    )
    back = there_and_back(name, frames, tmp_path, ExportOptions(), ImportOptions())
    assert back.geometry.coordinates == odd.coordinates
    assert (back.sample_rate_hz, back.carrier_hz) == (1e6, 868.1e6)


def test_lora_rffi_rows_come_back_for_the_chosen_antenna(tmp_path: Path) -> None:
    frames = load(write_random(tmp_path / "set", devices=3))
    back = there_and_back("hdf5", frames, tmp_path, ExportOptions(antenna=2), ImportOptions())
    assert names(back) == names(frames)
    np.testing.assert_array_equal(back.iq, frames.iq[:, 2:3])
    np.testing.assert_array_equal(back.cfo_hz, frames.cfo_hz[:, 2:3])


def test_a_selection_is_exported_as_it_is(tmp_path: Path) -> None:
    frames = load(write_random(tmp_path / "set")).where(environment=["E2"], capture=["M"])
    back = there_and_back("npz", frames, tmp_path, ExportOptions(), ImportOptions())
    np.testing.assert_array_equal(back.iq, frames.iq)
    assert back.environments == ("E2",)
