"""SigMF recordings: one per capture, a channel per antenna, an annotation per frame.

The device is `signal:emitter` of the annotation (`label`, else `seid`, or a name). What SigMF has no field for is in
the extension namespace `pisa`: in `global`, `collection` or annotations the environment and capture, in `global` the
array, in annotations the frame's time order and CFO. What is not there comes from the path, by a pattern.
Metadata is validated, and the data checked against its hash, when a recording is opened.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.data.frames import Frames
from pisa_capc.data.store.dataset import UNLABELLED, CaptureSpec
from pisa_capc.data.store.files import atomic, fields_of, new_folder, reading, write_text_atomic
from pisa_capc.data.store.files import find_captures as find_by_pattern
from pisa_capc.data.store.outside import files_under
from pisa_capc.signal.formats.base import (
    EVERYWHERE,
    NAMES,
    ExportOptions,
    Format,
    ImportOptions,
    Plan,
    Samples,
    check_unnamed,
    described,
    register_format,
)
from pisa_capc.signal.recordings import open_recording
from pisa_capc.signal.recordings.base import FileRecording
from pisa_capc.signal.recordings.encoding import Encoding
from pisa_capc.signal.recordings.sigmf import (
    COLLECTION,
    DATA,
    META,
    Metadata,
    annotation,
    annotations_of,
    as_text,
    capture,
    device_of,
    global_info,
    open_sigmf,
    streams_of,
    validate,
)

EXPECTED = "a SigMF recording: valid metadata, and data that matches its hash"


@dataclass(frozen=True)
class _Frame:
    """Where a frame is: samples `start` … of a recording."""

    path: Path
    recording: FileRecording
    annotation: int
    start: int
    count: int
    order: int
    cfo_hz: tuple[float, ...] | None


def plan(source: Path, options: ImportOptions) -> Plan:
    """All recordings and collections in a folder, or one of them."""
    found = _find(source, options)
    frames: dict[tuple[str, str, str], list[_Frame]] = defaultdict(list)
    antennas: dict[tuple[str, str, str], int] = {}
    rates: set[tuple[float, float]] = set()
    unsaid: set[str] = set()
    for path, by_path in found.items():
        with reading(path, EXPECTED):
            recording = _open(path, options)
            about = recording.about
            rates.add(_rates(recording, path))
            if options.geometry is None and about.geometry is not None:
                options = replace(options, geometry=about.geometry)
            said = {"environment": about.environment, "capture": about.capture}
            for i, note in enumerate(annotations_of(recording)):
                names = _names(note, by_path, said)
                unsaid |= {kind for kind, name in names.items() if name is None}
                key = _key(names, options, path)
                frames[key].append(_frame(path, recording, note, i, options))
                antennas[key] = about.antennas
    if not frames:
        raise DataError(
            f"{source}: no annotations; expected one per frame, with its device in signal:emitter. `pisa detect` finds "
            "the frames of a raw recording."
        )
    check_unnamed(options, names.keys() - unsaid, f"{source.name}")
    assumed = unsaid - options.given().keys()
    if assumed and len(found) > 1:
        raise DataError(_question(source, len(found), sorted(assumed)))
    if len(rates) > 1:
        raise DataError(f"{source}: recordings of several sample rates and carriers: {sorted(rates)}. Split them.")
    captures, shapes = _captures(frames, antennas)
    taken = [f"{kind} {NAMES[kind]} (--{kind})" for kind in sorted(assumed)]
    if options.geometry is None:
        taken.append("antennas half a wavelength apart (--array)")
    return Plan(
        described(shapes, options, *rates.pop()),
        lambda spec: _read(captures[spec]),
        lambda spec, i: f"annotation {captures[spec][i].annotation} of {captures[spec][i].path.name}",
        tuple(taken),
    )


def _find(source: Path, options: ImportOptions) -> dict[Path, Mapping[str, str]]:
    """The recordings, and what the path of each says by --pattern. Those of a collection are one with it."""
    if options.pattern is not None:
        if not source.is_dir():
            raise ConfigError(f"--pattern {options.pattern}: {source} is one file. Leave it out, or name the folder.")
        check_unnamed(options, fields_of(options.pattern), f"the pattern {options.pattern}")
        found: dict[Path, Mapping[str, str]] = dict(find_by_pattern(source, options.pattern, {}))
        if odd := [path for path in found if path.suffix not in (META, COLLECTION)]:
            raise ConfigError(f"--pattern {options.pattern}: fits {odd[0].name}; expected one that ends in {META}.")
        return found
    if source.is_file():
        return {source: {}}
    collections = files_under(source, COLLECTION)
    within = {meta for path in collections for meta in streams_of(path)}
    paths = [*collections, *(path for path in files_under(source, META) if path not in within)]
    if not paths:
        raise DataError(f"{source}: holds no {META} file.")
    return {path: {} for path in paths}


def _open(path: Path, options: ImportOptions) -> FileRecording:
    rate, carrier = options.sample_rate_hz, options.carrier_hz
    if path.suffix == COLLECTION:
        return open_recording(path, sample_rate_hz=rate, carrier_hz=carrier)
    return open_sigmf(path, None, rate, carrier, check=True)


def _names(note: Metadata, by_path: Mapping[str, str], said: Mapping[str, str | None]) -> dict[str, str | None]:
    """Environment, device and capture of a frame by its path, its annotation or its recording, else None."""
    found: dict[str, str | None] = {"device": by_path.get("device") or device_of(note)}
    for kind in ("environment", "capture"):
        name = by_path.get(kind) or note.get(f"pisa:{kind}") or said[kind]
        found[kind] = None if name is None else str(name)
    return found


def _key(names: Mapping[str, str | None], options: ImportOptions, path: Path) -> tuple[str, str, str]:
    """Environment, device and capture of a frame, where nothing says them as told or assumed."""
    named = options.names() | {kind: name for kind, name in names.items() if name}
    if not named["device"]:
        raise DataError(
            f"{path}: an annotation names no device; expected signal:emitter with label or seid. Give {{device}} in "
            f"--pattern, or --device-name, {UNLABELLED} if it is unknown."
        )
    device = named["device"].replace(":", "-")  # addresses, as `pisa detect` names them
    return named["environment"], device, named["capture"]


def _question(source: Path, recordings: int, unknown: list[str]) -> str:
    options = " and ".join(f"--{kind}" for kind in unknown)
    return (
        f"{source}: nothing says the {' and '.join(unknown)} of its {recordings} recordings. Give --pattern, as "
        f"'{{environment}}/{{capture}}{META}'; or {options}, if it is one for all; or write "
        f"{' and '.join(f'pisa:{kind}' for kind in unknown)} into their metadata."
    )


def _rates(recording: FileRecording, path: Path) -> tuple[float, float]:
    """Sample rate and carrier in Hz."""
    if recording.about.carrier_hz is None:
        raise DataError(f"{path}: says no core:frequency. Give --carrier.")
    return recording.about.sample_rate_hz, recording.about.carrier_hz


def _frame(path: Path, recording: FileRecording, note: Metadata, i: int, options: ImportOptions) -> _Frame:
    start, said = int(note["core:sample_start"]), note.get("core:sample_count")
    if said is None and options.samples is None:
        raise DataError(f"{path}: annotation {i} has no core:sample_count. Give --samples, the length of a frame.")
    if said is not None and options.samples is not None and said < options.samples:
        raise DataError(f"{path}: annotation {i} has {said} samples; --samples asks for {options.samples}.")
    count = int(options.samples or said or 0)
    if start < 0 or start + count > recording.about.length:
        raise DataError(
            f"{path}: annotation {i} ends at sample {start + count}; the recording has {recording.about.length}. Is "
            "its data cut off?"
        )
    cfo_hz = note.get("pisa:cfo_hz")
    order = int(note.get("pisa:frame", i))
    return _Frame(path, recording, i, start, count, order, None if cfo_hz is None else tuple(map(float, cfo_hz)))


def _captures(
    frames: Mapping[tuple[str, str, str], list[_Frame]], antennas: Mapping[tuple[str, str, str], int]
) -> tuple[dict[CaptureSpec, list[_Frame]], dict[CaptureSpec, tuple[int, int]]]:
    """The frames of each capture in the order of time, and their antennas and samples."""
    found: dict[CaptureSpec, list[_Frame]] = {}
    shapes: dict[CaptureSpec, tuple[int, int]] = {}
    for key, members in frames.items():
        spec = CaptureSpec(*key, len(members))
        lengths = sorted({f.count for f in members})
        if len(lengths) > 1:
            raise DataError(
                f"{members[0].path}: frames of {lengths[0]} to {lengths[-1]} samples; expected one length. "
                f"Cut them with --samples {lengths[0]}."
            )
        if len({f.cfo_hz is None for f in members}) > 1:
            raise DataError(f"{members[0].path}: some annotations have pisa:cfo_hz and some have none; expected all.")
        found[spec] = sorted(members, key=lambda f: (f.path, f.order))
        shapes[spec] = (antennas[key], lengths[0])
    return found, shapes


def _read(frames: list[_Frame]) -> Samples:
    path = frames[0].path
    with reading(path, EXPECTED):
        iq = np.stack([f.recording.read(f.start, f.count) for f in frames])
        if frames[0].cfo_hz is None:
            return iq, None
        if {len(f.cfo_hz or ()) for f in frames} != {iq.shape[1]}:
            raise DataError(f"{path}: pisa:cfo_hz of another length; expected {iq.shape[1]} values, one per channel.")
        return iq, np.array([f.cfo_hz for f in frames])


def export(frames: Frames, out: Path, options: ExportOptions, done: Callable[[], None]) -> None:
    """One recording per capture, its frames one after the other; `options` has nothing for this format."""
    new_folder(out)
    for spec, part in frames.recordings():
        stem = out / spec.environment / spec.device / spec.capture
        data, meta = (stem.with_name(stem.name + ending) for ending in (DATA, META))
        samples = np.ascontiguousarray(part.iq.transpose(0, 2, 1), dtype="<c8").data
        with atomic(data) as temporary:
            # NumPy's own tofile does not say why a file could not be written.
            temporary.write_bytes(samples)
        said = {"recorder": "pisa-capc", "sha512": hashlib.sha512(samples).hexdigest()}
        own = {"environment": spec.environment, "capture": spec.capture, "geometry": frames.geometry.to_json()}
        emitter = {"seid": frames.devices.index(spec.device) + 1, "label": spec.device}
        cfo_hz, known = part.cfo_hz, spec.device != UNLABELLED
        notes = [
            annotation(
                i * frames.samples,
                frames.samples,
                spec.device if known else None,
                emitter=emitter if known else None,
                pisa={"frame": int(part.frame[i])} | ({} if cfo_hz is None else {"cfo_hz": cfo_hz[i].tolist()}),
            )
            for i in range(len(part))
        ]
        info = global_info(Encoding.named("cf32"), frames.sample_rate_hz, frames.antennas, said, own)
        metadata = {"global": info, "captures": [capture(frames.carrier_hz)], "annotations": notes}
        validate(metadata, str(meta))
        # The metadata comes last: a recording without it is not there yet.
        write_text_atomic(meta, as_text(metadata))
        done()


@register_format("sigmf")
class SigMFFormat(Format):
    """SigMF recordings and collections."""

    uses = EVERYWHERE | {"pattern", "samples", "device"}
    plan = staticmethod(plan)
    export = staticmethod(export)
