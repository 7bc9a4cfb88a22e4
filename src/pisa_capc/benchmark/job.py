"""One job: train the runs of a cell, score every stage, and describe the result."""

from __future__ import annotations

import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pisa_capc.benchmark.lock import only_runner
from pisa_capc.benchmark.plan import Conditions, PlannedRun, digest
from pisa_capc.benchmark.protocols import calibration_of
from pisa_capc.benchmark.records import Record
from pisa_capc.calibration import Safe
from pisa_capc.config import from_mapping
from pisa_capc.errors import ModelError, PisaError
from pisa_capc.evaluation import Stage, inference_stages
from pisa_capc.protocol import Evaluator, split
from pisa_capc.store.files import write_text_atomic
from pisa_capc.store.native import load
from pisa_capc.training import Run, TrainedModel, TrainingConfig, embed_many, fit, load_model
from pisa_capc.training.replay import learn_guard

BATCH = 2048  # frames embedded at a time


@dataclass(frozen=True)
class Job:
    """Runs of one cell on one dataset.

    dataset: its folder, and its name for people. device: as torch names it. work: where trainings are kept.
    train: or only score what was trained elsewhere, under the conditions.
    """

    runs: tuple[PlannedRun, ...]
    conditions: Conditions
    dataset: Path
    dataset_name: str
    device: str
    work: Path
    threads: int | None = None
    train: bool = True

    @property
    def folder(self) -> Path:
        """Where the training is kept, named by all that determines it; protocols that share a training find it."""
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
    runs = [Run(splits[run.split_seed], run.split_seed, run.seed) for run in job.runs]
    calibrations = {name: calibration_of(values, name) for name, values in first.calibration.items()}
    guard = any(isinstance(calibration, Safe) for calibration in calibrations.values())
    models = _train(job, runs, guard) if job.train else _trained(job, runs, guard)
    records: dict[int, Record] = {}
    for seed, part in splits.items():  # runs of one split are scored on the same frames, which are read once
        started = time.perf_counter()
        own = [i for i, run in enumerate(job.runs) if run.split_seed == seed]
        embedded = embed_many([models[i] for i in own], part.target, job.device, BATCH)
        stages = [
            {stage.name: _scored(stage, part.evaluator) for stage in inference_stages(scores, calibrations)}
            for scores in embedded
        ]
        seconds = (time.perf_counter() - started) / len(own)
        records |= {i: _record(job, i, models[i], found, seconds) for i, found in zip(own, stages, strict=True)}
    return tuple(records[i] for i in range(len(job.runs)))


def _scored(stage: Stage, evaluator: Evaluator) -> dict[str, Any]:
    scores: dict[str, Any] = evaluator.score(stage.probability).to_json()
    if stage.guard is not None:
        scores["guard"] = {str(d.capture): {"level": d.level, "price": round(d.price, 4)} for d in stage.guard}
    return scores


def _train(job: Job, runs: list[Run], guard: bool) -> list[TrainedModel]:
    first = job.runs[0]
    with only_runner(job.folder, wait=True):  # another protocol may be at the same training: then it is waited for
        return fit(
            runs,
            method=first.method,
            encoder=first.encoder,
            variant=first.variant,
            settings=first.settings,
            training=from_mapping(TrainingConfig, first.training, "training"),
            device=job.device,
            precision=job.conditions.precision,
            out=job.folder,
            dataset=job.conditions.dataset,
            guard=guard,
            show=False,
        )


def _trained(job: Job, runs: list[Run], guard: bool) -> list[TrainedModel]:
    """The models of a training that was made on another machine and copied here."""
    folders = [job.folder / run.name if len(runs) > 1 else job.folder for run in runs]
    if absent := [folder for folder in folders if not (folder / "model.json").is_file()]:
        raise ModelError(
            f"{absent[0]}: no model is there. Copy the work folder of the machine that trained, "
            "or leave --trained-on out to train here."
        )
    models = [load_model(folder) for folder in folders]
    if guard and not models[0].has_guard:  # what it needs was trained; only the rehearsals are left to do
        place = torch.device(job.device)
        learnt = learn_guard(runs[0], models[0], lambda name, _: load_model(job.folder / "replay" / name), place)
        models = [model.with_guard(learnt) for model in models]
    return models


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
        machine=about["machine"],
    )
