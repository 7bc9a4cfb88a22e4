"""`fit`: train one run or many, together where the device can, and keep what was finished."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import pisa_capc
from pisa_capc.errors import ConfigError, MissingExtraError, ModelError
from pisa_capc.frames import MODEL_SAMPLES
from pisa_capc.methods.registry import Method, Setup, build_method
from pisa_capc.progress import console, progress
from pisa_capc.protocol import Split
from pisa_capc.stacked import unstack
from pisa_capc.training.bank import Bank, union
from pisa_capc.training.checkpoint import (
    SCHEMA,
    TrainedModel,
    load_checkpoint,
    load_model,
    remove_checkpoint,
    save_checkpoint,
)
from pisa_capc.training.memory import keep_freed_memory
from pisa_capc.training.source import source_statistics
from pisa_capc.training.stack import Stack


@dataclass(frozen=True)
class TrainingConfig:
    """The paper's optimisation: AdamW for 30 epochs, the checkpoint with the best source-validation Macro-F1.

    samples: length of the segment the model sees; frames that are shorter are used whole.
    """

    epochs: int = 30
    batch: int = 128
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    samples: int = MODEL_SAMPLES

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "samples"):
            if getattr(self, name) < 1:
                raise ConfigError(f"training.{name}: expected at least 1, found {getattr(self, name)}.")
        if self.learning_rate <= 0 or self.weight_decay < 0:
            raise ConfigError(
                "training: expected learning_rate > 0 and weight_decay ≥ 0, "
                f"found {self.learning_rate} and {self.weight_decay}."
            )


@dataclass(frozen=True)
class Run:
    """One training: a split, the seed that made it, and the seed of everything that training draws."""

    split: Split
    split_seed: int
    seed: int

    @property
    def name(self) -> str:
        return f"split{self.split_seed}-seed{self.seed}"


def choose_device(device: str = "auto") -> torch.device:
    """The named device; 'auto' is the GPU where there is one."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise ConfigError(f"device {device!r}: expected auto, cpu or cuda.") from error
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device {device!r}: no CUDA device is available here. Use cpu or auto.")
    return chosen


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
    show: bool = True,
) -> list[TrainedModel]:
    """Train the runs and return their models, best source-validation Macro-F1 each. Target frames are never read.

    Args:
        runs: what to train; all from one dataset and direction.
        method, encoder, variant, settings: what to build; see `pisa_capc.methods`.
        precision: 'float32', 'bfloat16', or 'auto': bfloat16 on a GPU, float32 on a CPU.
        stacked: train all runs in one stack (default on a GPU) or one after the other (default on a CPU).
        out: folder for checkpoints and models; an interrupted training goes on from there, a finished one is loaded.
            One run is written into `out` itself, several into `out/<run name>`.
        dataset: fingerprint of the dataset, kept with the models.
        tensorboard: folder for TensorBoard logs.

    >>> frames = pisa_capc.load("wifi")                                                      # doctest: +SKIP
    >>> run = Run(split(frames, ["E2", "E3"], "E1", seed=2026), split_seed=2026, seed=2026)  # doctest: +SKIP
    >>> [trained] = fit([run], encoder="cnn", out="run")                                     # doctest: +SKIP
    """
    if not runs:
        raise ConfigError("fit: no runs given.")
    if len({run.name for run in runs}) != len(runs):
        raise ConfigError("fit: two runs share split seed and training seed. Give each pair once.")
    training = training or TrainingConfig()
    place = choose_device(device)
    if place.type == "cpu":
        keep_freed_memory()
    if precision == "auto":
        precision = "bfloat16" if place.type == "cuda" else "float32"
    if precision not in ("float32", "bfloat16"):
        raise ConfigError(f"precision: expected auto, float32 or bfloat16, found {precision!r}.")
    first = runs[0].split
    setup = Setup(len(first.devices), encoder, first.train.geometry)
    built = build_method(method, setup, variant, settings)
    abouts = [_about(run, built, method, variant, training, precision, dataset) for run in runs]
    folders = [None if out is None else Path(out) / (run.name if len(runs) > 1 else "") for run in runs]

    models = [_finished(folder, about) for folder, about in zip(folders, abouts, strict=True)]
    left = [i for i, model in enumerate(models) if model is None]
    together = place.type == "cuda" if stacked is None else stacked
    groups = [left] if together and left else [[i] for i in left]
    bank = None
    for group in groups:
        if bank is None:
            samples = min(training.samples, first.train.source.samples)
            parts = [part for run in runs for part in (run.split.train, run.split.validation)]
            bank = Bank(union(parts).segment(samples), place)
        keep = Path(out) if out is not None and len(group) == len(runs) else folders[group[0]]
        job = _Job([runs[i] for i in group], [abouts[i] for i in group], built, training, bank, precision, keep)
        for i, model in zip(group, job.train(show, tensorboard), strict=True):
            folder = folders[i]
            if folder is not None:
                model.save(folder)
            models[i] = model
        if keep is not None:
            remove_checkpoint(keep)
    return [model for model in models if model is not None]


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
        "samples": min(training.samples, train.source.samples),
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
    }
    result: dict[str, Any] = json.loads(json.dumps(about))
    return result


def _finished(folder: Path | None, about: Mapping[str, Any]) -> TrainedModel | None:
    """The model in `folder` if it is this very run; an error if it is another."""
    if folder is None or not (folder / "model.json").is_file():
        return None
    found = load_model(folder)
    if different := [key for key in about if found.about.get(key) != about[key]]:
        raise ModelError(
            f"{folder}: already holds another model ({different[0]}: {found.about.get(different[0])!r} there, "
            f"{about[different[0]]!r} here). Choose another --out, or remove it."
        )
    return found


class _Job:
    """Runs that are trained together, from the first epoch or the last checkpoint to their best models."""

    def __init__(
        self,
        runs: Sequence[Run],
        abouts: Sequence[dict[str, Any]],
        method: Method,
        training: TrainingConfig,
        bank: Bank,
        precision: str,
        folder: Path | None,
    ) -> None:
        self.runs, self.abouts, self.method, self.training, self.bank = runs, abouts, method, training, bank
        self.precision, self.folder = precision, folder
        self.train_rows = [bank.position(run.split.train) for run in runs]
        self.validation_rows = [bank.position(run.split.validation) for run in runs]

    def train(self, show: bool, tensorboard: str | Path | None) -> list[TrainedModel]:
        training = self.training
        stack = Stack(
            self.method,
            self.bank,
            self.train_rows,
            self.validation_rows,
            [run.seed for run in self.runs],
            batch=training.batch,
            learning_rate=training.learning_rate,
            weight_decay=training.weight_decay,
            precision=self.precision,
        )
        best = {name: value.clone() for name, value in stack.model.state_dict().items()}
        best_f1 = np.full(len(self.runs), -1.0)
        history: list[dict[str, Any]] = []
        if self.folder is not None and (found := load_checkpoint(self.folder, stack.device)):
            tensors, kept = found
            if kept["runs"] != list(self.abouts):
                raise ModelError(
                    f"{self.folder}: holds the checkpoint of another training. Choose another --out, or remove it."
                )
            stack.load_state(tensors)
            best = {name: tensors[f"best.{name}"] for name in best}
            best_f1, history = np.array(kept["best_f1"]), kept["history"]
        write = _tensorboard(tensorboard, self.runs) if tensorboard is not None else None
        label = f"{self.abouts[0]['method']} {self.abouts[0]['encoder']}, {len(self.runs)} run(s)"
        todo = (training.epochs - len(history)) * stack.steps
        with progress(label, todo, show) as bar:
            for epoch in range(len(history), training.epochs):
                started = time.perf_counter()
                losses = stack.train_epoch(epoch, bar.advance)
                self._check(losses, epoch, bool(history))
                f1 = stack.validate()
                seconds = time.perf_counter() - started
                history.append(self._record(losses, f1, stack.terms, seconds))
                improved = torch.from_numpy(f1 > best_f1).to(stack.device)
                with torch.no_grad():
                    for name, value in stack.model.state_dict().items():
                        best[name] = torch.where(improved.view(-1, *[1] * (value.ndim - 1)), value, best[name])
                best_f1 = np.maximum(best_f1, f1)
                if self.folder is not None:
                    tensors = stack.state() | {f"best.{name}": value for name, value in best.items()}
                    kept = {"runs": list(self.abouts), "best_f1": best_f1.tolist(), "history": history}
                    save_checkpoint(self.folder, tensors, kept)
                if write is not None:
                    write(epoch, history[-1])
                frames = stack.steps * training.batch * len(self.runs) / seconds
                note = f"loss {losses.sum(-1).mean():.3f} val F1 {f1.mean():.4f} {frames:,.0f} frames/s"
                bar.advance(0, note)
                if show and not console.is_terminal:
                    console.print(f"{label}: epoch {epoch + 1}/{training.epochs} {note}", soft_wrap=True)
        return self._models(best, best_f1, history)

    def _check(self, losses: NDArray[np.float32], epoch: int, kept: bool) -> None:
        bad = np.argwhere(~np.isfinite(losses).all(axis=2))
        if len(bad):
            step, run = bad[0]
            where = f" The checkpoint of epoch {epoch} is kept in {self.folder}." if kept and self.folder else ""
            raise ModelError(
                f"run {self.runs[run].name}: the loss became {losses[step, run].sum()} at step {step + 1} of epoch "
                f"{epoch + 1}.{where} Lower the learning rate, or train in float32."
            )

    def _record(
        self, losses: NDArray[np.float32], f1: NDArray[np.float64], terms: Sequence[str], seconds: float
    ) -> dict[str, Any]:
        mean = losses.mean(axis=0)
        by_term = {name: [round(float(v), 6) for v in mean[:, i]] for i, name in enumerate(terms)}
        return {"loss": by_term, "validation_f1": [float(v) for v in f1], "seconds": round(seconds, 3)}

    def _models(
        self, best: Mapping[str, Tensor], best_f1: NDArray[np.float64], history: Sequence[Mapping[str, Any]]
    ) -> list[TrainedModel]:
        stacked = self.method.build(len(self.runs)).to(self.bank.device)
        stacked.load_state_dict(dict(best))
        models = []
        for i, about in enumerate(self.abouts):
            model = unstack(stacked, i, self.method.build(1).to(self.bank.device))
            source = source_statistics(model, self.bank, self.train_rows[i], self.validation_rows[i])
            own = [
                {
                    "loss": {name: values[i] for name, values in entry["loss"].items()},
                    "validation_f1": entry["validation_f1"][i],
                }
                for entry in history
            ]
            scores = [entry["validation_f1"] for entry in own]
            metrics = {"validation_f1": float(best_f1[i]), "best_epoch": int(np.argmax(scores)) + 1}
            seconds = round(sum(entry["seconds"] for entry in history) / len(self.runs), 3)
            extra = {"metrics": metrics, "history": own, "seconds": seconds}
            models.append(TrainedModel(model.eval().cpu(), {**about, **extra}, source))
        return models


def _tensorboard(folder: str | Path, runs: Sequence[Run]) -> Callable[[int, Mapping[str, Any]], None]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingExtraError("tensorboard", "tensorboard", "--tensorboard") from error
    writers = [SummaryWriter(str(Path(folder) / run.name)) for run in runs]

    def write(epoch: int, entry: Mapping[str, Any]) -> None:
        for i, writer in enumerate(writers):
            for name, values in entry["loss"].items():
                writer.add_scalar(f"loss/{name}", values[i], epoch + 1)
            writer.add_scalar("validation/macro_f1", entry["validation_f1"][i], epoch + 1)
            writer.flush()

    return write
