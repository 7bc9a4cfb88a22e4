"""The command detect."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from pathlib import Path
from statistics import fmean, median, pstdev
from typing import TYPE_CHECKING, Any

import typer

from pisa_capc.cli import app
from pisa_capc.cli.options import AsJson, Force, options_of
from pisa_capc.cli.output import print_table, say
from pisa_capc.cli.recordings import (
    NONE_FOUND,
    PseudonymKey,
    Reading,
    Recordings,
    ReferenceFile,
    reference_in,
    renaming,
)
from pisa_capc.core.errors import ConfigError
from pisa_capc.core.progress import console as notes

if TYPE_CHECKING:
    from pisa_capc.signal.detection import Found, FoundFrame
    from pisa_capc.signal.detection.dataset import DatasetChoices, Written
    from pisa_capc.signal.recordings.base import FileRecording

SHOWN = 20  # frames in the table
ENDING = "detected"  # NAME.detected.sigmf-meta


@app.command("detect")
@options_of(Reading)
def detect_(
    reading: Reading,
    recordings: list[str] = Recordings,
    waveform: str | None = typer.Option(
        None,
        help="What frames to look for: as wifi (the default), lora or adsb, or burst: any signal by its energy, "
        "with settings in seconds as burst:min=20e-6,max=0.05,gap=5e-3, burst:window=1e-3,hop=1e-3 for one that "
        "never stops, or burst:channels=433.05e6+433.92e6,width=100e3 for channels of a band (without channels: all).",
        show_default=False,
    ),
    reference: Path | None = ReferenceFile,
    out: Path | None = typer.Option(
        None, help="Where to write: the folder of a dataset of the frames.", show_default=False
    ),
    annotate: bool = typer.Option(
        False, "--annotate", help="Write SigMF metadata with the frames as annotations beside each recording."
    ),
    decode: bool = typer.Option(True, help="Read headers: rate, length, kind, addresses, checksum."),
    label: str = typer.Option(
        "address",
        help="Devices of --out: address (of frames with a right checksum), annotation (that the frame lies in), "
        "pattern (from the path), none.",
    ),
    pattern: str | None = typer.Option(
        None,
        help="Path of a capture's file, as '{environment}/{device}/{capture}.mat'; here the end of a recording's.",
        show_default=False,
    ),
    environment: str | None = typer.Option(None, help="Environment: that of --out; default E1.", show_default=False),
    capture: str | None = typer.Option(None, help="Capture: that of --out; default the recording.", show_default=False),
    samples: int | None = typer.Option(
        None,
        min=2,
        help="Samples of a frame; of those in --out. Default what the waveform says: Wi-Fi 320, LoRa 8192.",
        show_default=False,
    ),
    keep_cfo: bool = typer.Option(False, "--keep-cfo", help="Leave the carrier offset in the samples, those of --out."),
    pseudonyms: Path | None = PseudonymKey,
    force: bool = Force,
    as_json: bool = AsJson,
) -> None:
    """Find the frames in raw recordings, and whom they claim to be from.

    Exit code 0: frames were found; 1: none was; 2: a recording could not be used.
    """
    from pisa_capc.signal.detection.dataset import DatasetChoices

    choices = DatasetChoices(label, environment, capture, samples, keep_cfo)
    _check(choices, pattern, decode, out)
    opened = reading.open(recordings)
    _check_outputs(opened, out, annotate, force)
    named = [_named(recording, pattern) for recording in opened]
    rename = renaming(pseudonyms)
    sought = reference_in(reference, opened, waveform) if reference is not None else waveform or "wifi"
    found = [reading.find_frames(recording, sought, not as_json, rename, decode) for recording in opened]
    there = sum(len(one.frames) for one in found)
    written = _write(out, found, choices, named, not as_json) if out is not None and there else None
    metadata = [path for one, own in zip(found, opened, strict=True) for path in _annotate(one, own, annotate, force)]
    if as_json:
        name = sought if isinstance(sought, str) else sought.name
        print(json.dumps(_as_json(found, name, written, out, metadata), indent=1))
    else:
        _show(found, written, out, metadata)
    if not there:
        raise typer.Exit(NONE_FOUND)


def _check(choices: DatasetChoices, pattern: str | None, decode: bool, out: Path | None) -> None:
    """Refuse contradictory options before a long recording is read."""
    from pisa_capc.core.errors import unknown_name
    from pisa_capc.signal.detection.dataset import KINDS

    if choices.label not in KINDS:
        raise ConfigError(unknown_name("label", choices.label, KINDS))
    if choices.label == "pattern" and (pattern is None or "{device}" not in pattern):
        raise ConfigError("--label pattern: give --pattern with {device}, as '{device}/{capture}.cs16'.")
    if choices.label == "address" and not decode and out is not None:
        raise ConfigError("--label address needs what --no-decode leaves out. Choose another --label, as none.")


def _check_outputs(recordings: Sequence[FileRecording], out: Path | None, annotate: bool, force: bool) -> None:
    """So is what cannot be written."""
    from pisa_capc.data.store.files import new_folder
    from pisa_capc.signal.detection.dataset import common
    from pisa_capc.signal.recordings.sigmf import places_of

    if out is not None:
        common([recording.about for recording in recordings])
        if not (out / "dataset.json").exists():
            new_folder(out)
    for recording in recordings if annotate else ():
        places_of(recording, ENDING, force)


def _named(recording: FileRecording, pattern: str | None) -> dict[str, str]:
    from pisa_capc.data.store.files import named_by

    return {} if pattern is None else named_by(recording.files[0].path, pattern)


def _write(
    out: Path, found: Sequence[Found], choices: DatasetChoices, named: Sequence[dict[str, str]], show: bool
) -> Written:
    from pisa_capc.signal.detection.dataset import write_frames

    return write_frames(out, found, choices, named, show)


def _annotate(found: Found, recording: FileRecording, wanted: bool, force: bool) -> list[Path]:
    from pisa_capc.signal.detection.finding import GENERATOR, as_annotations
    from pisa_capc.signal.recordings.sigmf import write_annotations

    if not wanted:
        return []
    return write_annotations(recording, lambda antennas: as_annotations(found, antennas), GENERATOR, ENDING, force)


def _as_json(
    found: Sequence[Found], waveform: str, written: Written | None, out: Path | None, metadata: Sequence[Path]
) -> dict[str, Any]:
    recordings = [
        {
            "recording": one.recording.about.name,
            "sample_rate_hz": one.recording.about.sample_rate_hz,
            "carrier_hz": one.recording.about.carrier_hz,
            "antennas": one.recording.about.antennas,
            "samples": one.recording.about.length,
            "frames": len(one.frames),
        }
        for one in found
    ]
    result: dict[str, Any] = {"waveform": waveform, "recordings": recordings}
    if written is not None:
        kept = sum(spec.frames for spec in written.dataset.captures)
        result["dataset"] = {"out": str(out), "frames": kept, "left_out": written.left_out}
    if metadata:
        result["metadata"] = [str(path) for path in metadata]
    return {"frames": [frame.to_json() for one in found for frame in one.frames], **result}


def _show(found: Sequence[Found], written: Written | None, out: Path | None, metadata: Sequence[Path]) -> None:
    for one in found:
        about = one.recording.about
        where = f"{about.name}: {about.length / about.sample_rate_hz:.4g} s of {about.antennas} antenna(s)"
        if not one.frames:
            notes.print(f"{where}: no {one.waveform.title} frame was found.", soft_wrap=True)
            continue
        of_s = 1 / one.waveform.sample_rate_hz
        headings = [
            "start",
            "time (s)",
            "CFO (kHz)",
            "SNR (dB)",
            "quality",
            "channel (MHz)",
            "length (ms)",
            "bandwidth (kHz)",
            "kind",
            "Mb/s",
            "octets",
            "from",
            "to",
            "FCS",
        ]
        title = f"{where}, {len(one.frames):,} frames" + (f", the first {SHOWN}" if len(one.frames) > SHOWN else "")
        rows = [_row(frame, of_s) for frame in one.frames[:SHOWN]]
        said = [any(row[column] != "–" for row in rows) for column in range(len(headings))]
        shown = [list(compress(row, said)) for row in [headings, *rows]]
        print_table(title, shown[0], shown[1:], left=("kind", "from", "to", "FCS"))
    frames = [frame for one in found for frame in one.frames]
    if any(frame.channel_hz is not None for frame in frames):
        headings = ["channel (MHz)", "frames", "CFO (kHz)", "SNR (dB)"]
        print_table("Channels", headings, [[row[0], row[1], *row[3:]] for row in _senders(frames, _channel)])
    elif any(frame.header.kind is not None for frame in frames):
        headings = ["from", "frames", "checksum right", "CFO (kHz)", "SNR (dB)"]
        print_table("Senders, by the address that they claim", headings, list(_senders(frames, _address)))
    for sentence in _remarks(found):
        notes.print(sentence, soft_wrap=True)
    if written is not None:
        captures = written.dataset.captures
        say(f"{out}: {sum(c.frames for c in captures):,} frames in {len(captures)} captures")
        for reason, count in written.left_out.items():
            notes.print(f"left out: {count:,} frames {reason}.", soft_wrap=True)
    for path in metadata:
        notes.print(f"metadata: {path}", soft_wrap=True)


def _row(frame: FoundFrame, of_s: float) -> list[str]:
    """of_s: seconds of a sample. What a frame does not say is a dash; a column of them is left out."""
    header, is_burst = frame.header, frame.bandwidth_hz is not None
    return [
        f"{frame.start:,}",
        f"{frame.time_s:.6f}",
        f"{median(frame.cfo_hz) / 1e3:.2f}",
        f"{max(frame.snr_db):.1f}",
        f"{frame.quality:.2f}",
        _channel(frame) or "–",
        f"{1e3 * of_s * (frame.samples or 0):.3f}" if is_burst else "–",
        "–" if frame.bandwidth_hz is None else f"{frame.bandwidth_hz / 1e3:.1f}",
        header.kind or "–",
        "–" if header.rate_mbps is None else f"{header.rate_mbps:g}",
        "–" if header.length is None else str(header.length),
        header.transmitter or "–",
        header.receiver or "–",
        {True: "right", False: "wrong", None: "–"}[header.fcs],
    ]


def _channel(frame: FoundFrame) -> str:
    return "" if frame.channel_hz is None else f"{frame.channel_hz / 1e6:.6g}"


def _address(frame: FoundFrame) -> str:
    return frame.header.transmitter or ""


def _senders(frames: Iterable[FoundFrame], name: Callable[[FoundFrame], str]) -> Iterable[list[str]]:
    """A row per claimed address, or channel, the busiest first."""
    by_address: dict[str, list[FoundFrame]] = {}
    for frame in frames:
        by_address.setdefault(name(frame), []).append(frame)
    for address, own in sorted(by_address.items(), key=lambda item: (not item[0], -len(item[1]))):
        cfo_khz = [median(frame.cfo_hz) / 1e3 for frame in own]
        yield [
            address or "(none)",
            f"{len(own):,}",
            f"{sum(frame.header.fcs is True for frame in own):,}",
            f"{fmean(cfo_khz):.2f} ± {pstdev(cfo_khz):.2f}",
            f"{median(max(frame.snr_db) for frame in own):.1f}",
        ]


def _remarks(found: Sequence[Found]) -> Iterable[str]:
    """What a reader of the frames should know of them."""
    for one in found:
        name, end = one.recording.about.name, one.stream.about.length
        overlapping = sum(
            before.samples is not None and after.at < before.at + before.samples
            for before, after in zip(one.frames, one.frames[1:], strict=False)
        )
        cut = sum(frame.samples is not None and frame.at + frame.samples > end for frame in one.frames)
        if overlapping:
            yield f"{name}: frames that begin before the one before them has ended: {overlapping:,}."
        if cut:
            yield f"{name}: it ends within the last frame."
