"""One job: train the runs of a cell, score every stage, and describe the result."""

from __future__ import annotations

import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pisa_capc.core.config import from_mapping
from pisa_capc.core.errors import ModelError, PisaError
from pisa_capc.core.provenance import made
from pisa_capc.core.threads import cpu_threads
from pisa_capc.data.deployments import Deployment
from pisa_capc.data.frames import Frames, load
from pisa_capc.data.store.files import write_text_atomic
from pisa_capc.data.store.lock import only_runner
from pisa_capc.data.store.native import fingerprint
from pisa_capc.decide.calibration import Calibrator
from pisa_capc.decide.calibration.base import calibration_of
from pisa_capc.evidence.benchmark.plan import Conditions, PlannedRun, digest
from pisa_capc.evidence.benchmark.records import Record
from pisa_capc.evidence.evaluation import Inference, deploy, infer
from pisa_capc.model.inference import Embedding, TrainedModel, embed_many, load_model
from pisa_capc.model.training import Run, fit
from pisa_capc.model.training.keep import run_folders

BATCH = 2048  # frames embedded at a time


@dataclass(frozen=True)
class Job:
    """Runs of one cell on one dataset.

    dataset: its folder, and its name for people. device: as torch names it. work: where trainings are kept.
    train: false only scores models that were trained elsewhere. strangers: folder of a set with further
    devices, if a deployment needs some.
    """

    runs: tuple[PlannedRun, ...]
    conditions: Conditions
    dataset: Path
    dataset_name: str
    device: str
    work: Path
    train: bool = True
    strangers: Path | None = None

    @property
    def folder(self) -> Path:
        """Where the training is kept, named by all that determines it; protocols that share a training find it."""
        return self.work / digest([self.conditions.__dict__, *(run.training_json() for run in self.runs)])


@dataclass(frozen=True)
class Outcome:
    """The result of a job: its records, or why it has none."""

    job: Job
    records: tuple[Record, ...]
    failure: str
    seconds: float


def run_job(job: Job) -> Outcome:
    """Train and score. A failure is an outcome like any other: the jobs after it go on."""
    started = time.perf_counter()
    records: tuple[Record, ...] = ()
    failure = ""
    try:
        # Sums on a CPU depend on how many threads share them, and threads of several jobs only wait for each other.
        with cpu_threads(1):
            records = train_and_score(job)
    except PisaError as error:
        failure = str(error)
    except Exception as error:  # a bug or a full device; its trace is kept for debugging
        path = job.folder / "failure.txt"
        write_text_atomic(path, traceback.format_exc())
        failure = f"{type(error).__name__}: {error} (see {path})"
    return Outcome(job, records, failure, time.perf_counter() - started)


def train_and_score(job: Job) -> tuple[Record, ...]:
    first = job.runs[0]
    frames = load(job.dataset)
    splits = {
        seed: replace(first.recipe, seed=seed).split(frames)
        for seed in dict.fromkeys(run.split_seed for run in job.runs)
    }
    parts = [splits[run.split_seed] for run in job.runs]
    runs = [Run(part, run.seed) for part, run in zip(parts, job.runs, strict=True)]
    calibrations = {name: calibration_of(values, name) for name, values in first.calibration.items()}
    models = _train(job, runs) if job.train else _trained(job, runs)
    started = time.perf_counter()
    unknown = _unknown(job, frames, models)
    stages = {
        i: {stage: scores.to_json() for stage, scores in one.scores().items()}
        | _deployed(job.runs[i], one, calibrations, unknown[i])
        for i, one in infer(models, parts, calibrations, job.device, BATCH)
    }
    seconds = (time.perf_counter() - started) / len(runs)
    strangers = "" if job.strangers is None else fingerprint(job.strangers)
    return tuple(_record(job, i, model, stages[i], seconds, strangers) for i, model in enumerate(models))


def _deployed(
    run: PlannedRun, one: Inference, calibrations: Mapping[str, Calibrator], unknown: Embedding | None
) -> dict[str, dict[str, Any]]:
    """Scores by stage in the run's deployments; what they draw is given by the run's seeds."""
    deployments = [from_mapping(Deployment, values) for values in run.deployments]
    rng = np.random.default_rng([run.split_seed, run.seed])
    found = deploy(one.outputs, one.evaluator, calibrations, deployments, rng, unknown)
    return {stage: {"macro_f1": f1} for stage, f1 in found.items()}


def _unknown(job: Job, frames: Frames, models: Sequence[TrainedModel]) -> Sequence[Embedding | None]:
    """Frames of devices that no model knows, in the target environments, under each model."""
    if job.strangers is None:
        return [None] * len(models)
    others = load(job.strangers).where(environment=job.runs[0].target)
    new = [i for i, name in enumerate(others.devices) if name not in frames.devices]
    chosen = others.select(np.isin(others.device, new))
    return embed_many(models, chosen.unlabelled(), job.device, BATCH)


def _train(job: Job, runs: list[Run]) -> list[TrainedModel]:
    first = job.runs[0]
    with only_runner(job.folder, wait=True):  # another protocol may be at the same training: then it is waited for
        return fit(
            runs,
            method=first.method,
            encoder=first.encoder,
            variant=first.variant,
            settings=first.settings,
            training=first.training,
            device=job.device,
            precision=job.conditions.precision,
            out=job.folder,
            dataset=job.conditions.dataset,
            show=False,
        )


def _trained(job: Job, runs: list[Run]) -> list[TrainedModel]:
    """The models of a training that was made on another machine and copied here."""
    folders = [folder for folder in run_folders(job.folder, runs) if folder is not None]
    if absent := [folder for folder in folders if not (folder / "model.json").is_file()]:
        raise ModelError(
            f"{absent[0]}: no model is there. Copy the work folder of the machine that trained, "
            "or leave --trained-on out to train here."
        )
    return [load_model(folder) for folder in folders]


def _record(job: Job, i: int, model: TrainedModel, stages: dict[str, Any], seconds: float, strangers: str) -> Record:
    return Record(
        run=job.runs[i],
        conditions=job.conditions,
        dataset=job.dataset_name,
        stages=stages,
        validation_f1=model.run.metrics.validation_f1,
        best_epoch=model.run.metrics.best_epoch,
        seconds={"training": model.run.seconds, "scoring": round(seconds, 3)},
        machine=model.run.machine,
        strangers=strangers,
        made=made(),
    )
