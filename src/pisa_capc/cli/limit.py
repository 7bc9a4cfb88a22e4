"""The command limit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import typer

from pisa_capc.cli import app
from pisa_capc.cli.options import AsJson, Decorator, deferred, options_of
from pisa_capc.cli.output import print_table

if TYPE_CHECKING:
    from pisa_capc.evidence.limit import Limit


def _options() -> Decorator:
    from pisa_capc.evidence.limit import limit as informed

    return options_of(informed, arguments={"data": "DATASET"}, without=("show_progress",))


@deferred(app, _options)
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
