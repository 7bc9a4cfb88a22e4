"""The command simulate."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.table import Table

from pisa_capc.cli import app
from pisa_capc.cli.options import either, options_of
from pisa_capc.simulate.generate import Generated, generate
from pisa_capc.simulate.recording import Recorded, record


@app.command()
@options_of(either(generate, record, when="recording"), arguments={"name": "SCENE"}, without=("show_progress",))
def simulate(
    made: Generated | Recorded,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Make a dataset from physics: ten transmitters, three environments, four captures, a four-antenna receiver.

    Samples depend on the seed, the scene and the capture alone: any number of workers and any interruption give the
    same files. All parameters, with units and sources, stand in `pisa_capc/simulate/scenes/`.

    With --recording SECONDS the same devices send whole frames to each other at random times, and what the antennas
    hear is written as one continuous SigMF recording, with the truth about every frame as annotations.
    """
    if as_json:
        typer.echo(json.dumps(made.to_json()))
        return
    from pisa_capc.progress import PlainConsole

    PlainConsole().print(_recorded(made) if isinstance(made, Recorded) else _generated(made))
    if isinstance(made, Generated) and not made.captures_written:
        typer.echo("The dataset was already complete; nothing was written.")
    elif isinstance(made, Generated) and made.captures_written < made.captures:
        typer.echo(f"{made.captures - made.captures_written} captures were there from an earlier run, and are kept.")


def _generated(made: Generated) -> Table:
    table = Table("", "this run", "dataset", title=made.folder)
    table.add_row("captures", f"{made.captures_written}", f"{made.captures}")
    table.add_row("frames", f"{made.frames_written:,}", f"{made.frames:,}")
    table.add_row("samples per frame", "", f"{made.samples:,}")
    table.add_row("megabytes", f"{made.bytes_written / 1e6:,.1f}", "")
    table.add_row("seconds", f"{made.seconds:.1f}", "")
    table.add_row("frames/s", f"{made.frames_per_s:,.0f}", "")
    return table


def _recorded(made: Recorded) -> Table:
    table = Table("", "recording", title=made.recording)
    table.add_row("seconds", f"{made.seconds_recorded:g}")
    table.add_row("antennas × samples", f"{made.antennas} × {made.samples:,}")
    table.add_row("devices", f"{made.devices}")
    table.add_row("frames", f"{made.frames:,}")
    table.add_row("  that collide", f"{made.collided:,}")
    table.add_row("  with another's address", f"{made.spoofed:,}")
    table.add_row("  of unknown devices", f"{made.unknown:,}")
    table.add_row("clipped numbers", f"{made.clipped:,}")
    table.add_row("megabytes", f"{made.bytes_written / 1e6:,.1f}")
    table.add_row("seconds it took", f"{made.seconds:.1f}")
    return table
