"""Commands that decide who sent frames: predict, identify, verify."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pisa_capc.cli import app
from pisa_capc.cli.decisions import Deciding, frames_of, predicted, show
from pisa_capc.cli.model import Anyway
from pisa_capc.cli.options import Addresses, AlarmAlpha, Alpha, AsJson, Force, TestEvery, options_of
from pisa_capc.cli.output import print_table
from pisa_capc.cli.recordings import Recordings, renaming
from pisa_capc.core.errors import ConfigError
from pisa_capc.core.progress import console as notes

if TYPE_CHECKING:
    from pisa_capc.decide.identification import ClaimVerdict, Predicted

ALARM = 1  # exit code of verify
SMALLEST = 1e-99  # chance that is shown
STDOUT = Path("-")

Plots = typer.Option(None, "--plot", help="Draw: pictures, into this folder.", show_default=False)


@app.command("predict")
@options_of(Deciding)
def predict_(
    deciding: Deciding,
    inputs: list[str] = typer.Argument(
        metavar="DATASET|FILE…",
        help="A dataset; raw recordings, as of `pisa identify`; or, for a model of channel state, a card's files.",
        show_default=False,
    ),
    csv: Path | None = typer.Option(
        None, "--csv", metavar="FILE", help="Write a row per frame; - is standard output.", show_default=False
    ),
    parquet: Path | None = typer.Option(
        None, "--parquet", metavar="FILE", help="Write the same rows as a Parquet file.", show_default=False
    ),
    environment: str | None = typer.Option(
        None, help="Environment: those of the dataset, as E1; default all.", show_default=False
    ),
    alpha: float = Alpha,
    skip_bad: bool = typer.Option(False, "--skip-bad", help="Leave out what cannot be used: packets of channel state."),
    anyway: bool = Anyway,
    force: bool = Force,
    as_json: bool = AsJson,
) -> None:
    """Give a row per frame to other tools: device, probability, unknown or not, p-value, evidence.

    One command for frames from anywhere: a dataset, raw recordings in which frames are still to be found, or files of
    channel state. They are decided as by `pisa identify`, each capture calibrated by itself; a dataset's labels are not
    read. docs/identify.md describes the columns.

    Exit code 0: frames were decided; 1: none was found; 2: an input or the model could not be used.
    """
    from pisa_capc.data.store.files import refuse_existing, write_text_atomic
    from pisa_capc.decide.identification.write import as_csv, as_parquet, check_parquet, records, summary

    files = [path for path in (csv, parquet) if path not in (None, STDOUT)]
    for path in files:
        refuse_existing(path, force)
    if parquet is not None:
        check_parquet()
    trained, where = deciding.model()
    choices = deciding.choices(trained, alpha)
    printed = not (as_json or csv == STDOUT)
    who: Predicted
    if (cut := frames_of(trained, inputs, environment, skip_bad, anyway)) is not None:
        who = predicted(trained, cut, choices, where, printed)
    else:
        who = deciding.identified(trained, deciding.suitable(trained, inputs), choices, where, printed)
    if csv == STDOUT:
        sys.stdout.write(as_csv(who))
    elif csv is not None:
        write_text_atomic(csv, as_csv(who))
    if parquet is not None:
        as_parquet(parquet, who)
    if as_json:
        print(json.dumps({**summary(who), "frames": records(who)}, indent=1))
    elif printed:
        show(who)
    for path in files:
        notes.print(f"written: {path}", soft_wrap=True)


@app.command("identify")
@options_of(Deciding)
def identify_(
    deciding: Deciding,
    recordings: list[str] = Recordings,
    out: Path | None = typer.Option(
        None,
        help="Where to write: a line per frame, as .csv, .jsonl, .parquet, or .sigmf-meta, annotations.",
        show_default=False,
    ),
    alpha: float = Alpha,
    together: bool = typer.Option(False, "--together", help="Decide frames of one address close in time as one."),
    within: float = typer.Option(1.0, min=0.0, help="With --together: seconds that are close."),
    figures: Path | None = Plots,
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
    from pisa_capc.decide.identification.write import check_format, records, summary, write
    from pisa_capc.evidence.figures.recording import draw_identified
    from pisa_capc.signal.recordings.sigmf import META

    if out is not None:
        check_format(out, 1 if deciding.per_antenna else len(recordings))
        refuse_existing(out, force)
    trained, where = deciding.model()
    cut = frames_of(trained, recordings)
    if cut is not None and (together or figures is not None or (out is not None and out.suffix == META)):
        raise ConfigError(f"--together, --plot and {META} need recordings; these are frames. Leave them out.")
    files = [] if cut is not None else deciding.suitable(trained, recordings)
    choices = deciding.choices(trained, alpha, within if together else None)
    pictures: list[Path] = []
    who: Predicted
    if cut is not None:
        who = predicted(trained, cut, choices, where, not as_json)
    else:
        who = of_recordings = deciding.identified(trained, files, choices, where, not as_json)
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
@options_of(Deciding)
def verify_(
    deciding: Deciding,
    recordings: list[str] = Recordings,
    addresses: Path | None = Addresses,
    alarm_alpha: float = AlarmAlpha,
    test_every: float = TestEvery,
    figures: Path | None = Plots,
    as_json: bool = AsJson,
) -> None:
    """Ask of every claimed address whether its sender is the enrolled device.

    A sequential test per address, which may be looked at after every frame: evidence against the claim, and for it.
    And whether several devices send under it: whether frames at two carriers also have two fingerprints.
    --calibration and --reject only decide which device a sender resembles. docs/identify.md has the guarantees.

    Exit code 0: no address was found to be used by another device; 1: one was, or no frame was found; 2: a recording or
    the model could not be used.
    """
    from pisa_capc.decide.identification import verify
    from pisa_capc.decide.identification.addresses import named_by_address, owners, renamed
    from pisa_capc.decide.identification.verification import check_alpha
    from pisa_capc.decide.identification.write import calibrated
    from pisa_capc.evidence.figures.recording import plot_evidence

    check_alpha(alarm_alpha)
    trained, where = deciding.model()
    files, rename = deciding.suitable(trained, recordings), renaming(deciding.pseudonyms)
    choices = deciding.choices(trained)
    known = renamed(trained.run.addresses, rename)  # of devices that were enrolled with one
    given = None if addresses is None else known | owners(addresses, trained.devices, rename)
    who = deciding.identified(trained, files, choices, where, not as_json)
    whose = named_by_address(who.seen.address, who.devices, known) if given is None else given
    verdicts = verify(who, whose, alarm_alpha, test_every)
    if figures is not None:
        plot_evidence(figures / "evidence.png", verdicts, alarm_alpha)
    if as_json:
        said = {"alpha": alarm_alpha, "calibration": calibrated(who), "addresses": [v.to_json() for v in verdicts]}
        print(json.dumps(said, indent=1))
    else:
        _show_verdicts(verdicts, alarm_alpha)
        if figures is not None:
            notes.print(f"written: {figures / 'evidence.png'}", soft_wrap=True)
    if any(v.alarm for v in verdicts):
        raise typer.Exit(ALARM)


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
