"""The native store: a folder with `dataset.json` and one HDF5 file per capture.

`dataset.json` is written first and lists every capture the set will have. A capture is written under a temporary
name and renamed when it is whole, so a killed run leaves only whole captures and a second run writes the rest.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from pisa_capc.errors import DataError
from pisa_capc.samples import check_samples
from pisa_capc.sources import CfoTrace
from pisa_capc.store.dataset import CaptureSpec, Dataset, describe
from pisa_capc.store.files import atomic, reading, write_text_atomic
from pisa_capc.store.rows import Piece, StoredRows, pieces

MAPPED = 256  # captures: each map holds a file open, and a process may have a thousand
_EXPECTED = "a capture of this dataset; make or import it again"

__all__ = [
    "CaptureSpec",
    "Dataset",
    "StoreSource",
    "describe",
    "fingerprint",
    "write_capture",
    "write_capture_chunks",
    "write_dataset",
    "write_text_atomic",
]


def write_capture(
    folder: Path, spec: CaptureSpec, iq: NDArray[np.complex64], cfo_hz: NDArray[np.float64] | None = None
) -> None:
    """Write one capture atomically: `/iq` (n, A, T) complex64 and `/cfo_hz` (n, A) float64."""
    if cfo_hz is None or cfo_hz.shape == iq.shape[:2]:
        check_samples(iq, cfo_hz, spec.path)  # before a folder is made for it
    write_capture_chunks(folder, spec, iq.shape, [iq], cfo_hz)


def write_capture_chunks(
    folder: Path,
    spec: CaptureSpec,
    shape: tuple[int, ...],
    chunks: Iterable[NDArray[np.complex64]],
    cfo_hz: NDArray[np.float64] | None = None,
) -> None:
    """As `write_capture`, from consecutive pieces of the I/Q that need not fit in memory together; shape (n, A, T)."""
    if shape[0] != spec.frames:
        raise DataError(f"{spec.path}: {spec.frames} frames were announced, {shape[0]} given.")
    if cfo_hz is not None and cfo_hz.shape != shape[:2]:
        raise DataError(
            f"{spec.path}: the CFO has shape {cfo_hz.shape}; expected {shape[:2]}, one per frame and antenna."
        )
    values = None if cfo_hz is None else np.ascontiguousarray(cfo_hz, dtype=np.float64)
    digest = hashlib.sha256()
    with atomic(folder / spec.path) as temporary, h5py.File(temporary, "w") as file:
        iq = file.create_dataset("iq", shape, np.complex64, track_times=False)
        row = 0
        for chunk in chunks:
            piece = np.ascontiguousarray(chunk, dtype=np.complex64)
            rows = slice(row, row + len(piece))
            check_samples(piece, None if values is None else values[rows], spec.path, first_frame=row)
            iq[rows] = piece
            digest.update(piece.data)
            row = rows.stop
        if row != spec.frames:
            raise DataError(f"{spec.path}: {spec.frames} frames were announced, {row} given.")
        if values is not None:
            file.create_dataset("cfo_hz", data=values, track_times=False)
            digest.update(values.data)
        file.attrs["sha256"] = digest.hexdigest()


def _digest(iq: NDArray[np.complex64], cfo_hz: NDArray[np.float64] | None) -> str:
    digest = hashlib.sha256(iq.data)
    if cfo_hz is not None:
        digest.update(cfo_hz.data)
    return digest.hexdigest()


def write_dataset(
    folder: str | Path,
    dataset: Dataset,
    captures: Iterable[tuple[CaptureSpec, NDArray[np.complex64], NDArray[np.float64] | None]],
) -> None:
    """Write a whole dataset from an iterable of captures; those already there are left alone."""
    folder = Path(folder)
    dataset.create(folder)
    expected = (dataset.geometry.antennas, dataset.samples)
    for spec, iq, cfo_hz in captures:
        if iq.shape[1:] != expected:
            raise DataError(f"{spec.path}: frames of shape {iq.shape[1:]}; expected {expected} (antennas, samples).")
        if not (folder / spec.path).is_file():
            write_capture(folder, spec, iq, cfo_hz)


@dataclass(frozen=True)
class StoreSource:
    """Frames in the capture files of a dataset folder, in the order `dataset.json` lists them."""

    folder: Path
    dataset: Dataset

    @property
    def antennas(self) -> int:
        return self.dataset.geometry.antennas

    @property
    def samples(self) -> int:
        return self.dataset.samples

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        return np.concatenate([[0], np.cumsum([c.frames for c in self.dataset.captures])]).astype(np.int64)

    def read_iq(
        self, rows: NDArray[np.int64], samples: int, out: NDArray[np.complex64] | None = None
    ) -> NDArray[np.complex64]:
        out = np.empty((len(rows), self.antennas, samples), dtype=np.complex64) if out is None else out
        scattered = np.count_nonzero(np.diff(rows) != 1) > len(rows) / 2
        late: list[tuple[StoredRows, list[Piece]]] = []
        for i, where, local in self._by_capture(rows):
            with reading(self._paths[i], _EXPECTED):
                stored = self._rows(i)
                if stored is None:
                    out[where] = self._select(i, local, samples)
                elif stored.mapped is not None and scattered:
                    used = stored.mapped[:, :, :samples]
                    for to, row in zip(where.tolist(), local.tolist(), strict=True):
                        out[to] = used[row]
                elif left := stored.read_cached(pieces(out, where, local, self.samples)):
                    late.append((stored, left))
        for stored, left in late:  # the disk is at work on all of them
            with reading(stored.path, _EXPECTED):
                stored.read(left)
        return out

    def read_cfo_hz(self, rows: NDArray[np.int64]) -> NDArray[np.float64] | None:
        out = np.empty((len(rows), self.antennas))
        for i, where, local in self._by_capture(rows):
            with self._open(self.dataset.captures[i]) as file:
                if "cfo_hz" not in file:
                    return None
                out[where] = file["cfo_hz"][:][local]
        return out

    def cfo_traces(self, rows: NDArray[np.int64]) -> Iterator[CfoTrace]:
        for i, where, local in self._by_capture(rows):
            with self._open(self.dataset.captures[i]) as file:
                trace = file["cfo_hz"][:] if "cfo_hz" in file else None
            yield CfoTrace(where, local, trace)

    def digests(self) -> list[str]:
        """The content hash of every capture, as stored when it was written."""
        found = []
        for spec in self.dataset.captures:
            with self._open(spec) as file:
                found.append(str(file.attrs.get("sha256", "")))
        return found

    def verify(self, spec: CaptureSpec) -> None:
        """Read a whole capture and compare it with the hash that was stored when it was written."""
        with self._open(spec) as file:
            found = _digest(file["iq"][:], file["cfo_hz"][:] if "cfo_hz" in file else None)
            if found != file.attrs["sha256"]:
                raise DataError(
                    f"{self.folder / spec.path}: its samples are not those that were written. Make or import it again."
                )

    def _by_capture(self, rows: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.intp], NDArray[np.int64]]]:
        """Which captures the rows are in; of each, their positions among the rows and in the file, in file order."""
        order = np.argsort(rows, kind="stable")
        owner = np.searchsorted(self.starts, rows[order], side="right") - 1
        local = rows[order] - self.starts[owner]
        ends = (np.flatnonzero(np.diff(owner, append=-1)) + 1).tolist()
        for start, end in pairwise([0, *ends]):
            yield int(owner[start]), order[start:end], local[start:end]

    @cached_property
    def _paths(self) -> list[str]:
        return [str(self.folder / spec.path) for spec in self.dataset.captures]

    @cached_property
    def _known(self) -> dict[int, tuple[tuple[int, ...], StoredRows]]:
        """What `_rows` has found, and in which file."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "dataset": self.dataset}  # maps are of this process

    @cached_property
    def _mapped(self) -> bool:
        """Whether the page cache can hold all of the set, and its files may all be open."""
        size = self.starts[-1] * self.antennas * self.samples * 8
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return bool(size < memory / 2 and len(self._paths) <= MAPPED)

    def _rows(self, i: int) -> StoredRows | None:
        """The samples of a capture as they lie in its file, or None where somebody has repacked them into chunks."""
        file = os.stat(self._paths[i])
        identity = (file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns)
        if i not in self._known or self._known[i][0] != identity:
            with self._open(self.dataset.captures[i]) as content:
                offset, shape = content["iq"].id.get_offset(), content["iq"].shape
            if offset is None:
                return None
            self._known[i] = (identity, StoredRows(self._paths[i], offset, shape, self._mapped))
        return self._known[i][1]

    def _select(self, i: int, local: NDArray[np.int64], samples: int) -> NDArray[np.complex64]:
        """Rows of a capture by way of HDF5. Its own selection is slow: all from the first to the last are read."""
        low, high = local[0], local[-1] + 1
        with self._open(self.dataset.captures[i]) as file:
            chosen: NDArray[np.complex64] = file["iq"][low:high, :, :samples][local - low]
        return chosen

    @contextmanager
    def _open(self, spec: CaptureSpec) -> Iterator[h5py.File]:
        path = self.folder / spec.path
        expected = (spec.frames, self.antennas, self.samples)
        with reading(path, _EXPECTED), h5py.File(path, "r") as file:
            shape, dtype = file["iq"].shape, file["iq"].dtype
            if shape != expected or dtype != np.complex64:
                raise DataError(f"{path}: /iq is {dtype} {shape}; dataset.json announces complex64 {expected}.")
            if "cfo_hz" in file and file["cfo_hz"].shape != expected[:2]:
                raise DataError(
                    f"{path}: /cfo_hz has shape {file['cfo_hz'].shape}; expected {expected[:2]} (frames, antennas)."
                )
            yield file


def fingerprint(folder: str | Path) -> str:
    """A hash of everything in a dataset that can influence a result: description and samples, not provenance."""
    folder = Path(folder)
    dataset = Dataset.read(folder)
    described = {k: v for k, v in dataset.to_json().items() if k != "provenance"}
    digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
    for value in StoreSource(folder, dataset).digests():
        digest.update(value.encode())
    return digest.hexdigest()[:16]
