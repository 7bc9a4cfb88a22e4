"""Streams: what is lost without capture identifiers.

    make study-streams                 # Macro-F1 on E1
    make study-streams ARGS=--choose   # how the thresholds of `grouping` were chosen, on E2 and E3 alone

Macro-F1 is taken on the demo's scene (five radios), models trained on E2 and E3, over E1 as a receiver would see it:
devices alternate within a capture, or send one after the other. U-CAPC with capture identifiers stands beside groups
that are found, the same online, and a frozen calibration fitted on the earlier half of each capture's frames and
applied to the later half, for which direct inference and U-CAPC are given as well. The last line is one JSON object
with the same figures.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.report import begin, show
from sklearn.metrics import v_measure_score

from pisa_capc import UCAPC, load, simulate
from pisa_capc.data.frames import Frames
from pisa_capc.data.protocol import Evaluator, split
from pisa_capc.decide.calibration import FrozenCalibration, GroupSettings, OnlineCalibrator, find_groups
from pisa_capc.model.inference import Embedding, embed
from pisa_capc.model.training import Run, TrainingConfig, fit

SCENE = Path(__file__).parents[1] / "examples" / "demo_scene.yaml"
TRAINING_SCALE, STREAM_SCALE, SEED = 0.125, 0.4, 2026
TRAINING = TrainingConfig(epochs=5, batch=32)
# How a receiver sees captures, as keys to sort by: devices of a capture in turn, or one after the other.
ORDERS: dict[str, Callable[[Embedding], tuple[Any, ...]]] = {
    "alternating": lambda scores: (scores.frame, scores.capture),
    "one after the other": lambda scores: (scores.capture,),
}


def scores_of(folder: Path, source: list[str], target: str, seed: int) -> tuple[Embedding, Evaluator]:
    """Target scores of the longer set by a model trained on the source frames of the shorter one."""
    short, long = (_frames(folder / str(scale), scale) for scale in (TRAINING_SCALE, STREAM_SCALE))
    run = Run(split(short, source, target, SEED), seed)
    [model] = fit([run], encoder="cnn", training=TRAINING, device="cpu", show=False)
    parts = split(long, source, target, SEED)
    return embed(model, parts.target), parts.evaluator


def _frames(folder: Path, scale: float) -> Frames:
    return load(folder) if folder.exists() else simulate("wifi-own-place", folder, seed=SEED, scale=scale, scene=SCENE)


def in_order(scores: Embedding, keys: tuple[Any, ...]) -> tuple[np.ndarray, Embedding]:
    """The frames sorted by `keys`, the last one first, and how."""
    order = np.lexsort(keys)
    moved = {k: v[order] for k, v in vars(scores).items() if k != "statistics" and v is not None}
    return order, replace(scores, **moved)


def macro_f1(scores: Embedding, evaluator: Evaluator, name: str) -> dict[str, float]:
    """Macro-F1 of every way to decide the stream; only the evaluator knows the labels."""
    order, stream = in_order(scores, ORDERS[name](scores))
    judge = evaluator.select(order)
    frames = (stream.embedding, stream.logits)
    found = {
        "U-CAPC, auto": find_groups(*frames),
        "U-CAPC, auto + CFO": find_groups(*frames, stream.cfo_hz),
        "U-CAPC, auto + CFO + frame": find_groups(*frames, stream.cfo_hz, stream.frame),
    }
    outputs = {"direct": stream.logits, "U-CAPC, identifiers": UCAPC().calibrate(*frames, stream.capture).probability}
    outputs["U-CAPC, one group"] = UCAPC(group="none").calibrate(*frames).probability
    outputs |= {how: UCAPC().calibrate(*frames, groups).probability for how, groups in found.items()}
    classes, features = stream.logits.shape[1], stream.embedding.shape[1]
    outputs["online"] = OnlineCalibrator(classes, features).push(*frames).probability
    outputs["online + CFO"] = OnlineCalibrator(classes, features, True).push(*frames, stream.cfo_hz).probability
    result = {how: judge.score(values).macro_f1 for how, values in outputs.items()}
    later = np.zeros(len(order), dtype=bool)
    for key in np.unique(stream.capture):
        rows = np.flatnonzero(stream.capture == key)
        later[rows] = stream.frame[rows] >= np.median(stream.frame[rows])
    fitted = FrozenCalibration.fit(stream.embedding[~later], stream.logits[~later], stream.capture[~later])
    rest = (stream.embedding[later], stream.logits[later], stream.capture[later])
    halves = {
        "later half: direct": rest[1],
        "later half: U-CAPC, identifiers": UCAPC().calibrate(*rest).probability,
        "later half: frozen": fitted.apply(*rest).probability,
    }
    return result | {how: judge.select(later).score(values).macro_f1 for how, values in halves.items()}


def compare(folder: Path, seeds: list[int]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows of the table, means over the seeds, and the figures of every seed."""
    by_seed: dict[str, list[dict[str, float]]] = {name: [] for name in ORDERS}
    for seed in seeds:
        scores, evaluator = scores_of(folder, ["E2", "E3"], "E1", seed)
        for name in ORDERS:
            by_seed[name].append(macro_f1(scores, evaluator, name))
    rows = [
        {"decided by": how, **{name: statistics.mean(run[how] for run in runs) for name, runs in by_seed.items()}}
        for how in by_seed["alternating"][0]
    ]
    return rows, {"seeds": seeds, "macro_f1": by_seed}


def choose(folder: Path) -> list[dict[str, Any]]:
    """How well found groups agree with captures for some settings, on source environments alone."""
    held_out = {"E3": ["E2"], "E2": ["E3"]}
    streams = {target: scores_of(folder, source, target, SEED)[0] for target, source in held_out.items()}
    rows = []
    for window in (128, 192, 256):
        for threshold, cfo_threshold in ((1.0, 1.6), (1.25, 2.0), (1.5, 2.5)):
            settings = GroupSettings(window=window, threshold=threshold, cfo_threshold=cfo_threshold)
            row: dict[str, Any] = {"window": window, "threshold": threshold, "with CFO": cfo_threshold}
            for target, scores in streams.items():
                for name in ORDERS:
                    _, stream = in_order(scores, ORDERS[name](scores))
                    for kind, cfo_hz in (("", None), (" + CFO", stream.cfo_hz)):
                        groups = find_groups(stream.embedding, stream.logits, cfo_hz, settings=settings)
                        alternating = name == "alternating"
                        agreement = v_measure_score(stream.capture, groups)
                        column = f"{target}{kind}, {'agreement' if alternating else 'groups in turn'}"
                        row[column] = agreement if alternating else int(groups.max()) + 1
            rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--choose", action="store_true", help="how the thresholds were chosen, on source environments")
    parser.add_argument("--seeds", default="2026,2027,2028", help="training seeds (2026,2027,2028)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        if options.choose:
            show("streams: agreement of found groups with captures, source environments", choose(Path(name)))
            return
        rows, runs = compare(Path(name), [int(seed) for seed in options.seeds.split(",")])
    show("streams: Macro-F1 on E1", rows, runs)


if __name__ == "__main__":
    begin(main)
