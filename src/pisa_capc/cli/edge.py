"""The command export-model, and the engine that other commands compute with."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pisa_capc.cli import app
from pisa_capc.cli.output import say
from pisa_capc.core.errors import ConfigError, ModelError

if TYPE_CHECKING:
    import torch

    from pisa_capc.data.protocol import Split
    from pisa_capc.model.inference import TrainedModel

TORCH, ONNX = "torch", "onnx"
Engine = typer.Option(
    TORCH, help="What computes the model: torch, or onnx, the run's model.onnx that `pisa export-model` wrote."
)


@app.command("export-model")
def export_model_(
    run: Path = typer.Argument(help="A run that `pisa train` wrote.", show_default=False),
    out: Path | None = typer.Option(
        None, help="File to write; default model.onnx in the run's folder, where --engine onnx finds it."
    ),
    int8: Path | None = typer.Option(
        None,
        help="The dataset that the run was trained on: convolutions are then of eight bits, unless that costs 0.005 of "
        "Macro-F1 on its held-out frames.",
    ),
    force: bool = typer.Option(False, "--force", help="Replace an existing output file."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of a line."),
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
    trained = load_model(run)
    made = export_model(trained, out, None if int8 is None else source_of(trained, run, int8))
    if as_json:
        same = {"difference": made.difference, "largest_logit": made.largest}
        costs = None if made.cost is None else {"eight_bits": asdict(made.cost)}
        print(json.dumps({"out": str(out), "bytes": made.bytes, **(costs or same)}))
        return
    said_of = f"logits differ from the model's by up to {made.difference:.1e} (the largest is {made.largest:.3g})"
    if made.cost is not None:
        said_of = f"eight bits cost {made.cost.of_eight_bits:.4f} of Macro-F1 on held-out source frames "
        said_of += f"({made.cost.before:.4f} to {made.cost.after:.4f})"
        said_of += "" if made.cost.portable else "; only for ARM, and x86 processors with VNNI"
    say(f"{out}: {made.bytes / 1e3:,.0f} kB; {said_of}")


def source_of(trained: TrainedModel, run: Path, dataset: Path) -> Split:
    """The split of the dataset that a run was trained on."""
    from pisa_capc.data.frames import load
    from pisa_capc.data.store.native import fingerprint
    from pisa_capc.evidence.evaluation import check_dataset

    if trained.run.changes:
        raise ModelError(
            f"{run}: its devices were changed since it was trained, so that no dataset says what eight bits cost. "
            "Export it without --int8."
        )
    frames = load(dataset)
    check_dataset(trained, frames, fingerprint(dataset), run, dataset)
    return trained.recipe.split(frames.segment(trained.run.samples))


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
