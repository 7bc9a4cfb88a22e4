"""From recordings in another format to a dataset, and back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from pisa_capc.core import plugins
from pisa_capc.core.errors import ConfigError, DataError, PisaError
from pisa_capc.core.progress import console, progress
from pisa_capc.data.frames import Frames, UnlabelledFrames, groups_of
from pisa_capc.data.samples import check_samples
from pisa_capc.data.store.dataset import UNLABELLED, CaptureSpec, Dataset
from pisa_capc.data.store.files import bytes_text, whole
from pisa_capc.data.store.native import write_capture
from pisa_capc.data.store.origins import NAME as ORIGINS
from pisa_capc.data.store.origins import PROVENANCE, digest, origins_text, write_origins
from pisa_capc.signal.formats.base import (
    FORMATS,
    ExportOptions,
    Format,
    ImportOptions,
    Plan,
    Samples,
    option_of,
)

IN_MEMORY = 2 << 30  # bytes of frames


def import_dataset(
    name: str,
    source: str | Path,
    out: str | Path,
    options: ImportOptions | None = None,
    show: bool = False,
    add: bool = False,
) -> Dataset:
    """Convert a foreign recording to a native dataset in `out`; captures that are already there are left alone.

    add: `out` is a dataset of the same array, rates and frames, to which these captures are added.

    A run that was stopped goes on with what it has written. One that finds a frame it cannot use takes back what it has
    written, because the repaired source may be another dataset; only what an earlier run wrote stays.
    """
    options = options or ImportOptions()
    source, out = Path(source), Path(out)
    if not source.exists():
        raise DataError(f"{source}: no such file or folder.")
    if source.suffix in (".pkl", ".pickle"):
        raise DataError(
            f"{source}: is a pickle. To open one is to run what is in it, so it is never opened here. Turn it into "
            "plain arrays elsewhere: docs/formats.md#wisig shows how."
        )
    format = FORMATS[name]
    _check_used(format, options)
    if format.uses is None:  # one of a plugin, which need not ask
        names = options.names()
        options = replace(options, environment=names["environment"], capture=names["capture"])
    plan = format.plan(source, options)
    chosen = {k: v for k, v in asdict(options).items() if v is not None}
    provenance: dict[str, Any] = {"command": f"import {name}", "source": str(source.resolve()), "options": chosen}
    used = plugins.described(FORMATS.origin(name))
    provenance |= {"plugins": used} if used else {}
    text = None
    if plan.origins is not None and not add:  # rows of frames that are added would have to go between others
        text = origins_text(origin for spec in plan.dataset.captures for origin in plan.origins(spec))
        provenance[PROVENANCE] = digest(text)
    dataset = replace(plan.dataset, provenance={**plan.dataset.provenance, **provenance})
    began, made = not (out / "dataset.json").exists(), not out.exists()
    if add:
        dataset = Dataset.read(out).extended(dataset, out)
        dataset.write(out)
    else:
        dataset.create(out)
        if text is not None and not (out / ORIGINS).exists():
            write_origins(out, text)
    if show and plan.assumed:
        console.print(f"Not in {source}, so assumed: {', '.join(plan.assumed)}.", highlight=False, soft_wrap=True)
    for note in plan.notes if show else ():
        console.print(note, highlight=False, soft_wrap=True)
    missing = dataset.missing(out)
    if show and not (add or began):
        there = len(dataset.captures) - len(missing)
        console.print(f"{there} of {len(dataset.captures)} captures are there from an earlier run.", highlight=False)
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


def read_frames(name: str, sources: Sequence[Path], options: ImportOptions | None = None) -> UnlabelledFrames:
    """Frames of foreign files in memory, without a device, for a model to decide on; each file is a capture.

    Files are checked as by `import_dataset`. What is larger than `IN_MEMORY` is for a dataset.
    """
    parts, size = list[Frames](), 0
    for i, source in enumerate(sources):
        if not source.is_file():
            raise DataError(f"{source}: no such file.")
        # A capture's name may have to be a file's on any system; those of one name are told apart by their number.
        called = re.sub(r'[/\\:*?"<>|]|[^ -\U0010ffff]|^\.', "_", source.name)
        called += f" {i + 1}" * any(other.name == source.name for other in sources[:i])
        own = replace(options or ImportOptions(), environment="recording", capture=called)
        plan = FORMATS[name].plan(source, own)
        made = plan.dataset
        size += sum(spec.frames for spec in made.captures) * made.geometry.antennas * made.samples * 8
        if size > IN_MEMORY:
            raise DataError(
                f"{source}: more than {bytes_text(IN_MEMORY)} of frames. Make a dataset of them with pisa import "
                f"{name}, which is read piece by piece."
            )
        rates = made.geometry, made.sample_rate_hz, made.carrier_hz
        for spec in made.captures:
            iq, cfo_hz = _read(plan, spec, source)
            frames = Frames.from_arrays(iq, UNLABELLED, spec.environment, spec.capture, None, cfo_hz, *rates)
            parts.append(replace(frames, domain=made.domain, subcarriers=made.subcarriers))
    return Frames.concatenate(parts).unlabelled()


def _check_used(format: Format, options: ImportOptions) -> None:
    """Refuse what a format would ignore: who says it expects something of it."""
    if format.uses is None:
        return
    for name in options.given():
        if name not in format.uses:
            known = ", ".join(option_of(own) for own in vars(options) if own in format.uses)
            raise ConfigError(
                f"{option_of(name)}: says nothing to the format {format.name}. Leave it out; it takes {known}."
            )


def _read(plan: Plan, spec: CaptureSpec, source: Path) -> Samples:
    """A capture whose samples are checked here already: in the user's words, not those of the store."""
    iq, cfo_hz = plan.read(spec)
    place = None if plan.place is None else partial(plan.place, spec)
    check_samples(iq, cfo_hz, f"{source}: {spec.name}", place=place)
    return iq, cfo_hz


def _take_back(out: Path, dataset: Dataset, made: bool) -> None:
    """Remove a dataset that was begun in an empty folder, and no file but its own; `made`: the folder as well."""
    for path in ("dataset.json", ORIGINS, *(spec.path for spec in dataset.captures)):
        (out / path).unlink(missing_ok=True)
    folders = {folder for spec in dataset.captures for folder in (out / spec.path).parents if out in folder.parents}
    for folder in (*sorted(folders, reverse=True), *[out] * made):  # those inside first
        with suppress(OSError):
            folder.rmdir()


def export_dataset(
    name: str, frames: Frames, out: str | Path, options: ExportOptions | None = None, show: bool = False
) -> None:
    """Write frames in a foreign format; `out` must not exist or be an empty folder.

    Half an export is of no use, and would be in the way of the next: it is there when it is whole.
    """
    if frames.domain not in FORMATS[name].domains:
        raise ConfigError(
            f"{name} cannot say that these are frames of {frames.domain}, which would be taken for samples in time. "
            "Use npz."
        )
    with whole(Path(out)) as place, progress(f"export {name}", total=len(groups_of(frames)), show=show) as bar:
        FORMATS[name].export(frames, place, options or ExportOptions(), bar.advance)
