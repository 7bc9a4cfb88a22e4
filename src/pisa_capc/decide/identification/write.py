"""Decisions as files: a table (.csv, .parquet), lines of JSON (.jsonl), annotations of the recording (.sigmf-meta)."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import timedelta
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import ConfigError, MissingExtraError
from pisa_capc.data.store.files import atomic, write_text_atomic
from pisa_capc.data.store.native import StoreSource
from pisa_capc.data.store.origins import Origin, read_origins
from pisa_capc.decide.identification.decide import Identified, Predicted
from pisa_capc.signal.detection import Found, FoundFrame, Identity
from pisa_capc.signal.detection.finding import band_of
from pisa_capc.signal.recordings.base import FileRecording
from pisa_capc.signal.recordings.sigmf import DATA, META, annotation, as_text, described, extensions_with_ours, validate

MEASURED = ("cfo_hz", "snr_db", "samples", "bandwidth_hz", "channel_hz")  # of found frames, stored with them
FORMATS = (".csv", ".jsonl", ".parquet", META)
GENERATOR = "pisa identify"


def check_format(out: Path, recordings: int) -> None:
    """Refuse a name whose ending says nothing, before anything is computed."""
    if out.suffix not in FORMATS:
        raise ConfigError(f"--out {out}: unknown ending {out.suffix!r}; expected {', '.join(FORMATS)}.")
    if out.suffix == ".parquet":
        check_parquet()
    if out.suffix == META and recordings > 1:
        raise ConfigError(f"--out {out}: annotates one recording, {recordings} are given. Give one, or .csv or .jsonl.")


def frames(who: Identified) -> Iterator[dict[str, Any]]:
    """What is known of each frame, as JSON has it; `device` is null for one that the model does not know."""
    for frame, r in zip(who.frames, who.seen.recording.tolist(), strict=True):
        found = who.seen.found[r]
        began = found.recording.about.time
        yield {
            **frame.to_json(),
            "samples": samples_of(found, frame),
            "time": None if began is None else (began + timedelta(seconds=frame.time_s)).isoformat(),
            **decision(frame.who),
        }


def stored(who: Predicted) -> Iterator[dict[str, Any]]:
    """The same of frames that were cut before: of a dataset, where `row` is the place of each, or of channel state."""
    own = who.input
    cfo_hz = [None] * len(who) if who.scores.cfo_hz is None else who.scores.cfo_hz.tolist()
    origins = None
    if isinstance(own.source, StoreSource):
        origins = read_origins(own.source.folder)
        if len(origins or ()) != own.source.starts[-1]:  # frames were added that it does not list
            origins = None
    for i, (row, identity) in enumerate(zip(own.rows.tolist(), who.identities, strict=True)):
        yield {
            "row": row,
            "environment": own.environments[own.environment[i]],
            "capture": own.captures[own.capture[i]],
            "frame": int(own.frame[i]),
            "cfo_hz": cfo_hz[i],
            **({} if origins is None else _found_as(origins[row], cfo_hz[i])),
            **decision(identity),
        }


def _found_as(origin: Origin, cfo_hz: Any) -> dict[str, Any]:
    """What the dataset keeps of a frame from its recording; cfo_hz: what the model was given, if anything."""
    known = {name: getattr(origin, name) for name in MEASURED}
    said = {name: value if isfinite(value) else None for name, value in known.items()}
    if said["samples"] is not None:
        said["samples"] = int(said["samples"])
    if cfo_hz is not None:
        said["cfo_hz"] = cfo_hz
    return {"recording": origin.recording, "start": origin.start, "time_s": origin.time_s, **said}


def records(who: Predicted) -> list[dict[str, Any]]:
    """What is known of each frame, wherever it is from."""
    return list(frames(who) if isinstance(who, Identified) else stored(who))


def summary(who: Predicted) -> dict[str, Any]:
    """The decisions by device, for JSON."""
    return {
        "recordings": recordings_of(who),
        "calibration": calibrated(who),
        "rejection": who.choices.reject,
        "together_s": who.choices.together_s,
        "misfits": who.misfits,
        "devices": [{"device": name, **of_device(who, rows)} for name, rows in by_device(who)],
    }


def recordings_of(who: Predicted) -> list[str]:
    """The recordings, or the captures of a dataset."""
    if isinstance(who, Identified):
        return [one.recording.about.name for one in who.seen.found]
    return [str(summary.capture) for summary in who.calibration.captures]


def calibrated(who: Predicted) -> dict[str, Any]:
    """What corrected the decisions, for JSON."""
    result = who.calibration
    judged = None if result.judged is None else [judged._asdict() for judged in result.judged]
    title = who.choices.calibrator(who.scores.statistics).title
    return {"method": title, "changed": result.changed, "judged": judged}


def by_device(who: Predicted) -> Iterator[tuple[str | None, NDArray[np.int64]]]:
    """The frames of each device that was found, in the model's order; those of unknown devices, None, come last."""
    for k in sorted(set(who.decision.tolist()), key=lambda k: (k < 0, k)):
        yield (None if k < 0 else who.devices[k]), (who.decision == k).nonzero()[0]


def of_device(who: Predicted, rows: NDArray[np.int64]) -> dict[str, Any]:
    """How many frames a device sent, how sure that is, and of frames of recordings the addresses that they claim."""
    found = {"frames": len(rows), "share": len(rows) / len(who), "probability": float(who.confidence[rows].mean())}
    if not isinstance(who, Identified):
        return found
    counted = Counter(address for i in rows if (address := who.seen.address[i]) is not None)
    return {**found, "addresses": dict(counted.most_common())}


def decision(identity: Identity) -> dict[str, Any]:
    """What a model has decided about a frame, as JSON has it."""
    score, p_value, evidence, fit = identity.unknown_score, identity.p_value, identity.evidence, identity.fit
    return {
        "device": identity.device,
        "like": identity.like,
        "probability": round(identity.probability, 6),
        "unknown": identity.device is None,
        "unknown_score": None if score is None else round(score, 6),
        "p_value": None if p_value is None else round(p_value, 6),
        "evidence": None if evidence is None else round(evidence, 4),
        "fit": None if fit is None else float(f"{fit:.3g}"),
        "reason": identity.reason,
    }


def samples_of(found: Found, frame: FoundFrame) -> int:
    """How long a frame is in its recording: as its header says, or as long as its preamble."""
    length = frame.samples or len(found.waveform.preamble())
    return round(length * found.recording.about.sample_rate_hz / found.waveform.sample_rate_hz)


def write(out: Path, who: Predicted, recording: FileRecording | None = None) -> None:
    """Write the decisions in the format that the name ends with; recording: the one that is annotated."""
    if out.suffix == ".csv":
        write_text_atomic(out, as_csv(who))
    elif out.suffix == ".parquet":
        as_parquet(out, who)
    elif out.suffix == ".jsonl":
        write_text_atomic(out, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in records(who)))
    else:
        assert isinstance(who, Identified)
        assert recording is not None, "only recordings have annotations"
        write_text_atomic(out, as_text(as_sigmf(who, recording, out)))


def as_csv(who: Predicted) -> str:
    """A line per frame, as `flat` has it."""
    text = io.StringIO()
    rows = flat(who)
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def flat(who: Predicted) -> list[dict[str, Any]]:
    """A row of plain values per frame; of the antennas' offsets the median, of their SNR the highest."""
    rows = records(who)
    for row in rows:
        for name, of_all, digits in (("cfo_hz", np.median, 1), ("snr_db", max, 2)):
            if isinstance(values := row.get(name), list):
                known = [value for value in values if value is not None]
                row[name] = round(float(of_all(known)), digits) if known else None
            elif values is not None:
                row[name] = round(values, digits)
        if "quality" in row:
            row["quality"] = round(row["quality"], 4)
    return rows


def as_parquet(out: Path, who: Predicted) -> None:
    """The rows of `flat` as a Parquet file, for pandas, Polars, DuckDB and the like."""
    check_parquet()
    import pyarrow
    from pyarrow import parquet

    rows = flat(who)
    table = pyarrow.table({name: [row[name] for row in rows] for name in rows[0]})
    with atomic(out) as temporary:
        parquet.write_table(table, temporary)


def check_parquet() -> None:
    if find_spec("pyarrow") is None:
        raise MissingExtraError("pyarrow", "parquet", "A .parquet file")


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
    found = who.seen.found[0]
    rows = zip(frames(who), who.frames, who.decision.tolist(), strict=True)
    notes = [_annotation(row, number, _band(found, frame), offset) for row, frame, number in rows]
    metadata = {"global": info, "captures": known["captures"], "annotations": notes}
    validate(metadata, str(out))
    return metadata


def _band(found: Found, frame: FoundFrame) -> tuple[float, float] | None:
    """In Hz, where the carrier is known."""
    return None if found.recording.about.carrier_hz is None else band_of(found, frame)


def _annotation(
    frame: Mapping[str, Any], number: int, band_hz: tuple[float, float] | None, offset: int
) -> dict[str, Any]:
    """One frame; the device that the model names, the `number`-th of its own, is `signal:emitter`."""
    known = {name: frame[name] for name in ("cfo_hz", "snr_db", "like", "probability")}
    known |= {name: frame[name] for name in ("bandwidth_hz", "channel_hz") if name in frame}
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
