"""What a training has finished and where it is kept, so that a killed one goes on and a finished one is loaded."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from pisa_capc.core import revisions
from pisa_capc.core.config import differences
from pisa_capc.core.errors import DataError, ModelError
from pisa_capc.data.store.dataset import TIME
from pisa_capc.data.store.files import read_json
from pisa_capc.data.store.lock import only_runner
from pisa_capc.model.inference.model import SCHEMA, TrainedModel, load_model, runs_inside
from pisa_capc.model.methods.registry import Method, plugins_used
from pisa_capc.model.training.checkpoint import begun_with, has_checkpoint, remove_checkpoint
from pisa_capc.model.training.runs import Run, TrainingConfig


def describe_run(
    run: Run,
    built: Method,
    method: str,
    variant: str,
    training: TrainingConfig,
    precision: str,
    dataset: str,
    threads: int | None,
) -> dict[str, Any]:
    """What determines a run, as it is kept in `model.json`. threads: of a CPU, None on a GPU."""
    train, target = run.split.train, run.split.target
    about = {
        "schema": SCHEMA,
        "method": method,
        "variant": variant,
        "settings": built.describe(),
        "encoder": built.setup.encoder,
        "devices": run.split.devices,
        "geometry": train.geometry.to_json(),
        "samples": built.setup.samples,
        "sample_rate_hz": train.sample_rate_hz,
        "carrier_hz": train.carrier_hz,
        "source": [train.environments[i] for i in np.unique(train.environment)],
        "target": [target.environments[i] for i in np.unique(target.environment)],
        "split": run.split.recipe.rule,
        "split_seed": run.split_seed,
        "seed": run.seed,
        "training": asdict(training),
        "precision": precision,
        "dataset": dataset,
        "version": revisions.PACKAGE,
        "code": revisions.of_run(method, built.setup.encoder, calibrated=False),
    }
    if threads is not None:  # models of earlier versions do not say
        about["threads"] = threads
    if train.domain != TIME:  # models of earlier versions do not say
        about["domain"] = train.domain
    if train.subcarriers is not None:  # those that a frame has when it has passed the front end
        about["subcarriers"] = train.subcarriers.to_json()
    if train.source.read_cfo_hz(train.rows[:1]) is None:  # models that say nothing had it
        about["cfo"] = False
    if used := plugins_used(method, built.setup.encoder):
        about["plugins"] = used
    result: dict[str, Any] = json.loads(json.dumps(about))
    return result


class Keep:
    """The folder of a training, see `run_folders`; without `out`, memory alone."""

    def __init__(self, out: str | Path | None, runs: Sequence[Run], abouts: Sequence[dict[str, Any]]) -> None:
        self.out = None if out is None else Path(out)
        self._abouts = abouts
        if self.out is not None:
            _prepare(self.out, several=len(runs) > 1)
        self._folders = run_folders(out, runs)
        self._models: list[TrainedModel | None] = [None] * len(runs)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the folder, so that no other training writes there, and look what is finished in it."""
        with nullcontext() if self.out is None else only_runner(self.out):
            self._models = [_finished(*pair) for pair in zip(self._folders, self._abouts, strict=True)]
            yield

    def unfinished(self, together: bool) -> list[list[int]]:
        """The runs that are left to train, by number: all in one group, or each in its own."""
        left = [i for i, model in enumerate(self._models) if model is None]
        if together and left and self.out is not None and has_checkpoint(self.out):
            left = list(range(len(self._models)))  # a stack that was stopped while its models were written ends as one
        return [left] if together and left else [[i] for i in left]

    def described(self, group: Sequence[int]) -> list[dict[str, Any]]:
        return [self._abouts[i] for i in group]

    def folder(self, group: Sequence[int]) -> Path | None:
        """Where the checkpoint of a group is."""
        return self.out if len(group) == len(self._models) else self._folders[group[0]]

    def add(self, group: Sequence[int], models: Sequence[TrainedModel]) -> None:
        """Take over the models of a group; its checkpoint has done its service."""
        for i, model in zip(group, models, strict=True):
            folder = self._folders[i]
            if folder is not None:
                model.save(folder)
            self._models[i] = model
        if (checkpoint := self.folder(group)) is not None:
            remove_checkpoint(checkpoint)

    def models(self) -> list[TrainedModel]:
        return [model for model in self._models if model is not None]


def run_folders(out: str | Path | None, runs: Sequence[Run]) -> list[Path | None]:
    """Where the model of each run is: one run's in `out` itself, each of several in a folder of its name."""
    return [None if out is None else Path(out) / (run.name if len(runs) > 1 else "") for run in runs]


def kept_threads(out: str | Path | None, runs: Sequence[Run]) -> int | None:
    """The threads that a training in `out` was begun with; None where none was, or it does not say."""
    folders = [folder for folder in (*run_folders(out, runs), None if out is None else Path(out)) if folder is not None]
    for folder in folders:
        for about in (*begun_with(folder), *_described(folder)):
            if isinstance(threads := about.get("threads"), int):
                return threads
    return None


def _described(folder: Path) -> list[dict[str, Any]]:
    """What `model.json` says, where there is one that can be read; who loads it says what is wrong with it."""
    with suppress(OSError, ValueError):
        found = read_json(folder / "model.json")
        return [found] if isinstance(found, dict) else []
    return []


def _prepare(out: Path, several: bool) -> None:
    """Make the folder, for an hour of training should not end at a bad path; refuse one that holds something else."""
    if (out / "dataset.json").is_file():
        raise DataError(f"{out}: holds a dataset. Choose another --out for the model.")
    inside = runs_inside(out)
    if several and (out / "model.json").is_file():  # who reads `out` would see one kind and not the other
        raise ModelError(f"{out}: holds the model of one run. Choose another --out for several, or remove it.")
    if not several and inside:
        raise ModelError(
            f"{out}: holds {len(inside)} runs, as {inside[0].name}. Choose another --out for one run, or give "
            "their seeds too."
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{out}: no folder can be made there ({error.strerror}). Choose another --out.") from error


def _finished(folder: Path | None, about: Mapping[str, Any]) -> TrainedModel | None:
    """The model in `folder` if it is this very run; an error if it is another."""
    if folder is None or not (folder / "model.json").is_file():
        return None
    found = load_model(folder)
    kept = {"threads": about.get("threads"), **found.about}  # of models that do not say it
    if different := differences({key: kept.get(key) for key in (*about, "plugins")}, about):
        listed = "; ".join(f"{name}: {there!r} there, {here!r} here" for name, there, here in different[:3])
        listed += f"; and {len(different) - 3} more" if len(different) > 3 else ""
        raise ModelError(f"{folder}: already holds another model ({listed}). Choose another --out, or remove it.")
    return found
