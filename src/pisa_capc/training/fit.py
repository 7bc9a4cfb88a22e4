"""`fit`: train one run or many, together where the device can, and keep what was finished."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

import pisa_capc
from pisa_capc import revisions
from pisa_capc.config import differences
from pisa_capc.errors import ConfigError, DataError, ModelError
from pisa_capc.frames import samples_seen
from pisa_capc.methods.registry import Method, Setup, build_method
from pisa_capc.progress import console
from pisa_capc.training.bank import Bank, union
from pisa_capc.training.checkpoint import (
    SCHEMA,
    TrainedModel,
    has_checkpoint,
    load_model,
    remove_checkpoint,
    runs_inside,
)
from pisa_capc.training.job import Job
from pisa_capc.training.memory import keep_freed_memory
from pisa_capc.training.runs import Run, TrainingConfig, choose_device, choose_precision


def fit(
    runs: Sequence[Run],
    *,
    method: str = "pisa",
    encoder: str = "transformer",
    variant: str = "full",
    settings: Mapping[str, Any] | None = None,
    training: TrainingConfig | None = None,
    device: str = "auto",
    precision: str = "auto",
    stacked: bool | None = None,
    out: str | Path | None = None,
    dataset: str = "",
    tensorboard: str | Path | None = None,
    guard: bool = False,
    show: bool = True,
) -> list[TrainedModel]:
    """Train the runs and return their models, best source-validation Macro-F1 each. Target frames are never read.

    Args:
        runs: what to train; all from one dataset and direction.
        method, encoder, variant, settings: what to build; see `pisa_capc.methods`.
        precision: 'float32', 'bfloat16' (on a GPU), or 'auto': bfloat16 on a GPU, float32 on a CPU.
        stacked: train all runs in one stack (default on a GPU) or one after the other (default on a CPU).
        out: folder for checkpoints and models; an interrupted training goes on from there, a finished one is loaded.
            One run is written into `out` itself, several into `out/<run name>`.
        dataset: fingerprint of the dataset, kept with the models.
        tensorboard: folder for TensorBoard logs.
        guard: also learn when a calibration may be trusted (`pisa_capc.calibration.guard`), by rehearsals with models
            that leave one source environment out. They are trained like the first run and serve all of them. Where
            the method cannot train without one, nothing is learnt.

    >>> import numpy as np
    >>> from pisa_capc import Frames
    >>> from pisa_capc.protocol import split
    >>> from pisa_capc.training import Run, TrainingConfig, fit
    >>> frames = Frames.from_arrays(                               # or pisa_capc.load("wifi")
    ...     np.random.default_rng(0).normal(size=(36, 4, 64)), device=["D1", "D2"] * 18,
    ...     environment=np.repeat(["E1", "E2", "E3"], 12))
    >>> run = Run(split(frames, ["E2", "E3"], "E1", seed=2026), split_seed=2026, seed=2026)
    >>> short = TrainingConfig(epochs=1, batch=16)                 # the default is the paper's 30 epochs
    >>> [trained] = fit([run], encoder="cnn", training=short, device="cpu", show=False)
    >>> trained.devices, trained.about["metrics"]["best_epoch"]
    (('D1', 'D2'), 1)
    """
    if not runs:
        raise ConfigError("fit: no runs given.")
    if len({run.name for run in runs}) != len(runs):
        raise ConfigError("fit: two runs share split seed and training seed. Give each pair once.")
    training = training or TrainingConfig()
    place = choose_device(device)
    precision = choose_precision(precision, place)
    if place.type == "cpu":
        keep_freed_memory()
    first = runs[0].split
    samples = samples_seen(training.samples, first.train.source.samples)
    environments = tuple(np.unique(first.train.environment).tolist())
    setup = Setup(len(first.devices), encoder, first.train.geometry, environments, samples, first.train.sample_rate_hz)
    built = build_method(method, setup, variant, settings)
    abouts = [_about(run, built, method, variant, training, precision, dataset) for run in runs]
    folders = [None if out is None else Path(out) / (run.name if len(runs) > 1 else "") for run in runs]

    fewest = min(len(run.split.train) for run in runs)
    if training.batch > max(fewest, TrainingConfig.batch):
        raise ConfigError(f"training.batch: found {training.batch}, expected at most the {fewest} training frames.")
    if out is not None:
        if (Path(out) / "dataset.json").is_file():
            raise DataError(f"{out}: holds a dataset. Choose another --out for the model.")
        _check_kind(Path(out), several=len(runs) > 1)
        try:
            Path(out).mkdir(parents=True, exist_ok=True)  # an hour of training should not end at a bad path
        except OSError as error:
            raise DataError(f"{out}: no folder can be made there ({error.strerror}). Choose another --out.") from error
    models = [_finished(folder, about) for folder, about in zip(folders, abouts, strict=True)]
    left = [i for i, model in enumerate(models) if model is None]
    together = place.type == "cuda" if stacked is None else stacked
    if together and left and out is not None and has_checkpoint(Path(out)):
        left = list(range(len(runs)))  # a stack that was stopped while its models were written ends as one
    groups = [left] if together and left else [[i] for i in left]
    bank = None
    for group in groups:
        if bank is None:
            parts = [part for run in runs for part in (run.split.train, run.split.validation)]
            bank = Bank(union(parts).segment(samples), place)  # names the frames that no method can use
            built.check_source(first.train.segment(samples))
        keep = Path(out) if out is not None and len(group) == len(runs) else folders[group[0]]
        job = Job([runs[i] for i in group], [abouts[i] for i in group], built, training, bank, precision, keep)
        with _naming_lack_of_memory():
            trained = job.train(show, tensorboard)
        for i, model in zip(group, trained, strict=True):
            folder = folders[i]
            if folder is not None:
                model.save(folder)
            models[i] = model
        if keep is not None:
            remove_checkpoint(keep)
    found = [model for model in models if model is not None]
    if guard and not all(model.has_guard for model in found):
        found = _guarded(
            runs[0],
            found,
            folders,
            place,
            train=lambda name, replay: fit(
                [replay],
                method=method,
                encoder=encoder,
                variant=variant,
                settings=settings,
                training=training,
                device=device,
                precision=precision,
                out=None if out is None else Path(out) / "replay" / name,
                dataset=dataset,
                show=show,
            )[0],
            show=show,
        )
    return found


@contextmanager
def _naming_lack_of_memory() -> Iterator[None]:
    try:
        yield
    except (MemoryError, RuntimeError) as error:  # PyTorch has a class of its own for a GPU's memory alone
        known = ("out of memory", "allocate memory")
        if isinstance(error, RuntimeError) and not any(words in str(error) for words in known):
            raise
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ConfigError(
            f"the training ran out of memory ({reason}). Use a smaller --batch, or fewer runs at a time."
        ) from error


def _guarded(
    run: Run,
    models: list[TrainedModel],
    folders: Sequence[Path | None],
    place: torch.device,
    train: Callable[[str, Run], TrainedModel],
    show: bool,
) -> list[TrainedModel]:
    """The models with the thresholds of the guard, which are those of the first; saved again where they are kept."""
    from pisa_capc.training.replay import learn_guard

    if show:
        console.print("For the guard, the same without each source environment in turn:", highlight=False)
    learnt = learn_guard(run, models[0], train, place)
    guarded = [model.with_guard(learnt) for model in models]
    for model, folder in zip(guarded, folders, strict=True):
        if folder is not None and learnt is not None:
            model.save(folder)
    return guarded


def _about(
    run: Run, built: Method, method: str, variant: str, training: TrainingConfig, precision: str, dataset: str
) -> dict[str, Any]:
    """What determines a run, as it is kept in `model.json`."""
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
        "split_seed": run.split_seed,
        "seed": run.seed,
        "training": asdict(training),
        "precision": precision,
        "dataset": dataset,
        "version": pisa_capc.__version__,
        "code": revisions.of_run(method, built.setup.encoder, calibrated=False),
    }
    result: dict[str, Any] = json.loads(json.dumps(about))
    return result


def _check_kind(out: Path, several: bool) -> None:
    """Refuse one run's model beside the folders of several: who reads `out` would see one kind and not the other."""
    inside = runs_inside(out)
    if several and (out / "model.json").is_file():
        raise ModelError(f"{out}: holds the model of one run. Choose another --out for several, or remove it.")
    if not several and inside:
        raise ModelError(
            f"{out}: holds {len(inside)} runs, as {inside[0].name}. Choose another --out for one run, or give "
            "their seeds too."
        )


def _finished(folder: Path | None, about: Mapping[str, Any]) -> TrainedModel | None:
    """The model in `folder` if it is this very run; an error if it is another."""
    if folder is None or not (folder / "model.json").is_file():
        return None
    found = load_model(folder)
    if different := differences({key: found.about.get(key) for key in about}, about):
        listed = "; ".join(f"{name}: {there!r} there, {here!r} here" for name, there, here in different[:3])
        listed += f"; and {len(different) - 3} more" if len(different) > 3 else ""
        raise ModelError(f"{folder}: already holds another model ({listed}). Choose another --out, or remove it.")
    return found
