"""Careful on streams: what is decided frame by frame, and how often it raises its alarm.

    python -m studies.careful_streams --embeddings work/embeddings --out results/studies/careful-streams.json

Models of two source environments, from embeddings that `studies.embeddings` has kept, meet E1 as a receiver would:
devices of a capture in turn, one after the other, or in turn with shares that are drawn unevenly; captures follow each
other. The last stream begins at home, in a source environment, and goes on in E1.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.report import begin
from numpy.typing import NDArray

from pisa_capc.data.chance import at_chance
from pisa_capc.data.deployments import draw_capture, draw_shares
from pisa_capc.data.scores import macro_f1
from pisa_capc.data.sources import groups
from pisa_capc.data.store.files import write_text_atomic
from pisa_capc.decide.calibration import UCAPC, Decisions, Online, OnlineCalibrator
from studies.calibrations import Model, Name
from studies.embeddings import kept_in

TARGET = "E1"
SKEW, FRAMES = 0.3, 512  # Dirichlet of the uneven shares, and frames of such a capture
Rows = NDArray[np.int64]


def streams(model: Model) -> dict[str, Rows]:
    """Rows of the frames, in the order in which they are received."""
    there, home = model.at([TARGET]), model.at(model.name.environments[:1])
    rng = np.random.default_rng(model.name.seed)
    captures = [there[own] for own in groups(np.unique(model.capture[there], return_inverse=True)[1])]
    shares = [draw_shares(model.classes, rng, dirichlet=SKEW) for _ in captures]
    skewed = [own[draw_capture(model.device[own], FRAMES, s, rng)] for own, s in zip(captures, shares, strict=True)]

    def in_turn(rows: Rows) -> Rows:
        return rows[np.lexsort((model.device[rows], model.frame[rows], model.capture[rows]))]

    return {
        "in turn": in_turn(there),
        "one after the other": there[np.lexsort((model.frame[there], model.device[there], model.capture[there]))],
        "in turn, uneven": in_turn(np.concatenate(skewed)),
        "home, then E1": np.concatenate([in_turn(home), in_turn(there)]),
    }


def decided(model: Model, rows: Rows) -> dict[str, Decisions]:
    """By every calibration of streams."""
    shape = model.classes, model.embedding.shape[1]
    found = {
        "U-CAPC": OnlineCalibrator(*shape),
        "no prior": OnlineCalibrator(*shape, settings=Online(calibration=UCAPC(prior="none"))),
        "careful": OnlineCalibrator.usual(*shape, False, Online(), model.source),
    }
    return {name: stream.push(model.embedding[rows], model.logits[rows]) for name, stream in found.items()}


def measured(model: Model) -> dict[str, dict[str, Any]]:
    """By stream: Macro-F1 of direct inference and changes by each calibration; frames, and careful's alarms."""
    found: dict[str, dict[str, Any]] = {}
    for kind, rows in streams(model).items():
        truth = model.device[rows]

        def score(prediction: Rows, truth: Rows = truth) -> float:
            return macro_f1(truth, prediction, model.classes, present=True)

        direct, by = score(model.logits[rows].argmax(axis=1)), decided(model, rows)
        changes = {name: round(score(of.prediction) - direct, 4) for name, of in by.items()}
        alarms = int(by["careful"].alarm.sum())
        found[kind] = {"direct": round(direct, 4), **changes, "frames": len(rows), "alarms": alarms}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--embeddings", type=Path, default=Path("work/embeddings"))
    parser.add_argument("--run", default="2026.2026", help="seeds of the split and of training (2026.2026)")
    parser.add_argument("--out", type=Path, default=Path("results/studies/careful-streams.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    models: dict[str, dict[str, Any]] = {}
    for path in kept_in(options.embeddings, f"*-10-10-*-E2+E3-{options.run}.npz"):
        model = Model.read(path)
        if not at_chance(str(Name.of(path)), np.asarray(model.source.confusion).T):
            models[path.stem] = found = measured(model)
            print(path.stem, {kind: (own["careful"], own["alarms"]) for kind, own in found.items()}, flush=True)
    write_text_atomic(options.out, json.dumps({"study": "careful-streams", "models": models}, indent=1) + "\n")


if __name__ == "__main__":
    begin(main)
