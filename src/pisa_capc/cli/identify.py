"""Commands on recordings and a trained model: identify, verify."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pisa_capc.cli import app
from pisa_capc.cli.calibrate import chosen_calibrator
from pisa_capc.cli.decisions import (
    EqualiseAntennas,
    KeepCfo,
    RunFolder,
    WaveformName,
    calibration_said,
    found_in,
    frames_of,
    identified,
    opened,
    predicted,
    rejection,
    show,
    summary,
)
from pisa_capc.cli.edge import Engine, load_run, place
from pisa_capc.cli.model import Device
from pisa_capc.cli.options import (
    Addresses,
    AlarmAlpha,
    Alpha,
    AsJson,
    CalibrationName,
    Force,
    TestEvery,
    options_of,
    reject_option,
)
from pisa_capc.cli.output import print_table
from pisa_capc.cli.recordings import (
    PseudonymKey,
    Reading,
    Recordings,
    renaming,
)
from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.core.progress import console as notes

if TYPE_CHECKING:
    from pisa_capc.decide.identification import ClaimVerdict, Identified, Predicted
    from pisa_capc.signal.detection.finding import Rename

ALARM = 1  # exit code of verify
SMALLEST = 1e-99  # chance that is shown

Plots = typer.Option(None, "--plot", help="Draw: pictures, into this folder.", show_default=False)


@app.command("identify")
@options_of(Reading)
def identify_(
    reading: Reading,
    run: Path = RunFolder,
    recordings: list[str] = Recordings,
    out: Path | None = typer.Option(
        None,
        help="Where to write: a line per frame, as .csv, .jsonl, .parquet, or .sigmf-meta, annotations.",
        show_default=False,
    ),
    calibration: str | None = CalibrationName,
    reject: str = reject_option("auto"),
    alpha: float = Alpha,
    together: bool = typer.Option(False, "--together", help="Decide frames of one address close in time as one."),
    within: float = typer.Option(1.0, min=0.0, help="With --together: seconds that are close."),
    keep_cfo: bool = KeepCfo,
    equalise_antennas: bool = EqualiseAntennas,
    waveform: str | None = WaveformName,
    pseudonyms: Path | None = PseudonymKey,
    figures: Path | None = Plots,
    device: str = Device,
    engine: str = Engine,
    force: bool = Force,
    as_json: bool = AsJson,
) -> None:
    """Say who sent the frames of raw recordings: one of the model's devices, or none that it knows.

    Frames are found, their headers read, embedded, set aside where they resemble no known device, and calibrated, the
    frames of a recording together. A model of channel state takes files of channel state instead. `pisa predict` gives
    the same as rows for other tools.

    Exit code 0: frames were decided; 1: none was found; 2: a recording or the model could not be used.
    """
    from pisa_capc.data.store.files import refuse_existing
    from pisa_capc.decide.identification import Choices
    from pisa_capc.decide.identification.write import check_format, records, write
    from pisa_capc.evidence.figures.recording import draw_identified
    from pisa_capc.signal.recordings.sigmf import META

    if out is not None:
        check_format(out, 1 if reading.per_antenna else len(recordings))
        refuse_existing(out, force)
    where = place(device, engine)
    trained = load_run(run, engine)
    cut = frames_of(trained, recordings)
    if cut is not None and (together or figures is not None or (out is not None and out.suffix == META)):
        raise ConfigError(f"--together, --plot and {META} need recordings; these are frames. Leave them out.")
    files = [] if cut is not None else opened(trained, recordings, reading)
    choices = Choices(
        chosen_calibrator(calibration, trained.statistics),
        rejection(reject, trained),
        alpha,
        within if together else None,
        keep_cfo,
        equalise_antennas,
    )
    pictures: list[Path] = []
    who: Predicted
    if cut is not None:
        who = predicted(trained, cut, choices, where, not as_json)
    else:
        found = found_in(trained, files, reading, waveform, renaming(pseudonyms), not as_json)
        who = of_recordings = identified(trained, found, choices, where, not as_json)
        pictures = [] if figures is None else [picture.path for picture in draw_identified(of_recordings, figures)]
    if out is not None:
        write(out, who, next(iter(files), None))
    if as_json:
        said = {**summary(who), "out": None if out is None else str(out), "frames": records(who)}
        print(json.dumps(said, indent=1))
        return
    show(who)
    for path in [*([] if out is None else [out]), *pictures]:
        notes.print(f"written: {path}", soft_wrap=True)


@app.command("verify")
@options_of(Reading)
def verify_(
    reading: Reading,
    run: Path = RunFolder,
    recordings: list[str] = Recordings,
    addresses: Path | None = Addresses,
    alarm_alpha: float = AlarmAlpha,
    test_every: float = TestEvery,
    calibration: str | None = CalibrationName,
    reject: str = reject_option("auto"),
    keep_cfo: bool = KeepCfo,
    equalise_antennas: bool = EqualiseAntennas,
    waveform: str | None = WaveformName,
    pseudonyms: Path | None = PseudonymKey,
    figures: Path | None = Plots,
    device: str = Device,
    engine: str = Engine,
    as_json: bool = AsJson,
) -> None:
    """Ask of every claimed address whether its sender is the enrolled device.

    A sequential test per address, which may be looked at after every frame: evidence against the claim, and for it.
    And whether several devices send under it: whether frames at two carriers also have two fingerprints.
    --calibration and --reject only decide which device a sender resembles. docs/identify.md has the guarantees.

    Exit code 0: no address was found to be used by another device; 1: one was, or no frame was found; 2: a recording or
    the model could not be used.
    """
    from pisa_capc.decide.identification import Choices, verify
    from pisa_capc.decide.identification.verification import check_alpha
    from pisa_capc.evidence.figures.recording import plot_evidence

    check_alpha(alarm_alpha)
    where = place(device, engine)
    trained = load_run(run, engine)
    files = opened(trained, recordings, reading)
    choices = Choices(
        chosen_calibrator(calibration, trained.statistics),
        rejection(reject, trained),
        keep_cfo=keep_cfo,
        equalise_antennas=equalise_antennas,
    )
    rename = renaming(pseudonyms)
    whose = trained.run.addresses  # of devices that were enrolled with one
    whose = whose if rename is None else {rename(address): device for address, device in whose.items()}
    if addresses is not None:
        whose |= enrolled(addresses, trained.devices, rename)
    found = found_in(trained, files, reading, waveform, rename, not as_json)
    who = identified(trained, found, choices, where, not as_json)
    verdicts = verify(who, whose if addresses is not None else _by_name(who, whose), alarm_alpha, test_every)
    if figures is not None:
        plot_evidence(figures / "evidence.png", verdicts, alarm_alpha)
    if as_json:
        said = {
            "alpha": alarm_alpha,
            "calibration": calibration_said(who),
            "addresses": [v.to_json() for v in verdicts],
        }
        print(json.dumps(said, indent=1))
    else:
        _show_verdicts(verdicts, alarm_alpha)
        if figures is not None:
            notes.print(f"written: {figures / 'evidence.png'}", soft_wrap=True)
    if any(v.alarm for v in verdicts):
        raise typer.Exit(ALARM)


def enrolled(path: Path, devices: Sequence[str], rename: Rename | None) -> Mapping[str, str]:
    """Whose addresses are whose, as a file or a dataset says it."""
    from pisa_capc.decide.identification.addresses import learnt_addresses, read_addresses

    if path.is_dir():
        return learnt_addresses(path, devices)  # as they were written: pseudonyms, if they were asked for then
    found = read_addresses(path, devices)
    return found if rename is None else {rename(address): device for address, device in found.items()}


def _by_name(who: Identified, known: Mapping[str, str]) -> Mapping[str, str]:
    """The addresses that the model knows, and those that are names of its devices."""
    from pisa_capc.decide.identification.addresses import named_by_address

    claimed = who.seen.address
    if not any(claimed):
        raise DataError(
            "no frame has an address, so there is nothing to verify. Use `pisa identify` to find out who sent them."
        )
    return named_by_address(claimed, who.devices, known)


def _show_verdicts(verdicts: Sequence[ClaimVerdict], alpha: float) -> None:
    rows = [
        [
            verdict.address,
            verdict.device or "–",
            verdict.verdict,
            f"{verdict.frames:,}",
            "–" if verdict.after is None else f"{verdict.after:,}",
            *(f"{max(curve, default=0.0) / math.log(10):.1f}" for curve in (verdict.against, verdict.support)),
            "–" if verdict.shared is None else f"{-math.log10(max(verdict.shared.p, SMALLEST)):.1f}",
            f"{verdict.sounds_like or 'an unknown device'} ({verdict.alike:,} of {verdict.frames:,})",
        ]
        for verdict in verdicts
    ]
    headings = ["address", "device", "verdict", "frames", "decided after", "against", "for", "shared"]
    headings.append("sounds like (frames)")
    words = ("address", "device", "verdict", headings[-1])
    print_table(f"Claimed addresses, at a false-alarm rate of {alpha:g} each", headings, rows, left=words)
    claims = sum(verdict.device is not None for verdict in verdicts)
    one, every = (-math.log10(level) for level in (alpha, alpha / max(1, claims)))
    notes.print(f"against, for: the highest evidence as a power of ten; {one:.1f} decides.", soft_wrap=True)
    shared = "shared: how unlikely fingerprints so different at two carriers are of one device, likewise"
    notes.print(f"{shared}; {every:.1f} decides.", soft_wrap=True)
