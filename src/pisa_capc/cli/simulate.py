"""The command simulate."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import typer

from pisa_capc.cli import app
from pisa_capc.cli.options import AsJson, Decorator, deferred, either, options_of
from pisa_capc.cli.output import print_table, say

if TYPE_CHECKING:
    from pisa_capc.signal.simulation.generate import Generated
    from pisa_capc.signal.simulation.recording import Recorded


def _options() -> Decorator:
    from pisa_capc.signal.simulation.generate import generate
    from pisa_capc.signal.simulation.recording import record

    making = either(generate, record, when="recording")
    return options_of(making, arguments={"name": "SCENE"}, without=("show_progress",), words={"engine": "--run-on"})


@deferred(app, _options)
def simulate(
    made: Generated | Recorded,
    as_json: bool = AsJson,
) -> None:
    """Make a dataset from physics: ten transmitters, three environments, four captures, a four-antenna receiver.

    Samples depend on the seed, the scene and the capture alone: any number of workers and any interruption give the
    same files. All parameters, with units and sources, stand in `pisa_capc/signal/simulation/scenes/`.

    With --recording SECONDS the same devices send whole frames to each other at random times, and what the antennas
    hear is written as one continuous SigMF recording, with the truth about every frame as annotations.
    """
    from pisa_capc.signal.simulation.recording import Recorded

    if as_json:
        typer.echo(json.dumps(made.to_json()))
        return
    if isinstance(made, Recorded):
        print_table(made.recording, ["", "recording"], _recorded(made))
        return
    print_table(made.folder, ["", "this run", "dataset"], _generated(made))
    if not made.captures_written:
        say("The dataset was already complete; nothing was written.")
    elif made.captures_written < made.captures:
        say(f"{made.captures - made.captures_written} captures were there from an earlier run, and are kept.")


def _generated(made: Generated) -> list[list[str]]:
    return [
        ["captures", f"{made.captures_written}", f"{made.captures}"],
        ["frames", f"{made.frames_written:,}", f"{made.frames:,}"],
        ["samples per frame", "", f"{made.samples:,}"],
        ["megabytes", f"{made.bytes_written / 1e6:,.1f}", ""],
        ["seconds", f"{made.seconds:.1f}", ""],
        ["frames/s", f"{made.frames_per_s:,.0f}", ""],
    ]


def _recorded(made: Recorded) -> list[list[str]]:
    return [
        ["seconds", f"{made.seconds_recorded:g}"],
        ["antennas × samples", f"{made.antennas} × {made.samples:,}"],
        ["devices", f"{made.devices}"],
        ["frames", f"{made.frames:,}"],
        ["  that collide", f"{made.collided:,}"],
        ["  with another's address", f"{made.spoofed:,}"],
        ["  of unknown devices", f"{made.unknown:,}"],
        ["clipped numbers", f"{made.clipped:,}"],
        ["megabytes", f"{made.bytes_written / 1e6:,.1f}"],
        ["seconds it took", f"{made.seconds:.1f}"],
    ]
