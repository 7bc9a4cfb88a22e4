"""Training time of a whole table: PISA with every encoder, nine runs each, at the paper's size.

    make bench-grid
    make bench-grid ARGS="--workers 4"   # encoders at a time on one GPU; with NVIDIA's MPS they overlap

Frames, splits, seeds and settings are those of the protocol wifi-sim. Counted is time on the clock from the first
training to the last, with compilation, validation after every epoch and writing of models; not the simulation of the
frames, nor what `bytecode.py` says. Without a GPU the set is small and the epochs few, unless --scale and --epochs say
otherwise.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from benchmarks.bytecode import kept_bytecode
from benchmarks.report import begin, show
from pisa_capc.core.engines import available_cores, run_jobs
from pisa_capc.core.errors import ConfigError
from pisa_capc.core.progress import progress
from pisa_capc.data.frames import load
from pisa_capc.evidence.benchmark.plan import PlannedRun, jobs_of, plan, select
from pisa_capc.evidence.benchmark.protocols import read_protocol
from pisa_capc.model.training import Run, fit
from pisa_capc.signal.simulation.generate import generate


def main() -> None:
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0 if gpu else 0.01, help="part of the frames")
    parser.add_argument("--epochs", type=int, default=30 if gpu else 1)
    parser.add_argument("--encoders", default="", help="as cnn,tcn (all)")
    parser.add_argument("--workers", type=int, default=1, help="encoders at a time")
    options = parser.parse_args()
    if options.workers < 1:
        raise ConfigError(f"--workers: expected at least 1, found {options.workers}.")
    only = ["method=pisa", *([f"encoder={options.encoders}"] if options.encoders else [])]
    groups = jobs_of(select(plan(read_protocol("wifi-sim")), only), stacked=True)
    threads = max(1, available_cores() // options.workers)
    with tempfile.TemporaryDirectory() as folder, progress("encoders", len(groups)) as bar:
        data = Path(folder) / "wifi"
        generate("wifi-own-place", data, scale=options.scale, show_progress=False)
        jobs = [(group, options.epochs, data, Path(folder) / group[0].encoder, threads) for group in groups]
        rows = []
        with kept_bytecode() if options.workers > 1 else nullcontext():
            started = time.perf_counter()
            for row in run_jobs(train, jobs, workers=options.workers):
                rows.append(row)
                print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
                bar.advance(1)
            seconds = time.perf_counter() - started
    runs = sum(len(group) for group in groups)
    facts = {
        "seconds": round(seconds, 1),
        "runs": runs,
        "training_frames": rows[0]["training frames"],
        **{key: getattr(options, key) for key in ("scale", "epochs", "workers")},
    }
    device = torch.cuda.get_device_name() if gpu else "CPU"
    show(f"{runs} runs, {options.epochs} epochs, {options.workers} at a time, {device}: {seconds:.0f} s", rows, facts)


def train(group: list[PlannedRun], epochs: int, data: Path, out: Path, threads: int) -> dict[str, Any]:
    """One encoder's runs, trained as `pisa bench run` trains them; how long that took."""
    torch.set_num_threads(threads)
    started = time.perf_counter()
    first, frames = group[0], load(data)
    runs = [Run(run.recipe.split(frames), run.seed) for run in group]
    models = fit(
        runs,
        method=first.method,
        encoder=first.encoder,
        settings=first.settings,
        training=replace(first.training, epochs=epochs),
        out=out,
        show=False,
    )
    return {
        "encoder": first.encoder,
        "seconds": round(time.perf_counter() - started, 1),
        "source validation F1": round(fmean(m.run.metrics.validation_f1 for m in models), 4),
        "training frames": len(runs[0].split.train),
    }


if __name__ == "__main__":
    begin(main)
