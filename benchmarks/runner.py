"""What `pisa bench run` costs beyond the work itself: a run through the runner against the same run in plain Python.

    python -m benchmarks.runner [--scale 0.05] [--epochs 3] [--rounds 3]

Both train PISA with the CNN on one split and seed, embed the target, calibrate and score it; the runner also plans,
locks, fingerprints the dataset and writes a record. Counted is CPU time, the least of the rounds: the difference is
smaller than what neighbours on a machine do to time on the wall. The last line is one JSON object with the figures.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.report import begin, show
from pisa_capc.core.progress import progress
from pisa_capc.data.frames import load
from pisa_capc.evidence.benchmark.plan import plan, select
from pisa_capc.evidence.benchmark.protocols import Protocol, calibration_of, read_protocol
from pisa_capc.evidence.benchmark.run import Options, run_protocol
from pisa_capc.evidence.evaluation import infer
from pisa_capc.model.training import Run, fit
from pisa_capc.signal.simulation.generate import generate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.05)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    protocol = read_protocol("wifi-sim")
    training = replace(protocol.training, epochs=options.epochs)
    protocol = replace(protocol, encoders=("cnn",), split_seeds=(2026,), seeds=(2026,), training=training)
    seconds: dict[str, list[float]] = {"plain Python": [], "runner": []}
    with tempfile.TemporaryDirectory() as folder, progress("rounds", 2 * options.rounds) as bar:
        data = Path(folder) / "wifi"
        generate("wifi-own-place", data, scale=options.scale, show_progress=False)
        for number in range(options.rounds):
            place = Path(folder) / str(number)
            for name, work in (("plain Python", plain), ("runner", through_runner)):
                started = time.process_time()
                work(protocol, data, place / name)
                seconds[name].append(time.process_time() - started)
                bar.advance(1)
    least = {name: min(values) for name, values in seconds.items()}
    overhead = 100 * (least["runner"] / least["plain Python"] - 1)
    rows = [
        {"how": name, "CPU seconds": least[name], "most": max(values), "rounds": len(values)}
        for name, values in seconds.items()
    ]
    facts = {"overhead_percent": round(overhead, 2), "scale": options.scale, "epochs": options.epochs}
    show(f"one run through the runner: {overhead:+.1f} %", rows, facts)


def plain(protocol: Protocol, data: Path, out: Path) -> None:
    [run] = select(plan(protocol), ["method=pisa"])
    frames = load(data)
    part = run.recipe.split(frames)
    models = fit(
        [Run(part, run.seed)],
        encoder=run.encoder,
        settings=run.settings,
        training=run.training,
        out=out,
        show=False,
    )
    calibrations = {name: calibration_of(settings, name) for name, settings in run.calibration.items()}
    for _, one in infer(models, [part], calibrations, batch=2048):
        one.scores()


def through_runner(protocol: Protocol, data: Path, out: Path) -> None:
    found = run_protocol(protocol, Options(data, out / "results", out / "work", only=("method=pisa",)))
    assert found.recorded == 1


if __name__ == "__main__":
    begin(main)
