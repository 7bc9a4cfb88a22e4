"""Foreign formats: one module each with `plan` (reading) and `export` (writing), and one line in `FORMATS`.

Reading has two steps. `plan` looks at everything and says what the dataset will be, so a bad file is refused before
anything is written; then captures are read and stored one at a time, so memory follows the largest capture.
"""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.errors import ConfigError, DataError, PisaError, unknown_name
from pisa_capc.frames import Frames, groups_of
from pisa_capc.geometry import ArrayGeometry, default_geometry
from pisa_capc.progress import console, progress
from pisa_capc.samples import check_samples
from pisa_capc.store.dataset import CaptureSpec, Dataset
from pisa_capc.store.native import write_capture

FORMATS = {
    "mat": "pisa_capc.formats.mat",
    "sigmf": "pisa_capc.formats.sigmf",
    "npz": "pisa_capc.formats.npz",
    "hdf5": "pisa_capc.formats.hdf5",
}

Samples = tuple[NDArray[np.complex64], NDArray[np.float64] | None]  # iq (n, A, T) and cfo_hz (n, A)


@dataclass(frozen=True)
class ImportOptions:
    """What a foreign file does not say. None means: as the format has it.

    pattern: path of a capture's file under the source folder, with {environment}, {device} and {capture}.
    iq_key, cfo_key: names of the arrays, where they cannot be recognised.
    antennas, samples: shape of a frame. axes: order of an array's axes, n frames, T samples, A antennas, as "nTA".
    environment, capture: names for frames whose file and path name none.
    """

    pattern: str | None = None
    iq_key: str | None = None
    cfo_key: str | None = None
    antennas: int | None = None
    samples: int | None = None
    axes: str | None = None
    environment: str = "E1"
    capture: str = "L1"
    sample_rate_hz: float | None = None
    carrier_hz: float | None = None
    geometry: ArrayGeometry | None = None


@dataclass(frozen=True)
class ExportOptions:
    """How to write. pattern: as for import. version: of MAT files, 5 or 7.3. antenna: the one that HDF5 rows hold."""

    pattern: str | None = None
    version: str = "5"
    antenna: int | None = None


@dataclass(frozen=True)
class Plan:
    """What an import will write, and how to read each capture of it."""

    dataset: Dataset
    read: Callable[[CaptureSpec], Samples]
    place: Callable[[CaptureSpec, int], str] | None = None  # where the source has a frame of a capture, for messages
    assumed: tuple[str, ...] = ()  # what the source does not say, with its value


def import_dataset(
    name: str, source: str | Path, out: str | Path, options: ImportOptions | None = None, show: bool = False
) -> Dataset:
    """Convert a foreign recording to a native dataset in `out`; captures that are already there are left alone.

    A run that was stopped goes on with what it has written. One that finds a frame it cannot use takes back what it has
    written, because the repaired source may be another dataset; only what an earlier run wrote stays.
    """
    options = options or ImportOptions()
    source, out = Path(source), Path(out)
    if not source.exists():
        raise DataError(f"{source}: no such file or folder.")
    plan: Plan = _module(name).plan(source, options)
    chosen = {k: v for k, v in asdict(options).items() if v is not None}
    dataset = replace(
        plan.dataset, provenance={"command": f"import {name}", "source": str(source.resolve()), "options": chosen}
    )
    began, made = not (out / "dataset.json").exists(), not out.exists()
    dataset.create(out)
    if show and plan.assumed:
        console.print(f"Not in {source}, so assumed: {', '.join(plan.assumed)}.", highlight=False, soft_wrap=True)
    missing = dataset.missing(out)
    with progress(f"import {name}", total=len(missing), show=show) as bar:
        for spec in missing:
            try:
                iq, cfo_hz = _read(plan, spec, source)
            except PisaError as error:
                # A disk that fails, or is not there, may be back for the next run: that goes on.
                unreachable = isinstance(error.__cause__, OSError) and error.__cause__.errno is not None
                if began and not unreachable:
                    _take_back(out, dataset, made)
                raise
            write_capture(out, spec, iq, cfo_hz)
            bar.advance(note=spec.name)
    return dataset


def _read(plan: Plan, spec: CaptureSpec, source: Path) -> Samples:
    """A capture whose samples are checked here already: in the user's words, not those of the store."""
    iq, cfo_hz = plan.read(spec)
    place = None if plan.place is None else partial(plan.place, spec)
    check_samples(iq, cfo_hz, f"{source}: {spec.name}", place=place)
    return iq, cfo_hz


def _take_back(out: Path, dataset: Dataset, made: bool) -> None:
    """Remove a dataset that was begun in an empty folder, and no file but its own; `made`: the folder as well."""
    for path in ("dataset.json", *(spec.path for spec in dataset.captures)):
        (out / path).unlink(missing_ok=True)
    folders = {folder for spec in dataset.captures for folder in (out / spec.path).parents if out in folder.parents}
    for folder in (*sorted(folders, reverse=True), *[out] * made):  # those inside first
        with suppress(OSError):
            folder.rmdir()


def export_dataset(
    name: str, frames: Frames, out: str | Path, options: ExportOptions | None = None, show: bool = False
) -> None:
    """Write frames in a foreign format; `out` must not exist or be an empty folder.

    Half an export is of no use, and would be in the way of the next: what was written before an error is removed.
    """
    out = Path(out)
    made, began = not out.exists(), not out.exists() or (out.is_dir() and not any(out.iterdir()))
    try:
        with progress(f"export {name}", total=len(groups_of(frames)), show=show) as bar:
            _module(name).export(frames, out, options or ExportOptions(), bar.advance)
    except BaseException:
        if began and out.is_dir():
            for inside in out.iterdir():
                shutil.rmtree(inside) if inside.is_dir() else inside.unlink()
            if made:
                out.rmdir()
        raise


def described(
    captures: dict[CaptureSpec, tuple[int, int]], options: ImportOptions, sample_rate_hz: float, carrier_hz: float
) -> Dataset:
    """The dataset of captures found with their (antennas, samples), which must agree; options go before defaults."""
    first, shape = next(iter(captures.items()))
    for spec, found in captures.items():
        if found != shape:
            raise DataError(
                f"{spec.name}: frames of {found[0]} antennas and {found[1]} samples, {first.name} has "
                f"{shape[0]} and {shape[1]}; expected one shape in a dataset. Import them as two."
            )
    geometry = options.geometry or default_geometry(shape[0])
    if geometry.antennas != shape[0]:
        raise ConfigError(f"geometry: describes {geometry.antennas} antennas, the frames have {shape[0]}.")
    return Dataset(
        geometry,
        sample_rate_hz if options.sample_rate_hz is None else options.sample_rate_hz,
        carrier_hz if options.carrier_hz is None else options.carrier_hz,
        shape[1],
        tuple(sorted(captures, key=lambda c: (c.environment, c.device, c.capture))),
    )


def _module(name: str) -> Any:
    if name not in FORMATS:
        raise ConfigError(unknown_name("format", name, FORMATS))
    return importlib.import_module(FORMATS[name])
