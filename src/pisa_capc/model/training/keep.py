"""What a training keeps on disk, so that a killed training resumes and a finished one is loaded."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from pisa_capc.core import revisions
from pisa_capc.core.config import differences, parse_json
from pisa_capc.core.errors import DataError, ModelError
from pisa_capc.data.store.files import read_json
from pisa_capc.data.store.lock import only_runner
from pisa_capc.model.inference.model import CHECKPOINT, TrainedModel, load_model, runs_inside
from pisa_capc.model.inference.tensors import read_tensors, save_tensors
from pisa_capc.model.methods.registry import Method, plugins_used
from pisa_capc.model.runs import ModelRun, Run, TrainingConfig


def has_checkpoint(folder: Path) -> bool:
    """Whether an unfinished training can go on here."""
    return (folder / CHECKPOINT).is_file()


def save_checkpoint(folder: Path, tensors: Mapping[str, Tensor], progress: Mapping[str, Any]) -> None:
    """Keep the state after an epoch, in one file that is replaced whole."""
    save_tensors(folder / CHECKPOINT, tensors, {"progress": json.dumps(progress)})


class CheckpointWriter:
    """Keeps the state after each epoch in a folder, by a thread, because a GPU would wait for the disk.

    Checkpoints come one after the other, each whole: a training that is killed meanwhile goes on from the one before,
    to the same end. When the context is left, for whatever reason, the last one is written. Without a folder nothing
    is kept.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._begun: Future[None] | None = None

    def save(self, tensors: Mapping[str, Tensor], progress: Mapping[str, Any]) -> None:
        """Only takes copies."""
        self.wait()
        if self.folder is not None:
            self._begun = self._thread.submit(save_checkpoint, self.folder, copies(tensors), progress)

    def wait(self) -> None:
        """Wait until the last one is written; raises its error."""
        begun, self._begun = self._begun, None
        if begun is not None:
            begun.result()

    def __enter__(self) -> CheckpointWriter:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._thread.shutdown()
        try:
            self.wait()
        except Exception as failed:
            if error is None:
                raise
            error.add_note(f"The last checkpoint was not written either: {failed}")


def copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies of the tensors on the CPU.

    All of one type come from a device at once: each transfer would wait for it.
    """
    alike: dict[Any, list[str]] = defaultdict(list)
    for name, value in tensors.items():
        alike[value.device, value.dtype].append(name)
    found = {}
    for names in alike.values():
        flat = torch.cat([tensors[name].detach().flatten() for name in names]).cpu()
        for name, own in zip(names, flat.split([tensors[name].numel() for name in names]), strict=True):
            found[name] = own.view(tensors[name].shape)
    return found


def load_checkpoint(folder: Path, device: torch.device) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The last checkpoint, or None where there is none."""
    path, advice = folder / CHECKPOINT, "Remove it to train from the start."
    if not has_checkpoint(folder):
        return None
    tensors, metadata = read_tensors(path, advice)
    try:
        progress = parse_json(metadata["progress"])
    except (ValueError, KeyError) as error:
        raise ModelError(f"{path}: damaged ({error}). {advice}") from error
    return {name: value.to(device) for name, value in tensors.items()}, progress


def begun_with(folder: Path) -> list[dict[str, Any]]:
    """The runs of a checkpoint, without its tensors; empty if it cannot be read."""
    with suppress(OSError, ValueError, KeyError, TypeError, SafetensorError):
        with safe_open(folder / CHECKPOINT, framework="pt") as file:
            runs = parse_json(file.metadata()["progress"])["runs"]
        return [about for about in runs if isinstance(about, dict)]
    return []


def remove_checkpoint(folder: Path) -> None:
    (folder / CHECKPOINT).unlink(missing_ok=True)


def describe_run(
    run: Run,
    built: Method,
    method: str,
    variant: str,
    training: TrainingConfig,
    precision: str,
    dataset: str,
    threads: int | None,
) -> ModelRun:
    """What determines a run, as it is kept in `model.json`. threads: of a CPU, None on a GPU."""
    train, target, encoder = run.split.train, run.split.target, built.setup.encoder
    return ModelRun(
        source=tuple(train.environments[i] for i in np.unique(train.environment)),
        target=tuple(target.environments[i] for i in np.unique(target.environment)),
        split=run.split.recipe.rule,
        method=method,
        variant=variant,
        settings=json.loads(json.dumps(built.describe())),  # as they are read back
        encoder=encoder,
        training=training,
        split_seed=run.split_seed,
        seed=run.seed,
        code=revisions.of_run(method, encoder, calibrated=False),
        plugins=tuple(plugins_used(method, encoder)),
        devices=run.split.devices,
        geometry=train.geometry,
        samples=built.setup.samples,
        sample_rate_hz=train.sample_rate_hz,
        carrier_hz=train.carrier_hz,
        precision=precision,
        dataset=dataset,
        threads=threads,
        domain=train.domain,
        subcarriers=train.subcarriers,
        cfo=train.source.read_cfo_hz(train.rows[:1]) is not None,
    )


class Keep:
    """The folder of a training, see `run_folders`; without `out`, memory alone."""

    def __init__(self, out: str | Path | None, runs: Sequence[Run], described: Sequence[ModelRun]) -> None:
        self.out = None if out is None else Path(out)
        self._described = described
        if self.out is not None:
            _prepare(self.out, several=len(runs) > 1)
        self._folders = run_folders(out, runs)
        sizes: dict[tuple[int, int], list[int]] = defaultdict(list)  # a stack takes equally many frames of each run
        for i, run in enumerate(runs):
            sizes[len(run.split.train), len(run.split.validation)].append(i)
        self._alike = list(sizes.values())
        self._models: list[TrainedModel | None] = [None] * len(runs)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Lock the folder against other trainings, and load what is finished in it."""
        with nullcontext() if self.out is None else only_runner(self.out):
            self._models = [_finished(*pair) for pair in zip(self._folders, self._described, strict=True)]
            yield

    def unfinished(self, together: bool) -> list[list[int]]:
        """The runs that are left to train, by number: those of equally many frames in one group, or each alone."""
        left = [i for i, model in enumerate(self._models) if model is None]
        if not together:
            return [[i] for i in left]
        groups = []
        for alike in self._alike:
            group, folder = [i for i in alike if i in left], self.folder(alike)
            if group and folder is not None and has_checkpoint(folder):
                group = alike  # a stack that was stopped while its models were written ends as one
            groups += [group] if group else []
        return groups

    def described(self, group: Sequence[int]) -> list[ModelRun]:
        return [self._described[i] for i in group]

    def folder(self, group: Sequence[int]) -> Path | None:
        """Where the checkpoint of a group is."""
        return self.out if len(group) == len(self._models) else self._folders[group[0]]

    def add(self, group: Sequence[int], models: Sequence[TrainedModel]) -> None:
        """Keep the models of a group and remove its checkpoint."""
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
        for described in (*begun_with(folder), *_described(folder)):
            if isinstance(threads := described.get("threads"), int):
                return threads
    return None


def _described(folder: Path) -> list[dict[str, Any]]:
    """The content of `model.json`, if it can be read; loading the model reports what is wrong with it."""
    with suppress(OSError, ValueError):
        found = read_json(folder / "model.json")
        return [found] if isinstance(found, dict) else []
    return []


def _prepare(out: Path, several: bool) -> None:
    """Make the folder before the training, and refuse one that holds something else."""
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
        raise DataError(f"{out}: the folder cannot be made ({error.strerror}). Choose another --out.") from error


def _finished(folder: Path | None, run: ModelRun) -> TrainedModel | None:
    """The model in `folder` if it is of this run; an error if it is of another."""
    if folder is None or not (folder / "model.json").is_file():
        return None
    found = load_model(folder)
    if different := differences(said_now(found.run, run).to_json(), run.to_json()):
        listed = "; ".join(f"{name}: {there!r} there, {here!r} here" for name, there, here in different[:3])
        listed += f"; and {len(different) - 3} more" if len(different) > 3 else ""
        raise ModelError(f"{folder}: already holds another model ({listed}). Choose another --out, or remove it.")
    return found


def said_now(kept: ModelRun, run: ModelRun) -> ModelRun:
    """A kept run as it was planned; threads, which earlier versions did not say, are taken to be those of `run`."""
    return replace(kept.planned, threads=run.threads if kept.threads is None else kept.threads)
