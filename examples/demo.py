"""The main job end to end on a small simulated set: the paper's three stages, Single, PISA and PISA-CAPC.

    make demo

Frames are simulated in three environments; models are trained in E2 and E3 and identify the same radios in E1, a place
they never saw. The last stage corrects PISA's decisions with the unlabelled frames of each capture. Everything is
written into the folder `demo`; a second start goes on from what is there.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import torch

from pisa_capc import UCAPC, simulate
from pisa_capc.cli.output import print_table
from pisa_capc.picture import draw
from pisa_capc.progress import console
from pisa_capc.protocol import split
from pisa_capc.report import Report
from pisa_capc.scores import Scores, plot_confusions
from pisa_capc.store.files import write_text_atomic
from pisa_capc.store.native import fingerprint
from pisa_capc.training import Run, TrainingConfig, embed, fit

FOLDER = Path("demo")
SCENE = Path(__file__).with_name("demo_scene.yaml")
SEED = 2026
TRAINING = TrainingConfig(epochs=5, batch=32)


def main() -> None:
    started = time.perf_counter()
    torch.set_num_threads(1)
    console.print("1. Simulate Wi-Fi preambles of five radios in three environments")
    frames = simulate("wifi", FOLDER / "wifi", seed=SEED, scale=0.125, workers=2, scene=SCENE)
    draw(FOLDER / "wifi", FOLDER / "frames.png")

    console.print("2. Split: E2 and E3 with labels, E1 without")
    part = split(frames, source=["E2", "E3"], target="E1", seed=SEED)
    run = Run(part, split_seed=SEED, seed=SEED)

    stages: dict[str, Scores] = {}
    source_f1: dict[str, float] = {}
    for method in ("single", "pisa"):
        console.print(f"3. Train {method}")
        [model] = fit(
            [run],
            method=method,
            encoder="cnn",
            training=TRAINING,
            device="cpu",
            out=FOLDER / method,
            dataset=fingerprint(FOLDER / "wifi"),
        )
        scores = embed(model, part.target)
        stage = {"single": "Single", "pisa": "PISA"}[method]
        stages[stage] = part.evaluator.score(scores.logits)
        source_f1[stage] = model.about["metrics"]["validation_f1"]

    console.print("4. Calibrate PISA's decisions, capture by capture, without labels")
    calibrated = UCAPC().calibrate(scores.embedding, scores.logits, scores.capture)
    stages["PISA-CAPC"] = part.evaluator.score(calibrated.probability)
    calibrated.plot(FOLDER / "calibration.png", "E1/M")
    plot_confusions(FOLDER / "confusion.png", stages)

    source_f1["PISA-CAPC"] = source_f1["PISA"]  # the calibration leaves the model as it is
    headings = ["stage", "source validation F1", "target Macro-F1", "accuracy", "Macro-AUROC"]
    rows = [
        [n, f"{source_f1[n]:.4f}", f"{s.macro_f1:.4f}", f"{s.accuracy:.4f}", f"{s.macro_auroc:.4f}"]
        for n, s in stages.items()
    ]
    captures = list(stages["PISA"].per_capture)
    by_capture = [[n, *(f"{s.per_capture[c].macro_f1:.4f}" for c in captures)] for n, s in stages.items()]
    record = {
        "command": "make demo",
        "seed": SEED,
        "source_validation_f1": source_f1,
        "stages": {name: s.to_json() for name, s in stages.items()},
    }
    write_text_atomic(FOLDER / "result.json", json.dumps(record, indent=1))
    report = Report("PISA-CAPC demo: trained in E2 and E3, tested in E1")
    report.text(
        f"{len(part.train):,} training, {len(part.validation):,} validation and {len(part.target):,} target frames "
        f"of {len(part.devices)} simulated radios; CNN encoder, {TRAINING.epochs} epochs of batch {TRAINING.batch}, "
        f"seed {SEED}. One run of a small, easy set: it shows how the parts work together, not how well they do."
    )
    report.table("Target scores", headings, rows)
    report.table("Macro-F1 by capture", ["stage", *captures], by_capture)
    report.picture("Decisions in E1, by stage", FOLDER / "confusion.png")
    report.picture("Calibration of the mobile capture", FOLDER / "calibration.png")
    report.picture("The simulated frames", FOLDER / "frames.png")
    report.save(FOLDER / "report.html")
    print_table("Trained in E2 and E3, tested in E1", headings, rows)
    print(f"{time.perf_counter() - started:.0f} s; report: {FOLDER / 'report.html'}")


if __name__ == "__main__":
    main()
