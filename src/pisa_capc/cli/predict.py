"""The command predict."""

from __future__ import annotations

import json
import sys
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
from pisa_capc.cli.model import Anyway, Device
from pisa_capc.cli.options import Alpha, AsJson, CalibrationName, Force, options_of, reject_option
from pisa_capc.cli.recordings import PseudonymKey, Reading, renaming
from pisa_capc.core.progress import console as notes

if TYPE_CHECKING:
    from pisa_capc.decide.identification import Predicted

STDOUT = Path("-")


@app.command("predict")
@options_of(Reading)
def predict_(
    reading: Reading,
    run: Path = RunFolder,
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
    calibration: str | None = CalibrationName,
    reject: str = reject_option("auto"),
    alpha: float = Alpha,
    keep_cfo: bool = KeepCfo,
    equalise_antennas: bool = EqualiseAntennas,
    waveform: str | None = WaveformName,
    pseudonyms: Path | None = PseudonymKey,
    skip_bad: bool = typer.Option(False, "--skip-bad", help="Leave out what cannot be used: packets of channel state."),
    anyway: bool = Anyway,
    device: str = Device,
    engine: str = Engine,
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
    from pisa_capc.decide.identification import Choices
    from pisa_capc.decide.identification.write import as_csv, as_parquet, check_parquet, records

    files = [path for path in (csv, parquet) if path not in (None, STDOUT)]
    for path in files:
        refuse_existing(path, force)
    if parquet is not None:
        check_parquet()
    where = place(device, engine)
    trained = load_run(run, engine)
    choices = Choices(
        chosen_calibrator(calibration, trained.statistics),
        rejection(reject, trained),
        alpha,
        keep_cfo=keep_cfo,
        equalise_antennas=equalise_antennas,
    )
    printed = not (as_json or csv == STDOUT)
    who: Predicted
    if (cut := frames_of(trained, inputs, environment, skip_bad, anyway)) is not None:
        who = predicted(trained, cut, choices, where, printed)
    else:
        recordings = opened(trained, inputs, reading)
        found = found_in(trained, recordings, reading, waveform, renaming(pseudonyms), printed)
        who = identified(trained, found, choices, where, printed)
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
