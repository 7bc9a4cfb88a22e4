"""Samples that changed after they were written are refused by whoever reads them, and by nobody else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pisa_capc import Frames, load
from pisa_capc.core.errors import DataError
from pisa_capc.data.descriptors import cfo_descriptors
from pisa_capc.data.store import CaptureSpec, digests, native
from pisa_capc.data.store.digests import WIDTH, block_digest
from pisa_capc.data.store.native import fingerprint, write_capture_chunks
from tests.datasets import random_capture, write_random

FIRST = "E1/D01/L1.h5"  # rows 0 to 5
ROW = 4 * 16 * 8  # bytes

READINGS: dict[str, Callable[[Frames], object]] = {
    "all": lambda frames: frames.iq,
    "backwards": lambda frames: frames.select(np.arange(len(frames))[::-1]).iq,
    "one row": lambda frames: frames.select([4]).iq,
    "a segment": lambda frames: frames.segment(3).iq,
    "the capture": lambda frames: frames.where(["E1"], ["L1"]).iq,
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(digests, "BLOCK", 2 * ROW)  # three blocks in a capture
    return write_random(tmp_path / "set")


def as_earlier_versions(folder: Path) -> None:
    """Only the SHA-256 of all of a capture, as text of variable length."""
    for path in folder.rglob("*.h5"):
        with h5py.File(path, "r+") as file:
            del file.attrs["digests"]
            file.attrs["sha256"] = file.attrs["sha256"].decode()


def flip(path: Path, name: str, row: int) -> None:
    """Change one bit of the last number of a row, without a trace elsewhere."""
    with h5py.File(path, "r") as file:
        data = file[name]
        row_bytes = data.dtype.itemsize * int(np.prod(data.shape[1:]))
        place = data.id.get_offset() + (row + 1) * row_bytes - 5
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("earlier", [True, False])
@pytest.mark.parametrize("reading", READINGS)
def test_a_flipped_bit_is_found_however_the_row_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch, reading: str, earlier: bool, mapped: bool
) -> None:
    monkeypatch.setattr(native, "MAPPED", 512 if mapped else 0)
    if earlier:
        as_earlier_versions(folder)
    READINGS[reading](load(folder))
    flip(folder / FIRST, "iq", 4)
    found = "0 to 5" if earlier else "4 to 5"
    with pytest.raises(DataError, match=rf"{FIRST}: the samples of frames {found} are not those that were written"):
        READINGS[reading](load(folder))


def test_a_repacked_capture_is_held_to_its_digests(folder: Path) -> None:
    with h5py.File(folder / FIRST, "r+") as file:
        values = file["iq"][:]
        del file["iq"]
        values[4, 0, 0] += 1
        file.create_dataset("iq", data=values, chunks=True, compression="gzip")
    with pytest.raises(DataError, match="the samples of frames 4 to 5 are not those"):
        _ = load(folder).select([5, 0]).iq


def test_rows_of_sound_blocks_are_read_beside_a_damaged_one(folder: Path) -> None:
    before = load(folder).iq
    flip(folder / FIRST, "iq", 4)
    np.testing.assert_array_equal(load(folder).select([0, 3, 2]).iq, before[[0, 3, 2]])


@pytest.mark.parametrize("earlier", [True, False])
def test_a_changed_cfo_is_found(folder: Path, earlier: bool) -> None:
    if earlier:
        as_earlier_versions(folder)
    flip(folder / FIRST, "cfo_hz", 2)
    for read in (lambda frames: frames.cfo_hz, cfo_descriptors):
        with pytest.raises(DataError, match=rf"{FIRST}: .* not .* written"):
            read(load(folder))


@pytest.mark.parametrize("name", ["sha256", "digests"])
def test_marks_that_were_changed_are_found_before_a_fingerprint_is_made_of_them(folder: Path, name: str) -> None:
    with h5py.File(folder / FIRST, "r+") as file:
        value = file.attrs[name]
        file.attrs[name] = np.bytes_("0" * 64) if name == "sha256" else value ^ 1
    with pytest.raises(DataError, match=rf"{FIRST}: its digests are not"):
        fingerprint(folder)


def test_a_capture_that_lost_its_digests_or_its_cfo_is_refused(folder: Path) -> None:
    with h5py.File(folder / FIRST, "r+") as file:
        del file["cfo_hz"]
    with pytest.raises(DataError, match="its digests cover another number of frames"):
        _ = load(folder).iq
    with h5py.File(folder / FIRST, "r+") as file:
        for key in list(file.attrs):
            del file.attrs[key]
    with pytest.raises(DataError, match=r"holds no digest of its samples. Make or import it again"):
        _ = load(folder).iq


def test_a_set_of_an_earlier_version_has_the_same_samples_and_fingerprint(folder: Path) -> None:
    before, named = load(folder).iq, fingerprint(folder)
    as_earlier_versions(folder)
    np.testing.assert_array_equal(load(folder).iq, before)
    assert fingerprint(folder) == named


def test_a_block_is_looked_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    monkeypatch.setattr(digests, "block_digest", lambda values: looked.append(len(values)) or block_digest(values))
    frames = load(folder)
    for _ in range(2):
        _ = frames.iq
        _ = frames.select([7, 3, 1]).iq
    assert looked == [2] * 24


@pytest.mark.parametrize("sizes", [(6,), (1, 5), (3, 3), (1, 1, 1, 1, 1, 1), (4, 0, 2)])
def test_pieces_of_any_length_give_the_same_file(folder: Path, tmp_path: Path, sizes: tuple[int, ...]) -> None:
    spec = CaptureSpec("E1", "D01", "L1", 6)
    iq, cfo_hz = random_capture(spec)
    buffer = np.empty_like(iq)

    def chunks():  # type: ignore[no-untyped-def]
        start = 0
        for size in sizes:
            buffer[:size] = iq[start : start + size]  # one buffer for all of them
            yield buffer[:size]
            start += size

    write_capture_chunks(tmp_path / "other", spec, iq.shape, chunks(), cfo_hz)
    assert (tmp_path / "other" / FIRST).read_bytes() == (folder / FIRST).read_bytes()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    words=st.integers(1, 3 * WIDTH),
    changes=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 63)), min_size=1, max_size=3),
)
def test_up_to_three_changed_bits_never_escape_a_digest(words: int, changes: list[tuple[float, int]]) -> None:
    values = np.random.default_rng(0).integers(0, 2**63, words, dtype=np.uint64)
    damaged = values.copy()
    for place, bit in changes:
        damaged[int(place * words)] ^= np.uint64(1 << bit)
    assert (block_digest(damaged) == block_digest(values)) == bool((damaged == values).all())


def test_sectors_that_changed_places_and_zeroed_pages_do_not_escape() -> None:
    values = np.random.default_rng(0).normal(size=digests.BLOCK // 4).astype(np.float32)
    sectors = values.reshape(-1, 512 // 4)
    written = block_digest(values)
    for other in range(1, len(sectors)):
        order = np.arange(len(sectors))
        order[[0, other]] = other, 0
        if other % 97 == 1:
            assert block_digest(sectors[order]) != written
    for page in values.reshape(-1, 4096 // 4):
        kept = page.copy()
        page[:] = 0
        assert block_digest(values) != written
        page[:] = kept


def test_a_heap_in_which_the_library_would_go_on_for_ever_is_refused(folder: Path) -> None:
    as_earlier_versions(folder)
    path = folder / FIRST
    content = path.read_bytes()
    start = content.index(b"GCOL") + 16
    path.write_bytes(content[:start] + bytes(16) + content[start + 16 :])
    with pytest.raises(DataError, match=rf"{FIRST}: cannot be read \(ValueError: a heap that is damaged\)"):
        _ = load(folder).iq
