"""Does a training repeat, and what decides whether it learns? One run under many conditions, followed step by step.

    python -m studies.repeats --data lora --rows rows.jsonl [--device cuda] [--epochs 12] [--only alone,nine]
    python -m studies.repeats --rows rows.jsonl --out results/studies/repeats.json    # only collect what is there

The run is that of the protocol `lora-place` which ended in two ways: PISA with a Transformer, split and training seed
2026. A condition says what is trained beside it in one stack, in which order, in which precision, and what is changed;
what stands in it more than once is trained by as many processes, which share nothing, not even compiled kernels. After
some steps the parameters of each run are named by their hash: equal names are equal bits. Macro-F1 on held-out source
frames after each epoch says whether it learns; the target takes no part. Rows are written as soon as a training ends,
and those that are there are not made again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.report import begin

from pisa_capc.core.errors import ConfigError
from pisa_capc.core.provenance import machine, made
from pisa_capc.data.frames import load
from pisa_capc.data.store.files import write_text_atomic
from pisa_capc.data.store.native import fingerprint
from pisa_capc.evidence.benchmark.plan import PlannedRun, plan, select
from pisa_capc.evidence.benchmark.protocols import read_protocol
from pisa_capc.model.inference.devices import choose_device
from pisa_capc.model.stacked import compiling, unstack
from pisa_capc.model.training.bank import Bank, union
from pisa_capc.model.training.fitting import method_for
from pisa_capc.model.training.stack import Stack

STEPS = (1, 10, 100)  # of the first epoch, after which parameters are named
COPIES = 9


@dataclass(frozen=True)
class Condition:
    """How the run is trained.

    beside: alone, nine (the runs of the protocol, in its order), reversed, or copies (the same run nine times).
    nudged: every parameter of a copy starts one rounding step away, up or down by lot; the first copy does not.
    timed: the compiler may choose kernels by timing them, as it did when the records were made.
    times: by how many processes.
    """

    name: str
    beside: str
    precision: str = "bfloat16"
    nudged: bool = False
    timed: bool = False
    times: int = 1


GPU = (
    Condition("nine", "nine", times=2),
    Condition("alone", "alone", times=2),
    Condition("nine, float32", "nine", "float32", times=2),
    Condition("alone, float32", "alone", "float32", times=2),
    Condition("nine, reversed", "reversed"),
    Condition("copies", "copies"),
    Condition("copies, nudged", "copies", nudged=True),
    Condition("copies, nudged, float32", "copies", "float32", nudged=True),
    Condition("nine, kernels by timing", "nine", timed=True, times=2),
)
CPU = (Condition("alone, float32", "alone", "float32", times=2),)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, required=True, help="file that rows are added to, a line each")
    parser.add_argument("--data", type=Path, help="the set that `pisa simulate lora` makes")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--processes", type=int, default=1, help="trainings at a time")
    parser.add_argument("--only", help="names of conditions, as 'alone;nine'")
    parser.add_argument("--out", type=Path, help="record to write from all rows")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)  # the number of the training that this process does
    options = parser.parse_args()
    if options.data is None and options.out is None:
        parser.error("nothing to do: give --data to train, --out to write the record, or both.")
    if options.data is not None:
        fingerprint(options.data)  # what is wrong with it is said once
        device = choose_device(options.device)
        jobs = [(c, i) for c in (GPU if device.type == "cuda" else CPU) for i in range(c.times)]
        if options.only:
            jobs = [job for job in jobs if job[0].name in options.only.split(";")]
        if options.one is not None:
            _add(options.rows, trained(*jobs[options.one], options.data, device, options.epochs))
            return
        _all(jobs, options, device)
    if options.out is not None:
        _collect(options.rows, options.out)


def _all(jobs: list[tuple[Condition, int]], options: argparse.Namespace, device: torch.device) -> None:
    """Each training by a process of its own, whose compiled kernels are its own too."""
    there = {(row["condition"]["name"], row["time"], row["device"], row["epochs"]) for row in _rows(options.rows)}

    def one(number: int) -> None:
        condition, time = jobs[number]
        if (condition.name, time, device.type, options.epochs) in there:
            return
        with tempfile.TemporaryDirectory() as cache:
            own = {"TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor", "TRITON_CACHE_DIR": f"{cache}/triton"}
            command = [sys.executable, "-m", "studies.repeats", *sys.argv[1:], "--one", str(number)]
            subprocess.run(command, check=True, env=os.environ | own)

    with ThreadPoolExecutor(options.processes) as pool:
        futures = [pool.submit(one, number) for number in range(len(jobs))]
    if failed := [future for future in futures if future.exception()]:
        raise ConfigError(f"{len(failed)} of {len(jobs)} trainings failed; what they said is above.")


def trained(condition: Condition, time: int, data: Path, device: torch.device, epochs: int) -> dict[str, Any]:
    """One stack of the condition: hashes of the parameters on the way, and what each epoch reached."""
    if condition.timed:
        compiling.BY_RULE.clear()
    runs = _runs(condition)
    first, frames = runs[0], load(data)
    splits = {seed: run.recipe.split(frames) for seed, run in {run.split_seed: run for run in runs}.items()}
    parts = [splits[run.split_seed] for run in runs]
    how = first.training
    method = method_for(parts[0], first.method, first.encoder, first.variant, first.settings, how.samples)
    bank = Bank(union([p for part in splits.values() for p in (part.train, part.validation)]), device)
    stack = Stack(
        method,
        bank,
        [bank.position(part.train) for part in parts],
        [bank.position(part.validation) for part in parts],
        [run.seed for run in runs],
        batch=how.batch,
        learning_rate=how.learning_rate,
        weight_decay=how.weight_decay,
        precision=condition.precision,
    )
    if condition.nudged:
        _nudge(stack)
    hashes: dict[str, list[str]] = {"0": named(stack)}
    validation, losses, step = [], [], 0

    def after_step() -> None:
        nonlocal step
        step += 1
        if step in STEPS:
            hashes[str(step)] = named(stack)

    for epoch in range(epochs):
        loss = stack.train_epoch(epoch, after_step)
        losses.append(np.round(loss.sum(2).mean(0), 5).tolist())
        validation.append(np.round(stack.validate(), 5).tolist())
        print(f"{condition.name} {time}: epoch {epoch + 1}: {validation[-1]}", flush=True)
        if epoch == 0:
            hashes[str(stack.steps)] = named(stack)
    hashes[str(epochs * stack.steps)] = named(stack)
    return {
        "condition": asdict(condition),
        "time": time,
        "device": device.type,
        "epochs": epochs,
        "dataset": fingerprint(data),
        "runs": [run.name for run in runs],
        "hashes": hashes,
        "loss": losses,
        "validation F1": validation,
        "machine": machine(),
        "made": made(),
    }


def _runs(condition: Condition) -> list[PlannedRun]:
    nine = select(plan(read_protocol("lora-place")), ["method=pisa", "encoder=transformer"])
    alone = [run for run in nine if (run.split_seed, run.seed) == (2026, 2026)]
    chosen = {"alone": alone, "nine": nine, "reversed": nine[::-1], "copies": alone * COPIES}
    return chosen[condition.beside]


@torch.no_grad()
def _nudge(stack: Stack) -> None:
    """One rounding step for every parameter of every run but the first, up or down by lot."""
    draw = torch.Generator().manual_seed(2026)
    for parameter in stack.model.parameters():
        there = parameter.detach().float().cpu()
        up = torch.rand(there.shape, generator=draw) < 0.5
        beyond = torch.where(up, torch.inf, -torch.inf)
        moved = torch.nextafter(there, beyond)
        moved[0] = there[0]
        parameter.copy_(moved.to(parameter.device))


def named(stack: Stack) -> list[str]:
    """A hash of the parameters and statistics of each run."""
    one = stack.method.build(1).to(stack.device)
    found = []
    for run in range(len(stack.seeds)):
        state = unstack(stack.model, run, one).state_dict()
        joined = torch.cat([value.detach().double().flatten() for value in state.values()])
        found.append(hashlib.sha256(joined.cpu().numpy().tobytes()).hexdigest()[:12])
    return found


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _add(path: Path, row: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def _collect(rows: Path, out: Path) -> None:
    """The record: what was made with what once, and the rows."""
    found = _rows(rows)
    if not found:
        raise ConfigError(f"{rows}: holds no rows. Give --data to train.")
    machines = {row["device"]: {key: row.pop(key) for key in ("machine", "made", "dataset")} for row in found}
    write_text_atomic(out, json.dumps({"benchmark": "one run under many conditions", **machines, "rows": found}) + "\n")


if __name__ == "__main__":
    begin(main)
