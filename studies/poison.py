"""Poisoned captures: what every calibration makes of the genuine frames when a part of a capture is an attacker's.

    make study-poison ARGS="--work work/trained --out results/studies/poison.json"

On the models that `studies.guard` has kept in --work (here those of three epochs), met in the environment that each has
not seen. A share of the frames of every capture there is replaced: by frames of one device, by a walk between two
devices, by a point far from all, or by noise; logits are those that the classifier gives such embeddings. Scored is the
Macro-F1 of the genuine frames alone, capture by capture; streams take the frames in a random order. The check of
`decide.calibration.poison` says how many captures are suspect: poisoned ones, and clean ones in the kinds of deployment
of `studies.calibrations`.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from benchmarks.report import begin, machine
from numpy.typing import NDArray

from pisa_capc.cli.output import listed, print_table
from pisa_capc.core.progress import progress
from pisa_capc.data.scores import macro_f1
from pisa_capc.data.store.files import write_text_atomic
from pisa_capc.decide.calibration import UCAPC, Calibrator, Careful, Online, OnlineCalibrator, calibrators
from pisa_capc.decide.calibration.poison import watch
from studies.calibrations import Model
from studies.embeddings import kept_in
from studies.guard import ENVIRONMENTS, thresholds_of
from studies.safe import Safe

SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
FAR = 10.0  # times the mean length of the embeddings
Frames = tuple[NDArray[np.float64], NDArray[np.float64]]  # embedding (n, D), logits (n, C)


def one_device(z: NDArray[np.float64], label: NDArray[np.int64], n: int, rng: np.random.Generator) -> NDArray[Any]:
    """Frames of one device, played back."""
    own = z[label == rng.choice(label)]
    return own[rng.integers(len(own), size=n)]


def walk(z: NDArray[np.float64], label: NDArray[np.int64], n: int, rng: np.random.Generator) -> NDArray[Any]:
    """Embeddings on the way from frames of one device to those of another."""
    a, b = rng.choice(np.unique(label), 2, replace=False)
    ends = [z[label == k][rng.integers((label == k).sum(), size=n)] for k in (a, b)]
    way = rng.random((n, 1))
    return (1 - way) * ends[0] + way * ends[1]


def far_point(z: NDArray[np.float64], label: NDArray[np.int64], n: int, rng: np.random.Generator) -> NDArray[Any]:
    """One embedding in a random direction, far from all devices."""
    direction = rng.normal(size=z.shape[1])
    direction *= FAR * np.linalg.norm(z, axis=1).mean() / np.linalg.norm(direction)
    return np.repeat(direction[None], n, axis=0)


def noise(z: NDArray[np.float64], label: NDArray[np.int64], n: int, rng: np.random.Generator) -> NDArray[Any]:
    """Gaussian embeddings with the mean and the variances of the capture."""
    return rng.normal(z.mean(axis=0), z.std(axis=0), size=(n, z.shape[1]))


POISONS = {"one device": one_device, "walk": walk, "far point": far_point, "noise": noise}


def methods(thresholds: tuple[float, ...]) -> dict[str, Calibrator]:
    """Every registered calibration by capture, safe under the guard with these thresholds, U-CAPC without a prior, and
    careful without its check."""
    named = {name: kind(group="capture") for name, kind in calibrators().items()}  # type: ignore[call-arg]
    return {
        **named,
        "safe": Safe(thresholds),
        "without-prior": UCAPC(prior="none"),
        "careful, unwatched": Careful(watch=False),
    }


STREAMS: dict[str, Calibrator] = {"ucapc": UCAPC(), "without-prior": UCAPC(prior="none"), "careful": Careful()}


def logits_of(model: Model, z: NDArray[np.float64]) -> NDArray[np.float64]:
    bias = 0.0 if model.source.bias is None else model.source.bias
    return np.asarray(z @ np.asarray(model.source.weight, dtype=np.float64).T + bias)


def scored(
    model: Model, thresholds: tuple[float, ...], capture: Frames, genuine: NDArray[np.bool_], label: NDArray[np.int64]
) -> dict[str, float]:
    """Macro-F1 of the genuine frames of a capture by every calibration, on streams too."""
    found = {}
    for name, calibration in methods(thresholds).items():
        decided = np.asarray(calibration.calibrate(*capture, source=model.source).prediction)
        found[name] = macro_f1(label[genuine], decided[genuine], model.classes, present=True)
    order = np.random.default_rng(0).permutation(len(genuine))
    for name, calibration in STREAMS.items():
        known = model.source if name == "careful" else None
        stream = OnlineCalibrator(model.classes, capture[0].shape[1], settings=Online(calibration), source=known)
        decided = stream.push(*(part[order] for part in capture)).prediction
        mine = genuine[order]
        found[f"stream, {name}"] = macro_f1(label[order][mine], decided[mine], model.classes, present=True)
    return found


def captures(model: Model, target: str) -> Iterator[tuple[NDArray[np.float64], NDArray[np.int64]]]:
    """Embeddings and devices of each capture in the target."""
    rows = model.at([target])
    for name in np.unique(model.capture[rows]):
        own = rows[model.capture[rows] == name]
        yield model.embedding[own].astype(np.float64), model.device[own]


def of_model(model: Model, thresholds: tuple[float, ...], target: str) -> dict[str, Any]:
    """By poison and share the mean over captures of what `scored` gives, and the share of captures that are suspect."""
    suspect = watch(model.source, torch.empty((0, model.embedding.shape[1]), dtype=torch.float64), model.classes)
    assert suspect is not None  # the models keep sessions
    table: dict[str, Any] = {}
    for poison, share in [("clean", 0.0), *((poison, share) for poison in POISONS for share in SHARES)]:
        rng = np.random.default_rng([model.name.seed, round(10 * share)])
        rows, flags = [], []
        for z, label in captures(model, target):
            bad = rng.permutation(len(z))[: round(share * len(z))]
            given, genuine = z.copy(), np.ones(len(z), dtype=bool)
            if len(bad):
                given[bad], genuine[bad] = POISONS[poison](z, label, len(bad), rng), False
            frames = given, logits_of(model, given)
            rows.append(scored(model, thresholds, frames, genuine, label))
            flags.append(suspect(*map(torch.from_numpy, frames)))
        means = {name: fmean(row[name] for row in rows) for name in rows[0]}
        table[f"{poison}, {share:g}" if share else poison] = {**means, "suspect": fmean(flags)}
    table["false alarms"] = {
        cell: [
            bool(
                suspect(*(torch.from_numpy(part[rows].astype(np.float64)) for part in (model.embedding, model.logits)))
            )
            for rows in (drawn.rows[drawn.group == g] for g in range(drawn.group.max() + 1))
        ]
        for cell, drawn in model.cells(target)
    }
    return table


def summary(models: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means over the models; of clean captures by kind of deployment how many are suspect, and how many there are."""
    *cells, _ = models[0]
    alarms = {cell: [one for own in models for one in own["false alarms"][cell]] for cell in models[0]["false alarms"]}
    means = {cell: {n: round(fmean(own[cell][n] for own in models), 4) for n in models[0][cell]} for cell in cells}
    counts = {cell: [sum(found), len(found)] for cell, found in alarms.items()}
    return {"models": len(models), "cells": means, "false alarms": counts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("work/guard"), help="where studies.guard has kept its models")
    parser.add_argument("--waveforms", default="wifi,lora")
    parser.add_argument("--out", type=Path, help="file of the record")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, list[dict[str, Any]]] = {waveform: [] for waveform in listed(options.waveforms)}
    paths = [path for path in kept_in(options.work) if path.stem.split("-")[0] in found]
    with progress("poison", len(paths)) as bar, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is wrong with these captures is known
        for path in paths:
            model, kept = Model.read(path), path.with_suffix(".poison.json")
            if not kept.is_file():
                target = next(name for name in ENVIRONMENTS if name not in model.name.environments)
                write_text_atomic(kept, json.dumps(of_model(model, thresholds_of(path), target)))
            found[model.name.waveform].append(json.loads(kept.read_text(encoding="utf-8")))
            bar.advance()
    tables = {waveform: summary(own) for waveform, own in found.items() if own}
    for waveform, own in tables.items():
        names = ["direct", "ucapc", "without-prior", "careful", "stream, ucapc", "stream, careful", "suspect"]
        rows = [[cell, *(f"{scores[name]:.3f}" for name in names)] for cell, scores in own["cells"].items()]
        print_table(f"{waveform}: Macro-F1 of the genuine frames, {own['models']} models", ["capture", *names], rows)
    if options.out:
        write_text_atomic(options.out, json.dumps({"machine": machine(), "tables": tables}, indent=1) + "\n")


if __name__ == "__main__":
    begin(main)
