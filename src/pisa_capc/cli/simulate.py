"""The command simulate."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from pisa_capc.cli import app
from pisa_capc.cli.options import options_of
from pisa_capc.simulate.generate import Generated, generate


@app.command()
@options_of(generate, arguments={"name": "SCENE"}, without=("show_progress",))
def simulate(
    made: Generated,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Make a dataset from physics: ten transmitters, three environments, four captures, a four-antenna receiver.

    Samples depend on the seed, the scene and the capture alone: any number of workers and any interruption give the
    same files. All parameters, with units and sources, stand in `pisa_capc/simulate/scenes/`.
    """
    if as_json:
        typer.echo(json.dumps(made.to_json()))
        return
    from rich.table import Table

    from pisa_capc.progress import PlainConsole

    table = Table("", "this run", "dataset", title=made.folder)
    table.add_row("captures", f"{made.captures_written}", f"{made.captures}")
    table.add_row("frames", f"{made.frames_written:,}", f"{made.frames:,}")
    table.add_row("samples per frame", "", f"{made.samples:,}")
    table.add_row("megabytes", f"{made.bytes_written / 1e6:,.1f}", "")
    table.add_row("seconds", f"{made.seconds:.1f}", "")
    table.add_row("frames/s", f"{made.frames_per_s:,.0f}", "")
    PlainConsole().print(table)
    if not made.captures_written:
        typer.echo("The dataset was already complete; nothing was written.")
