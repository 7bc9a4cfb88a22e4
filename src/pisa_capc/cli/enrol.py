"""Add a device to a trained model, or remove one: enrol."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pisa_capc.cli import app
from pisa_capc.cli.decisions import EqualiseAntennas, KeepCfo, RunFolder, WaveformName
from pisa_capc.cli.model import Device
from pisa_capc.cli.options import AsJson, options_of
from pisa_capc.cli.output import listed, print_table
from pisa_capc.cli.recordings import Reading
from pisa_capc.core.errors import ConfigError
from pisa_capc.core.progress import console as notes
from pisa_capc.core.progress import progress

if TYPE_CHECKING:
    from pisa_capc.model.inference import TrainedModel


@app.command("enrol")
@options_of(Reading)
def enrol_(
    reading: Reading,
    run: Path = RunFolder,
    frames: list[str] = typer.Argument(
        None,
        metavar="RECORDING|DATASET…",
        help="Where the device is heard: recordings, as of `pisa identify`, or datasets.",
        show_default=False,
    ),
    label: str | None = typer.Option(
        None, "--device-name", help="Name of the device that sent the frames; new to the model.", show_default=False
    ),
    remove: str | None = typer.Option(None, help="Take this device out instead.", show_default=False),
    update: str | None = typer.Option(
        None, help="Follow this device instead, whose hardware has aged: newer frames of it.", show_default=False
    ),
    out: Path = typer.Option(
        help="Where to write: a new folder for the model; RUN stays as it is.", show_default=False
    ),
    address: str | None = typer.Option(
        None, help="Of recordings in which several send: frames that claim this address.", show_default=False
    ),
    environment: str | None = typer.Option(None, help="Environment: those of datasets, as E2.", show_default=False),
    anyway: bool = typer.Option(
        False,
        "--anyway",
        help="Go on in spite of a doubt: it resembles another device, or not the one to be updated.",
    ),
    keep_cfo: bool = KeepCfo,
    equalise_antennas: bool = EqualiseAntennas,
    waveform: str | None = WaveformName,
    device: str = Device,
    as_json: bool = AsJson,
) -> None:
    """Add a device to a trained model by what its frames look like, update or remove one. Nothing is trained.

    The result is a model like any other. docs/enrolment.md says how well devices are recognised that way, and what it
    costs the others.
    """
    from pisa_capc.data.store.files import new_folder, whole
    from pisa_capc.decide.enrolment import device_in_datasets, enrol
    from pisa_capc.decide.enrolment import remove as removed
    from pisa_capc.decide.enrolment import update as updated
    from pisa_capc.decide.identification import check_recording, observe, waveform_of
    from pisa_capc.decide.identification.observation import frames_of_address
    from pisa_capc.model.inference import load_model
    from pisa_capc.model.inference.devices import choose_device

    new_folder(out)
    names = [name for name in (label, update, remove) if name is not None]
    if len(names) != 1 or bool(frames) != (remove is None):
        raise ConfigError(
            "enrol: give --device-name NAME or --update NAME with recordings or a dataset, or --remove NAME without."
        )
    before, [name] = load_model(run), names
    if remove is not None:
        after = removed(before, name)
        with whole(out) as folder:
            after.save(folder)
        _show(before, after, name, out, as_json)
        return
    folders = [name for name in frames if Path(name).is_dir()]
    if folders and len(folders) < len(frames):
        raise ConfigError("enrol: found recordings beside datasets; give either.")
    if folders:
        own, origin = device_in_datasets(frames, name, None if environment is None else listed(environment))
    else:
        opened = reading.open(frames)
        for recording in opened:  # unsuitable ones are refused before anything is read
            check_recording(before, recording.about)
        wanted = waveform_of(before) if waveform is None else waveform
        found = [reading.find_frames(recording, wanted, not as_json) for recording in opened]
        own, origin = frames_of_address(observe(before, found, keep_cfo, equalise_antennas), opened, address)
    with progress("embed", len(own), not as_json) as bar:
        place = choose_device(device)
        change = enrol if update is None else updated
        after = change(before, name, own, origin=origin, anyway=anyway, device=place, after_batch=bar.advance)
    with whole(out) as folder:
        after.save(folder)
    _show(before, after, name, out, as_json)


def _show(before: TrainedModel, after: TrainedModel, name: str, out: Path, as_json: bool) -> None:
    """How well the frames that the model keeps of its devices are recognised, before and after."""
    from pisa_capc.decide.enrolment import recognised

    shares = [dict(zip(m.devices, recognised(m.statistics).tolist(), strict=True)) for m in (before, after)]
    if as_json:
        said = {**after.run.changes[-1], "out": str(out), "devices": after.devices}
        print(json.dumps({**said, "recognised": dict(zip(("before", "after"), shares, strict=True))}, indent=1))
        return
    names = [*before.devices, *(n for n in after.devices if n not in before.devices)]
    rows = [[n, *(f"{share[n]:.1%}" if n in share else "–" for share in shares)] for n in names]
    print_table(
        f"Held-out source frames that are given to their device, and of {name} its own",
        ["device", "before", "after"],
        rows,
    )
    notes.print(f"{out}: {len(after.devices)} devices.", highlight=False, soft_wrap=True)
