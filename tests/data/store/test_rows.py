"""Rows read without HDF5 in between: the same as with it, whatever of the file is in the page cache."""

from __future__ import annotations

import copy
import gc
import os
from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np
import pytest

from pisa_capc import load
from pisa_capc.core.errors import DataError
from pisa_capc.data.store import CaptureSpec, native
from pisa_capc.data.store.capture import StoredRows, pieces
from pisa_capc.data.store.native import write_capture
from tests.datasets import write_random

LINUX = pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="elsewhere every read waits for the disk")


def wanted(where: Sequence[int], rows: Sequence[int], used: int = 4) -> list[tuple[int, int]]:
    """First byte and number of bytes of each piece of a file; frames of two antennas and four samples."""
    out = np.empty((8, 2, used), dtype=np.complex64)
    return [(start, len(into)) for into, start in pieces(out, np.array(where, dtype=int), np.array(rows, dtype=int), 4)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_random(tmp_path / "set")


def by_hdf5(folder: Path) -> np.ndarray:
    """All samples of the set, as HDF5 reads them."""
    stored = []
    for spec in load(folder).source.dataset.captures:  # type: ignore[attr-defined]
        with h5py.File(folder / spec.path) as file:
            stored.append(file["iq"][:])
    return np.concatenate(stored)


def uncached(monkeypatch: pytest.MonkeyPatch, cached_bytes: int) -> list[int]:
    """As if the page cache held only the first bytes of every read; the sizes that the disk is asked for."""
    preadv, asked = os.preadv, []

    def partly(file: int, buffers: list[memoryview], start: int, flags: int = 0) -> int:
        if not flags:
            return preadv(file, buffers, start)
        if not cached_bytes:
            raise BlockingIOError
        return preadv(file, [buffers[0].cast("B")[:cached_bytes]], start)

    monkeypatch.setattr(os, "preadv", partly)
    monkeypatch.setattr(os, "posix_fadvise", lambda file, start, size, advice: asked.append(size))
    return asked


def test_neighbours_are_one_read() -> None:
    assert wanted([0, 1, 2], [7, 8, 9]) == [(7 * 64, 3 * 64)]
    assert wanted([0, 1, 2], [3, 8, 9]) == [(3 * 64, 64), (8 * 64, 2 * 64)]
    assert wanted([1, 0], [7, 8]) == [(7 * 64, 64), (8 * 64, 64)]  # in the file, not in the result
    assert wanted([0, 1], [4, 4]) == [(4 * 64, 64), (4 * 64, 64)]


def test_of_a_segment_only_its_own_samples_are_read() -> None:
    assert wanted([0, 1], [3, 4], used=1) == [((2 * 3 + a) * 32, 8) for a in range(4)]
    assert wanted([], []) == []


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("samples", [16, 3])
def test_scattered_rows_are_those_that_hdf5_reads(
    folder: Path, monkeypatch: pytest.MonkeyPatch, mapped: bool, samples: int
) -> None:
    monkeypatch.setattr(native, "MAPPED", 512 if mapped else 0)
    frames, stored = load(folder), by_hdf5(folder)
    rows = np.random.default_rng(0).integers(0, len(frames), 60)
    out = np.empty((60, 4, samples), dtype=np.complex64)
    assert frames.source.read_iq(rows, samples, out) is out
    np.testing.assert_array_equal(out, stored[rows, :, :samples])


@LINUX
@pytest.mark.parametrize("cached_bytes", [0, 8])
@pytest.mark.parametrize("samples", [16, 3])
def test_what_is_not_in_the_page_cache_is_asked_for_and_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch, cached_bytes: int, samples: int
) -> None:
    monkeypatch.setattr(native, "MAPPED", 0)
    frames, stored = load(folder), by_hdf5(folder)
    rows = np.random.default_rng(0).integers(0, len(frames), 30)
    assert frames.iq.shape == stored.shape  # every block has been looked at once
    asked = uncached(monkeypatch, cached_bytes)
    np.testing.assert_array_equal(frames.segment(samples).select(rows).iq, stored[rows, :, :samples])
    assert sum(asked) == 30 * frames.antennas * samples * 8


@pytest.mark.parametrize("mapped", [True, False])
def test_a_capture_that_is_written_anew_is_read_anew(
    folder: Path, monkeypatch: pytest.MonkeyPatch, mapped: bool
) -> None:
    monkeypatch.setattr(native, "MAPPED", 512 if mapped else 0)
    frames, stored = load(folder), by_hdf5(folder)
    rows = np.array([2, 0, 5])
    np.testing.assert_array_equal(frames.select(rows).iq, stored[rows])
    write_capture(folder, CaptureSpec("E1", "D01", "L1", 6), 2 * stored[:6])
    np.testing.assert_array_equal(frames.select(rows).iq, 2 * stored[rows])


@pytest.mark.parametrize("rows", [[0, 3], [0, 1]])
def test_a_capture_that_is_cut_short_is_an_error_that_names_it(folder: Path, rows: list[int]) -> None:
    frames = load(folder)
    assert len(frames.select(rows).iq) == 2
    path = folder / "E1/D01/L1.h5"
    os.truncate(path, path.stat().st_size // 3)
    with pytest.raises(DataError, match=r"E1/D01/L1.h5: cannot be read"):
        frames.source.read_iq(np.array(rows), 16)


def test_a_file_that_ends_within_its_samples_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "short"
    path.write_bytes(bytes(100))
    stored = StoredRows(str(path), 40, (1, 2, 4), mapped=False)
    wanted = pieces(np.empty((1, 2, 4), dtype=np.complex64), np.array([0]), np.array([0]), 4)
    with pytest.raises(EOFError, match="ends at byte 100"):
        stored.read(stored.read_cached(wanted))


def test_files_are_open_only_while_they_are_mapped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    descriptors = Path("/proc/self/fd")
    if not descriptors.is_dir():
        pytest.skip("no /proc to count open files in")
    gc.collect()  # what earlier tests have left
    before = len(list(descriptors.iterdir()))
    for most, held in ((7, 0), (8, 8)):  # eight captures
        monkeypatch.setattr(native, "MAPPED", most)
        frames = load(folder)
        assert len(frames.select(np.arange(len(frames))[::-1]).iq) == 48
        assert len(list(descriptors.iterdir())) == before + held
        del frames
        gc.collect()
        assert len(list(descriptors.iterdir())) == before


def test_a_copy_of_a_source_takes_no_maps_along(folder: Path) -> None:
    source = load(folder).source
    rows = np.array([7, 2, 40])
    before = source.read_iq(rows, 16)
    other = copy.deepcopy(source)  # as when it is sent to another process
    assert vars(other).keys() == {"folder", "dataset"}
    np.testing.assert_array_equal(other.read_iq(rows, 16), before)
