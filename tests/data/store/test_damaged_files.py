"""Readers on damaged files: an error that names the file, or frames that are valid; never anything else."""

from __future__ import annotations

import functools
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pisa_capc import load
from pisa_capc.core.errors import PisaError
from pisa_capc.data.descriptors import cfo_descriptors
from pisa_capc.signal.formats import ExportOptions, ImportOptions, export_dataset, import_dataset
from tests.datasets import write_random

# Few: `make test-faults` reads thousands. Drawn the same way every time, so that a failure is a change in the code.
SETTINGS = settings(
    max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

FORMATS = {
    "mat v5": ("mat", ExportOptions(version="5"), ".mat"),
    "mat v7.3": ("mat", ExportOptions(version="7.3"), ".mat"),
    "sigmf metadata": ("sigmf", ExportOptions(), ".sigmf-meta"),
    "sigmf data": ("sigmf", ExportOptions(), ".sigmf-data"),
    "npz": ("npz", ExportOptions(), ".npz"),
    "hdf5": ("hdf5", ExportOptions(antenna=0), ".h5"),
}


@st.composite
def damage(draw: st.DrawFn) -> tuple[float, list[tuple[float, int]]]:
    """Where to cut the file (as a share of it), and bytes to change (place as a share, what to flip in it)."""
    cut = draw(st.one_of(st.just(1.0), st.floats(0, 1)))
    # Headers are a small part of a file and the interesting one, so half of the flips go to its beginning.
    place = st.one_of(st.floats(0, 1, exclude_max=True), st.floats(0, 0.1))
    flips = draw(st.lists(st.tuples(place, st.integers(1, 255)), min_size=0 if cut < 1 else 1, max_size=6))
    return cut, flips


def spoil(path: Path, harm: tuple[float, list[tuple[float, int]]]) -> None:
    content = bytearray(path.read_bytes())
    cut, flips = harm
    content = content[: int(cut * len(content))]
    for place, bits in flips:
        if content:
            content[int(place * len(content))] ^= bits
    path.write_bytes(content)


@contextmanager
def copied(folder: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(shutil.copytree(folder, Path(name) / "copy"))


@functools.cache
def original(case: str) -> Path:
    """A small set in a foreign format, made once."""
    folder = Path(tempfile.mkdtemp())
    frames = load(write_random(folder / "set", environments=["E1"], devices=1, captures=["L1"], frames=5))
    name, options, _ = FORMATS[case]
    (folder / "foreign").mkdir()
    export_dataset(name, frames, folder / "foreign" / "a.npz" if name == "npz" else folder / "foreign", options)
    return folder / "foreign"


@pytest.fixture(scope="module", autouse=True)
def _remove_originals() -> Iterator[None]:
    yield
    for case in FORMATS:
        shutil.rmtree(original(case).parent, ignore_errors=True)


@pytest.mark.parametrize("case", FORMATS)
@SETTINGS
@given(harm=damage())
def test_a_damaged_foreign_file_is_refused_or_gives_valid_frames(case: str, harm) -> None:
    name, _, suffix = FORMATS[case]
    with copied(original(case)) as folder:
        spoil(next(folder.rglob(f"*{suffix}")), harm)
        source = folder / "a.npz" if name == "npz" else folder
        try:
            import_dataset(name, source, folder.parent / "out", ImportOptions(samples=16))
        except PisaError:
            return
        frames = load(folder.parent / "out")
        assert np.isfinite(frames.iq).all()
        assert frames.cfo_hz is None or np.isfinite(frames.cfo_hz).all()


@SETTINGS
@given(harm=damage(), which=st.sampled_from(["dataset.json", "E1/D01/L1.h5"]))
def test_a_damaged_dataset_is_refused_or_read(which: str, harm, tmp_path: Path) -> None:
    folder = tmp_path / "set"
    if not folder.exists():
        write_random(folder, environments=["E1"], devices=1, captures=["L1"], frames=5)
    with copied(folder) as copy:
        spoil(copy / which, harm)
        try:
            frames = load(copy)
            assert frames.iq.shape == (len(frames), frames.antennas, frames.samples)
            assert frames.select([len(frames) - 1, 0]).iq.shape[0] == 2
            cfo_descriptors(frames)
        except PisaError:
            return


@SETTINGS
@given(content=st.binary(max_size=300), name=st.sampled_from(["mat", "sigmf", "npz", "hdf5"]))
def test_bytes_of_anything_are_refused(content: bytes, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        suffix = {"mat": ".mat", "sigmf": ".sigmf-meta", "npz": ".npz", "hdf5": ".h5"}[name]
        path = Path(folder) / "E1" / "D01" / f"L1{suffix}"
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
        with pytest.raises(PisaError):
            import_dataset(name, Path(folder) if name == "mat" else path, Path(folder) / "out")
        assert not (Path(folder) / "out").exists()
