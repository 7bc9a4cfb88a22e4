"""Rows read without HDF5 in between: the same as with it, whatever of the file is in the page cache."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np
import pytest

from pisa_capc import load
from pisa_capc.errors import DataError
from pisa_capc.store.rows import pieces
from tests.datasets import write_random

LINUX = pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="elsewhere every read waits for the disk")
STARTS = np.array([0, 10, 20])


def wanted(rows: Sequence[int], used: int = 4) -> list[tuple[int, int, int]]:
    """File, first byte and number of bytes of each piece; two antennas of four samples."""
    out = np.empty((len(rows), 2, used), dtype=np.complex64)
    found = pieces(out, np.asarray(rows, dtype=np.int64), STARTS, samples=4)
    return [(piece.file, piece.start, piece.into.nbytes) for _, group in found for piece in group]


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


def test_rows_are_read_in_the_order_of_the_files() -> None:
    assert wanted([12, 3, 15, 0]) == [(0, 0, 64), (0, 3 * 64, 64), (1, 2 * 64, 64), (1, 5 * 64, 64)]


def test_neighbours_are_one_read_within_their_file() -> None:
    assert wanted([7, 8, 9, 10, 11]) == [(0, 7 * 64, 3 * 64), (1, 0, 2 * 64)]
    assert wanted([5, 16]) == [(0, 5 * 64, 64), (1, 6 * 64, 64)]  # as if neighbours, in two files
    assert wanted([8, 7]) == [(0, 7 * 64, 64), (0, 8 * 64, 64)]  # in the file, not in the result
    assert wanted([4, 4]) == [(0, 4 * 64, 64), (0, 4 * 64, 64)]


def test_of_a_segment_only_its_own_samples_are_read() -> None:
    assert wanted([3, 4], used=1) == [(0, (2 * 3 + a) * 32, 8) for a in range(4)]
    assert wanted([]) == []


@LINUX
@pytest.mark.parametrize("cached_bytes", [0, 8])
@pytest.mark.parametrize("samples", [None, 3])
def test_what_is_not_in_the_page_cache_is_asked_for_and_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch, cached_bytes: int, samples: int | None
) -> None:
    frames, stored = load(folder), by_hdf5(folder)
    used = samples or frames.samples
    rows = np.random.default_rng(0).integers(0, len(frames), 30)
    asked = uncached(monkeypatch, cached_bytes)
    np.testing.assert_array_equal(frames.segment(used).select(rows).iq, stored[rows, :, :used])
    assert sum(asked) == 30 * frames.antennas * used * 8


def test_a_capture_that_is_written_anew_is_read_anew(folder: Path, tmp_path: Path) -> None:
    frames, stored = load(folder), by_hdf5(folder)
    rows = np.array([2, 0, 5])
    np.testing.assert_array_equal(frames.select(rows).iq, stored[rows])
    other = tmp_path / "other.h5"
    with h5py.File(other, "w") as file:
        file["something_before_it"] = np.arange(1000)
        file["iq"] = 2 * stored[:6]
    os.replace(other, folder / "E1/D01/L1.h5")
    np.testing.assert_array_equal(frames.select(rows).iq, 2 * stored[rows])


def test_a_capture_cut_short_while_it_is_read_is_an_error_that_names_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = load(folder)
    before = frames.select([0, 3]).iq
    path = folder / "E1/D01/L1.h5"
    then = path.stat()
    os.truncate(path, then.st_size // 3)
    with pytest.raises(DataError, match=r"E1/D01/L1.h5: cannot be read"):
        frames.source.read_iq(np.array([0, 3]), 16)
    monkeypatch.setattr(os, "fstat", lambda file: then)  # as if it were cut after it was looked at
    np.testing.assert_array_equal(frames.select([0]).iq, before[:1])
    with pytest.raises(DataError, match=r"E1/D01/L1.h5: cannot be read \(EOFError: the file ends at byte \d+"):
        frames.source.read_iq(np.array([0, 5]), 16)


def test_no_file_stays_open(folder: Path) -> None:
    descriptors = Path("/proc/self/fd")
    if not descriptors.is_dir():
        pytest.skip("no /proc to count open files in")
    frames = load(folder)
    before = len(list(descriptors.iterdir()))
    assert len(frames.select(np.arange(len(frames))[::-1]).iq) == 48
    assert len(list(descriptors.iterdir())) == before
