"""Rows of arrays that each lie in one piece in a file, read by the operating system alone.

A training whose frames are streamed reads a thousand rows from a hundred files at every step. HDF5 needs half a
millisecond to open a file and more to select rows from it; a plain read of a row that is in the page cache takes
microseconds. Nothing is mapped: a thousand captures need no thousand open files, and a damaged file is an error.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_AT_ONCE = getattr(os, "RWF_NOWAIT", 0)  # Linux: only what needs no disk


class Piece(NamedTuple):
    """Bytes of the result, and where they start in the stored array."""

    file: int
    start: int
    into: memoryview


def pieces(
    out: NDArray[np.complex64], rows: NDArray[np.int64], starts: NDArray[np.int64], samples: int
) -> Iterator[tuple[int, list[Piece]]]:
    """What to read for out = stored[rows, :, :T], by file and in the order of the file.

    out (N, A, T); stored: the arrays (n, A, samples) of all files one after the other; starts: the first row of each.
    Neighbours in a file that are neighbours in `out` are one piece.
    """
    where = np.argsort(rows, kind="stable")
    rows = rows[where]
    file = np.searchsorted(starts, rows, side="right") - 1
    rows = rows - starts[file]
    joined = np.zeros(len(rows), dtype=bool)  # to the row before
    _, antennas, used = out.shape
    if used == samples:
        joined[1:] = (file[1:] == file[:-1]) & (rows[1:] == rows[:-1] + 1) & (where[1:] == where[:-1] + 1)
        samples = used = antennas * samples
    else:  # the start of every antenna's samples: each antenna is a row of its own
        where, rows = ((index[:, None] * antennas + np.arange(antennas)).ravel() for index in (where, rows))
        file, joined = np.repeat(file, antennas), np.repeat(joined, antennas)
    into = out.reshape(len(rows), used).view(np.uint8)
    first = np.flatnonzero(~joined)
    low = where[first]
    high = low + np.diff(first, append=len(rows))
    columns = (file[first], rows[first] * samples * out.itemsize, low, high)
    found = (Piece(i, start, into[a:b].data) for i, start, a, b in zip(*(c.tolist() for c in columns), strict=True))
    for i, group in groupby(found, key=lambda piece: piece.file):
        yield i, list(group)


def read_cached(descriptor: int, offset: int, wanted: Iterable[Piece]) -> list[Piece]:
    """Read the pieces that the page cache holds; the others come back, and the disk has been asked for all of them.

    offset: the byte of the file at which the stored array starts.
    """
    left = []
    for piece in wanted:
        start, size = offset + piece.start, piece.into.nbytes
        try:
            done = os.preadv(descriptor, [piece.into], start, _AT_ONCE)
        except OSError:  # nothing of it is there, or the file system cannot tell
            done = 0
        if done < size:
            left.append(piece)
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(descriptor, start, size, os.POSIX_FADV_WILLNEED)
    return left


def read(descriptor: int, offset: int, wanted: Iterable[Piece]) -> None:
    """Read the pieces, and wait for the disk where it is needed."""
    for piece in wanted:
        start, left = offset + piece.start, piece.into.cast("B")
        while left:
            done = os.preadv(descriptor, [left], start)  # one call reads at most 2 GiB
            if not done:
                raise EOFError(f"the file ends at byte {start}, within its samples")
            start, left = start + done, left[done:]
