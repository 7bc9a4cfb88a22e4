"""How time, memory and scores grow with the number of devices: 10, 30, 100, 300 and 1,000 of them, simulated.

    make study-growth ARGS="--device cuda --out results/studies/growth-h200.json"
    make study-growth ARGS="--sizes 10,30 --epochs 2 --fewest-steps 0"

Every device has as many frames as every other, in every size: an eighth of the scene's. Frames grow with devices, and
so do the steps of an epoch; where all epochs together have fewer than `FEWEST_STEPS` there are more of them, or the few
would be trained the least. The first devices of a size are those of the smaller ones. Each size is simulated, trained,
embedded in the place that it was not trained in, and calibrated, in a process of its own. A size that --out has by the
same plan is not measured again: a stopped study goes on, on another machine too, and sizes can be added. The last line
is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from benchmarks.memory import peak_memory
from benchmarks.report import begin, show_table
from numpy.typing import NDArray

from pisa_capc import simulate
from pisa_capc.cli.output import listed_numbers
from pisa_capc.core.config import parse_json
from pisa_capc.core.errors import ConfigError
from pisa_capc.core.progress import console
from pisa_capc.core.provenance import machine, made
from pisa_capc.data.protocol import CAREFUL, PAPER, Evaluator, split
from pisa_capc.data.store.files import write_text_atomic
from pisa_capc.decide.calibration import UCAPC, Calibrator, Careful
from pisa_capc.model.inference import Embedding, embed
from pisa_capc.model.inference.devices import choose_device
from pisa_capc.model.training import Run, TrainingConfig, fit

SIZES = (10, 30, 100, 300, 1000)
SCENE, SOURCE, TARGET, SEED = "wifi", ("E2", "E3"), "E1", 2026
CALIBRATIONS: dict[str, Calibrator] = {PAPER: UCAPC(), CAREFUL: Careful()}
STAGES = ("simulate", "prepare", "epoch", "embed", *CALIBRATIONS)
FEWEST_STEPS = 8000  # of a training: near those of the paper, which has 9,510
ASYMPTOTIC = 3  # of the largest sizes that exponents are fitted to: below them what never grows is most of the time


@dataclass(frozen=True)
class Plan:
    """What all sizes have in common."""

    method: str
    encoder: str
    epochs: int
    fewest_steps: int
    scale: float
    device: str
    revision: int = 2  # of what is measured: 2 calibrates once before it measures, so that nothing is compiled then

    def epochs_of(self, frames: int) -> int:
        """Of a training of so many frames."""
        return max(self.epochs, -(-self.fewest_steps // -(-frames // TrainingConfig.batch)))


class Meter:
    """Seconds of named stages, and where they are computed on a GPU the peak of its memory."""

    def __init__(self, device: torch.device) -> None:
        self.cuda = device.type == "cuda"
        self.found: dict[str, dict[str, float]] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        if self.cuda:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        started = time.perf_counter()
        yield
        if self.cuda:
            torch.cuda.synchronize()
        own = self.found[name] = {"seconds": time.perf_counter() - started}
        if self.cuda:
            own["gpu_mib"] = torch.cuda.max_memory_allocated() / 2**20


def measured(devices: int, plan: Plan, work: Path) -> dict[str, Any]:
    """One size, from its simulation to the calibrated decisions, and the memory that the process had at most."""
    with peak_memory(0.05) as peak:
        found = _one_size(devices, plan, work)
    return found | {"mib": peak.bytes / 2**20}


def _one_size(devices: int, plan: Plan, work: Path) -> dict[str, Any]:
    device = choose_device(plan.device)
    meter = Meter(device)
    with meter.stage("simulate"):
        frames = simulate(SCENE, work / "data", seed=SEED, scale=plan.scale, scene=_scene(devices, work))
    part = split(frames, SOURCE, TARGET, SEED)
    epochs = plan.epochs_of(len(part.train))
    with meter.stage("epoch"):
        [trained] = fit(Run(part, SEED), method=plan.method, encoder=plan.encoder, epochs=epochs, device=plan.device)
    own, took = meter.found["epoch"], trained.run.seconds
    # What is not epochs: reading the frames, compiling, statistics of the source.
    meter.found["prepare"], own["seconds"] = {"seconds": own["seconds"] - took}, took / epochs
    with meter.stage("embed"):
        scores = embed(trained, part.target, device)
    f1 = {
        "validation": trained.run.metrics.validation_f1,
        "direct": _macro_f1(part.evaluator, scores.logits),
        **{name: _calibrated(one, name, scores, part.evaluator, meter, device) for name, one in CALIBRATIONS.items()},
    }
    return {
        "devices": devices,
        "epochs": epochs,
        "frames": {"all": len(frames), "train": len(part.train), "target": len(part.target)},
        "statistics_mib": sum(values.nbytes for values in trained.statistics.known().values()) / 2**20,
        "parameters": sum(p.numel() for p in trained.model.parameters()),
        "macro_f1": f1,
        "stages": {name: meter.found[name] for name in STAGES},
    }


def _scene(devices: int, work: Path) -> Path:
    """What is laid over the scene: so many devices, none of which misses a capture."""
    path = work / "scene.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text_atomic(path, yaml.safe_dump({"devices": devices, "absent": []}))
    return path


def _calibrated(
    calibration: Calibrator, name: str, scores: Embedding, evaluator: Evaluator, meter: Meter, device: torch.device
) -> float:
    embedding, logits = (torch.from_numpy(values).to(device) for values in (scores.embedding, scores.logits))
    calibrate = partial(calibration.calibrate, embedding, logits, scores.capture, scores.statistics)
    calibrate()  # once before: kernels are compiled then
    with meter.stage(name):
        result = calibrate()
    return _macro_f1(evaluator, torch.as_tensor(result.probability).cpu().numpy())


def _macro_f1(evaluator: Evaluator, outputs: NDArray[np.floating]) -> float:
    return evaluator.macro_f1(np.arange(len(outputs)), outputs.argmax(axis=1))


def exponent(devices: Sequence[float], amounts: Sequence[float]) -> float:
    """p of amount ∝ devicesᵖ by least squares of the logarithms.

    >>> round(exponent([10, 100, 1000], [2, 200, 20_000]), 6)
    2.0
    """
    return float(np.polyfit(np.log(devices), np.log(np.maximum(amounts, 1e-9)), 1)[0])


def exponents(sizes: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """By stage and what is measured of it, over the largest sizes."""
    last = sizes[-ASYMPTOTIC:]
    devices = [size["devices"] for size in last]
    return {
        stage: {what: exponent(devices, [size["stages"][stage][what] for size in last]) for what in measures}
        for stage, measures in last[0]["stages"].items()
    }


def in_own_process(devices: int, plan: Plan) -> dict[str, Any]:
    """One size where nothing of another one is in memory, nor on disk: what is there already takes no time to make."""
    with (
        tempfile.TemporaryDirectory() as work,
        ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool,
    ):
        return pool.submit(measured, devices, plan, Path(work)).result()


def recorded(path: Path | None, plan: Plan) -> dict[int, dict[str, Any]]:
    """The sizes that a record has by this plan, by their devices."""
    if path is None or not path.is_file():
        return {}
    record = parse_json(path.read_text(encoding="utf-8"))
    if record["plan"] != asdict(plan):
        raise ConfigError(f"{path}: is of another plan, {record['plan']}. Give that one's options, or another --out.")
    return {size["devices"]: size for size in record["sizes"]}


def row(size: dict[str, Any]) -> dict[str, Any]:
    """A line of the table."""
    seconds = {f"{name} s": size["stages"][name]["seconds"] for name in STAGES}
    return {"devices": size["devices"], **seconds, **{f"{name} F1": f1 for name, f1 in size["macro_f1"].items()}}


def record_of(plan: Plan, found: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """Everything that was measured by a plan, smallest size first."""
    sizes = [found[devices] for devices in sorted(found)]
    grown = {"exponents": exponents(sizes)} if len(sizes) > 1 else {}
    return {"study": "growth", "machine": machine(), "made": made(), "plan": asdict(plan), "sizes": sizes, **grown}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="numbers of devices, as 10,30 (all)")
    parser.add_argument("--method", default="pisa-equalised", help="(pisa-equalised, as pisa train takes)")
    parser.add_argument("--encoder", default="transformer")
    parser.add_argument("--epochs", type=int, default=20, help="of a training at least (20)")
    parser.add_argument("--fewest-steps", type=int, default=FEWEST_STEPS, help=f"of a training ({FEWEST_STEPS:,})")
    parser.add_argument("--scale", type=float, default=0.125, help="part of the frames of each capture (0.125)")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, help="file of the record to go on with, written after each size")
    options = parser.parse_args()
    chosen = choose_device(options.device).type
    plan = Plan(options.method, options.encoder, options.epochs, options.fewest_steps, options.scale, chosen)
    found = recorded(options.out, plan)
    for devices in listed_numbers("--sizes", options.sizes):
        if devices not in found:
            console.print(f"{devices} devices", highlight=False)
            found[devices] = in_own_process(devices, plan)
            if options.out is not None:
                write_text_atomic(options.out, json.dumps(record_of(plan, found)) + "\n")
    record = record_of(plan, found)
    title = f"{plan.method} {plan.encoder}, {plan.epochs} epochs, {plan.device}"
    show_table(title, [row(size) for size in record["sizes"]])
    print(json.dumps(record))


if __name__ == "__main__":
    begin(main)
