"""SigMF: metadata that is read, checked and written, and the recordings and collections that it describes.

The `sigmf` package validates metadata; samples are read by `SampleFile`, in pieces. What SigMF has no field for is in
the namespace `pisa`: environment, capture and array coordinates in `global` or `collection`.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import uuid
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pisa_capc.core.errors import ConfigError, DataError, MissingExtraError
from pisa_capc.core.progress import progress
from pisa_capc.data.geometry import ArrayGeometry
from pisa_capc.data.store.files import read_json, reading, refuse_existing, write_text_atomic
from pisa_capc.signal.recordings.base import About, Annotation, FileRecording, SampleFile
from pisa_capc.signal.recordings.encoding import Encoding, without_ending

EXPECTED = "valid SigMF metadata"
SPECIFICATION = "1.2.0"  # of what is written
EXTENSIONS = [{"name": name, "version": "1.0.0", "optional": True} for name in ("signal", "pisa")]
META, DATA, COLLECTION = ".sigmf-meta", ".sigmf-data", ".sigmf-collection"
PIECE = 1 << 22

Metadata = Mapping[str, Any]
Notes = Callable[[slice], Sequence[Metadata]]


def read_metadata(path: Path) -> dict[str, Any]:
    """The metadata of a recording, if it is valid."""
    if not path.is_file():
        raise DataError(f"{path}: no such file; expected the metadata of a SigMF recording.")
    with reading(path, EXPECTED):
        found: dict[str, Any] = read_json(path)
        validate(found, str(path))
    return found


def validate(metadata: Metadata, where: str) -> None:
    """Refuse metadata that is not as the specification has it."""
    try:
        import sigmf
        from jsonschema import ValidationError  # what the package raises
    except ImportError as error:
        raise MissingExtraError("sigmf", "sigmf", "SigMF") from error

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # undeclared extensions of others are not ours to report
            sigmf.validate.validate(metadata)
    except ValidationError as error:
        wrong = ": ".join(filter(None, ["/".join(map(str, error.absolute_path)), error.message[:200]]))
        raise DataError(f"{where}: not valid SigMF ({wrong}). Expected {EXPECTED}.") from error


def data_beside(meta: Path, info: Metadata) -> Path:
    """The data that metadata describes: of the same name, or as `core:dataset` names it, in the same folder."""
    other = info.get("core:dataset")
    if other is None:
        data = meta.with_suffix(DATA)
        if not data.is_file():
            raise DataError(f"{meta}: its data file {data.name} is missing; expected it in the same folder.")
        return data
    with reading(meta, "the name of a file in core:dataset"):
        if not isinstance(other, str) or (meta.parent / other).resolve().parent != meta.parent.resolve():
            raise DataError(f"{meta}: core:dataset {other!r} is not a file beside it. Expected its name alone.")
        if not (meta.parent / other).is_file():
            raise DataError(f"{meta}: core:dataset names {other}, which is missing; expected it in the same folder.")
    return meta.parent / other


def device_of(note: Metadata) -> str | None:
    """Who an annotation says has sent: `signal:emitter` (an object with label or seid, or text), else `core:label`."""
    emitter = note.get("signal:emitter")
    named = [emitter.get("label"), emitter.get("seid")] if isinstance(emitter, Mapping) else [emitter]
    return next((str(name) for name in (*named, note.get("core:label")) if name is not None), None)


@dataclass(frozen=True)
class _Channels:
    """One metadata file and its data: some antennas of a recording."""

    file: SampleFile
    metadata: Metadata
    rate_hz: float | None
    carrier_hz: float | None
    time: datetime | None

    @property
    def info(self) -> Metadata:
        found: Metadata = self.metadata["global"]
        return found


def open_sigmf(
    path: Path, encoding: Encoding | None, sample_rate_hz: float | None, carrier_hz: float | None, check: bool
) -> FileRecording:
    """One recording by its metadata or data; what is given goes before what it says."""
    meta = path.with_suffix(META)
    channels = _channels(meta, encoding, check)
    return _recording(meta.stem, [channels], channels.info, sample_rate_hz, carrier_hz)


def open_collection(
    path: Path, encoding: Encoding | None, sample_rate_hz: float | None, carrier_hz: float | None, check: bool
) -> FileRecording:
    """A recording per channel, or several channels each, in the order in which the collection lists them."""
    info, streams = _collection(path)
    parts = []
    for meta, digest in streams.items():
        parts.append(_channels(meta, encoding, check))
        if hashlib.sha512(meta.read_bytes()).hexdigest() != digest.lower():
            raise DataError(f"{meta}: has changed since {path.name} was written. Write the collection again.")
    return _recording(path.stem, parts, {**parts[0].info, **info}, sample_rate_hz, carrier_hz)


def streams_of(collection: Path) -> list[Path]:
    """The metadata of each recording of a collection."""
    return list(_collection(collection)[1])


def _collection(path: Path) -> tuple[Metadata, dict[Path, str]]:
    """The metadata of a collection and of its recordings, with their hashes, in order."""
    with reading(path, "a SigMF collection"):
        info = read_json(path)["collection"]
        named = [(str(stream["name"]), str(stream["hash"])) for stream in info["core:streams"]]
    if not named:
        raise DataError(f"{path}: core:streams lists no recordings; expected one per antenna.")
    streams = {}
    for name, digest in named:
        meta = path.parent / f"{name}{META}"
        with reading(path, "a SigMF collection of recordings beside it"):  # a name may be none that a file can have
            if meta.resolve().parent != path.parent.resolve():
                raise DataError(f"{path}: the stream {name!r} is not beside it. Expected its name alone.")
            meta.is_file()
        streams[meta] = digest
    return info, streams


def annotations_of(recording: FileRecording) -> list[Metadata]:
    """Everything that the annotations of a SigMF recording say, those of all its files, each part of it once.

    `core:sample_start` counts from the first sample of the data.
    """
    found: dict[tuple[int, int | None, str | None], Metadata] = {}
    for file in recording.files:
        if file.meta is None:
            continue
        metadata = read_metadata(file.meta)
        for note, told in zip(metadata["annotations"], _annotations(metadata), strict=True):
            found.setdefault((told.start, told.count, told.label), {**note, "core:sample_start": told.start})
    return list(found.values())


def _channels(meta: Path, encoding: Encoding | None, check: bool) -> _Channels:
    metadata = read_metadata(meta)
    info, captures = metadata["global"], metadata["captures"]
    data = data_beside(meta, info)
    skip, trailing = _around(meta, info, captures)
    try:
        encoding = encoding or Encoding.named(info["core:datatype"])
    except ConfigError as error:
        raise DataError(f"{meta}: core:datatype: {error}") from error
    if check and "core:sha512" in info:
        _check_hash(data, info["core:sha512"])
    channels = int(info.get("core:num_channels", 1))
    size = channels * encoding.sample_bytes
    length = (data.stat().st_size - skip - trailing) // size
    if length < 1:
        raise DataError(f"{data}: holds {data.stat().st_size:,} bytes; expected at least one sample of {size} bytes.")
    if left := (data.stat().st_size - skip - trailing) % size:
        warnings.warn(f"{data}: its last {left} bytes are no whole sample of {size}; it was cut off.", stacklevel=2)
    carriers = {c["core:frequency"] for c in captures if "core:frequency" in c}
    if len(carriers) > 1:
        raise DataError(
            f"{meta}: the receiver was tuned to {len(carriers)} carriers, {_listed(carriers)} Hz; expected one. Cut "
            "the recording where core:frequency changes."
        )
    if len({c.get("core:global_index", c["core:sample_start"]) - c["core:sample_start"] for c in captures}) > 1:
        warnings.warn(f"{meta}: samples were lost between its captures; times after a gap are too early.", stacklevel=2)
    file = SampleFile(data, encoding, channels, length, skip, meta)
    carrier = next(iter(carriers), None)
    return _Channels(file, metadata, info.get("core:sample_rate"), carrier, _time(meta, captures))


def _around(meta: Path, info: Metadata, captures: list[Metadata]) -> tuple[int, int]:
    """Bytes before and after the samples."""
    headers = [int(c.get("core:header_bytes", 0)) for c in captures] or [0]
    if any(headers[1:]):
        raise DataError(
            f"{meta}: core:header_bytes within the data, before its capture {1 + _first(headers[1:])}; expected a "
            "header at its beginning alone. Take it out of the data."
        )
    return headers[0], int(info.get("core:trailing_bytes", 0))


def _first(values: list[int]) -> int:
    return next(i for i, value in enumerate(values) if value)


def _time(meta: Path, captures: list[Metadata]) -> datetime | None:
    said = captures[0].get("core:datetime") if captures else None
    with reading(meta, "core:datetime as in RFC 3339"):
        return None if said is None else datetime.fromisoformat(said)


def _check_hash(data: Path, expected: str) -> None:
    digest = hashlib.sha512()
    pieces = -(-data.stat().st_size // PIECE)
    with reading(data, EXPECTED), data.open("rb") as file, progress(f"SHA-512 of {data.name}", pieces) as bar:
        while piece := file.read(PIECE):
            digest.update(piece)
            bar.advance()
    if digest.hexdigest() != expected.lower():
        raise DataError(
            f"{data}: does not match core:sha512 of its metadata: it was changed or cut off. Copy it again; "
            "`pisa detect --no-check` uses it as it is."
        )


def _recording(
    name: str, parts: list[_Channels], info: Metadata, sample_rate_hz: float | None, carrier_hz: float | None
) -> FileRecording:
    """Channels of one clock as one recording; info: metadata of all of them."""
    first = parts[0]
    for part in parts[1:]:
        for what in ("rate_hz", "carrier_hz"):
            if getattr(part, what) != getattr(first, what):
                raise DataError(
                    f"{part.file.meta}: {what} is {getattr(part, what)}; {first.file.path.name} has "
                    f"{getattr(first, what)}. The channels of a recording have one of each."
                )
    rate = first.rate_hz if sample_rate_hz is None else sample_rate_hz
    if rate is None:
        raise DataError(f"{first.file.meta}: says no core:sample_rate. Give --sample-rate.")
    about = About(
        name=name,
        sample_rate_hz=float(rate),
        carrier_hz=first.carrier_hz if carrier_hz is None else carrier_hz,
        antennas=sum(part.file.channels for part in parts),
        length=first.file.length,
        time=first.time,
        geometry=ArrayGeometry.from_json(info["pisa:geometry"]) if "pisa:geometry" in info else None,
        environment=_text(info.get("pisa:environment")),
        capture=_text(info.get("pisa:capture")),
        full_scale=first.file.encoding.full_scale,
    )
    notes = dict.fromkeys(note for part in parts for note in _annotations(part.metadata))  # each once, whoever has it
    in_time = tuple(sorted(notes, key=lambda note: note.start))
    return FileRecording(about, tuple(part.file for part in parts), in_time)


def _annotations(metadata: Metadata) -> list[Annotation]:
    """Sample numbers count from `core:offset`, that of the data's first sample."""
    offset = int(metadata["global"].get("core:offset", 0))
    return [
        Annotation(note["core:sample_start"] - offset, note.get("core:sample_count"), device_of(note))
        for note in metadata["annotations"]
    ]


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _listed(values: set[float]) -> str:
    return ", ".join(f"{value:,.0f}" for value in sorted(values))


# Writing.


def global_info(
    encoding: Encoding, sample_rate_hz: float, antennas: int, core: Metadata | None = None, pisa: Metadata | None = None
) -> dict[str, Any]:
    """What holds for all samples. core, pisa: further fields of these namespaces."""
    required = {
        "version": SPECIFICATION,
        "datatype": encoding.name,
        "sample_rate": sample_rate_hz,
        "num_channels": antennas,
    }
    named = {**_named("core", {**required, **(core or {})}), "core:extensions": EXTENSIONS}
    return named | _named("pisa", pisa or {})


def capture(carrier_hz: float | None = None, at: str | None = None, start: int = 0) -> dict[str, Any]:
    """Samples from `start` on that were received in one go, the first of them at a time."""
    return _named("core", {"sample_start": start, "frequency": carrier_hz, "datetime": at})


def annotation(
    start: int,
    count: int,
    label: str | None = None,
    *,
    emitter: Metadata | None = None,
    generator: str | None = None,
    band_hz: tuple[float, float] | None = None,
    unique: str | None = None,
    pisa: Metadata | None = None,
) -> dict[str, Any]:
    """Samples start … start + count and what is known of them.

    emitter: who sent them. band_hz: the frequencies that they fill. unique: what their UUID is made of. pisa: further
    fields of our namespace.
    """
    lower, upper = band_hz or (None, None)
    core = {
        "sample_start": start,
        "sample_count": count,
        "generator": generator,
        "freq_lower_edge": lower,
        "freq_upper_edge": upper,
        "label": label,
        "uuid": None if unique is None else str(uuid.uuid5(uuid.NAMESPACE_OID, unique)),
    }
    said = {} if emitter is None else {"signal:emitter": emitter}
    return {**_named("core", core), **said, **{f"pisa:{name}": value for name, value in (pisa or {}).items()}}


def _named(namespace: str, fields: Metadata) -> dict[str, Any]:
    return {f"{namespace}:{name}": value for name, value in fields.items() if value is not None}


def as_text(metadata: Metadata) -> str:
    """The content of a metadata file."""
    return json.dumps(metadata, indent=1, ensure_ascii=False) + "\n"


def archive(stem: str, meta: bytes, data: bytes) -> bytes:
    """Metadata and samples as a SigMF archive."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for ending, content in ((META, meta), (DATA, data)):
            entry = tarfile.TarInfo(f"{stem}/{stem}{ending}")
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def write_annotations(
    recording: FileRecording, notes: Notes, generator: str, ending: str, force: bool = False
) -> list[Path]:
    """Write a metadata file per data file; the recording's own metadata about the samples is kept.

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
        write_text_atomic(path, as_text(metadata))
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
    info = global_info(file.encoding, about.sample_rate_hz, file.channels, {"dataset": file.path.name})
    return {"global": info, "captures": [capture(about.carrier_hz)], "annotations": []}


def extensions_with_ours(info: Metadata) -> list[Metadata]:
    """What the metadata declares already, and what our annotations use."""
    known = info.get("core:extensions", [])
    names = {extension["name"] for extension in known}
    return [*known, *(extension for extension in EXTENSIONS if extension["name"] not in names)]


def _with_notes(old: Mapping[str, Any], notes: Sequence[Mapping[str, Any]], generator: str) -> dict[str, Any]:
    info = dict(old["global"])
    offset = int(info.get("core:offset", 0))
    info["core:extensions"] = extensions_with_ours(info)
    kept = [note for note in old["annotations"] if note.get("core:generator") != generator]
    new = [
        {**note, "core:sample_start": note["core:sample_start"] + offset, "core:generator": generator} for note in notes
    ]
    for note in new:
        if note["core:sample_start"] < 0:
            raise DataError(f"an annotation begins at sample {note['core:sample_start']}; expected zero or more.")
    in_order = sorted([*kept, *new], key=lambda note: note["core:sample_start"])
    return {**old, "global": info, "annotations": in_order}
