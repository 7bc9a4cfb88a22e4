"""Rows of an array that lies in one piece in a file, read without a library in between.

A training whose frames are streamed wants a thousand rows from a hundred files at every step. HDF5 takes half a
millisecond to open a file and more to select rows in it, while what the page cache holds is there for the copying.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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
