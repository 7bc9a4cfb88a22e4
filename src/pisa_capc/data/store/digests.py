"""Digests of a capture, block of rows by block of rows: a reader of a few rows can check them.

A capture has one SHA-256 over all its numbers, by which results name what they were made from. To compute it takes as
long as several readings, and all of the file. So beside it there is a digest per block of rows, quick enough to be
looked at whenever a block is read for the first time, and a seal over all of them and the SHA-256. The attribute
`digests` of the file holds the seal, the digests of blocks of equal length, and that of the CFO where there is one.

The digest of a block lays its 64-bit words out in rows of `WIDTH` and takes the SHA-256 of the sums (modulo 2⁶⁴) of all
rows and all columns. Sums run as fast as memory. A change escapes them only where it cancels in every row and every
column, which takes four changed words in a rectangle, each by the same amount; `WIDTH` is a prime number, so sectors
and pages that changed places do not line up. It detects accidents; the SHA-256 detects forgery.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import DataError

if TYPE_CHECKING:
    import h5py

WIDTH = 1021  # words
BLOCK = 1 << 20  # bytes of rows that share a digest: as many as stay next to the core while they are summed
MOST = 2048  # digests of a capture: an attribute of an HDF5 file has at most 64 kB
SIZE = 16  # bytes of a digest

Words = NDArray[np.uint64]


def block_digest(values: NDArray[Any]) -> bytes:
    """The digest of an array whose bytes are whole 64-bit words."""
    words = np.ascontiguousarray(values).reshape(-1).view("<u8")
    whole = len(words) // WIDTH * WIDTH
    table = words[:whole].reshape(-1, WIDTH)
    found = hashlib.sha256(np.add.reduce(table, axis=0, dtype=np.uint64).data)
    found.update(np.add.reduce(table, axis=1, dtype=np.uint64).data)
    found.update(words[whole:].data)
    return found.digest()[:SIZE]


def rows_per_block(shape: tuple[int, ...]) -> int:
    """Frames of an array (n, A, T) of complex64 that share a digest: as the number of digests says it."""
    most = max(1, BLOCK // (shape[1] * shape[2] * 8), -(-shape[0] // MOST))
    return _shared(shape[0], -(-shape[0] // most))


def _shared(frames: int, blocks: int) -> int:
    return -(-frames // max(1, blocks))


class DigestWriter:
    """The digests of samples that come in consecutive pieces of any length."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.rows = rows_per_block(shape)
        self._sha256 = hashlib.sha256()
        self._blocks: list[bytes] = []
        self._begun: list[NDArray[np.complex64]] = []  # rows of a block that is not full yet

    def add(self, piece: NDArray[np.complex64]) -> None:
        self._sha256.update(piece.data)
        begun = sum(map(len, self._begun))
        for start in range(-begun, len(piece), self.rows):
            rows = piece[max(0, start) : start + self.rows]
            if start + self.rows <= len(piece):
                self._begun.append(rows)
                self._end_block()
            else:
                self._begun.append(rows.copy())  # the piece may be overwritten by the next

    def write(self, file: h5py.File, cfo_hz: NDArray[np.float64] | None) -> None:
        """Put the digests into the file of the capture, whose samples have all been added."""
        if self._begun:
            self._end_block()
        if cfo_hz is not None:
            self._sha256.update(cfo_hz.data)
            self._blocks.append(block_digest(cfo_hz))
        sha256, table = self._sha256.hexdigest(), b"".join(self._blocks)
        file.attrs["sha256"] = np.bytes_(sha256)  # of fixed length: see `hdf5.check_heaps`
        file.attrs["digests"] = np.frombuffer(_seal(sha256, table) + table, np.uint8).reshape(-1, SIZE)

    def _end_block(self) -> None:
        block = self._begun[0] if len(self._begun) == 1 else np.concatenate(self._begun)
        self._blocks.append(block_digest(block))
        self._begun = []


class CaptureDigests:
    """The digests that the samples of a capture file must have, and which blocks have been checked.

    A capture of an earlier version has only its SHA-256: all of it is one block, and the CFO belongs to it.
    """

    def __init__(self, file: h5py.File, path: str, shape: tuple[int, int, int], has_cfo: bool) -> None:
        self.path, self.frames, self.at_once = path, shape[0], rows_per_block(shape)
        sha256, table = file.attrs.get("sha256", ""), file.attrs.get("digests")
        self.sha256 = sha256.decode("ascii", "replace") if isinstance(sha256, bytes) else str(sha256)
        if not self.sha256:
            raise self._other("it holds no digest of its samples")
        self.by_block = table is not None
        blocks = 1
        if self.by_block:
            seal, *self._table = (row.tobytes() for row in table)
            if seal != _seal(self.sha256, b"".join(self._table)):
                raise self._other("its digests are not those that were written")
            blocks = len(self._table) - has_cfo
        self.rows = _shared(self.frames, blocks)
        if blocks != -(-self.frames // self.rows):
            raise self._other("its digests cover another number of frames")
        self._left = np.ones(blocks, dtype=bool)
        self.done = False

    def verify(self, read: Callable[[range], Any], read_cfo: Callable[[], Any]) -> None:
        """Refuse a capture whose SHA-256 is not the one that was written; `read` and `read_cfo` as in `check`."""
        if self._sha256(read, read_cfo) != self.sha256:
            raise self._other("its samples are not those that were written")

    def _sha256(self, read: Callable[[range], Any], read_cfo: Callable[[], Any]) -> str:
        """Of all numbers of the capture, by which results name what they were made from."""
        found = hashlib.sha256()
        for start in range(0, self.frames, self.at_once):
            found.update(np.ascontiguousarray(read(range(start, min(start + self.at_once, self.frames)))).data)
        if (cfo_hz := read_cfo()) is not None:
            found.update(np.ascontiguousarray(cfo_hz).data)
        return found.hexdigest()

    def _other(self, what: str) -> DataError:
        return DataError(f"{self.path}: {what}. Make or import it again.")

    def unchecked(self, rows: NDArray[np.int64]) -> list[range]:
        """The rows of each block that hold some of the given rows and have not been checked yet."""
        if self.done:
            return []
        blocks = np.unique(rows // self.rows)
        return [
            range(block * self.rows, min((block + 1) * self.rows, self.frames))
            for block in blocks[self._left[blocks]].tolist()
        ]

    def check(self, rows: range, read: Callable[[range], Any], read_cfo: Callable[[], Any]) -> None:
        """Refuse the rows of a block whose samples are not those that were written; else remember that they are.

        read: the samples of rows. read_cfo: the CFO of all of the capture, or None.
        """
        block = rows.start // self.rows
        if self.by_block:
            right = block_digest(read(rows)) == self._table[block]
        else:
            right = self._sha256(read, read_cfo) == self.sha256
        if not right:
            raise self._other(f"the samples of frames {rows.start} to {rows.stop - 1} are not those that were written")
        self._left[block] = False
        self.done = not self._left.any()

    def check_cfo(self, cfo_hz: NDArray[np.float64]) -> None:
        """Refuse a CFO that is not the one that was written; that of an earlier version is checked with its block."""
        if self.by_block and block_digest(cfo_hz) != self._table[-1]:
            raise self._other("its CFO is not the one that was written")


def _seal(sha256: str, table: bytes) -> bytes:
    return hashlib.sha256(sha256.encode() + table).digest()[:SIZE]
