"""Commands about frames: inspect, import, export, split."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from rich import box
from rich.table import Table

from pisa_capc.cli import app
from pisa_capc.cli.options import AsJson, HeldOut
from pisa_capc.cli.output import listed, say
from pisa_capc.core.errors import ConfigError
from pisa_capc.core.progress import PlainConsole
from pisa_capc.core.progress import console as notes

Folder = typer.Argument(help="A dataset made by `pisa simulate` or `pisa import`.", show_default=False)
# What varies within a recording: over time, and from antenna to antenna.
CFO_SPREADS = ("CFO drift (Hz)", "antennas (Hz)")
LISTED = 40  # devices of a table; of more its lines would be scrolled away


@app.command()
def inspect(
    folder: Path = Folder,
    plot: Path | None = typer.Option(None, help="Draw: a frame, its spectrum, CFO and power delay into this file."),
    verify: bool = typer.Option(False, "--verify", help="Read every capture and compare it with its checksum."),
    as_json: bool = AsJson,
) -> None:
    """Show what a dataset holds: environments, captures, devices, frames, rates, array and CFO."""
    from pisa_capc.data.store.native import summarise
    from pisa_capc.evidence.figures.style import check_picture

    if plot is not None:
        check_picture(plot)
    if verify:
        _verify(folder)
    found = summarise(folder)
    if as_json:
        print(json.dumps(found, indent=1))
    else:
        _print_summary(found)
    if found["missing"]:
        notes.print(
            f"{len(found['missing'])} captures are announced and not there, the first is {found['missing'][0]}: "
            "run the command that made the dataset again.",
            soft_wrap=True,
        )
        raise typer.Exit(2)
    if plot is not None:
        from pisa_capc.evidence.figures.dataset import dataset_picture

        dataset_picture(folder, plot)
        notes.print(f"picture: {plot}", highlight=False)


@app.command("import")
def import_(
    format: str = typer.Argument(
        help="iq (recordings and arrays of any kind), mat, sigmf, npz, hdf5 (LoRa_RFFI), csi, or that of a plugin.",
        show_default=False,
    ),
    source: Path = typer.Argument(help="Folder or file to read.", show_default=False),
    out: Path = typer.Option(help="Where to write: the folder of the new dataset.", show_default=False),
    pattern: str | None = typer.Option(
        None, help="Path of a capture's file, as '{environment}/{device}/{capture}.mat'.", show_default=False
    ),
    iq_key: str | None = typer.Option(None, help="Name of the I/Q array.", show_default=False),
    cfo_key: str | None = typer.Option(None, help="Name of the CFO array.", show_default=False),
    antennas: int | None = typer.Option(
        None,
        min=1,
        help="Antennas of plain samples; of a frame in other formats. Default for MAT: 4, for iq: 1.",
        show_default=False,
    ),
    samples: int | None = typer.Option(
        None, min=2, help="Samples of a frame; SigMF, iq: cut frames to these.", show_default=False
    ),
    axes: str | None = typer.Option(
        None, help="Order of the axes of arrays: n frames, T samples, A antennas, as nTA.", show_default=False
    ),
    sample_format: str | None = typer.Option(
        None,
        "--format",
        help="Encoding of plain samples, as cf32 or cs16; for iq, where the ending does not say it.",
        show_default=False,
    ),
    window: float | None = typer.Option(
        None, help="iq: cut recordings into frames of so many seconds.", show_default=False
    ),
    hop: float | None = typer.Option(
        None, help="iq: seconds from the beginning of a window to the next; default the window.", show_default=False
    ),
    waveform: str | None = typer.Option(
        None,
        help="What frames to look for: burst, with settings as of `pisa detect`, as burst:gap=5e-3,max=1; for iq.",
        show_default=False,
    ),
    environment: str | None = typer.Option(
        None, help="Environment: of files that name none; default E1, required for SigMF folders.", show_default=False
    ),
    capture: str | None = typer.Option(
        None, help="Capture: of files that name none; default L1, required for SigMF folders.", show_default=False
    ),
    device: str | None = typer.Option(
        None,
        "--device-name",
        help="Name of the device that sent the frames; where they name none, `unlabelled` if unknown.",
        show_default=False,
    ),
    sample_rate: float | None = typer.Option(
        None, help="Sample rate in Hz; where the files do not say it.", show_default=False
    ),
    carrier: float | None = typer.Option(
        None, help="Carrier in Hz; where the files do not say it.", show_default=False
    ),
    array: str | None = typer.Option(
        None, help="square, linear, circular, or a JSON file with coordinates_wavelengths.", show_default=False
    ),
    spacing: float | None = typer.Option(
        None, help="Between neighbouring antennas of --array, in wavelengths; default 0.5.", show_default=False
    ),
    card: str | None = typer.Option(
        None,
        "--csi-card",
        help="CSI: intel, atheros, nexmon, picoscenes or esp32; default: recognised.",
        show_default=False,
    ),
    chip: str | None = typer.Option(
        None, help="CSI of Nexmon: 4339, 43455c0, 4358 or 4366c0, where the file does not say.", show_default=False
    ),
    stream: int = typer.Option(0, min=0, help="CSI: the transmit stream to keep, from 0."),
    phases: str | None = typer.Option(
        None,
        help="CSI, for one more version: sanitised takes off what `pisa train --front common` does; raw does nothing.",
        show_default=False,
    ),
    skip_bad: bool = typer.Option(False, "--skip-bad", help="Leave out what cannot be used: packets of channel state."),
    by_address: bool = typer.Option(
        False, "--by-address", help="CSI: the sender's address in the log is the device that sent a frame."
    ),
    add: bool = typer.Option(False, "--add", help="Add to the dataset that is there: further recordings."),
    as_json: bool = AsJson,
) -> None:
    """Make a dataset from frames in another format; a run that was stopped goes on where it was.

    What a file does not say is printed as assumed. iq cuts recordings of any signal into bursts or windows; frames of
    Wi-Fi, LoRa and plugins' waveforms are found in recordings by `pisa detect`.
    """
    from pisa_capc.data.store.native import describe
    from pisa_capc.signal.formats import CsiOptions, ImportOptions, import_dataset

    if spacing is not None and array is None:
        raise ConfigError(f"--spacing {spacing}: needs an array. Give --array square, linear or circular with it.")
    geometry = (
        None
        if array is None
        else _geometry(array, antennas or (1 if format == "iq" else 4), 0.5 if spacing is None else spacing)
    )
    csi = CsiOptions(card, chip, stream, phases or CsiOptions.phases, skip_bad, by_address)
    options = ImportOptions(
        pattern,
        iq_key,
        cfo_key,
        antennas,
        samples,
        axes,
        environment,
        capture,
        sample_rate,
        carrier,
        geometry,
        device,
        csi if format == "csi" or csi != CsiOptions() else None,
        sample_format,
        waveform,
        window,
        hop,
    )
    if phases is not None:
        notes.print(
            "note: --phases is deprecated and goes with the next version. Imports keep what the card reports, and "
            "`pisa train --front` says what is taken off.",
            highlight=False,
            soft_wrap=True,
        )
    dataset = import_dataset(format, source, out, options, show=not as_json, add=add)
    kinds = [sorted({getattr(c, kind) for c in dataset.captures}) for kind in ("environment", "device", "capture")]
    names = {c.name for c in dataset.captures}
    absent = [n for e in kinds[0] for d in kinds[1] for c in kinds[2] if (n := f"{e}/{d}/{c}") not in names]
    frames = sum(c.frames for c in dataset.captures)
    if as_json:
        print(json.dumps({"captures": len(dataset.captures), "frames": frames, "absent": absent, "out": str(out)}))
        return
    say(f"{out}: {describe(dataset)}")
    if absent:
        notes.print(f"not recorded: {', '.join(absent[:8])}{' …' if len(absent) > 8 else ''}", highlight=False)


@app.command("export")
def export_(
    format: str = typer.Argument(help="mat, sigmf, npz, hdf5 (LoRa_RFFI), or that of a plugin.", show_default=False),
    folder: Path = Folder,
    out: Path = typer.Option(help="Where to write: a folder, or a file for npz.", show_default=False),
    pattern: str | None = typer.Option(
        None, help="Path of a capture's file, as '{environment}/{device}/{capture}.mat'.", show_default=False
    ),
    mat_version: str = typer.Option("5", help="Of MAT files: 5 or 7.3."),
    antenna: int | None = typer.Option(None, help="The one antenna that hdf5 holds.", show_default=False),
    as_json: bool = AsJson,
) -> None:
    """Write a dataset in another format."""
    from pisa_capc.data.frames import load
    from pisa_capc.signal.formats import ExportOptions, export_dataset

    frames = load(folder)
    export_dataset(format, frames, out, ExportOptions(pattern, mat_version, antenna), show=not as_json)
    if as_json:
        print(json.dumps({"format": format, "frames": len(frames), "out": str(out)}))
    else:
        say(f"{out}: {len(frames)} frames as {format}")


@app.command("split")
def split_(
    folder: Path = Folder,
    source: str = typer.Option(help="Source environments, as E2,E3.", show_default=False),
    target: str = typer.Option(help="Target environments, as E1.", show_default=False),
    seed: int = typer.Option(2026, help="Seed: of the split."),
    held_out: str = HeldOut,
    as_json: bool = AsJson,
) -> None:
    """Count the frames of a split: source training and validation, and target, per device and capture."""
    from pisa_capc.data.frames import Frames, groups_of, load
    from pisa_capc.data.protocol import FEW_SHOT, few_shot_note, split

    frames = load(folder)
    parts = split(frames, listed(source), listed(target), seed, held_out=held_out)
    # Counting devices of the target is for people; the split itself keeps them to its evaluator.
    labelled: dict[str, Frames] = {
        "train": parts.train,
        "validation": parts.validation,
        "target": frames.select(parts.target.rows),
    }
    totals = {name: len(part) for name, part in labelled.items()}
    per_device = {
        device: {name: int((part.device == i).sum()) for name, part in labelled.items()}
        for i, device in enumerate(frames.devices)
    }
    keys = sorted({str(key) for part in labelled.values() for key in set(part.capture_key.tolist())})
    per_capture = {key: {name: int((part.capture_key == key).sum()) for name, part in labelled.items()} for key in keys}
    if as_json:
        chosen = {"source": listed(source), "target_environments": listed(target), "seed": seed}
        print(json.dumps({**totals, **chosen, "per_device": per_device, "per_capture": per_capture}, indent=1))
        return
    table = _table(f"{source} → {target}, seed {seed}", ["", *totals], left=("",))
    table.add_row("all", *(f"{n:,}" for n in totals.values()), style="bold", end_section=True)
    for rows in (per_device, per_capture):
        for i, (name, counts) in enumerate(rows.items(), 1):
            table.add_row(name, *(f"{n:,}" if n else "–" for n in counts.values()), end_section=i == len(rows))
    PlainConsole().print(table)
    whole = frames.where(environment=listed(target))
    if note := few_shot_note(FEW_SHOT, [len(members) for members in groups_of(whole)]):
        notes.print(note, highlight=False, soft_wrap=True)


def _verify(folder: Path) -> None:
    from pisa_capc.core.progress import progress
    from pisa_capc.data.store.native import Dataset, StoreSource
    from pisa_capc.data.store.origins import read_origins

    dataset = Dataset.read(folder)
    missing = {c.name for c in dataset.missing(folder)}
    there = [c for c in dataset.captures if c.name not in missing]
    with progress("verify", total=len(there)) as bar:
        for spec in there:
            StoreSource(folder, dataset).verify(spec)
            bar.advance(note=spec.name)
    read_origins(folder)


def _geometry(array: str, antennas: int, spacing: float) -> Any:
    from pisa_capc.core.config import read_yaml
    from pisa_capc.data.geometry import ArrayGeometry, named

    # JSON is YAML.
    return ArrayGeometry.from_json(read_yaml(Path(array))) if "." in array else named(array, antennas, spacing)


def _print_summary(found: dict[str, Any]) -> None:
    out = PlainConsole()
    over_time = found["domain"] == "time"
    shape = f"{found['antennas']} × {found['samples']} {'samples' if over_time else found['domain']}"
    rates = f"{found['sample_rate_hz'] / 1e6:g} {'MS/s' if over_time else 'MHz'} at {found['carrier_hz'] / 1e9:g} GHz"
    out.print(
        f"{found['folder']}: {found['total_frames']:,} frames of {shape}, {rates}, {found['geometry']['kind']} array, "
        f"{len(found['devices'])} devices. Made by: {found['made_by'] or 'unknown'}.",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    if not over_time:
        own = found.get("subcarriers", {"front": "unknown, of an earlier version", "empty": []})
        empty = f"; empty subcarriers {', '.join(map(str, own['empty']))}" if own["empty"] else ""
        out.print(f"Front end of its channel state: {own['front']}{empty}.", highlight=False, soft_wrap=True)
    out.print(_capture_table(found))
    if len(found["devices"]) <= LISTED:
        out.print(_device_table(found))
    else:
        out.print(_of_devices(found), highlight=False, soft_wrap=True)


def _capture_table(found: dict[str, Any]) -> Table:
    headings = ["", "capture", "devices", "frames each", "frames", *(CFO_SPREADS if found["cfo_hz"] else ()), "absent"]
    table = _table("Captures", headings, left=("", "capture", "absent"))
    for environment, captures in sorted(found["frames"].items()):
        for i, (capture, devices) in enumerate(sorted(captures.items()), 1):
            each = sorted(set(devices.values()))
            cells = [
                environment if i == 1 else "",
                capture,
                str(len(devices)),
                str(each[0]) if len(each) == 1 else f"{each[0]}–{each[-1]}",
                f"{sum(devices.values()):,}",
            ]
            if found["cfo_hz"]:
                cells += _spread_cells(found["cfo_hz"]["per_capture"][f"{environment}/{capture}"])
            absent = [d for d in found["devices"] if d not in devices]
            cells.append(", ".join(absent) if len(absent) <= LISTED else f"{len(absent):,} devices")
            table.add_row(*cells, end_section=i == len(captures))
    return table


def _frames_of(found: dict[str, Any], device: str) -> int:
    return sum(c.get(device, 0) for captures in found["frames"].values() for c in captures.values())


def _of_devices(found: dict[str, Any]) -> str:
    """Many devices in a line."""
    frames = [_frames_of(found, device) for device in found["devices"]]
    said = f"{len(frames):,} devices with {min(frames):,} to {max(frames):,} frames each"
    if found["cfo_hz"]:
        mean = [cfo["mean"] / 1e3 for cfo in found["cfo_hz"]["per_device"].values()]
        said += f", mean CFO from {min(mean):.2f} to {max(mean):.2f} kHz"
    return f"{said}. --json lists them."


def _device_table(found: dict[str, Any]) -> Table:
    headings = ["device", "frames", *(("CFO (kHz)", *CFO_SPREADS) if found["cfo_hz"] else ())]
    table = _table("Devices", headings, left=("device",))
    for device in found["devices"]:
        cells = [device, f"{_frames_of(found, device):,}"]
        if found["cfo_hz"] and (cfo := found["cfo_hz"]["per_device"].get(device)):
            cells += [f"{cfo['mean'] / 1e3:.2f}", *_spread_cells(cfo)]
        table.add_row(*cells)
    return table


def _spread_cells(cfo: dict[str, float]) -> list[str]:
    return [f"{cfo['drift']:.0f}", f"{cfo['antenna_spread']:.0f}"]


def _table(title: str, headings: Sequence[str], left: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for heading in headings:
        table.add_column(heading, justify="left" if heading in left else "right")
    return table
