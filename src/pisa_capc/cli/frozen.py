"""Commands of a calibration that is fitted once and applied later: calibrate fit, calibrate apply."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from pisa_capc.cli.calibrate import (
    chosen_calibrator,
    commands,
    read_scores,
    show_result,
    write_result,
)
from pisa_capc.cli.output import say, warnings_as_notes

Force = typer.Option("--force", help="Replace what exists.")


@commands.command()
def fit(
    scores: Annotated[Path, typer.Argument(help="NPZ file with `embedding` (N, D), `logits` (N, C), `capture` (N,).")],
    out: Annotated[Path, typer.Option(help="Folder for calibration.safetensors and calibration.json.")],
    preset: Annotated[
        str | None,
        typer.Option(
            help="paper, or a row of the paper's ablation: without-grouping, without-prior. Default: careful, or "
            "U-CAPC without a prior if the scores lack the source statistics that careful needs."
        ),
    ] = None,
    prior: Annotated[str | None, typer.Option(help="Class shares: balanced, none, estimated or given.")] = None,
    group: Annotated[str | None, typer.Option(help="What is fitted together: capture or none.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="A parameter of U-CAPC, key=value.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was fitted as JSON.")] = False,
    force: Annotated[bool, Force] = False,
) -> None:
    """Fit a calibration on one stream and keep it, for `pisa calibrate apply` on others.

    Kept are the prototypes and class potentials of every capture, and a pooled set over all frames for captures that
    are not known here. No frame and no label is kept.
    """
    from pisa_capc.data.store.files import refuse_existing
    from pisa_capc.decide.calibration import FrozenCalibration, SourceStatistics

    asked = {"prior": prior, "group": group}
    chosen_calibrator("ucapc", preset, asked, set_ or [])  # what is wrong is said before anything is read
    refuse_existing(out / "calibration.json", force)
    arrays = read_scores(scores)
    source = SourceStatistics.from_arrays(arrays)
    settings = chosen_calibrator(None, preset, asked, set_ or [], source)
    with warnings_as_notes():
        frozen = FrozenCalibration.fit(arrays["embedding"], arrays["logits"], arrays.get("capture"), settings, source)
    frozen.save(out)
    if as_json:
        fitted = {"captures": list(frozen.captures), "classes": frozen.classes, "features": frozen.features}
        typer.echo(json.dumps({"out": str(out), "frames": len(arrays["logits"]), **fitted}))
        return
    say(f"{out}: fitted on {len(arrays['logits']):,} frames of {', '.join(map(str, frozen.captures))}")


@commands.command()
def apply(
    calibration: Annotated[Path, typer.Argument(help="A folder that `pisa calibrate fit` wrote.")],
    scores: Annotated[Path, typer.Argument(help="NPZ file with `embedding` (N, D) and `logits` (N, C).")],
    out: Annotated[Path, typer.Option(help="NPZ file to write: `probability`, `score`, `prediction`.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    force: Annotated[bool, Force] = False,
) -> None:
    """Correct decisions with a calibration fitted before; each frame by itself, however few there are.

    A frame gets the prototypes of its `capture` where that was fitted. Other captures, and files without `capture`, get
    the pooled set; a note says which.
    """
    from pisa_capc.data.store.files import refuse_existing
    from pisa_capc.decide.calibration import FrozenCalibration

    refuse_existing(out, force)
    frozen, arrays = FrozenCalibration.load(calibration), read_scores(scores)
    with warnings_as_notes():
        result = frozen.apply(arrays["embedding"], arrays["logits"], arrays.get("capture"))
    write_result(out, result, arrays)
    show_result(result, "frozen", out, as_json)
