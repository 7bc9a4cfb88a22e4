"""The main job end to end on a small simulated set: the paper's three stages, and the closed form beside them.

    make demo

Frames are simulated in three environments; models are trained in E2 and E3 and identify the same radios in E1, a place
they never saw. PISA-CAPC corrects PISA's decisions with the unlabelled frames of each capture. The closed form trains
nothing: it measures the flaws of the hardware by the known preamble. Everything is written into the folder `demo`; a
second start goes on from what is there.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import torch

from pisa_capc import simulate
from pisa_capc.cli.output import print_table
from pisa_capc.core.progress import console
from pisa_capc.data.protocol import DIRECT, split
from pisa_capc.data.store.files import write_text_atomic
from pisa_capc.data.store.native import fingerprint
from pisa_capc.evidence.evaluation import infer_runs
from pisa_capc.evidence.figures.confusion import plot_confusions
from pisa_capc.evidence.figures.run import stages
from pisa_capc.evidence.reports import report_of_runs
from pisa_capc.model.training import Run, TrainingConfig, fit

FOLDER = Path("demo")
SCENE = Path(__file__).with_name("demo_scene.yaml")
SEED = 2026
TRAINING = TrainingConfig(epochs=5, batch=32)
STAGES = {"Single": "single", "PISA": "pisa", "PISA-CAPC": "pisa", "Closed form": "closed-form"}


def main() -> None:
    started = time.perf_counter()
    torch.set_num_threads(1)
    console.print("1. Simulate Wi-Fi preambles of five radios in three environments")
    frames = simulate("wifi-own-place", FOLDER / "wifi", seed=SEED, scale=0.125, workers=2, scene=SCENE)

    console.print("2. Split: E2 and E3 with labels, E1 without")
    part = split(frames, source=["E2", "E3"], target="E1", seed=SEED)
    run = Run(part, seed=SEED)

    models = {}
    for method in ("single", "pisa", "closed-form"):
        console.print(f"3. Train {method}")
        [models[method]] = fit(
            [run],
            method=method,
            encoder="cnn",
            training=TRAINING,
            device="cpu",
            out=FOLDER / method,
            dataset=fingerprint(FOLDER / "wifi"),
        )

    console.print("4. Identify the frames of E1, and calibrate PISA's decisions, capture by capture, without labels")
    subjects = [infer_runs([(FOLDER / method, models[method])], frames, ["E1"]) for method in ("pisa", "single")]
    [by_stage] = stages(subjects).values()
    [measured] = infer_runs([(FOLDER / "closed-form", models["closed-form"])], frames, ["E1"])
    by_stage["Closed form"] = [measured.scores()[DIRECT]]
    scores = {name: by_stage[name][0] for name in STAGES}
    plot_confusions(FOLDER / "confusion.png", scores)
    source_f1 = {name: models[method].run.metrics.validation_f1 for name, method in STAGES.items()}

    headings = ["stage", "source validation F1", "target Macro-F1", "accuracy", "Macro-AUROC"]
    rows = [
        [n, f"{source_f1[n]:.4f}", f"{s.macro_f1:.4f}", f"{s.accuracy:.4f}", f"{s.macro_auroc:.4f}"]
        for n, s in scores.items()
    ]
    record = {
        "command": "make demo",
        "seed": SEED,
        "source_validation_f1": source_f1,
        "stages": {name: s.to_json() for name, s in scores.items()},
    }
    write_text_atomic(FOLDER / "result.json", json.dumps(record, indent=1))
    console.print("5. Draw, and write the report")
    note = "One run of a small, easy set: it shows how the parts work together, not how well they do."
    report_of_runs(subjects, FOLDER / "wifi", points=500, note=note).save(FOLDER / "report.html")
    print_table("Trained in E2 and E3, tested in E1", headings, rows)
    print(f"{time.perf_counter() - started:.0f} s; report: {FOLDER / 'report.html'}")


if __name__ == "__main__":
    main()
