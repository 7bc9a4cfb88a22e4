"""Decisions as files: a table (.csv), lines of JSON (.jsonl) or annotations of the recording (.sigmf-meta)."""

from __future__ import annotations

import csv
import io
import json
import uuid
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from pisa_capc.errors import ConfigError
from pisa_capc.identify.decide import Identified
from pisa_capc.recordings.files import FileRecording
from pisa_capc.recordings.sigmf import DATA, EXTENSIONS, META, read_metadata, validate
from pisa_capc.store.files import write_text_atomic
from pisa_capc.waveforms import Waveform

FORMATS = (".csv", ".jsonl", META)


def check_format(out: Path, recordings: int) -> None:
    """Refuse a name whose ending says nothing, before anything is computed."""
    if out.suffix not in FORMATS:
        raise ConfigError(f"--out {out}: unknown ending {out.suffix!r}; expected {', '.join(FORMATS)}.")
    if out.suffix == META and recordings > 1:
        raise ConfigError(f"--out {out}: annotates one recording, {recordings} are given. Give one, or .csv or .jsonl.")


def frames(found: Identified) -> Iterator[dict[str, Any]]:
    """What is known of each frame, as JSON has it; `device` is null for one that the model does not know."""
    seen = found.seen
    times, confidence = seen.time_s.tolist(), found.confidence.tolist()
    for i, (device, like) in enumerate(zip(found.device, found.like, strict=True)):
        about, header = seen.abouts[seen.recording[i]], seen.header[i]
        yield {
            "recording": about.name,
            "start": int(seen.start[i]),
            "samples": int(seen.samples[i]),
            "time_s": round(times[i], 9),
            "time": None if about.time is None else (about.time + timedelta(seconds=times[i])).isoformat(),
            "device": device,
            "like": like,
            "probability": round(confidence[i], 6),
            "unknown_score": None if found.unknown_score is None else round(float(found.unknown_score[i]), 6),
            "address": seen.address[i],
            "cfo_hz": seen.cfo_hz[i].round(1).tolist(),
            "snr_db": seen.snr_db[i].round(2).tolist(),
            "quality": round(float(seen.quality[i]), 4),
            "kind": header.kind,
            "rate_mbps": header.rate_mbps,
            "length": header.length,
            "receiver": header.receiver,
            "fcs": header.fcs,
        }


def write(out: Path, found: Identified, recording: FileRecording, waveform: Waveform) -> None:
    """Write the decisions in the format that the name ends with; recording: the one that is annotated."""
    if out.suffix == ".csv":
        write_text_atomic(out, as_csv(found))
    elif out.suffix == ".jsonl":
        write_text_atomic(out, "".join(json.dumps(frame, ensure_ascii=False) + "\n" for frame in frames(found)))
    else:
        described = as_sigmf(found, recording, waveform, out)
        write_text_atomic(out, json.dumps(described, indent=1, ensure_ascii=False) + "\n")


def as_csv(found: Identified) -> str:
    """A line per frame; of the antennas' offsets the mean, of their SNR the highest."""
    text = io.StringIO()
    rows = list(frames(found))
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        cfo_hz, snr_db = np.mean(row["cfo_hz"]).round(1), max(row["snr_db"])
        writer.writerow({**row, "cfo_hz": cfo_hz, "snr_db": snr_db})
    return text.getvalue()


def as_sigmf(found: Identified, recording: FileRecording, waveform: Waveform, out: Path) -> dict[str, Any]:
    """Metadata of the recording with an annotation per frame, as `out` will hold it; valid by the specification.

    Annotations that the recording itself has are its own; they are not repeated.
    """
    meta = recording.files[0].meta
    single = len(recording.files) == 1
    known = read_metadata(meta) if meta is not None and single else _described(recording)
    info: dict[str, Any] = {k: v for k, v in known["global"].items() if k not in ("core:dataset", "core:metadata_only")}
    info["core:extensions"] = [*info.get("core:extensions", []), *_undeclared(info)]
    data = recording.files[0].path
    if not single or data.resolve().parent != out.resolve().parent:
        info = {k: v for k, v in info.items() if k != "core:sha512"} | {"core:metadata_only": True}
    elif data.name != out.with_suffix(DATA).name:
        info["core:dataset"] = data.name
    offset = int(info.get("core:offset", 0))
    notes = [_annotation(frame, i, found, waveform, offset) for i, frame in enumerate(frames(found))]
    metadata = {"global": info, "captures": known["captures"], "annotations": notes}
    validate(metadata, str(out))
    return metadata


def _undeclared(info: Mapping[str, Any]) -> list[dict[str, Any]]:
    declared = {extension["name"] for extension in info.get("core:extensions", [])}
    return [extension for extension in EXTENSIONS if extension["name"] not in declared]


def _described(recording: FileRecording) -> dict[str, Any]:
    """What SigMF says of plain samples."""
    about, encoding = recording.about, recording.files[0].encoding
    order = "" if encoding.bits == 8 else "_le" if encoding.order == "<" else "_be"
    info = {
        "core:datatype": f"c{encoding.kind}{encoding.bits}{order}",
        "core:version": "1.2.0",
        "core:sample_rate": about.sample_rate_hz,
        "core:num_channels": about.antennas,
    }
    capture: dict[str, Any] = {"core:sample_start": 0}
    if about.carrier_hz is not None:
        capture["core:frequency"] = about.carrier_hz
    return {"global": info, "captures": [capture]}


def _annotation(frame: Mapping[str, Any], i: int, found: Identified, waveform: Waveform, offset: int) -> dict[str, Any]:
    """One frame; the device that the model names is its `signal:emitter`, where it names one."""
    about = found.seen.abouts[0]
    note: dict[str, Any] = {
        "core:sample_start": frame["start"] + offset,
        "core:sample_count": frame["samples"],
        "core:generator": "pisa-capc",
        "core:label": frame["device"] or "unknown device",
        "core:uuid": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{frame['recording']} {frame['start']}")),
        "pisa:cfo_hz": frame["cfo_hz"],
        "pisa:snr_db": frame["snr_db"],
        "pisa:like": frame["like"],
        "pisa:probability": frame["probability"],
    }
    if about.carrier_hz is not None:
        half_hz = waveform.occupied * waveform.sample_rate_hz / 2
        note |= {"core:freq_lower_edge": about.carrier_hz - half_hz, "core:freq_upper_edge": about.carrier_hz + half_hz}
    if frame["device"] is not None:
        note["signal:emitter"] = {"seid": int(found.decision[i]) + 1, "label": frame["device"]}
    if frame["address"] is not None:
        note["pisa:address"] = frame["address"]
    return note
