"""Where calibration helps and where it harms: every calibration in every kind of deployment, on trained models.

    python -m studies.calibration_study wifi-sim [--work work] [--frames 256] [--runs 9] --out results/…json

Takes the PISA models that `pisa bench run PROTOCOL` left in --work (with the models that leave a source environment
out, see `pisa_capc.rehearsal`), embeds the target frames, all or some of each device and capture, and scores
direct inference, U-CAPC as published, the safe preset and every peer in cells:

    balanced                       the target's captures as they are
    dirichlet-1, -0.3, missing     captures of 512 frames with other class frequencies, or three classes missing
    unknown-10, -30                10 and 30 % of the frames are of three radios that no model has seen
    captures-32, -128, -512        balanced captures of that many frames
    withheld                       frames in the order of reception, capture identifiers withheld
    frozen                         fitted on one half of each capture, applied to the other
    two-devices, one-device        captures of 512 frames of two radios, or of one: what the guard has not rehearsed

Scores are Macro-F1 over the classes that are there, of known frames. A model that --out already holds is skipped, so a
killed study goes on. The thresholds of the guard come from source environments alone; nothing here feeds back.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.report import begin, show

from pisa_capc import revisions
from pisa_capc.benchmark.data import dataset_folder
from pisa_capc.benchmark.job import Job
from pisa_capc.benchmark.plan import Conditions, PlannedRun, jobs_of, plan
from pisa_capc.benchmark.protocols import Protocol, read_protocol
from pisa_capc.calibration import UCAPC, FrozenCalibration, Safe, SourceStatistics, calibrators, find_groups
from pisa_capc.calibration.guard import Guard, Rehearsals
from pisa_capc.engines import run_jobs
from pisa_capc.figures.style import PAGE_INCHES, canvas
from pisa_capc.frames import Frames, load
from pisa_capc.inference import embed, load_model
from pisa_capc.inference.devices import choose_precision
from pisa_capc.inference.model import run_name
from pisa_capc.progress import progress
from pisa_capc.protocol import split
from pisa_capc.provenance import machine
from pisa_capc.rehearsal.leave_one_out import evenly, runs_leaving_one_out
from pisa_capc.rehearsal.rehearse import MISSING, draw_capture, draw_shares, rehearse
from pisa_capc.scores import macro_f1_of_present
from pisa_capc.simulate.generate import generate
from pisa_capc.store.files import atomic, write_text_atomic
from pisa_capc.store.native import fingerprint
from pisa_capc.training.runs import Run

UNKNOWN = 3  # radios beyond those of the set
SIZE = 512
REPEATS = {32: 16, 128: 4, 512: 1}  # captures drawn from each capture, so that small ones give as many frames
CELLS = (
    "balanced",
    "dirichlet-1",
    "dirichlet-0.3",
    MISSING,
    "unknown-10",
    "unknown-30",
    *(f"captures-{size}" for size in REPEATS),
    "withheld",
    "frozen",
)
UNREHEARSED = {"two-devices": 2, "one-device": 1}  # devices of a capture
EVERY = (*CELLS, *UNREHEARSED)
OWN = ("direct", "paper", "safe")
PEERS = [name for name in calibrators() if name not in ("direct", "ucapc", "safe")]
Arrays = dict[str, np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("protocol")
    parser.add_argument("--work", type=Path, default=Path("work"))
    parser.add_argument("--trained-on", default="cuda", choices=("cpu", "cuda"))
    parser.add_argument("--frames", type=int, help="target frames of each device and capture (all)")
    parser.add_argument("--runs", type=int, default=9, help="runs of each encoder (9)")
    parser.add_argument("--encoders", default="")
    parser.add_argument("--device", default="cpu", help="where frames are embedded")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--plot", type=Path, help="picture of what paper and safe change, by encoder and cell")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()

    protocol = read_protocol(options.protocol)
    data = dataset_folder(protocol.dataset, None, options.work)
    precision = choose_precision(protocol.precision, torch.device(options.trained_on))
    conditions = Conditions(fingerprint(data), options.trained_on, precision)
    settings = {
        "protocol": protocol.name,
        "dataset": conditions.dataset,
        "frames": options.frames,
        "code": {"calibration": revisions.CALIBRATION, "guard": revisions.GUARD},
    }
    record: dict[str, Any] = {"settings": settings, "machine": machine(), "models": {}}
    if options.out.exists():
        record = json.loads(options.out.read_text(encoding="utf-8"))
        if record["settings"] != settings:
            raise SystemExit(f"{options.out}: holds a study with other settings. Choose another --out.")
    strangers = _strangers(protocol, options.work)
    wanted = options.encoders.split(",") if options.encoders else list(protocol.encoders)
    jobs = []
    for group in jobs_of([run for run in plan(protocol) if run.method == "pisa" and run.encoder in wanted], True):
        folder = Job(tuple(group), conditions, data, "", "", (options.work / "trained").resolve()).folder
        # A part of the runs should be of different splits.
        for run in sorted(group, key=lambda r: ((r.seed - r.split_seed) % 3, r.split_seed))[: options.runs]:
            if f"{run.encoder}/{run_name(run.split_seed, run.seed)}" not in record["models"]:
                jobs.append((run, group[0], folder, data, strangers, options.frames, options.device))
    with progress("calibration study", len(jobs)) as bar:
        for name, scores in run_jobs(study_model, jobs, workers=options.workers):
            record["models"][name] = scores
            record["models"] = dict(sorted(record["models"].items()))
            write_text_atomic(options.out, json.dumps(record, separators=(",", ":")) + "\n")
            bar.advance(1)
    report(record)
    if options.plot is not None:
        draw(record["models"], protocol.title, options.plot)


def _strangers(protocol: Protocol, work: Path) -> Path:
    """A set made like the protocol's, with radios that it does not have."""
    made = protocol.dataset.simulate
    assert made is not None
    folder, scene = work / "data" / f"{made.scene}-strangers", work / "data" / "strangers.yaml"
    scene.parent.mkdir(parents=True, exist_ok=True)
    scene.write_text(f"devices: {10 + UNKNOWN}\n", encoding="utf-8")
    generate(made.scene, folder, seed=made.seed, scale=0.25 * made.scale, scene=scene)
    return folder


def study_model(
    run: PlannedRun, first: PlannedRun, folder: Path, data: Path, strangers: Path, frames: int | None, device: str
) -> tuple[str, dict[str, dict[str, float]]]:
    """Scores of one model by cell and calibration."""
    torch.set_num_threads(1)
    name = run_name(run.split_seed, run.seed)
    cache = folder.parent.parent / "embeddings" / folder.name
    known, unknown, guard = _embedded(run, first, folder, data, strangers, frames, device, cache)
    known["source_guard"] = guard
    rng = np.random.default_rng([run.split_seed, run.seed])
    return f"{run.encoder}/{name}", {cell: score_cell(cell, known, unknown, rng) for cell in EVERY}


def score_cell(cell: str, known: Arrays, unknown: Arrays, rng: np.random.Generator) -> dict[str, float]:
    """Macro-F1 of every calibration in one cell."""
    source = SourceStatistics.from_arrays(known)
    if cell == "frozen":
        return _frozen(known, source)
    rows, group, strange = _draw(cell, known, unknown, rng)
    embedding = np.concatenate([known["embedding"][rows], unknown["embedding"][strange]])
    logits = np.concatenate([known["logits"][rows], unknown["logits"][strange]])
    if cell == "withheld":
        group = find_groups(embedding, logits, None, None)
    label = known["label"][rows]
    found = {}
    for name in (*OWN, *PEERS):
        kind = {"direct": calibrators()["direct"], "paper": UCAPC, "safe": Safe}.get(name) or calibrators()[name]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of captures with fewer frames than classes
            result = kind(group="capture").calibrate(embedding, logits, group, source)
        found[name] = round(macro_f1_of_present(label, np.asarray(result.prediction)[: len(rows)], logits.shape[1]), 5)
    return found


def _draw(
    cell: str, known: Arrays, unknown: Arrays, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of known frames, groups of all frames, and rows of unknown frames, which come last."""
    label, capture = known["label"], known["capture"]
    classes = known["logits"].shape[1]
    nobody = np.zeros(0, dtype=np.int64)
    if cell == "balanced":
        return np.arange(len(label)), capture, nobody
    if cell == "withheld":  # as a receiver sees it: capture after capture, the radios in turn
        order = np.lexsort((known["frame"], capture))
        return order, capture[order], nobody
    kind, _, number = cell.partition("-")
    size = int(number) if kind == "captures" else SIZE
    missing = draw_shares(cell, classes, rng)  # the missing classes are the same in all captures
    rows, group, strange, strange_group = [], [], [], []
    for r, key in enumerate(np.unique(capture)):
        own = np.flatnonzero(capture == key)
        for repeat in range(REPEATS[size] if kind == "captures" else 1):
            drawn = missing if cell == MISSING else draw_shares(cell, classes, rng)
            if cell in UNREHEARSED:
                drawn = _some_devices(UNREHEARSED[cell], classes, rng)
            chosen = own[draw_capture(label[own], size, drawn, rng)]
            rows.append(chosen)
            group.append(np.full(len(chosen), r * 100 + repeat))
            if kind == "unknown":
                there = np.flatnonzero(unknown["capture"] == key)
                share = int(number) / 100
                count = min(len(there), round(len(chosen) * share / (1 - share)))
                strange.append(rng.choice(there, count, replace=False))
                strange_group.append(np.full(count, r * 100))
    return (
        np.concatenate(rows),
        np.concatenate(group + strange_group),
        np.concatenate(strange) if strange else nobody,
    )


def _some_devices(count: int, classes: int, rng: np.random.Generator) -> np.ndarray:
    """Equal frequencies of a few devices, and none of the others."""
    shares = np.zeros(classes)
    shares[rng.choice(classes, count, replace=False)] = 1 / count
    return shares


def _frozen(known: Arrays, source: SourceStatistics) -> dict[str, float]:
    """Fitted on the first half of each device's frames of a capture, applied to the rest."""
    classes = known["logits"].shape[1]
    first = np.zeros(len(known["label"]), dtype=bool)
    kind = np.unique(
        np.stack([known["label"], np.unique(known["capture"], return_inverse=True)[1]]), axis=1, return_inverse=True
    )[1].ravel()
    for k in np.unique(kind):
        own = np.flatnonzero(kind == k)
        first[own[: len(own) // 2]] = True
    rest = ~first
    found = {"direct": macro_f1_of_present(known["label"][rest], known["logits"][rest].argmax(1), classes)}
    for name, settings in {"paper": UCAPC(), "safe": Safe()}.items():
        frozen = FrozenCalibration.fit(
            known["embedding"][first], known["logits"][first], known["capture"][first], settings, source
        )
        whole = settings.calibrate(known["embedding"], known["logits"], known["capture"], source)
        applied = frozen.apply(known["embedding"][rest], known["logits"][rest], known["capture"][rest])
        for stage, prediction in (
            (name, np.asarray(applied.prediction)),
            (f"{name}, not frozen", np.asarray(whole.prediction)[rest]),
        ):
            found[stage] = macro_f1_of_present(known["label"][rest], prediction, classes)
    return {name: round(value, 5) for name, value in found.items()}


def _embedded(
    run: PlannedRun,
    first: PlannedRun,
    folder: Path,
    data: Path,
    strangers: Path,
    most: int | None,
    device: str,
    cache: Path,
) -> tuple[Arrays, Arrays, np.ndarray]:
    """Known and unknown target frames under the model, with labels to score by, and the guard of its encoder."""
    frames = load(data)
    parts = split(frames, run.source, run.target, run.split_seed, **run.split)
    name = run_name(run.split_seed, run.seed)

    def scores(stem: str, place: Path, chosen: Frames) -> Arrays:
        path = cache / f"{stem}.npz"
        if path.exists():
            with np.load(path) as stored:
                return {key: stored[key] for key in stored.files}
        found = embed(load_model(place), chosen.unlabelled(), device)
        arrays = found.arrays() | {"label": chosen.device}
        with atomic(path) as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        return arrays

    target = frames.select(np.isin(frames.rows, parts.target.rows))
    if most is not None:
        target = target.select(evenly(target, most))
    known = scores(f"target-{name}-{most or 'all'}", folder / name, target)
    others = load(strangers).where(environment=list(run.target))
    new = [i for i, device_name in enumerate(others.devices) if device_name not in frames.devices]
    unknown = scores(f"unknown-{name}", folder / name, others.select(np.isin(others.device, new)))
    path = cache / f"guard-{revisions.CALIBRATION}-{revisions.GUARD}.json"
    if not path.exists():
        lead = Run(split(frames, first.source, first.target, first.split_seed, **first.split), first.seed)
        own = folder / run_name(first.split_seed, first.seed)
        rehearsed = [scores("validation", own, lead.split.validation.select(evenly(lead.split.validation)))]
        for environment in runs_leaving_one_out(lead):
            chosen = frames.where(environment=[environment])
            place = folder / "left-out" / environment
            rehearsed.insert(-1, scores(f"replay-{environment}", place, chosen.select(evenly(chosen))))
        learnt = Guard.learn(
            Rehearsals.join(
                [rehearse(p["embedding"], p["logits"], p["label"], p["capture"], first.seed) for p in rehearsed]
            )
        )
        write_text_atomic(path, json.dumps(list(learnt.thresholds)))
    return known, unknown, np.array(json.loads(path.read_text(encoding="utf-8")))


def report(record: dict[str, Any]) -> None:
    """The table over models, and what became of the aims."""
    models = record["models"]
    rows = []
    for cell in EVERY:
        row: dict[str, Any] = {"cell": cell}
        for name in (*OWN, *PEERS):
            values = [scores[cell][name] for scores in models.values() if name in scores[cell]]
            row[name] = round(float(np.mean(values)), 4) if values else None
        rows.append(row)
    show(f"calibration study: {record['settings']['protocol']}, {len(models)} models", rows, aims(models))


def aims(models: dict[str, dict[str, dict[str, float]]]) -> dict[str, Any]:
    """What the safe preset keeps and loses; names as in the record."""
    encoders = list(dict.fromkeys(name.split("/")[0] for name in models))

    def mean(cell: str, name: str, encoder: str = "") -> float:
        return float(np.mean([s[cell][name] for key, s in models.items() if key.startswith(encoder)]))

    def gain(cell: str, name: str, encoder: str = "") -> float:
        return mean(cell, name, encoder) - mean(cell, "direct", encoder)

    def kept(part: float, whole: float) -> float | None:
        return round(part / whole, 3) if whole > 0 else None

    level = ["balanced", *(f"captures-{size}" for size in REPEATS)]
    worst = min((gain(cell, "safe", encoder + "/"), encoder, cell) for encoder in encoders for cell in CELLS)
    worst_paper = min((gain(cell, "paper", encoder + "/"), encoder, cell) for encoder in encoders for cell in CELLS)
    beyond = {
        name: min((gain(cell, name, encoder + "/"), encoder, cell) for encoder in encoders for cell in UNREHEARSED)
        for name in ("safe", "paper")
    }
    shared = [cell for cell in CELLS if cell != "frozen"]
    over = {name: round(float(np.mean([mean(cell, name) for cell in shared])), 4) for name in (*OWN, *PEERS)}
    frozen = {name: kept(gain("frozen", name), gain("frozen", f"{name}, not frozen")) for name in ("paper", "safe")}
    return {
        "worst safe - direct": [round(worst[0], 4), *worst[1:]],
        "worst paper - direct": [round(worst_paper[0], 4), *worst_paper[1:]],
        "balanced gain kept by safe": kept(
            sum(gain(cell, "safe") for cell in level), sum(gain(cell, "paper") for cell in level)
        ),
        "mean over cells": over,
        "gain kept without identifiers": {
            name: kept(gain("withheld", name), gain("balanced", name)) for name in ("paper", "safe")
        },
        "gain kept frozen": frozen,
        "worst - direct, not rehearsed": {name: [round(found[0], 4), *found[1:]] for name, found in beyond.items()},
    }


def draw(models: dict[str, dict[str, dict[str, float]]], title: str, path: Path) -> None:
    """Change of Macro-F1 against direct inference by encoder and cell, mean over runs."""
    encoders = list(dict.fromkeys(name.split("/")[0] for name in models))
    with canvas(path, PAGE_INCHES, 1.1 + 0.42 * len(encoders)) as figure:
        for axes, (name, label) in zip(
            figure.subplots(1, 2, sharey=True), (("paper", "U-CAPC as published"), ("safe", "safe preset")), strict=True
        ):
            change = np.array(
                [
                    [
                        np.mean([s[cell][name] - s[cell]["direct"] for k, s in models.items() if k.startswith(e + "/")])
                        for cell in EVERY
                    ]
                    for e in encoders
                ]
            )
            axes.imshow(change, cmap="PuOr_r", vmin=-0.3, vmax=0.3, aspect="auto")
            for i, row in enumerate(change):
                for j, value in enumerate(row):
                    ink = "white" if abs(value) > 0.2 else "black"
                    axes.text(j, i, f"{value:+.2f}".replace("0.", "."), ha="center", va="center", fontsize=5, color=ink)
            axes.set_xticks(range(len(EVERY)), EVERY, rotation=60, ha="right", fontsize=6)
            axes.set_yticks(range(len(encoders)), encoders, fontsize=6)
            axes.set_title(label)
        figure.suptitle(f"{title}: change of Macro-F1 against direct inference")


if __name__ == "__main__":
    begin(main)
