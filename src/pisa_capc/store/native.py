"""The native store: a folder with `dataset.json` and one HDF5 file per capture.

`dataset.json` is written first and lists every capture the set will have. A capture is written under a temporary
name and renamed when it is whole, so a killed run leaves only whole captures and a second run writes the rest.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from pisa_capc.errors import DataError
from pisa_capc.frames import Frames, check_samples
from pisa_capc.geometry import ArrayGeometry

SCHEMA = 1


@dataclass(frozen=True)
class CaptureSpec:
    """One capture file: who transmits where, and how many frames."""

    environment: str
    device: str
    capture: str
    frames: int

    @property
    def path(self) -> str:
        return f"{self.environment}/{self.device}/{self.capture}.h5"

    @property
    def name(self) -> str:
        return f"{self.environment}/{self.device}/{self.capture}"


@dataclass(frozen=True)
class Dataset:
    """What `dataset.json` says: everything about a set but its samples.

    provenance: how the set was made; two sets with equal provenance hold equal samples.
    """

    geometry: ArrayGeometry
    sample_rate_hz: float
    carrier_hz: float
    samples: int
    captures: tuple[CaptureSpec, ...]
    provenance: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "antennas": self.geometry.antennas,
            "geometry": self.geometry.to_json(),
            "sample_rate_hz": self.sample_rate_hz,
            "carrier_hz": self.carrier_hz,
            "samples": self.samples,
            "captures": [vars(c) for c in self.captures],
            "provenance": self.provenance,
        }

    @classmethod
    def from_json(cls, value: Any, where: str) -> Dataset:
        try:
            if value["schema"] != SCHEMA:
                raise DataError(f"{where}: written with schema {value['schema']}; this version reads {SCHEMA}.")
            return cls(
                ArrayGeometry.from_json(value["geometry"]),
                float(value["sample_rate_hz"]),
                float(value["carrier_hz"]),
                int(value["samples"]),
                tuple(
                    CaptureSpec(str(c["environment"]), str(c["device"]), str(c["capture"]), int(c["frames"]))
                    for c in value["captures"]
                ),
                dict(value["provenance"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"{where}: not a pisa dataset description ({type(error).__name__}: {error}).") from error

    @classmethod
    def read(cls, folder: Path) -> Dataset:
        path = folder / "dataset.json"
        if not folder.is_dir():
            raise DataError(f"{folder}: no such folder. Expected a dataset made by `pisa simulate` or `pisa import`.")
        if not path.is_file():
            raise DataError(
                f"{folder}: holds no dataset.json. Expected a dataset made by `pisa simulate` or `pisa import`."
            )
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise DataError(f"{path}: cannot be read ({error}). Make the dataset again.") from error
        return cls.from_json(value, str(path))

    def missing(self, folder: Path) -> list[CaptureSpec]:
        """Captures that are listed and not yet written."""
        return [c for c in self.captures if not (folder / c.path).is_file()]

    def create(self, folder: Path) -> None:
        """Start a dataset in `folder`, or go on with the same one; refuse a folder that holds anything else."""
        if (folder / "dataset.json").exists():
            found = Dataset.read(folder)
            if found.to_json() != json.loads(json.dumps(self.to_json())):
                raise DataError(
                    f"{folder}: already holds another dataset ({describe(found)}). Choose another --out, or remove it."
                )
        elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise DataError(f"{folder}: exists and is not a dataset. Choose another --out, or remove it.")
        else:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                write_text_atomic(folder / "dataset.json", json.dumps(self.to_json(), indent=1))
            except OSError as error:
                raise DataError(f"{folder}: cannot be written ({error.strerror or error}).") from error


def describe(dataset: Dataset) -> str:
    """One line for people: what the set is."""
    frames = sum(c.frames for c in dataset.captures)
    made = dataset.provenance.get("command", "unknown origin")
    return f"{made}, {len(dataset.captures)} captures, {frames} frames"


def write_text_atomic(path: Path, text: str) -> None:
    """Write a file so that it is either the old one or the whole new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_capture(
    folder: Path, spec: CaptureSpec, iq: NDArray[np.complex64], cfo_hz: NDArray[np.float64] | None = None
) -> None:
    """Write one capture atomically: `/iq` (n, A, T) complex64 and `/cfo_hz` (n, A) float64."""
    write_capture_chunks(folder, spec, iq.shape, [iq], cfo_hz)


def write_capture_chunks(
    folder: Path,
    spec: CaptureSpec,
    shape: tuple[int, ...],
    chunks: Iterable[NDArray[np.complex64]],
    cfo_hz: NDArray[np.float64] | None = None,
) -> None:
    """As `write_capture`, from consecutive pieces of the I/Q that need not fit in memory together; shape (n, A, T)."""
    path = folder / spec.path
    if shape[0] != spec.frames:
        raise DataError(f"{spec.path}: {spec.frames} frames were announced, {shape[0]} given.")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    digest = hashlib.sha256()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with h5py.File(temporary, "w") as file:
            iq = file.create_dataset("iq", shape, np.complex64, track_times=False)
            row = 0
            for chunk in chunks:
                piece = np.ascontiguousarray(chunk, dtype=np.complex64)
                rows = slice(row, row + len(piece))
                check_samples(piece, None if cfo_hz is None else cfo_hz[rows], spec.path, first_frame=row)
                iq[rows] = piece
                digest.update(piece.data)
                row = rows.stop
            if row != spec.frames:
                raise DataError(f"{spec.path}: {spec.frames} frames were announced, {row} given.")
            if cfo_hz is not None:
                values = np.ascontiguousarray(cfo_hz, dtype=np.float64)
                file.create_dataset("cfo_hz", data=values, track_times=False)
                digest.update(values.data)
            file.attrs["sha256"] = digest.hexdigest()
        os.replace(temporary, path)
    except (OSError, RuntimeError) as error:
        # Closing a file that could not be written fails again, as a RuntimeError of HDF5 that hides the cause.
        cause = error if isinstance(error, OSError) else error.__context__
        if not isinstance(cause, OSError):
            raise
        raise DataError(
            f"{path}: cannot be written ({os.strerror(cause.errno) if cause.errno else cause}). "
            "Whole captures are kept; free space and run again."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_dataset(
    folder: str | Path,
    dataset: Dataset,
    captures: Iterable[tuple[CaptureSpec, NDArray[np.complex64], NDArray[np.float64] | None]],
) -> None:
    """Write a whole dataset from an iterable of captures; those already there are left alone."""
    folder = Path(folder)
    dataset.create(folder)
    for spec, iq, cfo_hz in captures:
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

    def read_iq(self, rows: NDArray[np.int64], samples: int) -> NDArray[np.complex64]:
        out = np.empty((len(rows), self.antennas, samples), dtype=np.complex64)
        for spec, where, local in self._by_capture(rows):
            with self._open(spec) as file:
                low, high = int(local.min()), int(local.max()) + 1
                # One contiguous read per file and a selection in memory: HDF5's own row selection is far slower.
                out[where] = file["iq"][low:high, :, :samples][local - low]
        return out

    def read_cfo_hz(self, rows: NDArray[np.int64]) -> NDArray[np.float64] | None:
        out = np.empty((len(rows), self.antennas))
        for spec, where, local in self._by_capture(rows):
            with self._open(spec) as file:
                if "cfo_hz" not in file:
                    return None
                out[where] = file["cfo_hz"][:][local]
        return out

    def digests(self) -> list[str]:
        """The content hash of every capture, as stored when it was written."""
        found = []
        for spec in self.dataset.captures:
            with self._open(spec) as file:
                found.append(str(file.attrs.get("sha256", "")))
        return found

    def _by_capture(self, rows: NDArray[np.int64]) -> Iterable[tuple[CaptureSpec, NDArray[np.intp], NDArray[np.int64]]]:
        owner = np.searchsorted(self.starts, rows, side="right") - 1
        order = np.argsort(owner, kind="stable")
        for where in np.split(order, np.flatnonzero(np.diff(owner[order])) + 1) if len(rows) else []:
            i = int(owner[where[0]])
            yield self.dataset.captures[i], where, rows[where] - self.starts[i]

    @contextlib.contextmanager
    def _open(self, spec: CaptureSpec) -> Any:
        path = self.folder / spec.path
        expected = (spec.frames, self.antennas, self.samples)
        try:
            file = h5py.File(path, "r")
        except OSError as error:
            raise DataError(
                f"{path}: not a readable HDF5 file ({error}). Make or import this capture again."
            ) from error
        with file:
            try:
                shape, dtype = file["iq"].shape, file["iq"].dtype
                cfo_shape = file["cfo_hz"].shape if "cfo_hz" in file else expected[:2]
            except (KeyError, AttributeError, OSError) as error:
                raise DataError(f"{path}: holds no array /iq ({error}). Make or import this capture again.") from error
            if shape != expected or dtype.kind != "c":
                raise DataError(f"{path}: /iq is {dtype} {shape}; dataset.json announces complex {expected}.")
            if cfo_shape != expected[:2]:
                raise DataError(f"{path}: /cfo_hz has shape {cfo_shape}; expected {expected[:2]} (frames, antennas).")
            try:
                yield file
            except OSError as error:
                raise DataError(f"{path}: damaged ({error}). Make or import this capture again.") from error


def load(folder: str | Path) -> Frames:
    """Open a dataset; I/Q stays on disk until it is read.

    >>> frames = pisa_capc.load("wifi")              # doctest: +SKIP
    >>> frames.where(environment=["E1"]).iq.shape    # doctest: +SKIP
    (25600, 4, 320)
    """
    folder = Path(folder)
    dataset = Dataset.read(folder)
    if missing := dataset.missing(folder):
        raise DataError(
            f"{folder}: {len(missing)} of {len(dataset.captures)} captures are missing, the first is {missing[0].path}."
            " Run the command that made the dataset again: it writes what is missing."
        )
    if not dataset.captures:
        raise DataError(f"{folder}: dataset.json lists no captures.")
    columns: dict[str, NDArray[np.int64]] = {}
    names: dict[str, tuple[str, ...]] = {}
    sizes = [c.frames for c in dataset.captures]
    for kind in ("environment", "device", "capture"):
        values, inverse = np.unique([getattr(c, kind) for c in dataset.captures], return_inverse=True)
        names[kind] = tuple(str(v) for v in values)
        columns[kind] = np.repeat(inverse.astype(np.int64), sizes)
    return Frames(
        source=StoreSource(folder, dataset),
        rows=np.arange(sum(sizes)),
        environment=columns["environment"],
        capture=columns["capture"],
        frame=np.concatenate([np.arange(n) for n in sizes]),
        environments=names["environment"],
        captures=names["capture"],
        geometry=dataset.geometry,
        sample_rate_hz=dataset.sample_rate_hz,
        carrier_hz=dataset.carrier_hz,
        samples=dataset.samples,
        device=columns["device"],
        devices=names["device"],
    )


def fingerprint(folder: str | Path) -> str:
    """A hash of everything in a dataset that can influence a result: description and samples, not provenance."""
    folder = Path(folder)
    dataset = Dataset.read(folder)
    described = {k: v for k, v in dataset.to_json().items() if k != "provenance"}
    digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
    for value in StoreSource(folder, dataset).digests():
        digest.update(value.encode())
    return digest.hexdigest()[:16]
