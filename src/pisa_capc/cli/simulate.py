"""The command simulate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from pisa_capc.cli import app


@app.command()
def simulate(
    waveform: Annotated[str, typer.Argument(metavar="wifi|lora", help="802.11 preambles, or LoRa upchirps.")],
    out: Annotated[Path, typer.Option(help="Folder of the dataset; an interrupted run of the same recipe goes on.")],
    seed: Annotated[int, typer.Option(help="Names the devices, places and noise.")] = 2026,
    scale: Annotated[
        float, typer.Option(help="Part of the frames of each capture (at least 8); never the layout.")
    ] = 1,
    samples: Annotated[
        int | None, typer.Option(help="Stored length of a frame: 320 (default) to 3920 for wifi, to 8192 for lora.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Processes; by default one per core.")] = None,
    engine: Annotated[str, typer.Option(help="Where captures are computed: local or ray.")] = "local",
    scene: Annotated[Path | None, typer.Option(help="YAML file with settings over the built-in scene.")] = None,
    cfo_from: Annotated[
        Path | None, typer.Option(help="Dataset whose recorded CFO traces take the place of synthesised ones.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Make a dataset from physics: ten transmitters, three environments, four captures, a four-antenna receiver.

    Samples depend on the seed, the scene and the capture alone: any number of workers and any interruption give the
    same files. All parameters, with units and sources, stand in `pisa_capc/simulate/scenes/`.
    """
    from pisa_capc.simulate.generate import generate

    summary = generate(
        waveform,
        out,
        seed=seed,
        scale=scale,
        samples=samples,
        workers=workers,
        engine=engine,
        scene=scene,
        cfo_from=cfo_from,
    )
    if as_json:
        typer.echo(json.dumps(summary.to_json()))
        return
    from rich.table import Table

    from pisa_capc.progress import PlainConsole

    table = Table("", "this run", "dataset", title=f"{waveform} → {out}")
    table.add_row("captures", f"{summary.captures_written}", f"{summary.captures}")
    table.add_row("frames", f"{summary.frames_written:,}", f"{summary.frames:,}")
    table.add_row("samples per frame", "", f"{summary.samples:,}")
    table.add_row("megabytes", f"{summary.bytes_written / 1e6:,.1f}", "")
    table.add_row("seconds", f"{summary.seconds:.1f}", "")
    table.add_row("frames/s", f"{summary.frames_per_s:,.0f}", "")
    PlainConsole().print(table)
    if not summary.captures_written:
        typer.echo("The dataset was already complete; nothing was written.")
