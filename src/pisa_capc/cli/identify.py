"""Commands on recordings and a trained model: identify, verify."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pisa_capc.cli import app
from pisa_capc.cli.calibrate import chosen_calibrator, plain_decision
from pisa_capc.cli.edge import Engine, load_run, place
from pisa_capc.cli.model import Device
from pisa_capc.cli.options import options_of
from pisa_capc.cli.output import print_table
from pisa_capc.cli.recordings import (
    PseudonymKey,
    Reading,
    Recordings,
    renaming,
)
from pisa_capc.core.errors import DataError
from pisa_capc.core.progress import console as notes
from pisa_capc.core.progress import progress

if TYPE_CHECKING:
    import numpy as np
    import torch

    from pisa_capc.decide.identification import Choices, ClaimVerdict, Identified
    from pisa_capc.model.inference import TrainedModel
    from pisa_capc.signal.detection import Found
    from pisa_capc.signal.detection.finding import Rename
    from pisa_capc.signal.recordings.base import FileRecording

ALARM = 1  # exit code of verify
NAMED = 6  # addresses in a line of the table
SMALLEST = 1e-99  # chance that is shown

RunFolder = typer.Argument(metavar="RUN", help="A run that `pisa train` wrote.", show_default=False)
WaveformName = typer.Option(
    None, help="wifi, lora, burst or that of a plugin; by default the model's.", show_default=False
)
CalibrationName = typer.Option(
    None,
    "--calibration",
    help="What corrects decisions with the recording's own frames, a method of `pisa calibrate`. Default: careful, "
    "or U-CAPC without a prior for a model that lacks the source statistics that careful needs.",
    show_default=False,
)
Reject = typer.Option(
    "auto",
    help="Reject unknown devices by gaussian (closed-form models), session, carrier, crowd (whole captures, frame by "
    "frame), knn, mahalanobis, vim, energy, msp, or none. auto is gaussian where the model gives error bars, else "
    "session, or knn for models of earlier versions, which keep no sessions.",
)
KeepCfo = typer.Option(False, "--keep-cfo", help="The model was trained on frames with their carrier offset left in.")
EqualiseAntennas = typer.Option(
    False,
    "--equalise-antennas",
    help="The model was trained on frames whose antennas have equal power, as the paper's Wi-Fi set.",
)
Figures = typer.Option(None, help="Draw pictures into this folder.", show_default=False)
AsJson = typer.Option(False, "--json", help="Print JSON instead of tables.")


@app.command("identify")
@options_of(Reading)
def identify_(
    reading: Reading,
    run: Path = RunFolder,
    recordings: list[str] = Recordings,
    out: Path | None = typer.Option(
        None, help="Write a line per frame: .csv, .jsonl, or .sigmf-meta, annotations.", show_default=False
    ),
    calibration: str | None = CalibrationName,
    reject: str = Reject,
    alpha: float = typer.Option(0.05, help="Share of source-like frames of a known device to set aside at most."),
    together: bool = typer.Option(False, "--together", help="Decide frames of one address close in time as one."),
    window: float = typer.Option(1.0, min=0.0, help="With --together: seconds that are close."),
    keep_cfo: bool = KeepCfo,
    equalise_antennas: bool = EqualiseAntennas,
    waveform: str | None = WaveformName,
    pseudonyms: Path | None = PseudonymKey,
    figures: Path | None = Figures,
    device: str = Device,
    engine: str = Engine,
    force: bool = typer.Option(False, "--force", help="Replace an existing output file."),
    as_json: bool = AsJson,
) -> None:
    """Say who sent the frames of raw recordings: one of the model's devices, or none that it knows.

    Frames are found, their headers read, embedded, set aside where they resemble no known device, and calibrated, the
    frames of a recording together.

    Exit code 0: frames were decided; 1: none was found; 2: a recording or the model could not be used.
    """
    from pisa_capc.data.store.files import refuse_existing
    from pisa_capc.decide.identification import Choices
    from pisa_capc.decide.identification.write import check_format, frames, write
    from pisa_capc.evidence.figures.identified import draw_identified

    if out is not None:
        check_format(out, 1 if reading.per_antenna else len(recordings))
        refuse_existing(out, force)
    where = place(device, engine)
    trained, opened = _opened(run, engine, recordings, reading)
    choices = Choices(
        chosen_calibrator(calibration, None, {}, [], trained.statistics, "--calibration ucapc"),
        rejection(reject, trained),
        alpha,
        window if together else None,
        keep_cfo,
        equalise_antennas,
    )
    found = _found(trained, opened, reading, waveform, renaming(pseudonyms), not as_json)
    who = _identified(trained, found, choices, where, not as_json)
    if out is not None:
        write(out, who, opened[0])
    pictures = [] if figures is None else [picture.path for picture in draw_identified(who, figures)]
    if as_json:
        said = {**_summary(who), "out": None if out is None else str(out), "frames": list(frames(who))}
        print(json.dumps(said, indent=1))
        return
    _show(who)
    for path in [*([] if out is None else [out]), *pictures]:
        notes.print(f"written: {path}", soft_wrap=True)


@app.command("verify")
@options_of(Reading)
def verify_(
    reading: Reading,
    run: Path = RunFolder,
    recordings: list[str] = Recordings,
    addresses: Path | None = typer.Option(
        None,
        help="Owners of addresses: .csv with lines address,device, .json {address: device}, or a dataset of "
        "`pisa detect`. By default devices are named by their addresses.",
        show_default=False,
    ),
    alpha: float = typer.Option(0.01, help="Chance of a false alarm for each address, on source-like frames."),
    spacing: float = typer.Option(0.0, min=0.0, help="Seconds between frames of an address that are tested."),
    calibration: str | None = CalibrationName,
    reject: str = Reject,
    keep_cfo: bool = KeepCfo,
    equalise_antennas: bool = EqualiseAntennas,
    waveform: str | None = WaveformName,
    pseudonyms: Path | None = PseudonymKey,
    figures: Path | None = Figures,
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
    from pisa_capc.evidence.figures.identified import plot_evidence

    check_alpha(alpha)
    where = place(device, engine)
    trained, opened = _opened(run, engine, recordings, reading)
    choices = Choices(
        chosen_calibrator(calibration, None, {}, [], trained.statistics, "--calibration ucapc"),
        rejection(reject, trained),
        keep_cfo=keep_cfo,
        equalise_antennas=equalise_antennas,
    )
    rename = renaming(pseudonyms)
    whose = trained.run.addresses  # of devices that were enrolled with one
    whose = whose if rename is None else {rename(address): device for address, device in whose.items()}
    if addresses is not None:
        whose |= enrolled(addresses, trained.devices, rename)
    found = _found(trained, opened, reading, waveform, rename, not as_json)
    who = _identified(trained, found, choices, where, not as_json)
    verdicts = verify(who, whose if addresses is not None else _by_name(who, whose), alpha, spacing)
    if figures is not None:
        plot_evidence(figures / "evidence.png", verdicts, alpha)
    if as_json:
        said = {"alpha": alpha, "calibration": _calibration(who), "addresses": [v.to_json() for v in verdicts]}
        print(json.dumps(said, indent=1))
    else:
        _show_verdicts(verdicts, alpha)
        if figures is not None:
            notes.print(f"written: {figures / 'evidence.png'}", soft_wrap=True)
    if any(v.alarm for v in verdicts):
        raise typer.Exit(ALARM)


def rejection(name: str, trained: TrainedModel) -> str | None:
    """The requested score; by default the usual one of the model, with a note if it is not the best."""
    from pisa_capc.decide.calibration.openset.names import DEFAULT, EARLIER
    from pisa_capc.decide.calibration.policy import AUTO, usual

    if name != AUTO:
        return None if name == "none" else name
    found = usual(trained.statistics).rejection
    if found == EARLIER:
        why = f"for the model keeps no sessions; trained again it would be {DEFAULT}"
        notes.print(f"unknown devices are set aside by {found}, {why}.", highlight=False, soft_wrap=True)
    return found


def _opened(run: Path, engine: str, paths: Sequence[str], reading: Reading) -> tuple[TrainedModel, list[FileRecording]]:
    """The model and the recordings; unsuitable ones are refused before anything is read."""
    from pisa_capc.decide.identification import check_recording

    trained = load_run(run, engine)
    opened = reading.open(paths)
    for recording in opened:
        check_recording(trained, recording.about)
    return trained, opened


def _found(
    trained: TrainedModel,
    opened: Sequence[FileRecording],
    reading: Reading,
    waveform: str | None,
    rename: Rename | None,
    show: bool,
) -> list[Found]:
    """The frames of the recordings; if there is none, the command says so and ends."""
    from pisa_capc.decide.identification import waveform_of

    name = waveform_of(trained) if waveform is None else waveform
    return reading.find_in_all(opened, name, show, rename)


def _identified(
    trained: TrainedModel, found: Sequence[Found], choices: Choices, device: torch.device, show: bool
) -> Identified:
    from pisa_capc.decide.identification import identify

    with progress("embed", sum(len(one.frames) for one in found), show) as bar:
        return identify(trained, found, choices, device, bar.advance)


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


def _summary(who: Identified) -> dict[str, Any]:
    return {
        "recordings": [one.recording.about.name for one in who.seen.found],
        "calibration": _calibration(who),
        "rejection": who.choices.reject,
        "together_s": who.choices.together_s,
        "devices": [{"device": name, **_of_device(who, rows)} for name, rows in _by_device(who)],
    }


def _calibration(who: Identified) -> dict[str, Any]:
    result = who.calibration
    guard = None if result.guard is None else [plain_decision(decision) for decision in result.guard]
    judged = None if result.judged is None else [judged._asdict() for judged in result.judged]
    title = who.choices.calibrator(who.scores.statistics).title
    return {"method": title, "changed": result.changed, "guard": guard, "judged": judged}


def _by_device(who: Identified) -> Iterable[tuple[str | None, np.ndarray]]:
    """The frames of each device that was found, in the model's order; those of unknown devices, None, come last."""
    for k in sorted(set(who.decision.tolist()), key=lambda k: (k < 0, k)):
        yield (None if k < 0 else who.devices[k]), (who.decision == k).nonzero()[0]


def _of_device(who: Identified, rows: np.ndarray) -> dict[str, Any]:
    claimed = Counter(address for i in rows if (address := who.seen.address[i]) is not None)
    return {
        "frames": len(rows),
        "share": len(rows) / len(who),
        "probability": float(who.confidence[rows].mean()),
        "addresses": dict(claimed.most_common()),
    }


def _show(who: Identified) -> None:
    rows = []
    for name, members in _by_device(who):
        own = _of_device(who, members)
        claimed = ", ".join(f"{address} ({count:,})" for address, count in list(own["addresses"].items())[:NAMED])
        claimed += f" and {len(own['addresses']) - NAMED:,} more" * (len(own["addresses"]) > NAMED)
        sure = "–" if name is None else f"{own['probability']:.3f}"
        rows.append([name or "unknown", f"{own['frames']:,}", f"{own['share']:.1%}", sure, claimed or "–"])
    headings = ["device", "frames", "share", "mean confidence", "addresses claimed (frames)"]
    names = ", ".join(one.recording.about.name for one in who.seen.found)
    print_table(f"{names}: {len(who):,} frames", headings, rows, left=("device", headings[-1]))
    if who.explainer.devices:
        _show_measured(who)
    notes.print(_calibration_line(who), soft_wrap=True)


def _show_measured(who: Identified) -> None:
    """Measurements of the frames of each device together, and in a line below what the device has."""
    rows, scores, quantities = list[list[str]](), who.scores, who.explainer.quantities
    for name, members in _by_device(who):
        error = None if scores.error is None else scores.error[members]
        own = who.explainer.measured(scores.embedding[members], error)
        rows.append([name or "unknown", *(own[one].number if own else "–" for one in quantities)])
        if name in who.explainer.devices:
            rows.append(["  as enrolled", *(who.explainer.devices[name][one].number for one in quantities)])
    headings = ["device", *(f"{name} ({unit})" for name, unit in quantities.items())]
    print_table("Measured, all frames of a device together, ± 95 %", headings, rows, left=("device",))


def _calibration_line(who: Identified) -> str:
    result, title = who.calibration, who.choices.calibrator(who.scores.statistics).title
    said = f"calibration: {title}, {result.changed:,} of {len(who):,} decisions changed"
    if result.guard is not None:
        levels = ", ".join(f"{decision.capture}: {decision.level}" for decision in result.guard)
        said += f"; what the guard allowed, by capture: {levels}"
    if result.judged is not None:
        pairs = zip(result.captures, result.judged, strict=True)
        said += "; how evenly devices send, by capture: " + ", ".join(f"{c.capture}: {j.level}" for c, j in pairs)
    reject = who.choices.reject
    return said + ("; no frame was set aside." if reject is None else f"; unknown devices set aside by {reject}.")


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
