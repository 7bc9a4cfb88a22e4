"""Commands that examine a dataset: check, limit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from pisa_capc.cli import app
from pisa_capc.cli.options import AsJson, Decorator, deferred, options_of
from pisa_capc.cli.output import READABLE, print_table, wide_console
from pisa_capc.core.progress import console as notes
from pisa_capc.core.progress import visible

if TYPE_CHECKING:
    from pisa_capc.evidence.checks import Checked
    from pisa_capc.evidence.limit import Limit


def _picture(path: Path | None) -> Path | None:
    """Refused before anything is computed, where it cannot be drawn."""
    from pisa_capc.evidence.figures.style import check_picture

    if path is not None:
        check_picture(path)
    return path


def _options() -> Decorator:
    from pisa_capc.evidence.checks import check as examine

    return options_of(examine, arguments={"data": "DATASET"}, without=("show_progress",))


@deferred(app, _options)
def check(
    found: Checked,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw: how well the room and the CFO name devices, SNR and antennas.", callback=_picture),
    ] = None,
    as_json: bool = AsJson,
) -> None:
    """Check a dataset before training: does the room or the CFO give devices away; copies, clipping, SNR, balance.

    Each finding says what to do about it. Exit code 0: fit, 1: there are faults, 2: it could not be looked at.
    """
    if as_json:
        typer.echo(json.dumps(found.to_json()))
    else:
        out = wide_console(READABLE)
        out.print(_table(found))
        out.print(found.summary)
    if plot is not None:
        from pisa_capc.evidence.figures.dataset import check_picture

        check_picture(found, plot)
        notes.print(f"picture: {plot}", highlight=False, soft_wrap=True)
    raise typer.Exit(0 if found.fit else 1)


def _table(found: Checked) -> Table:
    from pisa_capc.evidence.checks import Verdict

    styles = {Verdict.FAULT: "bold red", Verdict.NOTE: "yellow", Verdict.FINE: "green", Verdict.SKIPPED: "dim"}
    table = Table("", "check", "found, and what to do", box=box.SIMPLE_HEAD)
    for name, finding in found.findings.items():
        told = Text(visible(finding.found))
        if finding.verdict != Verdict.FINE and finding.advice:
            told.append(f"\n→ {finding.advice}", style="italic")
        table.add_row(Text(finding.verdict, style=styles[finding.verdict]), name, told)
    return table


def _limit_options() -> Decorator:
    from pisa_capc.evidence.limit import limit as informed

    return options_of(informed, arguments={"data": "DATASET"}, without=("show_progress",))


@deferred(app, _limit_options)
def limit(found: Limit, as_json: bool = AsJson) -> None:
    """How well the devices of a simulated set can be told apart at all: by a receiver that knows the hardware of each.

    It estimates channel, phase and remaining frequency offset of each frame and decides by likelihood. What it tells
    apart is in the frames: a trained model that does not has not found it.
    """
    if as_json:
        typer.echo(json.dumps(found.to_json()))
        return
    parts = {**found.scores.per_capture, **found.by_snr}
    rows = [[name, f"{own.macro_f1:.4f}", f"{own.accuracy:.4f}", f"{own.frames:,}"] for name, own in parts.items()]
    total = sum(own.frames for own in found.by_snr.values())
    last = ["all", f"{found.scores.macro_f1:.4f}", f"{found.scores.accuracy:.4f}", f"{total:,}"]
    title = f"Informed receiver, {found.samples} samples, taps {found.taps[0]} to {found.taps[1]}"
    print_table(title, ["frames of", "Macro-F1", "accuracy", "frames"], rows, last)
