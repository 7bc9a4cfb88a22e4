"""Devices enrolled without training: how well they are recognised elsewhere, and what it costs the others.

    make study-enrolment ARGS="--coarse --scale 0.1 --epochs 6 --batch 32 --out results/studies/enrolment-2core.json"
    make study-enrolment ARGS="--waveform lora --encoder tcn --seeds 2026,2027,2028 --device cuda --out tcn-lora.json"

Of ten devices three at a time are left out of training, then enrolled from 10, 50 or 200 frames in one source
environment and recognised, among all ten, in an environment that the model never saw; beside it a model that was
trained with all ten. The row of the classifier is chosen on the source alone: each source environment in turn plays the
target of a model trained in the other. What is chosen meets the target once, with the others for comparison.

A cell is a source, the devices left out and a seed; it is written to --work when it is done, with its models, and a
stopped study goes on. Seeds are trained together on a GPU. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from benchmarks.report import machine
from numpy.typing import NDArray

from pisa_capc import Frames, simulate
from pisa_capc.cli.output import listed_numbers, print_table
from pisa_capc.core.config import parse_json
from pisa_capc.core.progress import console
from pisa_capc.core.provenance import made
from pisa_capc.core.randomness import generator
from pisa_capc.data.frames import groups_of, load
from pisa_capc.data.protocol import split
from pisa_capc.data.scores import confusion_matrix, f1_per_class
from pisa_capc.data.store.files import write_text_atomic
from pisa_capc.data.store.native import fingerprint
from pisa_capc.decide.enrolment.alike import ALIKE, sounds_like
from pisa_capc.decide.enrolment.row import STRENGTH, Array, Row, mean_variance, ridge_row, within_ridge
from pisa_capc.decide.enrolment.statistics import with_device
from pisa_capc.evidence.figures.style import COLOURS, COLUMN_INCHES, MARKERS, canvas
from pisa_capc.model.inference import SourceStatistics, TrainedModel, embed
from pisa_capc.model.training import Run, TrainingConfig, fit

HARDWARE = Path(__file__).parents[1] / "examples" / "demo_scene.yaml"  # coarse, but ten radios
SOURCE, TARGET = ("E2", "E3"), "E1"
GROUPS = ((0, 1, 2), (5, 6, 7))  # devices left out together
FRAMES = (10, 50, 200)
DRAWS = 3  # of the frames that a device is enrolled from
ALIKE_FRAMES = (10, 50)
NOISE = 0.001  # of Macro-F1: differences that say nothing
STRENGTHS = (0.3, 0.03, 0.003, 0.0003)
CHOSEN = f"within ridge {STRENGTH:g}"  # of the package
SHRINKAGE = 0.1  # of the covariance of LDA


def imprint(source: SourceStatistics, own: Array) -> tuple[Array, float]:
    """The mean direction at the mean length of the other rows (Qi et al., CVPR 2018); its own logit as the others'."""
    weight, mean = np.asarray(source.weight, dtype=np.float64), own.mean(axis=0)
    w = mean / np.linalg.norm(mean) * np.linalg.norm(weight, axis=1).mean()
    return w, _own_logit(source) - float(w @ mean)


def lda_row(source: SourceStatistics, own: Array) -> tuple[Array, float]:
    """w̄ + a Σ⁻¹(μ − μ̄), with the a at which the other rows are most nearly of this form; its own logit as theirs."""
    weight, means = np.asarray(source.weight, dtype=np.float64), np.asarray(source.class_mean, dtype=np.float64)
    centre, inverse = means.mean(axis=0), np.linalg.inv(_shrunk(source))
    fitted = (means - centre) @ inverse
    a = np.sum(fitted * (weight - weight.mean(axis=0))) / np.sum(fitted**2)
    mean = own.mean(axis=0)
    w = weight.mean(axis=0) + a * (mean - centre) @ inverse
    return w, _own_logit(source) - float(w @ mean)


def plain_ridge(source: SourceStatistics, own: Array) -> tuple[Array, float]:
    """As `within_ridge`, with all directions alike."""
    return ridge_row(source, own, STRENGTH * mean_variance(np.asarray(source.covariance, dtype=np.float64)))


def _own_logit(source: SourceStatistics) -> float:
    """The mean logit of the others at their own means."""
    weight, means = np.asarray(source.weight, dtype=np.float64), np.asarray(source.class_mean, dtype=np.float64)
    return float((np.sum(weight * means, axis=1) + np.asarray(source.bias)).mean())


def _shrunk(source: SourceStatistics) -> Array:
    covariance = np.asarray(source.covariance, dtype=np.float64)
    return (1 - SHRINKAGE) * covariance + SHRINKAGE * mean_variance(covariance)


def own_head(source: SourceStatistics) -> tuple[Array, Array]:
    return np.asarray(source.weight, dtype=np.float64), np.asarray(source.bias, dtype=np.float64)


def lda_head(source: SourceStatistics) -> tuple[Array, Array]:
    """Every row anew: μᵀΣ⁻¹ and −½ μᵀΣ⁻¹μ."""
    means = np.asarray(source.class_mean, dtype=np.float64)
    weight = means @ np.linalg.inv(_shrunk(source))
    return weight, -0.5 * np.sum(weight * means, axis=1)


Head = Callable[[SourceStatistics], tuple[Array, Array]]
# By name: what makes the new row, and what decides.
ROWS: dict[str, tuple[Row, Head]] = {
    "imprint": (imprint, own_head),
    "LDA row": (lda_row, own_head),
    "LDA head": (imprint, lda_head),
    "plain ridge": (plain_ridge, own_head),
    **{f"within ridge {s:g}": (partial(within_ridge, strength=s), own_head) for s in STRENGTHS},
}


@dataclass(frozen=True)
class Cell:
    """What one model is asked: trained in `source` without the devices `left_out`, met in `target`."""

    source: tuple[str, ...]
    target: str
    left_out: tuple[int, ...]
    seed: int

    @property
    def name(self) -> str:
        return f"{'+'.join(self.source)}-{self.target}-without-{'-'.join(map(str, self.left_out))}-seed{self.seed}"


@dataclass(frozen=True, eq=False)
class Seen:
    """All frames through one model. z: (N, D). label: (N,) with the devices left out after the `rest` that are not.

    place: (N,) environment. met: (N,) whether in the target.
    """

    statistics: SourceStatistics
    z: Array
    label: NDArray[np.int64]
    place: NDArray[np.str_]
    met: NDArray[np.bool_]
    rest: int


def only(frames: Frames, devices: Sequence[int]) -> Frames:
    """The frames of some devices, as a dataset that has no others."""
    chosen = frames.select(np.isin(frames.device, devices))
    names = tuple(frames.devices[i] for i in devices)
    return replace(chosen, device=np.searchsorted(devices, chosen.device), devices=names)


class Study:
    def __init__(self, frames: Frames, options: argparse.Namespace, work: Path) -> None:
        self.frames, self.options, self.work = frames, options, work
        self.seeds = listed_numbers("--seeds", options.seeds)
        self.everyone = tuple(range(len(frames.devices)))

    def cells(self, folds: Sequence[tuple[tuple[str, ...], str]]) -> Iterator[dict[str, Any]]:
        for source, target in folds:
            for group in GROUPS:
                for i, seed in enumerate(self.seeds):
                    cell = Cell(source, target, group, seed)
                    path = self.work / "cells" / f"{cell.name}.json"
                    if not path.is_file():
                        console.print(cell.name, soft_wrap=True)
                        write_text_atomic(path, json.dumps(self._cell(cell, i)))
                    yield parse_json(path.read_text(encoding="utf-8"))

    def trained(self, source: tuple[str, ...], target: str, devices: Sequence[int]) -> list[TrainedModel]:
        """A model of these devices for every seed."""
        part = split(only(self.frames, devices), source, target, self.seeds[0])
        options = self.options
        return fit(
            [Run(part, seed) for seed in self.seeds],
            method=options.method,
            encoder=options.encoder,
            training=TrainingConfig(epochs=options.epochs, batch=options.batch),
            device=options.device,
            out=self.work / "models" / f"{'+'.join(source)}-{target}-of-{'-'.join(map(str, devices))}",
        )

    def _cell(self, cell: Cell, i: int) -> dict[str, Any]:
        rest = [d for d in self.everyone if d not in cell.left_out]
        model = self.trained(cell.source, cell.target, rest)[i]
        anew = self.trained(cell.source, cell.target, self.everyone)[i]
        scores = embed(model, self.frames.unlabelled(), self.options.device)
        order = np.array([*rest, *cell.left_out])  # as the devices of the enlarged model are numbered
        label = np.argsort(order)[self.frames.device]
        met = scores.environment == cell.target
        seen = Seen(model.statistics, scores.embedding.astype(np.float64), label, scores.environment, met, len(rest))
        direct = embed(anew, self.frames.select(met).unlabelled(), self.options.device).logits
        known = met & (label < len(rest))
        return {
            "source": cell.source,
            "target": cell.target,
            "left_out": [self.frames.devices[d] for d in cell.left_out],
            "seed": cell.seed,
            "validation_f1": model.run.metrics.validation_f1,
            "before": _f1(scores.logits[known], label[known])[: len(rest)].mean(),
            "anew": _parts(direct[:, order], label[met], len(rest)),
            "enrolled": [
                {"row": row, "place": where, "frames": count, **self._enrolled(seen, cell, row, where, count)}
                for row in ROWS
                for where in cell.source
                for count in FRAMES
            ],
            "alike": self._alike(seen, cell),
        }

    def _enrolled(self, seen: Seen, cell: Cell, row: str, where: str, count: int) -> dict[str, float]:
        """Scores where the devices that were left out are enrolled one after the other, mean over draws of frames."""
        make, head = ROWS[row]
        found = []
        for draw in range(DRAWS):
            statistics = seen.statistics
            for k in range(seen.rest, len(self.everyone)):
                own = np.flatnonzero((seen.place == where) & (seen.label == k))
                chosen = generator(cell.seed, "enrol", where, str(k), str(draw)).permutation(own)[:count]
                statistics = with_device(statistics, seen.z[np.sort(chosen)], make)
            weight, bias = head(statistics)
            found.append(_parts(seen.z[seen.met] @ weight.T + bias, seen.label[seen.met], seen.rest))
        return {name: float(np.mean([one[name] for one in found])) for name in found[0]}

    def _alike(self, seen: Seen, cell: Cell) -> dict[str, dict[str, list[float]]]:
        """How much the first frames of each recording sound like a device that is there: of such a device, of a new."""
        found: dict[str, dict[str, list[float]]] = {}
        for count in ALIKE_FRAMES:
            own = found[str(count)] = {"known": [], "new": []}
            for members in groups_of(self.frames.where(environment=cell.target)):
                rows = np.flatnonzero(seen.met)[members[:count]]
                kind = "known" if seen.label[rows[0]] < seen.rest else "new"
                own[kind].append(round(sounds_like(seen.statistics, seen.z[rows]).p, 4))
        return found


def _f1(logits: Array, label: NDArray[np.int64]) -> Array:
    classes = max(logits.shape[1], int(label.max()) + 1)
    return np.asarray(f1_per_class(confusion_matrix(label, logits.argmax(axis=1), classes)))


def _parts(logits: Array, label: NDArray[np.int64], rest: int) -> dict[str, float]:
    """Mean F1 of all devices, of the new, of the others among all, and of the others on their own frames alone."""
    f1, own = _f1(logits, label), label < rest
    kept = _f1(logits[own], label[own])[:rest]
    return {"all": f1.mean(), "new": f1[rest:].mean(), "others": f1[:rest].mean(), "kept": kept.mean()}


def summary(cells: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means over cells and places, by row and number of frames."""
    rows = [entry for cell in cells for entry in cell["enrolled"]]
    parts = ("all", "new", "others", "kept")

    def mean(row: str, count: int | None) -> dict[str, float]:
        own = [entry for entry in rows if entry["row"] == row and count in (None, entry["frames"])]
        return {part: float(np.mean([entry[part] for entry in own])) for part in parts}

    ranks = {
        kind: [p for cell in cells for own in cell["alike"].values() for p in own[kind]] for kind in ("known", "new")
    }
    return {
        "alike": {kind: float(np.mean(np.array(values) > ALIKE)) for kind, values in ranks.items()},
        "before": float(np.mean([cell["before"] for cell in cells])),
        "anew": {part: float(np.mean([cell["anew"][part] for cell in cells])) for part in parts},
        "rows": {row: {"mean": mean(row, None), **{str(n): mean(row, n) for n in FRAMES}} for row in ROWS},
    }


def choose(source: dict[str, Any]) -> str:
    """The first row, from the stiffest on, that is as good as the best but for `NOISE`."""
    means = {row: own["mean"]["all"] for row, own in source["rows"].items()}
    return next(row for row in ROWS if means[row] >= max(means.values()) - NOISE)


def dataset(options: argparse.Namespace, work: Path) -> Path:
    """The simulated set, made first where it is not there."""
    scene = None
    if options.coarse:
        scene = work / "scene.yaml"
        hardware = yaml.safe_load(HARDWARE.read_text(encoding="utf-8"))["hardware"]
        write_text_atomic(scene, yaml.safe_dump({"hardware": hardware}))
    simulate(options.waveform, work / "data", seed=2026, scale=options.scale, scene=scene, workers=1)
    return work / "data"


def draw(path: Path, found: dict[str, Any]) -> None:
    """Macro-F1 in the target against frames to enrol from: of the enrolled, and of the others on their own frames."""
    with canvas(path, COLUMN_INCHES, 2.6) as figure:
        axes = figure.subplots()
        own = found["rows"][CHOSEN]
        lines = (("new", "enrolled", found["anew"]["new"]), ("kept", "the others", found["before"]))
        for (part, title, level), colour, marker in zip(lines, COLOURS, MARKERS, strict=False):
            axes.plot(FRAMES, [own[str(n)][part] for n in FRAMES], color=colour, marker=marker, ms=4, label=title)
            beside = "trained with all ten" if part == "new" else "before the enrolment"
            axes.axhline(level, color=colour, ls=":", label=f"{title}, {beside}")
        axes.set_xscale("log")
        axes.set_xticks(FRAMES, [str(n) for n in FRAMES])
        axes.minorticks_off()
        axes.set_xlabel("frames that a device is enrolled from, in one place")
        axes.set_ylabel("Macro-F1 in another place")
        figure.legend(loc="outside lower center", ncols=2)


def show(title: str, found: dict[str, Any]) -> None:
    headings = ["row", "all", *(f"new, {n}" for n in FRAMES), *(f"kept, {n}" for n in FRAMES)]
    rows = [
        [
            row,
            f"{own['mean']['all']:.4f}",
            *(f"{own[str(n)]['new']:.4f}" for n in FRAMES),
            *(f"{own[str(n)]['kept']:.4f}" for n in FRAMES),
        ]
        for row, own in found["rows"].items()
    ]
    anew = found["anew"]
    last = [
        "trained anew; before",
        f"{anew['all']:.4f}",
        f"{anew['new']:.4f}",
        "",
        "",
        f"{found['before']:.4f}",
        "",
        "",
    ]
    print_table(title, headings, rows, last=last)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--waveform", choices=("wifi", "lora"), default="wifi")
    parser.add_argument("--encoder", default="cnn", help="temporal encoder (cnn)")
    parser.add_argument("--method", default="pisa-equalised", help="training method (pisa-equalised)")
    parser.add_argument("--coarse", action="store_true", help="coarse hardware, learnt in a few epochs")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the frames of each capture (1.0)")
    parser.add_argument("--epochs", type=int, default=30, help="epochs of each training (30)")
    parser.add_argument("--batch", type=int, default=128, help="frames of a step (128)")
    parser.add_argument("--seeds", default="2026", help="seeds of the trainings, as 2026,2027 (2026)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (cpu)")
    parser.add_argument("--work", type=Path, default=Path("work/enrolment"), help="folder to go on in")
    parser.add_argument("--out", type=Path, help="file for the record")
    parser.add_argument("--figure", type=Path, help="draw Macro-F1 against frames into this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    set_ = f"{options.waveform}{'-coarse' * options.coarse}-{options.scale:g}"
    folder = dataset(options, options.work / set_)
    how = f"{options.method}-{options.encoder}-{options.epochs}x{options.batch}"
    study = Study(load(folder), options, options.work / set_ / how)
    chosen_on = list(study.cells([((SOURCE[0],), SOURCE[1]), ((SOURCE[1],), SOURCE[0])]))
    source = summary(chosen_on)
    chosen = choose(source)
    met = list(study.cells([(SOURCE, TARGET)]))
    target = summary(met)
    show("Source environments in turn, from which the row is chosen", source)
    show(f"{' and '.join(SOURCE)} → {TARGET}", target)
    record = {
        "benchmark": "enrolment",
        "machine": machine(),
        "made": made(),
        "settings": {k: v for k, v in vars(options).items() if not isinstance(v, Path)},
        "dataset": fingerprint(folder),
        "chosen": chosen,
        "source": source,
        "target": target,
        "cells": [*chosen_on, *met],
    }
    if options.figure is not None:
        draw(options.figure, target)
    if options.out is not None:
        write_text_atomic(options.out, json.dumps(record) + "\n")
    print(json.dumps({key: value for key, value in record.items() if key != "cells"}))


if __name__ == "__main__":
    main()
