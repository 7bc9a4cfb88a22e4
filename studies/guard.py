"""Careful and the guard ("safe") on the same models: what each gains, how often each harms, and what the guard costs.

    make study-guard ARGS="--out results/studies/guard.json"

Ten radios with coarse hardware, trained in two environments and met in the third, each environment in turn. The guard
of each model comes from models that lack one of its source environments (`studies.rehearsals`); the seconds
of training with it and without it are counted. Both calibrations decide the same captures in the kinds of deployment of
`studies.calibrations`. Before the first run it was laid down which one is usual: the one that gains more in the mean,
if at most one capture in ten loses more than 0.02; where the two differ by less than 0.005, the one that trains less.
The first models, of three epochs, left little to gain; those of one epoch were added then, with another --work:

    make study-guard ARGS="--epochs 3 --encoders cnn --seeds 2026 --work work/trained --out …/guard-trained.json"
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
import yaml
from benchmarks.report import begin, machine

from pisa_capc import Frames, simulate
from pisa_capc.cli.output import listed, listed_numbers, print_table
from pisa_capc.core.progress import console
from pisa_capc.data.protocol import split
from pisa_capc.data.store.files import write_text_atomic
from pisa_capc.decide.calibration import UCAPC, Calibrator, Careful
from pisa_capc.model.inference import TrainedModel, embed
from pisa_capc.model.training import Run, fit
from studies.calibrations import LOST, Model, Name, scored
from studies.embeddings import seen, write
from studies.rehearsals import learn_guard
from studies.safe import Safe

HARDWARE = Path(__file__).parents[1] / "examples" / "demo_scene.yaml"  # of its five radios, but ten of them
CPU = torch.device("cpu")
ENVIRONMENTS = ("E1", "E2", "E3")
METHODS = ("safe", "careful", "ucapc")
Thresholds = tuple[float, ...]


def sets(folder: Path, waveform: str, scale: float) -> Frames:
    """The simulated set of a waveform."""
    folder.mkdir(parents=True, exist_ok=True)
    scene = folder / "scene.yaml"
    hardware = yaml.safe_load(HARDWARE.read_text(encoding="utf-8"))
    write_text_atomic(scene, yaml.safe_dump({**hardware, "devices": 10}))
    return simulate(waveform, folder / f"{waveform}-{scale:g}", seed=2026, scale=scale, scene=scene)


def trained(run: Run, encoder: str, **how: Any) -> tuple[TrainedModel, Thresholds, dict[str, float]]:
    """A model, the thresholds of its guard, and the seconds of its training and of what the guard costs."""
    begun = time.perf_counter()
    [model] = fit(run, encoder=encoder, show=False, **how)
    plain = time.perf_counter() - begun
    guard = learn_guard(run, model, lambda _, other: fit(other, encoder=encoder, show=False, **how)[0], CPU)
    assert guard is not None  # there are two source environments
    return model, guard.thresholds, {"training": plain, "guard": time.perf_counter() - begun}


def made(options: argparse.Namespace) -> Iterator[tuple[Path, str, dict[str, float]]]:
    """The models, each with its target: embeddings are kept and not made again."""
    options.work.mkdir(parents=True, exist_ok=True)
    for waveform in listed(options.waveforms):
        frames = sets(options.work, waveform, options.scale)
        for seed in listed_numbers("--seeds", options.seeds):
            for encoder in listed(options.encoders):
                for target in ENVIRONMENTS:
                    source = tuple(name for name in ENVIRONMENTS if name != target)
                    name = f"{waveform}-10-10-{options.method}-{encoder}-{'+'.join(source)}-{seed}.{seed}"
                    path, cost = options.work / f"{name}.npz", options.work / f"{name}.json"
                    if not cost.is_file():
                        run = Run(split(frames, source, target, seed), seed)
                        how = {"epochs": options.epochs, "batch": options.batch, "method": options.method}
                        model, thresholds, seconds = trained(run, encoder, device="cpu", **how)
                        kept = seen(frames, run, source, options.frames)
                        own = embed(model, kept.unlabelled(), "cpu")
                        assert own.cfo_hz is not None  # simulated frames have it
                        write(path, model, kept, own.embedding, own.cfo_hz)
                        write_text_atomic(
                            cost, json.dumps({**seconds, "thresholds": [str(value) for value in thresholds]})
                        )
                        console.print(name, seconds, soft_wrap=True)
                    about = json.loads(cost.read_text(encoding="utf-8"))
                    yield path, target, {name: about[name] for name in ("training", "guard")}


def thresholds_of(path: Path) -> Thresholds:
    """What was learnt of the guard of the model with these embeddings."""
    return tuple(map(float, json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))["thresholds"]))


def scores_of(path: Path, target: str) -> dict[str, Any]:
    """As of `studies.calibrations.scored`, kept beside the model."""
    kept = path.with_suffix(".scores.json")
    if not kept.is_file():
        chosen: dict[str, Calibrator] = {"direct": UCAPC.preset("direct"), "safe": Safe(thresholds_of(path))}
        chosen |= {"careful": Careful(), "ucapc": UCAPC()}
        write_text_atomic(kept, json.dumps(scored(Model.read(path), target, chosen)))
    found: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
    return found


def table(models: Sequence[tuple[Name, dict[str, Any], dict[str, float]]]) -> dict[str, Any]:
    """Of models of one waveform, by calibration: mean change of Macro-F1 over cells, the least mean of an encoder in a
    cell and where that is, the share of captures that lost more than `LOST`, and the least change of a model in a cell.
    """
    cells = list(models[0][1])
    found: dict[str, Any] = {
        "models": len(models),
        "direct": round(fmean(own[cell]["direct"]["f1"] for _, own, _ in models for cell in cells), 4),
        "seconds": {part: round(sum(cost[part] for *_, cost in models), 1) for part in models[0][2]},
    }
    for method in METHODS:
        gains = {
            (name, cell): own[cell][method]["f1"] - own[cell]["direct"]["f1"]
            for name, own, _ in models
            for cell in cells
        }
        encoders = {
            (encoder, cell): fmean(g for (name, c), g in gains.items() if c == cell and name.encoder == encoder)
            for encoder in sorted({name.encoder for name, _ in gains})
            for cell in cells
        }
        worst = min(encoders, key=encoders.__getitem__)
        lost = [
            after < before - LOST
            for _, own, _ in models
            for cell in cells
            for after, before in zip(own[cell][method]["captures"], own[cell]["direct"]["captures"], strict=True)
        ]
        found[method] = {
            "gain": round(fmean(gains.values()), 4),
            "worst": [round(encoders[worst], 4), *worst],
            "worst model": round(min(gains.values()), 4),
            "lost": round(fmean(lost), 4),
            "captures": len(lost),
            "cells": {cell: round(fmean(g for (_, c), g in gains.items() if c == cell), 4) for cell in cells},
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--waveforms", default="wifi,lora")
    parser.add_argument("--encoders", default="cnn,tcn")
    parser.add_argument("--method", default="pisa-equalised")
    parser.add_argument("--seeds", default="2026,2027")
    parser.add_argument("--scale", type=float, default=0.1, help="part of the frames of each capture (0.1)")
    parser.add_argument("--frames", type=int, default=128, help="kept of a device, capture and environment (128)")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--work", type=Path, default=Path("work/guard"))
    parser.add_argument("--out", type=Path, help="file of the record")
    options = parser.parse_args()
    torch.set_num_threads(1)
    models: dict[str, list[tuple[Name, dict[str, Any], dict[str, float]]]] = {}
    for path, target, cost in made(options):
        name = Name.of(path)
        models.setdefault(name.waveform, []).append((name, scores_of(path, target), cost))
    tables = {waveform: table(own) for waveform, own in models.items()}
    headings = ["waveform", "calibration", "mean gain", "worst encoder and cell", "lost more than 0.02"]
    rows = [
        [
            waveform,
            method,
            f"{own[method]['gain']:+.4f}",
            f"{own[method]['worst'][0]:+.4f}",
            f"{own[method]['lost']:.1%}",
        ]
        for waveform, own in tables.items()
        for method in METHODS
        for of in [own[method]]
    ]
    print_table("Careful and the guard on the same models", headings, rows, left=headings[:2])
    if options.out:
        settings = {
            name: getattr(options, name) for name in ("method", "encoders", "seeds", "scale", "epochs", "batch")
        }
        record = {"machine": machine(), "settings": settings, "lost": LOST, "tables": tables}
        write_text_atomic(options.out, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    begin(main)
