"""The whole grid at the paper's size: encoders × three splits × three seeds, trained, embedded, calibrated, scored.

    python -m benchmarks.grid --data DIR --out results/wifi-pisa.json [--waveform wifi] [--encoders cnn,…] [--scale F]

Makes the simulated set in DIR if it is not there, trains the nine runs of each encoder in one stack, and scores direct
inference and U-CAPC as published on the target. An encoder that --out already holds is skipped, so that a killed grid
goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

from benchmarks.report import show
from pisa_capc import UCAPC, load, simulate
from pisa_capc.encoders import encoder_names
from pisa_capc.protocol import split
from pisa_capc.provenance import machine
from pisa_capc.store.files import write_text_atomic
from pisa_capc.store.native import fingerprint
from pisa_capc.training import Run, TrainingConfig, embed_many, fit
from pisa_capc.training.fit import choose_device

SEEDS = (2026, 2027, 2028)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--waveform", default="wifi")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--source", default="E2,E3")
    parser.add_argument("--target", default="E1")
    parser.add_argument("--method", default="pisa")
    parser.add_argument("--encoders", default=",".join(encoder_names()))
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()

    simulate(options.waveform, options.data, scale=options.scale, workers=options.workers)
    frames = load(options.data)
    source = options.source.split(",")
    pairs = [(s, t) for s in SEEDS for t in SEEDS][: options.runs]
    runs = [Run(split(frames, source, options.target, s), s, t) for s, t in pairs]
    settings = {
        "waveform": options.waveform,
        "scale": options.scale,
        "dataset": fingerprint(options.data),
        "source": source,
        "target": options.target,
        "method": options.method,
        "epochs": options.epochs,
        "precision": options.precision,
        "frames": [len(runs[0].split.train), len(runs[0].split.validation), len(runs[0].split.target)],
    }
    record: dict[str, Any] = {"settings": settings, "machine": machine(), "encoders": {}}
    if options.out.exists():
        record = json.loads(options.out.read_text(encoding="utf-8"))
        if record["settings"] != settings:
            raise SystemExit(f"{options.out}: holds a grid with other settings. Choose another --out.")
    for encoder in options.encoders.split(","):
        if encoder not in record["encoders"]:
            record["encoders"][encoder] = train_and_score(runs, encoder, options)
            write_text_atomic(options.out, json.dumps(record, indent=1))
    rows = [summary(encoder, entry) for encoder, entry in record["encoders"].items()]
    title = (
        f"grid: {options.waveform} simulation, {options.method}, {len(runs)} runs, {options.source} → {options.target}"
    )
    show(title, rows, {"settings": settings, "seconds": sum(row["seconds"] for row in rows)})


def train_and_score(runs: list[Run], encoder: str, options: argparse.Namespace) -> dict[str, Any]:
    started = time.perf_counter()
    models = fit(
        runs,
        method=options.method,
        encoder=encoder,
        training=TrainingConfig(epochs=options.epochs),
        device=options.device,
        precision=options.precision,
        show=True,
    )
    trained = time.perf_counter()
    scored = []
    device = choose_device(options.device)
    # The target frames differ between split seeds only.
    for seed in dict.fromkeys(run.split_seed for run in runs):
        group = [i for i, run in enumerate(runs) if run.split_seed == seed]
        part = runs[group[0]].split
        embeddings = embed_many([models[i] for i in group], part.target, device, batch=2048)
        for i, found in zip(group, embeddings, strict=True):
            calibrated = UCAPC().calibrate(found.embedding, found.logits, found.capture)
            direct, after = part.evaluator.score(found.logits), part.evaluator.score(calibrated.probability)
            scored.append(
                {
                    "split_seed": seed,
                    "seed": runs[i].seed,
                    "validation_f1": models[i].about["metrics"]["validation_f1"],
                    "best_epoch": models[i].about["metrics"]["best_epoch"],
                    "direct": {"macro_f1": direct.macro_f1, "macro_auroc": direct.macro_auroc},
                    "paper": {"macro_f1": after.macro_f1, "macro_auroc": after.macro_auroc},
                }
            )
    return {"train_seconds": trained - started, "score_seconds": time.perf_counter() - trained, "runs": scored}


def summary(encoder: str, entry: dict[str, Any]) -> dict[str, Any]:
    def mean_and_spread(values: list[float]) -> str:
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        return f"{statistics.mean(values):.4f}±{spread:.4f}"

    runs = entry["runs"]
    row: dict[str, Any] = {"encoder": encoder, "seconds": round(entry["train_seconds"], 1)}
    row["source val F1"] = mean_and_spread([run["validation_f1"] for run in runs])
    for stage in ("direct", "paper"):
        row[f"{stage} F1"] = mean_and_spread([run[stage]["macro_f1"] for run in runs])
        row[f"{stage} AUROC"] = mean_and_spread([run[stage]["macro_auroc"] for run in runs])
    return row


if __name__ == "__main__":
    main()
