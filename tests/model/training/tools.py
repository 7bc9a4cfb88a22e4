"""Tools of the training tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from pisa_capc.data.frames import Frames
from pisa_capc.model.inference import TrainedModel
from pisa_capc.model.methods import Setup, build_method
from pisa_capc.model.training import Run, TrainingConfig
from pisa_capc.model.training.bank import Bank, union
from pisa_capc.model.training.stack import Stack

TRAINING = TrainingConfig(epochs=2, batch=16)
FAST: dict[str, Any] = {"encoder": "cnn", "device": "cpu", "show": False, "training": TRAINING}


def weights(trained: TrainedModel) -> dict[str, torch.Tensor]:
    return trained.model.state_dict()


def assert_identical(a: TrainedModel, b: TrainedModel) -> None:
    assert weights(a).keys() == weights(b).keys()
    for name, value in weights(a).items():
        assert torch.equal(value, weights(b)[name]), name
    for name, value in a.statistics.known().items():
        assert np.array_equal(value, b.statistics.known()[name]), name
    assert replace(a.run, seconds=0.0) == replace(b.run, seconds=0.0)


def make_stack(
    frames: Frames,
    these: list[Run],
    encoder: str = "cnn",
    resident: bool = True,
    method: str = "pisa",
    device: str = "cpu",
    precision: str = "float32",
) -> Stack:
    parts = [part for run in these for part in (run.split.train, run.split.validation)]
    bank = Bank(union(parts), torch.device(device), resident)
    environments = tuple(np.unique(bank.frames.environment).tolist())
    setup = Setup(len(frames.devices), encoder, frames.geometry, environments, frames.samples)
    return Stack(
        build_method(method, setup),
        bank,
        [bank.position(run.split.train) for run in these],
        [bank.position(run.split.validation) for run in these],
        [run.seed for run in these],
        batch=16,
        learning_rate=1e-3,
        weight_decay=1e-4,
        precision=precision,
    )


class Killed(Exception):
    pass


def kill_in_epoch(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    train_epoch = Stack.train_epoch

    def until(
        self: Stack, epoch: int, after_step: Callable[[], None] = lambda: None, *rest: Any
    ) -> NDArray[np.float32]:
        def stop() -> None:
            raise Killed

        return train_epoch(self, epoch, stop if epoch == number else after_step, *rest)

    monkeypatch.setattr(Stack, "train_epoch", until)
