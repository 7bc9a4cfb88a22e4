"""One training of runs side by side: epochs, validation, the best models, checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pisa_capc.core.errors import MissingExtraError, ModelError, PisaError
from pisa_capc.core.progress import console, progress
from pisa_capc.core.provenance import machine
from pisa_capc.data.scores import mean_f1
from pisa_capc.model.inference.model import TrainedModel, with_backend
from pisa_capc.model.methods.registry import Method
from pisa_capc.model.runs import Epoch, Metrics, ModelRun, Run, TrainingConfig
from pisa_capc.model.stacked import copy_runs, unstack
from pisa_capc.model.training.bank import Bank
from pisa_capc.model.training.keep import CheckpointWriter, load_checkpoint, said_now
from pisa_capc.model.training.stack import Stack, build_seeded
from pisa_capc.model.training.statistics import compile_statistics, source_statistics


class Trainer:
    """Runs that are trained together, from the first epoch or the last checkpoint to their best models."""

    def __init__(
        self,
        runs: Sequence[Run],
        described: Sequence[ModelRun],
        method: Method,
        training: TrainingConfig,
        bank: Bank,
        precision: str,
    ) -> None:
        self.runs, self.described, self.method, self.training, self.bank = runs, described, method, training, bank
        self.precision = precision
        self.folder: Path | None = None  # of checkpoints
        self.train_rows = [bank.position(run.split.train) for run in runs]
        self.validation_rows = [bank.position(run.split.validation) for run in runs]
        self.best = method.build(len(runs)).to(bank.device)  # each run at its best epoch
        self.best_f1 = np.full(len(runs), -1.0)
        self.history: list[dict[str, Any]] = []  # one record an epoch
        self.first = 0  # the first epoch, from 0, that can be selected

    def train(
        self, folder: Path | None, show: bool, tensorboard: str | Path | None, more_frames: int = 0
    ) -> list[TrainedModel]:
        """The best model of each run.

        folder: of the checkpoint, from which a killed training goes on. more_frames: that trainings after this one
        have, which the time left counts.
        """
        self.folder, training = folder, self.training
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
        self.first = min(-(-self.method.settling_steps // stack.steps), training.epochs - 1)
        self._resume(stack)
        if show and self.history:
            console.print(f"Going on after epoch {len(self.history)} of {training.epochs}, where it was stopped.")
        write = _tensorboard(tensorboard, self.runs) if tensorboard is not None else None
        which = self.runs[0].name if len(self.runs) == 1 else f"{len(self.runs)} runs"
        first = self.described[0]
        label = f"{first.method} {first.encoder} {which} on {','.join(first.source)}"
        epochs = range(len(self.history), training.epochs)
        after = more_frames / sum(map(len, self.train_rows)) * training.epochs  # in epochs of this training
        begun = time.perf_counter()
        with CheckpointWriter(folder) as checkpoints, progress(label, len(epochs) * stack.steps, show) as bar:
            for done, epoch in enumerate(epochs, 1):
                started = time.perf_counter()
                losses = stack.train_epoch(epoch, bar.advance, self._compile_statistics if done == 1 else None)
                checkpoints.wait()  # long since written, or else nothing may be said of it
                self._check(losses, stack, epoch)
                f1 = stack.validate()
                seconds = time.perf_counter() - started
                self._keep(stack, f1, self._record(losses, f1, stack.terms, seconds))
                checkpoints.save(*self._checkpoint(stack))
                if write is not None:
                    write(epoch, self.history[-1])
                frames = stack.steps * training.batch * len(self.runs) / seconds
                note = f"loss {_in_parts(losses, stack.terms)} val F1 {f1.mean():.4f} {frames:,.0f} frames/s"
                left = (time.perf_counter() - begun) / done * (len(epochs) - done + after)
                note += f", {timedelta(seconds=round(left))} left{' in all' * bool(more_frames)}"
                bar.advance(0, note)
                if show and not console.is_terminal:
                    console.print(f"{label}: epoch {epoch + 1}/{training.epochs} {note}", soft_wrap=True)
        return self._models()

    def _resume(self, stack: Stack) -> None:
        """Go on from the last checkpoint, where there is one."""
        found = None if self.folder is None else load_checkpoint(self.folder, stack.device)
        if found is None:
            return
        tensors, kept = found
        if not self._is_of(kept["runs"]):
            raise ModelError(
                f"{self.folder}: holds the checkpoint of another training. Choose another --out, or remove it."
            )
        stack.load_state(tensors)
        self.best.load_state_dict({name: tensors[f"best.{name}"] for name in self.best.state_dict()})
        self.best_f1, self.history = np.array(kept["best_f1"]), kept["history"]

    def _is_of(self, kept: Sequence[Mapping[str, Any]]) -> bool:
        """Whether a checkpoint's runs are these."""
        try:
            runs = [ModelRun.from_json(values) for values in kept]
        except (PisaError, KeyError, TypeError):
            return False
        own = [run.to_json() for run in self.described]
        return own == [said_now(*pair).to_json() for pair in zip(runs, self.described, strict=False)]

    def _keep(self, stack: Stack, f1: NDArray[np.float64], record: dict[str, Any]) -> None:
        """Take over the runs that are better than ever."""
        if len(self.history) >= self.first:
            if better := np.flatnonzero(f1 > self.best_f1).tolist():
                copy_runs(stack.model, self.best, better)
            self.best_f1 = np.maximum(self.best_f1, f1)
        self.history.append(record)

    def _checkpoint(self, stack: Stack) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and all else from which the training goes on."""
        tensors = stack.state() | {f"best.{name}": value for name, value in self.best.state_dict().items()}
        # Lists of its own: it is still being written when the next epoch is added.
        return tensors, {
            "runs": [run.to_json() for run in self.described],
            "best_f1": self.best_f1.tolist(),
            "history": [*self.history],
        }

    def _check(self, losses: NDArray[np.float32], stack: Stack, epoch: int) -> None:
        """Stop where a loss, or the parameters that the last step left, are not finite."""
        bad = np.argwhere(~np.isfinite(losses).all(axis=2))
        if len(bad):
            step, run = (int(v) for v in bad[0])
            found = f"the loss became {losses[step, run].sum()}"
        elif (spoilt := stack.spoilt_run()) is not None:
            step, run, found = len(losses) - 1, spoilt, "the parameters became NaN or infinite"
        else:
            return
        kept = f" The checkpoint of epoch {epoch} is kept in {self.folder}." if epoch and self.folder else ""
        raise ModelError(
            f"run {self.runs[run].name}: {found} at step {step + 1} of epoch {epoch + 1}.{kept} "
            "Lower the learning rate, or train in float32."
        )

    def _record(
        self, losses: NDArray[np.float32], f1: NDArray[np.float64], terms: Sequence[str], seconds: float
    ) -> dict[str, Any]:
        mean = losses.mean(axis=0)
        by_term = {name: [round(float(v), 6) for v in mean[:, i]] for i, name in enumerate(terms)}
        return {"loss": by_term, "validation_f1": [float(v) for v in f1], "seconds": round(seconds, 3)}

    def _compile_statistics(self) -> None:
        """What will be needed at the end, while a GPU is at work on the first epoch."""
        if self.bank.device.type == "cuda":
            model = build_seeded(self.method, 0).to(self.bank.device)
            compile_statistics(model, self.bank, self.train_rows[0], self.validation_rows[0])

    def _models(self) -> list[TrainedModel]:
        models = []
        each = [unstack(self.best, i, self.method.build(1).to(self.bank.device)) for i in range(len(self.runs))]
        measured = source_statistics(each, self.bank, self.train_rows, self.validation_rows)
        for i, (run, model, statistics) in enumerate(zip(self.described, each, measured, strict=True)):
            own = tuple(
                Epoch({name: values[i] for name, values in entry["loss"].items()}, entry["validation_f1"][i])
                for entry in self.history
            )
            best_epoch = self.first + int(np.argmax([epoch.validation_f1 for epoch in own[self.first :]])) + 1
            metrics = Metrics(float(self.best_f1[i]), best_epoch)
            seconds = round(sum(entry["seconds"] for entry in self.history) / len(self.runs), 3)
            finished = replace(run, metrics=metrics, history=own, seconds=seconds, machine=machine())
            models.append(TrainedModel(model.eval().cpu(), finished, statistics))
        return models


def solved(run: Run, described: ModelRun, method: Method, bank: Bank) -> TrainedModel:
    """The model of a method that has no epochs."""
    began = time.perf_counter()
    model = method.solve(run.split.train.segment(method.setup.samples)).eval()
    train, validation = bank.position(run.split.train), bank.position(run.split.validation)
    [statistics] = source_statistics([model], bank, [train], [validation])
    assert statistics.confusion is not None, "measured on the validation frames"
    metrics = Metrics(mean_f1(statistics.confusion.astype(np.int64)), 1)
    seconds = round(time.perf_counter() - began, 3)
    described = replace(described, metrics=metrics, seconds=seconds, machine=machine())
    return TrainedModel(model, described, with_backend(statistics, model))


def _in_parts(losses: NDArray[np.float32], terms: Sequence[str]) -> str:
    """'2.301', or where a loss has several terms '4.009 (cls 1.2, graph 0.0009, …)', each with its weight."""
    parts = losses.mean((0, 1))
    listed = ", ".join(f"{term} {value:.3g}" for term, value in zip(terms, parts, strict=True))
    return f"{parts.sum():.3f}" + (f" ({listed})" if len(terms) > 1 else "")


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
