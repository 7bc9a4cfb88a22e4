"""The native store: a folder with `dataset.json` and one HDF5 file per capture.

`dataset.json` is written first and lists every capture the set will have. A capture is written under a temporary
name and renamed when it is whole, so a killed run leaves only whole captures and a second run writes the rest.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import DataError
from pisa_capc.data.samples import check_samples
from pisa_capc.data.sources import CfoTrace
from pisa_capc.data.store.capture import CaptureFile, identity
from pisa_capc.data.store.dataset import CaptureSpec, Dataset, describe
from pisa_capc.data.store.digests import DigestWriter
from pisa_capc.data.store.files import atomic, reading, write_text_atomic

MAPPED = 256  # captures: each map holds a file open, and a process may have a thousand

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
    import h5py

    if shape[0] != spec.frames:
        raise DataError(f"{spec.path}: {spec.frames} frames were announced, {shape[0]} given.")
    if cfo_hz is not None and cfo_hz.shape != shape[:2]:
        raise DataError(
            f"{spec.path}: the CFO has shape {cfo_hz.shape}; expected {shape[:2]}, one per frame and antenna."
        )
    values = None if cfo_hz is None else np.ascontiguousarray(cfo_hz, dtype=np.float64)
    digests = DigestWriter(shape)
    with atomic(folder / spec.path) as temporary, h5py.File(temporary, "w") as file:
        iq = file.create_dataset("iq", shape, np.complex64, track_times=False)
        row = 0
        for chunk in chunks:
            piece = np.ascontiguousarray(chunk, dtype=np.complex64)
            rows = slice(row, row + len(piece))
            check_samples(piece, None if values is None else values[rows], spec.path, first_frame=row)
            iq[rows] = piece
            digests.add(piece)
            row = rows.stop
        if row != spec.frames:
            raise DataError(f"{spec.path}: {spec.frames} frames were announced, {row} given.")
        if values is not None:
            file.create_dataset("cfo_hz", data=values, track_times=False)
        digests.write(file, values)


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
        parts = [(self._capture(i), where, local) for i, where, local in self._by_capture(rows)]
        # Only now is it known that the files hold frames of this shape.
        out = np.empty((len(rows), self.antennas, samples), dtype=np.complex64) if out is None else out
        scattered = bool(np.count_nonzero(np.diff(rows) != 1) > len(rows) / 2)
        begun = [(capture, capture.begin(out, where, local, scattered)) for capture, where, local in parts]
        for capture, wanted in begun:  # the disk is at work on all of them
            capture.finish(wanted)
        return out

    def read_cfo_hz(self, rows: NDArray[np.int64]) -> NDArray[np.float64] | None:
        out = np.empty((len(rows), self.antennas))
        for i, where, local in self._by_capture(rows):
            cfo_hz = self._capture(i).cfo_hz()
            if cfo_hz is None:
                return None
            out[where] = cfo_hz[local]
        return out

    def cfo_traces(self, rows: NDArray[np.int64]) -> Iterator[CfoTrace]:
        for i, where, local in self._by_capture(rows):
            yield CfoTrace(where, local, self._capture(i).cfo_hz())

    def digests(self) -> list[str]:
        """The content hash of every capture, as stored when it was written; whatever is read is checked against it."""
        return [self._capture(i).digests.sha256 for i in range(len(self.dataset.captures))]

    def verify(self, spec: CaptureSpec) -> None:
        """Read a whole capture and compare it with the hash that was stored when it was written."""
        self._capture(self.dataset.captures.index(spec)).verify()

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
    def _known(self) -> dict[int, CaptureFile]:
        """The captures opened so far, with their checks."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "dataset": self.dataset}  # maps are of this process

    @cached_property
    def _mapped(self) -> bool:
        """Whether the page cache can hold all of the set, and its files may all be open."""
        size = int(self.starts[-1]) * self.antennas * self.samples * 8
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return size < memory / 2 and len(self._paths) <= MAPPED

    def _capture(self, i: int) -> CaptureFile:
        """A capture, reopened if its file was replaced."""
        known = self._known.get(i)
        path, spec = self._paths[i], self.dataset.captures[i]
        with reading(path, "a capture of this dataset; make or import it again"):
            if known is not None and known.identity == identity(path):
                return known
        self._known[i] = CaptureFile(path, (spec.frames, self.antennas, self.samples), self._mapped)
        return self._known[i]


def fingerprint(folder: str | Path) -> str:
    """A hash of everything in a dataset that can influence a result: description and samples, not provenance."""
    folder = Path(folder)
    dataset = Dataset.read(folder)
    described = {k: v for k, v in dataset.to_json().items() if k != "provenance"}
    digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
    for value in StoreSource(folder, dataset).digests():
        digest.update(value.encode())
    return digest.hexdigest()[:16]


def summarise(folder: str | Path) -> dict[str, Any]:
    """Layout, rates, geometry, frame counts and CFO of a dataset; captures not yet written are listed as missing.

    frames: {environment: {capture: {device: count}}} of the captures that are there.
    cfo_hz: per 'environment/capture' and per device: the mean, its `drift` (mean over recordings and antennas of the
    standard deviation over time) and its `antenna_spread` (mean over time of the standard deviation over antennas).
    """
    folder = Path(folder)
    dataset = Dataset.read(folder)
    missing = {c.name for c in dataset.missing(folder)}
    there = [i for i, c in enumerate(dataset.captures) if c.name not in missing]
    counts: dict[str, dict[str, dict[str, int]]] = {}
    for i in there:
        c = dataset.captures[i]
        counts.setdefault(c.environment, {}).setdefault(c.capture, {})[c.device] = c.frames
    return {
        "folder": str(folder),
        "made_by": dataset.provenance.get("command"),
        "environments": sorted({c.environment for c in dataset.captures}),
        "devices": sorted({c.device for c in dataset.captures}),
        "captures": sorted({c.capture for c in dataset.captures}),
        "total_frames": sum(dataset.captures[i].frames for i in there),
        "antennas": dataset.geometry.antennas,
        "samples": dataset.samples,
        "domain": dataset.domain,
        **({} if dataset.subcarriers is None else {"subcarriers": dataset.subcarriers.to_json()}),
        "sample_rate_hz": dataset.sample_rate_hz,
        "carrier_hz": dataset.carrier_hz,
        "geometry": dataset.geometry.to_json(),
        "frames": counts,
        "missing": sorted(missing),
        "cfo_hz": _cfo(StoreSource(folder, dataset), there),
    }


def _cfo(source: StoreSource, there: list[int]) -> dict[str, dict[str, dict[str, float]]] | None:
    per_capture: dict[str, list[NDArray[np.float64]]] = {}
    per_device: dict[str, list[NDArray[np.float64]]] = {}
    for trace, i in zip(source.cfo_traces(source.starts[there]), there, strict=True):
        if trace.cfo_hz is None:
            return None
        spec = source.dataset.captures[i]
        values = np.array([trace.cfo_hz.mean(), trace.cfo_hz.std(axis=0).mean(), trace.cfo_hz.std(axis=1).mean()])
        per_capture.setdefault(f"{spec.environment}/{spec.capture}", []).append(values)
        per_device.setdefault(spec.device, []).append(values)

    def means(groups: dict[str, list[NDArray[np.float64]]]) -> dict[str, dict[str, float]]:
        names = ("mean", "drift", "antenna_spread")
        return {k: dict(zip(names, np.mean(v, axis=0).tolist(), strict=True)) for k, v in sorted(groups.items())}

    return {"per_capture": means(per_capture), "per_device": means(per_device)}
