"""One capture file of the native store: its samples as they lie in it, checked when they are first read."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import DataError
from pisa_capc.data.store.digests import CaptureDigests
from pisa_capc.data.store.files import reading

_AT_ONCE = getattr(os, "RWF_NOWAIT", 0)  # Linux: only what needs no disk


class StoredPiece(NamedTuple):
    """Bytes of a result, and where they start in the stored array."""

    into: memoryview
    start: int


class StoredRows:
    """An array (n, A, T) of complex64 that starts at byte `offset` of a file.

    mapped: also keep it mapped into memory. That is the quickest way to scattered rows that are in the page cache; to
    others it is not, because they are waited for page by page and the disk reads what lies around each.
    """

    def __init__(self, path: str, offset: int, shape: tuple[int, int, int], mapped: bool) -> None:
        self.path, self.offset, self.shape = path, offset, shape
        self.mapped: NDArray[np.complex64] | None = None
        if mapped:
            with self._opened() as descriptor:
                content = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
            self.mapped = np.frombuffer(content, np.complex64, prod(shape), offset).reshape(shape)

    def read_cached(self, wanted: Iterable[StoredPiece]) -> list[StoredPiece]:
        """Read the pieces that the page cache holds; the disk is asked for all the others, and they come back."""
        left = []
        with self._opened() as descriptor:
            for piece in wanted:
                into, start = piece
                try:
                    done = os.preadv(descriptor, [into], self.offset + start, _AT_ONCE)
                except OSError:  # nothing of it is there, or the file system cannot tell
                    done = 0
                if done < len(into):
                    left.append(piece)
                    if hasattr(os, "posix_fadvise"):
                        os.posix_fadvise(descriptor, self.offset + start, len(into), os.POSIX_FADV_WILLNEED)
        return left

    def ask_for(self, blocks: Iterable[range]) -> None:
        """Have the disk read these rows."""
        if hasattr(os, "posix_fadvise"):
            size = self.shape[1] * self.shape[2] * 8
            with self._opened() as descriptor:
                for rows in blocks:
                    start = self.offset + rows.start * size
                    os.posix_fadvise(descriptor, start, len(rows) * size, os.POSIX_FADV_WILLNEED)

    def read_block(self, rows: range) -> NDArray[np.complex64]:
        """All samples of consecutive rows."""
        out = np.empty((len(rows), *self.shape[1:]), dtype=np.complex64)
        size = self.shape[1] * self.shape[2] * 8
        self.read([StoredPiece(out.reshape(-1).view(np.uint8).data, rows.start * size)])
        return out

    def read(self, wanted: Iterable[StoredPiece]) -> None:
        """Read the pieces, and wait for the disk where it is needed."""
        with self._opened() as descriptor:
            for into, start in wanted:
                left, position = into, self.offset + start
                while left:
                    done = os.preadv(descriptor, [left], position)  # one call reads at most 2 GiB
                    if not done:
                        raise EOFError(f"the file ends at byte {position}, within its samples")
                    left, position = left[done:], position + done

    @contextmanager
    def _opened(self) -> Iterator[int]:
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def pieces(
    out: NDArray[np.complex64], where: NDArray[np.intp], rows: NDArray[np.int64], samples: int
) -> list[StoredPiece]:
    """What to read for out[where] = stored[rows, :, :T]; out (N, A, T), stored (n, A, samples).

    Neighbours in the file that are neighbours in `out` are one piece.
    """
    if not out.flags.c_contiguous:
        raise ValueError("out: expected a C-contiguous array; what is read into a copy would be lost.")
    _, antennas, used = out.shape
    joined = np.zeros(len(rows), dtype=bool)  # to the row before
    if used == samples:
        joined[1:] = (rows[1:] == rows[:-1] + 1) & (where[1:] == where[:-1] + 1)
        samples = used = antennas * samples
    else:  # the start of every antenna's samples: each antenna is a row of its own
        where, rows = ((index[:, None] * antennas + np.arange(antennas)).ravel() for index in (where, rows))
        joined = np.repeat(joined, antennas)
    first = np.flatnonzero(~joined)
    into = where[first] * used * out.itemsize
    size = np.diff(first, append=len(rows)) * used * out.itemsize
    start = rows[first] * samples * out.itemsize
    content = out.reshape(-1).view(np.uint8).data
    columns = zip(into.tolist(), size.tolist(), start.tolist(), strict=True)
    return [StoredPiece(content[i : i + n], at) for i, n, at in columns]


_EXPECTED = "a capture of this dataset; make or import it again"


def identity(path: str) -> tuple[int, ...]:
    """What tells a file from one that has been put in its place."""
    file = os.stat(path)
    return file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns


@dataclass
class CaptureReading:
    """Rows of a capture on their way to out[where]: what the disk is still to give, and which blocks to check."""

    out: NDArray[np.complex64]
    where: NDArray[np.intp]
    rows: NDArray[np.int64]
    unchecked: list[range]
    whole: bool  # whether all samples of each row are read
    left: list[StoredPiece] = field(default_factory=list)

    def block(self, wanted: range, read: Callable[[range], NDArray[np.complex64]]) -> NDArray[np.complex64]:
        """The samples of consecutive rows: where they have been read already, else what `read` gives."""
        low, high = np.searchsorted(self.rows, [wanted.start, wanted.stop])
        if self.whole and high - low == len(wanted) and self._breaks[low] == self._breaks[high - 1]:
            return self.out[self.where[low] : self.where[low] + len(wanted)]
        return read(wanted)

    @cached_property
    def _breaks(self) -> NDArray[np.int64]:
        """How often, up to each row, one was not the next in the file or not the next in the result."""
        broken = (np.diff(self.rows) != 1) | (np.diff(self.where) != 1)
        return np.concatenate([[0], np.cumsum(broken)])


class CaptureFile:
    """A capture of I/Q (n, A, T) and CFO (n, A).

    mapped: keep the samples mapped into memory, see `StoredRows`.
    """

    def __init__(self, path: str, shape: tuple[int, int, int], mapped: bool) -> None:
        from pisa_capc.data.store.hdf5 import check_heaps, has_heap

        self.path, self.shape = path, shape
        with reading(path, _EXPECTED):
            self.identity = identity(path)
        with self._open() as (file, iq, cfo_hz):
            if has_heap(file, "sha256"):  # as earlier versions wrote it
                start = iq.id.get_offset() or 0
                check_heaps(path, range(start, start + (iq.id.get_storage_size() if start else 0)))
            self.digests = CaptureDigests(file, path, shape, cfo_hz is not None)
            offset = iq.id.get_offset()
        # A user may have repacked the samples into chunks: they then have no place of their own in the file.
        with reading(path, _EXPECTED):
            self._stored = None if offset is None else StoredRows(path, offset, shape, mapped)

    def begin(
        self, out: NDArray[np.complex64], where: NDArray[np.intp], rows: NDArray[np.int64], scattered: bool
    ) -> CaptureReading:
        """Set out[where] = the start of each of the rows, sorted, as far as the page cache has them.

        scattered: whether few of the rows are neighbours. The disk is asked for the rest, which `finish` waits for.
        """
        wanted = CaptureReading(out, where, rows, self.digests.unchecked(rows), out.shape[2] == self.shape[2])
        stored = self._stored
        with reading(self.path, _EXPECTED):
            if stored is None:
                out[where] = self._select(rows, out.shape[2])
            elif stored.mapped is not None and scattered:
                used = stored.mapped[:, :, : out.shape[2]]
                for to, row in zip(where.tolist(), rows.tolist(), strict=True):
                    out[to] = used[row]
            else:
                wanted.left = stored.read_cached(pieces(out, where, rows, self.shape[2]))
            if stored is not None and scattered:
                stored.ask_for(wanted.unchecked)  # all of each block, not only the rows
        if not wanted.left:
            self._check(wanted)
        return wanted

    def finish(self, wanted: CaptureReading) -> None:
        """Wait for the rows that were not in the page cache."""
        if wanted.left:
            assert self._stored is not None
            with reading(self.path, _EXPECTED):
                self._stored.read(wanted.left)
            self._check(wanted)

    def _check(self, wanted: CaptureReading) -> None:
        """Refuse rows of blocks that are not as they were written; a block is checked once."""
        with reading(self.path, _EXPECTED):
            for block in wanted.unchecked:
                self.digests.check(block, lambda rows: wanted.block(rows, self._read_block), self._stored_cfo_hz)

    def cfo_hz(self) -> NDArray[np.float64] | None:
        """(n, A) in Hz, or None where none was recorded."""
        found = self._stored_cfo_hz()
        if found is not None and self.digests.by_block:
            self.digests.check_cfo(found)
        elif found is not None:
            for block in self.digests.unchecked(np.zeros(1, dtype=np.int64)):  # one digest of samples and CFO
                self.digests.check(block, self._read_block, lambda: found)
        return found

    def verify(self) -> None:
        """Read all of it and compare it with the SHA-256 that was stored when it was written."""
        self.digests.verify(self._read_block, self._stored_cfo_hz)

    def _read_block(self, rows: range) -> NDArray[np.complex64]:
        if self._stored is not None:
            return self._stored.read_block(rows)
        return self._select(np.arange(rows.start, rows.stop), self.shape[2])

    def _stored_cfo_hz(self) -> NDArray[np.float64] | None:
        with self._open() as (_, _, cfo_hz):
            return None if cfo_hz is None else cfo_hz[:]

    def _select(self, rows: NDArray[np.int64], samples: int) -> NDArray[np.complex64]:
        """Rows by way of HDF5. Its own selection is slow: all from the first to the last are read."""
        low, high = rows[0], rows[-1] + 1
        with self._open() as (_, iq, _):
            chosen: NDArray[np.complex64] = iq[low:high, :, :samples][rows - low]
        return chosen

    @contextmanager
    def _open(self) -> Iterator[tuple[Any, Any, Any]]:
        """The file, its I/Q and its CFO, which may be None."""
        import h5py

        from pisa_capc.data.store.hdf5 import link_problem

        with reading(self.path, _EXPECTED), h5py.File(self.path, "r") as file:
            for name in {"iq", "cfo_hz"} & {*file}:
                if problem := link_problem(file, name):
                    raise DataError(f"{self.path}: {problem}. Make or import it again.")
            iq, cfo_hz = file["iq"], file.get("cfo_hz")
            if iq.shape != self.shape or iq.dtype != np.complex64:
                raise DataError(
                    f"{self.path}: /iq is {iq.dtype} {iq.shape}; dataset.json announces complex64 {self.shape}."
                )
            if cfo_hz is not None and (cfo_hz.shape != self.shape[:2] or cfo_hz.dtype != np.float64):
                raise DataError(
                    f"{self.path}: /cfo_hz is {cfo_hz.dtype} {cfo_hz.shape}; expected float64 {self.shape[:2]}."
                )
            yield file, iq, cfo_hz
