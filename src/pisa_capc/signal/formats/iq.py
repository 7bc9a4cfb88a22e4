"""I/Q as people have it: NumPy, WAV, MAT, plain samples, SigMF without annotations; frames, or recordings to cut.

A folder names devices by its paths, by --pattern, or by the JSON that rtl_433 writes beside each recording (`model`
and `id`). Recordings are cut into windows, into bursts, or are a frame each. Samples stay as they were received.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from pisa_capc.core.config import parse_json
from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.core.quantities import frequency
from pisa_capc.data.store.dataset import UNLABELLED, CaptureSpec
from pisa_capc.data.store.files import fields_of, find_captures
from pisa_capc.data.store.origins import Origin
from pisa_capc.data.store.outside import files_under
from pisa_capc.signal.detection import FoundFrame
from pisa_capc.signal.detection.dataset import file_name, origin_of
from pisa_capc.signal.formats.arrays import MAT
from pisa_capc.signal.formats.base import (
    EVERYWHERE,
    Format,
    ImportOptions,
    Plan,
    Samples,
    assumptions,
    check_unnamed,
    described,
    register_format,
)
from pisa_capc.signal.formats.cuts import SignalFile, alike, cut, open_file
from pisa_capc.signal.recordings.containers import NPY, WAV, said_by_name
from pisa_capc.signal.recordings.encoding import ENDINGS
from pisa_capc.signal.recordings.sigmf import META

KNOWN = (*(f".{ending}" for ending in ENDINGS), WAV, NPY, MAT, META)
BESIDE = (".json", ".txt", ".md", ".csv", ".sigmf-data", ".sigmf-meta")  # that hold no plain samples
LAYOUTS = {0: "{device}", 1: "{device}/{capture}", 2: "{environment}/{device}/{capture}"}  # by folders on the way
RTL_LAYOUTS = {0: "", 1: "{environment}/", 2: "{environment}/{capture}/"}
RATES = (None, 5.825e9)  # sample rate, which somebody has to say, and carrier
RTL_433 = (250e3, 433.92e6)  # what that program records with unless it is told
MOST_BYTES = 8 << 30  # of the samples of a capture
MOST_JSON = 1 << 20  # bytes


def plan(source: Path, options: ImportOptions) -> Plan:
    """One file, or a folder of files of one kind."""
    _check(options)
    found, said, notes = _named(source, options)
    found, copies = _without_copies(found)
    default = RTL_433 if "rtl_433" in said else RATES
    files = [open_file(path, names, options, default) for path, names in found]
    rates = alike(files)
    cuts, samples, how, found_frames = cut(files, options)
    members: dict[tuple[str, str, str], list[tuple[SignalFile, int]]] = {}
    bursts: dict[tuple[str, str, str], list[tuple[SignalFile, FoundFrame]]] = {}
    for number, (file, starts) in enumerate(zip(files, cuts, strict=True)):
        key = file.names["environment"], file.names["device"], file.names["capture"]
        members.setdefault(key, []).extend((file, start) for start in starts)
        own = bursts.setdefault(key, [])
        own += [(file, found_frames[number, start]) for start in starts if (number, start) in found_frames]
    specs = {CaptureSpec(*key, len(own)): own for key, own in members.items() if own}
    if not specs:
        raise DataError(f"{source}: no frame was found. {how}. Give --window, in seconds, to cut it anyway.")
    antennas = {spec: (own[0][0].antennas, samples) for spec, own in specs.items()}
    largest = max(spec.frames * shape[0] * shape[1] * 8 for spec, shape in antennas.items())
    if largest > MOST_BYTES:
        raise DataError(
            f"{source}: a capture would hold {largest / 2**30:.0f} GB of samples; expected at most "
            f"{MOST_BYTES / 2**30:.0f}. Give a --hop that is longer than the --window, or fewer --samples."
        )

    def read(spec: CaptureSpec) -> Samples:
        return np.stack([file.read(start, samples) for file, start in specs[spec]]), None

    def origins(spec: CaptureSpec) -> Iterator[Origin]:
        for i, (file, frame) in enumerate(bursts[spec.environment, spec.device, spec.capture]):
            yield origin_of(spec, i, frame, file.about, file.about.sample_rate_hz)

    dataset = described(antennas, options, *rates)
    known = {*said, *files[0].said}
    known |= {"geometry"} if dataset.geometry.antennas == 1 else set()
    words = [file.words for file in files[:1] if file.words]
    assumed = [*words, how, *said[:1], *assumptions(options, known, rates)]
    return Plan(
        dataset,
        read,
        lambda spec, i: specs[spec][i][0].place(specs[spec][i][1]),
        tuple(assumed),
        (*notes, *copies),
        origins if found_frames else None,
    )


def _check(options: ImportOptions) -> None:
    waveform = (options.waveform or "burst").partition(":")[0]
    if waveform != "burst":
        raise ConfigError(
            f"--waveform {options.waveform}: here frames are cut by their energy, --waveform burst. Frames of "
            f"{waveform} are found by `pisa detect --waveform {waveform} --out`."
        )
    if options.window is not None and options.waveform is not None:
        raise ConfigError("--window and --waveform: expected one of them, for frames are cut in one way.")
    if options.hop is not None and options.window is None:
        raise ConfigError(f"--hop {options.hop:g}: needs a --window.")
    for name, value in (("--sample-rate", options.sample_rate_hz), ("--carrier", options.carrier_hz)):
        if value is not None:
            frequency(value, name)
    for name in ("window", "hop"):
        value = getattr(options, name)
        if value is not None and not 0 < value <= 3600:
            raise ConfigError(f"--{name} {value:g}: expected seconds, more than zero.")


# Which files, and whose they are.


def _named(
    source: Path, options: ImportOptions
) -> tuple[list[tuple[Path, dict[str, str]]], list[str], tuple[str, ...]]:
    """Files with their names; what the names say, in words first; and notes."""
    defaults = options.names()
    if not source.is_dir():
        if options.pattern is not None:
            raise ConfigError(f"--pattern {options.pattern}: {source} is one file. Leave it out, or name the folder.")
        device = options.device or _by_json(source) or UNLABELLED
        return [(source, {**defaults, "device": device})], [f"device {device} (--device-name)"], ()
    if options.pattern is not None:
        named = [*fields_of(options.pattern)]
        check_unnamed(options, named, f"the pattern {options.pattern}")
        files = find_captures(source, options.pattern, defaults)
        if "device" in named or options.device is not None:
            return files, ["names by the pattern (--pattern)", *named], ()
        return _by_beside(source, files, named)
    paths = _readable(source, options)
    if options.device is None and any(_json_of(path) for path in paths):
        return _by_beside(source, *_by_layout(source, paths, defaults, RTL_LAYOUTS))
    if options.device is not None:
        return [(path, defaults) for path in paths], [f"device {options.device}"], ()
    files, named = _by_layout(source, paths, defaults, LAYOUTS)
    check_unnamed(options, named, "a folder or file")
    return files, [f"paths read as {'/'.join(f'{{{name}}}' for name in named)} (--pattern)", *named], ()


def _readable(source: Path, options: ImportOptions) -> list[Path]:
    """The files of a folder that may hold samples."""
    there = [path for path in files_under(source) if not path.name.startswith(".")]
    if options.format is not None:
        known = (WAV, NPY, MAT, *BESIDE)
        paths = [path for path in there if path.suffix.lower() not in known]
    else:
        paths = [path for path in there if path.suffix.lower() in KNOWN or said_by_name(path).encoding is not None]
    if not paths:
        endings = ", ".join(sorted({path.suffix or path.name for path in there})[:8]) or "no files"
        raise DataError(
            f"{source}: found {endings}; expected files that end in {', '.join(KNOWN)}. Give the --format of plain "
            "samples, as cs16, where their ending does not say it."
        )
    return paths


def _by_layout(
    source: Path, paths: Sequence[Path], defaults: dict[str, str], layouts: dict[int, str]
) -> tuple[list[tuple[Path, dict[str, str]]], list[str]]:
    """Names from the folders on the way, and from the file itself."""
    depths = {len(path.relative_to(source).parts) - 1 for path in paths}
    if len(depths) > 1 or max(depths) not in layouts:
        raise ConfigError(
            f"{source}: its files lie {' and '.join(map(str, sorted(depths)))} folders deep. Say what the paths mean "
            "by --pattern, as '{environment}/{device}/{capture}.cs16'."
        )
    named = [part[1:-1] for part in layouts[depths.pop()].split("/") if part]
    files = []
    for path in paths:
        parts = [*path.relative_to(source).parts[:-1], path.name.removesuffix(path.suffix)]
        own = {name: file_name(part) for name, part in zip(named, parts, strict=False)}
        files.append((path, {**defaults, **own}))
    return files, named


def _json_of(path: Path) -> list[dict[str, object]]:
    """What rtl_433 decoded of a recording: lines of JSON beside it; nothing where there are none."""
    beside = path.with_suffix(".json")
    if not beside.is_file() or beside.stat().st_size > MOST_JSON:
        return []
    lines = beside.read_text(errors="replace").splitlines()
    found = []
    for line in lines:
        try:
            event = parse_json(line) if line.strip() else None
        except (ValueError, json.JSONDecodeError, RecursionError):
            continue
        if isinstance(event, dict) and "model" in event:
            found.append(event)
    return found


def _by_json(path: Path) -> str | None:
    """The one device that rtl_433 heard in a recording, as MODEL-ID."""
    names = {f"{event['model']}-{event['id']}" for event in _json_of(path) if "id" in event}
    return file_name(names.pop()) if len(names) == 1 else None


def _by_beside(
    source: Path, files: Sequence[tuple[Path, dict[str, str]]], named: list[str]
) -> tuple[list[tuple[Path, dict[str, str]]], list[str], tuple[str, ...]]:
    devices = [(path, names, _by_json(path)) for path, names in files]
    kept = [(path, {**names, "device": device}) for path, names, device in devices if device is not None]
    left = [path.name for path, _, device in devices if device is None]
    if not kept:
        raise DataError(
            f"{source}: nothing says whose its recordings are. Expected {{device}} in --pattern, --device-name, or "
            "rtl_433's JSON with model and id beside each."
        )
    notes = (
        f"Left out {len(left)} recordings whose JSON does not name one device: {', '.join(left[:4])}"
        f"{', …' if len(left) > 4 else ''}.",
    )
    return kept, ["devices by model and id of rtl_433's JSON", "rtl_433", *named, "device"], notes if left else ()


def _without_copies(
    found: Sequence[tuple[Path, dict[str, str]]],
) -> tuple[list[tuple[Path, dict[str, str]]], tuple[str, ...]]:
    """Each content once."""
    sizes = [path.stat().st_size for path, _ in found]
    first: dict[tuple[int, str], Path] = {}
    kept, notes = [], []
    for (path, names), size in zip(found, sizes, strict=True):
        if sizes.count(size) > 1 and size and path.suffix != META:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            same = first.setdefault((size, digest), path)
            if same != path:
                notes.append(f"{path.name} is the same as {same.name}")
                continue
        kept.append((path, names))
    shown = f"{'; '.join(notes[:4])}{'; …' if len(notes) > 4 else ''}"
    return kept, (f"Identical files are taken once: {shown} ({len(notes)} left out).",) if notes else ()


@register_format("iq")
class IqFormat(Format):
    """I/Q in files of any kind."""

    uses = EVERYWHERE | {"pattern", "iq_key", "samples", "axes", "device", "format", "waveform", "window", "hop"}
    plan = staticmethod(plan)
