"""One job: train the runs of a cell, score every stage, and describe the result."""

from __future__ import annotations

import os
import platform
import time
import traceback
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import pisa_capc
from pisa_capc.benchmark.plan import Conditions, PlannedRun, digest
from pisa_capc.benchmark.records import Record
from pisa_capc.calibration import UCAPC
from pisa_capc.config import from_mapping
from pisa_capc.errors import PisaError
from pisa_capc.evaluation import inference_stages
from pisa_capc.protocol import split
from pisa_capc.store.files import write_text_atomic
from pisa_capc.store.native import load
from pisa_capc.training import Run, TrainedModel, TrainingConfig, embed_many, fit

PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "triton")
BATCH = 2048  # frames embedded at a time


@dataclass(frozen=True)
class Job:
    """Runs of one cell on one dataset. dataset: its folder, and its name for people. device: as torch names it."""

    runs: tuple[PlannedRun, ...]
    conditions: Conditions
    dataset: Path
    dataset_name: str
    device: str
    work: Path
    threads: int | None = None

    @property
    def folder(self) -> Path:
        """Where the training is kept, named by all that determines it."""
        return self.work / digest([self.conditions.__dict__, *(run.training_json() for run in self.runs)])


@dataclass(frozen=True)
class Outcome:
    """What became of a job: records, or why there are none."""

    job: Job
    records: tuple[Record, ...]
    failure: str
    seconds: float


def run_job(job: Job) -> Outcome:
    """Train and score. A failure is an outcome like any other: the jobs after it go on."""
    started = time.perf_counter()
    if job.threads is not None:
        torch.set_num_threads(job.threads)
    records: tuple[Record, ...] = ()
    failure = ""
    try:
        records = train_and_score(job)
    except PisaError as error:
        failure = str(error)
    except Exception as error:  # a bug or a full device; its trace is kept for whoever looks into it
        path = job.folder / "failure.txt"
        write_text_atomic(path, traceback.format_exc())
        failure = f"{type(error).__name__}: {error} (see {path})"
    return Outcome(job, records, failure, time.perf_counter() - started)


def train_and_score(job: Job) -> tuple[Record, ...]:
    first = job.runs[0]
    frames = load(job.dataset)
    splits = {
        seed: split(frames, first.source, first.target, seed, **first.split)
        for seed in dict.fromkeys(run.split_seed for run in job.runs)
    }
    models = fit(
        [Run(splits[run.split_seed], run.split_seed, run.seed) for run in job.runs],
        method=first.method,
        encoder=first.encoder,
        variant=first.variant,
        settings=first.settings,
        training=from_mapping(TrainingConfig, first.training, "training"),
        device=job.device,
        precision=job.conditions.precision,
        out=job.folder,
        dataset=job.conditions.dataset,
        show=False,
    )
    calibrations = {name: from_mapping(UCAPC, values, name) for name, values in first.calibration.items()}
    records: dict[int, Record] = {}
    for seed, part in splits.items():  # runs of one split are scored on the same frames, which are read once
        started = time.perf_counter()
        own = [i for i, run in enumerate(job.runs) if run.split_seed == seed]
        embedded = embed_many([models[i] for i in own], part.target, job.device, BATCH)
        stages = [
            {name: part.evaluator.score(outputs).to_json() for name, outputs in inference_stages(scores, calibrations)}
            for scores in embedded
        ]
        seconds = (time.perf_counter() - started) / len(own)
        records |= {i: _record(job, i, models[i], found, seconds) for i, found in zip(own, stages, strict=True)}
    return tuple(records[i] for i in range(len(job.runs)))


def _record(job: Job, i: int, model: TrainedModel, stages: dict[str, Any], seconds: float) -> Record:
    about = model.about
    return Record(
        run=job.runs[i].to_json(),
        conditions=job.conditions,
        dataset=job.dataset_name,
        stages=stages,
        validation_f1=about["metrics"]["validation_f1"],
        best_epoch=about["metrics"]["best_epoch"],
        seconds={"training": about["seconds"], "scoring": round(seconds, 3)},
        machine=_machine(),
    )


def _machine() -> dict[str, Any]:
    """Versions and hardware, without anything that names the machine."""
    found: dict[str, Any] = {
        "pisa-capc": pisa_capc.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
    }
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name()
    return found
