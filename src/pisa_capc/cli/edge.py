"""The command export-model, and the engine that other commands compute with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pisa_capc.cli import app
from pisa_capc.cli.options import AsJson, Force
from pisa_capc.cli.output import say
from pisa_capc.core.errors import ConfigError

if TYPE_CHECKING:
    import torch

    from pisa_capc.evidence.evaluation import RunScores
    from pisa_capc.model.inference import TrainedModel

TORCH, ONNX = "torch", "onnx"
Engine = typer.Option(
    TORCH, help="What computes the model: torch, or onnx, the run's model.onnx that `pisa export-model` wrote."
)


@app.command("export-model")
def export_model_(
    run: Path = typer.Argument(help="A run that `pisa train` wrote.", show_default=False),
    out: Path | None = typer.Option(
        None, help="Where to write; default model.onnx in the run's folder, where --engine onnx finds it."
    ),
    card: bool = typer.Option(
        False, "--model-card", help="Also write README.md into the run's folder, as model hubs have it."
    ),
    data: Path | None = typer.Option(
        None,
        "--score",
        metavar="DATASET",
        help="With --model-card: score the run on its target here.",
        show_default=False,
    ),
    licence: str = typer.Option("other", help="With --model-card: of the weights, by the name that hubs use."),
    force: bool = Force,
    as_json: bool = AsJson,
) -> None:
    """Write a trained model as ONNX, for machines that have onnxruntime and NumPy and nothing of this.

    Everything between samples as received and scores is in the file. Its inputs are iq (frames, antennas, samples, 2),
    and if wanted present (frames, antennas) and descriptor (frames, 4); its outputs embedding and logits. The devices,
    the array and where the model is from are in its metadata. It is compared with the model before it is written.
    """
    from pisa_capc.data.store.files import refuse_existing
    from pisa_capc.model.edge import export_model
    from pisa_capc.model.edge.engine import FILE
    from pisa_capc.model.inference import load_model

    out = run / FILE if out is None else out
    refuse_existing(out, force)
    readme = run / "README.md"
    if card:
        refuse_existing(readme, force)
    trained = load_model(run)
    scores = _in_target(trained, run, data) if card and data is not None else None
    made = export_model(trained, out)
    if card:
        from pisa_capc.data.store.files import write_text_atomic
        from pisa_capc.evidence.reports import model_card

        files = ("model.json", "model.safetensors", *([out.name] if out.parent == run else []))
        write_text_atomic(readme, model_card(trained, scores, licence, files))
    if as_json:
        numbers = {"bytes": made.bytes, "difference": made.difference, "largest_logit": made.largest}
        print(json.dumps({"out": str(out), **numbers, **({"card": str(readme)} if card else {})}))
        return
    differ = f"logits differ from the model's by up to {made.difference:.1e} (the largest is {made.largest:.3g})"
    say(f"{out}: {made.bytes / 1e3:,.0f} kB; {differ}")
    if card:
        say(f"{readme}: the card; fill in what only you know of the recordings")


def _in_target(trained: TrainedModel, run: Path, data: Path) -> RunScores:
    """Scores of a run on the target part of its split."""
    from pisa_capc.data.frames import load
    from pisa_capc.data.store.native import fingerprint
    from pisa_capc.evidence.evaluation import check_dataset, evaluate

    frames, target = load(data), list(trained.run.target)
    check_dataset(trained, frames, fingerprint(data), run, data, target)
    return evaluate([(run, trained)], frames, target)[0]


def load_run(run: Path, engine: str) -> TrainedModel:
    """The model of a run, computed by the engine."""
    from pisa_capc.model.inference import load_model

    trained = load_model(run)
    if engine == TORCH:
        return trained
    from pisa_capc.model.edge import on_onnx

    return on_onnx(trained, run)


def place(device: str, engine: str) -> torch.device:
    """Where it computes: onnxruntime on the CPU, whatever there is for PyTorch."""
    from pisa_capc.model.inference.devices import choose_device

    if engine not in (TORCH, ONNX):
        raise ConfigError(f"--engine {engine}: expected {TORCH} or {ONNX}.")
    if engine == ONNX and device not in ("auto", "cpu"):
        raise ConfigError(f"--engine {ONNX} computes on the CPU, not on {device}. Leave one of the two options out.")
    return choose_device("cpu" if engine == ONNX else device)
