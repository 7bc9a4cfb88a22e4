"""SigMF metadata with annotations, beside the data it is about."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pisa_capc.core.errors import DataError
from pisa_capc.data.store.files import refuse_existing, write_text_atomic
from pisa_capc.signal.recordings.encoding import without_ending
from pisa_capc.signal.recordings.files import FileRecording, SampleFile
from pisa_capc.signal.recordings.sigmf import EXTENSIONS, META, package, read_metadata, validate

Notes = Callable[[slice], Sequence[Mapping[str, Any]]]


def write_annotations(
    recording: FileRecording, notes: Notes, generator: str, ending: str, force: bool = False
) -> list[Path]:
    """Write a metadata file per data file; what the recording's own metadata says of the samples is kept.

    notes: annotations as seen by some antennas of the recording, by their numbers; `core:sample_start` counts from its
    first sample. generator: who made them; those it made earlier are replaced.
    Metadata that exists is left alone, and the new one is written beside it as NAME.ending.sigmf-meta, unless `force`:
    then annotations are added to it. The metadata of a collection, which holds its hash, is never changed. Annotations
    are not copied from one to the other: they may name whom the new ones must not.
    """
    antenna = 0
    places = places_of(recording, ending, force)
    for file, path in zip(recording.files, places, strict=True):
        seen = slice(antenna, antenna := antenna + file.channels)
        old = read_metadata(path) if path.exists() else {**described(recording, file), "annotations": []}
        metadata = _with_notes(old, notes(seen), generator)
        if path != file.path.with_suffix(META):
            metadata["global"]["core:dataset"] = file.path.name
        validate(metadata, str(path))
        write_text_atomic(path, json.dumps(metadata, indent=1))
    return places


def places_of(recording: FileRecording, ending: str, force: bool = False) -> list[Path]:
    """Where `write_annotations` writes; refused where it must not."""
    in_place = force and len(recording.files) == 1
    places = [_place(file, ending, in_place) for file in recording.files]
    for path in places:
        refuse_existing(path, force)
    return places


def _place(file: SampleFile, ending: str, in_place: bool) -> Path:
    if file.meta is None:
        return file.path.with_name(without_ending(file.path) + META)
    return file.meta if in_place else file.meta.with_name(f"{file.meta.stem}.{ending}{META}")


def described(recording: FileRecording, file: SampleFile) -> dict[str, Any]:
    """What is known of a data file, as metadata without annotations of its own."""
    if file.meta is not None:
        return read_metadata(file.meta)
    about = recording.about
    capture: dict[str, Any] = {"core:sample_start": 0}
    if about.carrier_hz is not None:
        capture["core:frequency"] = about.carrier_hz
    info = {
        "core:datatype": file.encoding.name,
        "core:sample_rate": about.sample_rate_hz,
        "core:num_channels": file.channels,
        "core:version": package().__specification__,
        "core:dataset": file.path.name,
    }
    return {"global": info, "captures": [capture], "annotations": []}


def _with_notes(old: Mapping[str, Any], notes: Sequence[Mapping[str, Any]], generator: str) -> dict[str, Any]:
    info = dict(old["global"])
    offset = int(info.get("core:offset", 0))
    known = info.get("core:extensions", [])
    names = {extension["name"] for extension in known}
    info["core:extensions"] = [*known, *(e for e in EXTENSIONS if e["name"] not in names)]
    kept = [note for note in old["annotations"] if note.get("core:generator") != generator]
    new = [
        {**note, "core:sample_start": note["core:sample_start"] + offset, "core:generator": generator} for note in notes
    ]
    for note in new:
        if note["core:sample_start"] < 0:
            raise DataError(f"an annotation begins at sample {note['core:sample_start']}; expected zero or more.")
    in_order = sorted([*kept, *new], key=lambda note: note["core:sample_start"])
    return {**old, "global": info, "annotations": in_order}
