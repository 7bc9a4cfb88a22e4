"""Decisions as files: a table (.csv), lines of JSON (.jsonl) or annotations of the recording (.sigmf-meta)."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from pisa_capc.core.errors import ConfigError
from pisa_capc.data.store.files import write_text_atomic
from pisa_capc.decide.identification.decide import Identified
from pisa_capc.signal.detection import Found, FoundFrame
from pisa_capc.signal.recordings.base import FileRecording
from pisa_capc.signal.recordings.sigmf import DATA, META, annotation, as_text, described, extensions_with_ours, validate

FORMATS = (".csv", ".jsonl", META)
GENERATOR = "pisa identify"


def check_format(out: Path, recordings: int) -> None:
    """Refuse a name whose ending says nothing, before anything is computed."""
    if out.suffix not in FORMATS:
        raise ConfigError(f"--out {out}: unknown ending {out.suffix!r}; expected {', '.join(FORMATS)}.")
    if out.suffix == META and recordings > 1:
        raise ConfigError(f"--out {out}: annotates one recording, {recordings} are given. Give one, or .csv or .jsonl.")


def frames(who: Identified) -> Iterator[dict[str, Any]]:
    """What is known of each frame, as JSON has it; `device` is null for one that the model does not know."""
    for frame, r in zip(who.frames, who.seen.recording.tolist(), strict=True):
        found, identity = who.seen.found[r], frame.who
        began, score = found.recording.about.time, identity.unknown_score
        yield {
            **frame.to_json(),
            "samples": samples_of(found, frame),
            "time": None if began is None else (began + timedelta(seconds=frame.time_s)).isoformat(),
            "device": identity.device,
            "like": identity.like,
            "probability": round(identity.probability, 6),
            "unknown_score": None if score is None else round(score, 6),
            "reason": identity.reason,
        }


def samples_of(found: Found, frame: FoundFrame) -> int:
    """How long a frame is in its recording: as its header says, or as long as its preamble."""
    length = frame.samples or len(found.waveform.preamble())
    return round(length * found.recording.about.sample_rate_hz / found.waveform.sample_rate_hz)


def write(out: Path, who: Identified, recording: FileRecording) -> None:
    """Write the decisions in the format that the name ends with; recording: the one that is annotated."""
    if out.suffix == ".csv":
        write_text_atomic(out, as_csv(who))
    elif out.suffix == ".jsonl":
        write_text_atomic(out, "".join(json.dumps(frame, ensure_ascii=False) + "\n" for frame in frames(who)))
    else:
        write_text_atomic(out, as_text(as_sigmf(who, recording, out)))


def as_csv(who: Identified) -> str:
    """A line per frame; of the antennas' offsets the median, of their SNR the highest."""
    text = io.StringIO()
    rows = list(frames(who))
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        cfo_hz, snr_db = ([value for value in row[name] if value is not None] for name in ("cfo_hz", "snr_db"))
        rounded = {"cfo_hz": round(float(np.median(cfo_hz)), 1), "snr_db": round(max(snr_db), 2)}
        writer.writerow({**row, **rounded, "quality": round(row["quality"], 4)})
    return text.getvalue()


def as_sigmf(who: Identified, recording: FileRecording, out: Path) -> dict[str, Any]:
    """Metadata of the recording with an annotation per frame, as `out` will hold it; valid by the specification.

    Annotations that the recording itself has are its own; they are not repeated.
    """
    single = len(recording.files) == 1
    known = described(recording, recording.files[0])
    info: dict[str, Any] = {k: v for k, v in known["global"].items() if k not in ("core:dataset", "core:metadata_only")}
    info["core:extensions"] = extensions_with_ours(info)
    data = recording.files[0].path
    if not single or data.resolve().parent != out.resolve().parent:
        info = {k: v for k, v in info.items() if k != "core:sha512"} | {"core:metadata_only": True}
    elif data.name != out.with_suffix(DATA).name:
        info["core:dataset"] = data.name
    offset = int(info.get("core:offset", 0))
    rows = zip(frames(who), who.decision.tolist(), strict=True)
    notes = [_annotation(frame, number, who.seen.found[0], offset) for frame, number in rows]
    metadata = {"global": info, "captures": known["captures"], "annotations": notes}
    validate(metadata, str(out))
    return metadata


def _annotation(frame: Mapping[str, Any], number: int, found: Found, offset: int) -> dict[str, Any]:
    """One frame; the device that the model names, the `number`-th of its own, is `signal:emitter`."""
    about, waveform = found.recording.about, found.waveform
    known = {name: frame[name] for name in ("cfo_hz", "snr_db", "like", "probability")}
    band_hz = None
    if about.carrier_hz is not None:
        half_hz = waveform.occupied * waveform.sample_rate_hz / 2
        band_hz = about.carrier_hz - half_hz, about.carrier_hz + half_hz
    return annotation(
        frame["start"] + offset,
        frame["samples"],
        frame["device"] or "unknown device",
        emitter=None if frame["device"] is None else {"seid": number + 1, "label": frame["device"]},
        generator=GENERATOR,
        band_hz=band_hz,
        unique=f"{GENERATOR} {frame['recording']} {frame['start']}",
        pisa=known if frame["transmitter"] is None else {**known, "address": frame["transmitter"]},
    )
