"""SigMF recordings: one per capture, a channel per antenna, an annotation per frame.

The device is `signal:emitter` of the annotation (`label`, else `seid`). What SigMF has no field for is in the extension
namespace `pisa`: in `global` the environment, capture and array coordinates, in annotations the frame's time order and
CFO.
Metadata is validated, and the data checked against its hash, by the `sigmf` package.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pisa_capc.errors import DataError
from pisa_capc.formats.base import ExportOptions, ImportOptions, Plan, Samples, described
from pisa_capc.frames import Frames
from pisa_capc.geometry import ArrayGeometry
from pisa_capc.recordings.sigmf import EXTENSIONS, Metadata, data_beside, device_of, package
from pisa_capc.store.dataset import UNLABELLED, CaptureSpec
from pisa_capc.store.files import atomic, new_folder, reading, write_text_atomic
from pisa_capc.store.outside import files_under

EXPECTED = "a SigMF recording: valid metadata, and data that matches its hash"


@dataclass(frozen=True)
class _Frame:
    """Where a frame is: samples `start` … of a recording."""

    meta: Path
    annotation: int
    start: int
    count: int
    order: int
    cfo_hz: tuple[float, ...] | None


def plan(source: Path, options: ImportOptions) -> Plan:
    """All recordings in a folder, or one `.sigmf-meta` file."""
    metas = files_under(source, ".sigmf-meta") if source.is_dir() else [source]
    if not metas:
        raise DataError(f"{source}: holds no .sigmf-meta file.")
    frames: dict[tuple[str, str, str], list[_Frame]] = defaultdict(list)
    antennas: dict[tuple[str, str, str], int] = {}
    rates: set[tuple[float, float]] = set()
    for meta in metas:
        with reading(meta, EXPECTED):
            recording = _open(meta, check=True)
            info = recording.get_global_info()
            rates.add(_rates(recording, options, meta))
            if options.geometry is None and "pisa:geometry" in info:
                options = replace(options, geometry=ArrayGeometry.from_json(info["pisa:geometry"]))
            for i, note in enumerate(recording.get_annotations()):
                key = _names(note, info, options, meta)
                frame = _frame(meta, note, i, options)
                if frame.start + frame.count > recording.sample_count:
                    raise DataError(
                        f"{meta}: annotation {i} ends at sample {frame.start + frame.count}; "
                        f"the recording has {recording.sample_count}."
                    )
                frames[key].append(frame)
                antennas[key] = recording.num_channels
    if len(rates) > 1:
        raise DataError(f"{source}: recordings of several sample rates and carriers: {sorted(rates)}. Split them.")
    if not frames:
        raise DataError(
            f"{source}: no annotations; expected one per frame, with its device in signal:emitter. `pisa detect` finds "
            "the frames of a raw recording."
        )
    found: dict[CaptureSpec, list[_Frame]] = {}
    shapes: dict[CaptureSpec, tuple[int, int]] = {}
    for key, members in frames.items():
        spec = CaptureSpec(*key, len(members))
        lengths = sorted({f.count for f in members})
        if len(lengths) > 1:
            raise DataError(
                f"{members[0].meta}: frames of {lengths[0]} to {lengths[-1]} samples; expected one length. "
                f"Cut them with --samples {lengths[0]}."
            )
        if len({f.cfo_hz is None for f in members}) > 1:
            raise DataError(f"{members[0].meta}: some annotations have pisa:cfo_hz and some have none; expected all.")
        found[spec] = sorted(members, key=lambda f: (f.meta, f.order))
        shapes[spec] = (antennas[key], lengths[0])
    return Plan(
        described(shapes, options, *rates.pop()),
        lambda spec: _read(found[spec]),
        lambda spec, i: f"annotation {found[spec][i].annotation} of {found[spec][i].meta.name}",
    )


def _names(note: Metadata, info: Metadata, options: ImportOptions, meta: Path) -> tuple[str, str, str]:
    if (device := device_of(note) or options.device) is None:
        raise DataError(
            f"{meta}: an annotation names no device; expected signal:emitter with label or seid. Give --device, "
            f"{UNLABELLED} where nobody knows it."
        )
    environment = note.get("pisa:environment") or info.get("pisa:environment") or options.environment
    capture = note.get("pisa:capture") or info.get("pisa:capture") or options.capture
    return str(environment), device, str(capture)


def _rates(recording: Any, options: ImportOptions, meta: Path) -> tuple[float, float]:
    """Sample rate and carrier in Hz; a recording may leave them out, and what is given goes first."""
    rate = options.sample_rate_hz or recording.get_global_info().get("core:sample_rate")
    carrier = options.carrier_hz or next((c.get("core:frequency") for c in recording.get_captures()), None)
    if rate is None or carrier is None:
        raise DataError(f"{meta}: core:sample_rate is {rate}, core:frequency {carrier}. Give --sample-rate, --carrier.")
    return float(rate), float(carrier)


def _frame(meta: Path, note: Metadata, i: int, options: ImportOptions) -> _Frame:
    start, count = int(note["core:sample_start"]), int(note["core:sample_count"])
    if options.samples is not None:
        if count < options.samples:
            raise DataError(f"{meta}: annotation {i} has {count} samples; --samples asks for {options.samples}.")
        count = options.samples
    cfo_hz = note.get("pisa:cfo_hz")
    return _Frame(
        meta, i, start, count, int(note.get("pisa:frame", i)), None if cfo_hz is None else tuple(map(float, cfo_hz))
    )


def _read(frames: list[_Frame]) -> Samples:
    meta = frames[0].meta
    with reading(meta, EXPECTED):
        recordings = {path: _open(path, check=False) for path in dict.fromkeys(f.meta for f in frames)}
        # The package gives (samples, channels), and (samples,) for one channel.
        pieces = [recordings[f.meta].read_samples(f.start, f.count).reshape(f.count, -1).T for f in frames]
        iq = np.stack(pieces).astype(np.complex64)
        if frames[0].cfo_hz is None:
            return iq, None
        if {len(f.cfo_hz or ()) for f in frames} != {iq.shape[1]}:
            raise DataError(f"{meta}: pisa:cfo_hz of another length; expected {iq.shape[1]} values, one per channel.")
        return iq, np.array([f.cfo_hz for f in frames])


def _open(meta: Path, check: bool) -> Any:
    """A recording; with `check` its metadata is validated and its data hashed, which takes most of the time."""
    sigmf = package()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # undeclared extensions of others are not ours to report
        if check and meta.suffix.lower() == ".sigmf-meta":
            _check_data(meta, sigmf.SigMFFile(metadata=meta.read_text(encoding="utf-8")))
        recording = sigmf.fromfile(meta, skip_checksum=not check)
        if check:
            recording.validate()
    return recording


def _check_data(meta: Path, described: Any) -> None:
    """Refuse data that is missing or cut off within a sample, of which the package speaks in NumPy's words."""
    info = described.get_global_info()
    data = data_beside(meta, info)
    if "core:dataset" in info:
        return  # perhaps with a header: the package counts it
    size = described.get_sample_size() * described.num_channels
    found = data.stat().st_size
    if not found or found % size:
        ends = [note["core:sample_start"] + note.get("core:sample_count", 0) for note in described.get_annotations()]
        raise DataError(
            f"{data}: holds {found:,} bytes; expected {size * max(ends, default=1):,} up to the end of the last "
            f"annotation, at {size} bytes a sample. Copy the file again."
        )


def export(frames: Frames, out: Path, options: ExportOptions, done: Callable[[], None]) -> None:
    """One recording per capture, its frames one after the other; `options` has nothing for this format."""
    sigmf = package()
    new_folder(out)
    for spec, part in frames.recordings():
        stem = out / spec.environment / spec.device / spec.capture
        data = stem.with_name(stem.name + ".sigmf-data")
        with atomic(data) as temporary:
            part.iq.transpose(0, 2, 1).astype("<c8").tofile(temporary)
        info = {
            "core:datatype": "cf32_le",
            "core:sample_rate": frames.sample_rate_hz,
            "core:num_channels": frames.antennas,
            "core:recorder": "pisa-capc",
            "core:extensions": EXTENSIONS,
            "pisa:environment": spec.environment,
            "pisa:capture": spec.capture,
            "pisa:geometry": frames.geometry.to_json(),
        }
        recording = sigmf.SigMFFile(data_file=data, global_info=info)
        recording.add_capture(0, metadata={"core:frequency": frames.carrier_hz})
        emitter = {"seid": frames.devices.index(spec.device) + 1, "label": spec.device}
        cfo_hz = part.cfo_hz
        for i in range(len(part)):
            note: dict[str, Any] = {"pisa:frame": int(part.frame[i])}
            if spec.device != UNLABELLED:
                note |= {"core:label": spec.device, "signal:emitter": emitter}
            if cfo_hz is not None:
                note["pisa:cfo_hz"] = cfo_hz[i].tolist()
            recording.add_annotation(i * frames.samples, frames.samples, metadata=note)
        recording.validate()
        # The metadata comes last: a recording without it is not there yet.
        write_text_atomic(stem.with_name(stem.name + ".sigmf-meta"), recording.dumps(pretty=True))
        done()
