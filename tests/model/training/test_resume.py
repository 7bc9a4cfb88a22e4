"""A training that was stopped, or that spoils itself, loses nothing that was good."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from pisa_capc.core import revisions
from pisa_capc.core.errors import DataError, ModelError
from pisa_capc.core.threads import cpu_threads
from pisa_capc.data.frames import Frames
from pisa_capc.data.store.seal import sealed
from pisa_capc.model.inference import TrainedModel, load_model
from pisa_capc.model.training import fit
from pisa_capc.model.training.keep import CheckpointWriter, load_checkpoint, save_checkpoint
from pisa_capc.model.training.stack import Stack
from tests.model.training.tools import FAST, TRAINING, Killed, assert_identical, kill_in_epoch
from tests.problems import runs, small_frames


@pytest.fixture(scope="module")
def frames() -> Frames:
    return small_frames()


@pytest.mark.parametrize("stacked", [False, True])
def test_a_killed_training_ends_where_it_would_have_ended(
    frames: Frames, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stacked: bool
) -> None:
    these = runs(frames, (1, 1), (2, 2))
    how = FAST | {"training": replace(TRAINING, epochs=3), "stacked": stacked, "encoder": "transformer"}
    whole = fit(these, **how, out=tmp_path / "whole")
    with monkeypatch.context() as patch:
        kill_in_epoch(patch, 2)
        with pytest.raises(Killed):
            fit(these, **how, out=tmp_path / "killed")
    assert list((tmp_path / "killed").rglob("checkpoint.safetensors"))
    resumed = fit(these, **how, out=tmp_path / "killed")
    for a, b in zip(whole, resumed, strict=True):
        assert_identical(a, b)
    assert not list(tmp_path.rglob("checkpoint.safetensors"))


def test_a_training_goes_on_with_the_threads_it_was_begun_with(
    frames: Frames, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [whole] = fit(runs(frames), **FAST, threads=1)
    with monkeypatch.context() as patch:
        kill_in_epoch(patch, 1)
        with pytest.raises(Killed):
            fit(runs(frames), **FAST, threads=1, out=tmp_path)
    with cpu_threads(2):  # on another machine
        [resumed] = fit(runs(frames), **FAST, out=tmp_path)
        assert torch.get_num_threads() == 2
        [there] = fit(runs(frames), **FAST, out=tmp_path)
    assert whole.run.threads == 1
    assert_identical(whole, resumed)
    assert_identical(whole, there)
    with pytest.raises(ModelError, match=r"already holds another model \(threads: 1 there, 2 here"):
        fit(runs(frames), **FAST, threads=2, out=tmp_path)


def test_a_stack_killed_between_its_models_is_not_trained_again(
    frames: Frames, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    these = runs(frames, (1, 1), (2, 2))
    whole = fit(these, **FAST, stacked=True)
    save = TrainedModel.save

    def only_the_first(self: TrainedModel, folder: Path) -> None:
        if self.run.seed == 2:
            raise Killed
        save(self, folder)

    with monkeypatch.context() as patch:
        patch.setattr(TrainedModel, "save", only_the_first)
        with pytest.raises(Killed):
            fit(these, **FAST, stacked=True, out=tmp_path)
    with monkeypatch.context() as patch:
        kill_in_epoch(patch, 0)  # any further epoch would raise
        resumed = fit(these, **FAST, stacked=True, out=tmp_path)
    for a, b in zip(whole, resumed, strict=True):
        assert_identical(a, b)
    assert not list(tmp_path.rglob("checkpoint.safetensors"))


def test_the_checkpoint_of_another_training_is_refused(
    frames: Frames, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        kill_in_epoch(patch, 1)
        with pytest.raises(Killed):
            fit(runs(frames), **FAST, out=tmp_path)
    with pytest.raises(ModelError, match="checkpoint of another training"):
        fit(runs(frames), **FAST | {"training": replace(TRAINING, learning_rate=2e-3)}, out=tmp_path)
    with pytest.raises(ModelError, match="unfinished training"):
        load_model(tmp_path)


@pytest.mark.parametrize("part", ["weights", "progress"])
def test_a_damaged_checkpoint_is_refused(
    frames: Frames, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    with monkeypatch.context() as patch:
        kill_in_epoch(patch, 1)
        with pytest.raises(Killed):
            fit(runs(frames), **FAST, out=tmp_path)
    path = tmp_path / "checkpoint.safetensors"
    content = bytearray(path.read_bytes())
    score = content.index(before := b'validation_f1\\": [0.') + len(before)  # its first digit, in the header
    content[score if part == "progress" else -1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"checkpoint\.safetensors: damaged .*Remove it to train from the start"):
        fit(runs(frames), **FAST, out=tmp_path)


def test_a_checkpoint_is_of_the_moment_it_was_asked_for_and_there_when_the_training_is_stopped(tmp_path: Path) -> None:
    cpu = torch.device("cpu")
    tensors = {"a": torch.arange(6.0).view(2, 3).mT, "b": torch.tensor(4), "c": torch.ones(2), "step": torch.zeros(1)}
    expected = {name: value.clone() for name, value in tensors.items()}

    def train() -> None:
        with CheckpointWriter(tmp_path) as checkpoints:
            checkpoints.save({"a": torch.zeros(1)}, {"epoch": 1})
            checkpoints.save(tensors, {"epoch": 2})
            for value in tensors.values():
                value.add_(1)  # as the next step does
            raise Killed

    with pytest.raises(Killed):
        train()
    found = load_checkpoint(tmp_path, cpu)
    assert found is not None
    assert found[1] == {"epoch": 2}
    assert found[0].keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[0][name], value), name
        assert found[0][name].dtype == value.dtype


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_checkpoint_that_cannot_be_written_stops_the_training(tmp_path: Path, epochs: int) -> None:
    (tmp_path / "checkpoint.safetensors").mkdir()
    saved = []

    def train() -> None:
        with CheckpointWriter(tmp_path) as checkpoints:
            for epoch in range(epochs):
                checkpoints.save({"a": torch.zeros(1)}, {})
                saved.append(epoch)

    with pytest.raises(DataError, match="is a folder"):
        train()
    assert saved == [0]


def test_what_ends_a_training_also_says_that_its_last_checkpoint_was_not_written(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.safetensors").mkdir()

    def train() -> None:
        with CheckpointWriter(tmp_path) as checkpoints:
            checkpoints.save({"a": torch.zeros(1)}, {})
            raise Killed

    with pytest.raises(Killed) as ended:
        train()
    assert "is a folder" in ended.value.__notes__[0]


@pytest.mark.parametrize("where", ["loss", "parameters"])
def test_nan_in_training_names_run_and_step_and_keeps_the_last_good_checkpoint(
    frames: Frames, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    train_epoch = Stack.train_epoch

    def spoilt(
        self: Stack, epoch: int, after_step: Callable[[], None] = lambda: None, *rest: Any
    ) -> NDArray[np.float32]:
        losses = train_epoch(self, epoch, after_step, *rest)
        if epoch == 1 and where == "loss":
            losses[2, 1] = np.nan
        if epoch == 1 and where == "parameters":
            with torch.no_grad():
                self.model.get_parameter("classifier.bias")[1, 0] = float("inf")
        return losses

    how = FAST | {"training": replace(TRAINING, epochs=3), "stacked": True}
    these = runs(frames, (1, 1), (2, 5))
    whole = fit(these, **how)
    steps = -(-len(these[0].split.train) // TRAINING.batch)
    step = 3 if where == "loss" else steps
    with monkeypatch.context() as patch:
        patch.setattr(Stack, "train_epoch", spoilt)
        with pytest.raises(ModelError, match=f"run split2-seed5: the .* at step {step} of epoch 2.*epoch 1 is kept"):
            fit(these, **how, out=tmp_path)
    for a, b in zip(whole, fit(these, **how, out=tmp_path), strict=True):
        assert_identical(a, b)


def test_a_finished_run_is_loaded_and_not_trained_again(
    frames: Frames, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [first] = fit(runs(frames), **FAST, out=tmp_path, dataset="abc")
    kill_in_epoch(monkeypatch, 0)
    [again] = fit(runs(frames), **FAST, out=tmp_path, dataset="abc")
    assert_identical(first, again)
    with pytest.raises(ModelError, match=r"already holds another model \(dataset: 'abc' there, 'xyz' here\)"):
        fit(runs(frames), **FAST, out=tmp_path, dataset="xyz")
    settings = {"model": {"eta": 0.4}}
    with pytest.raises(ModelError, match=r"another model \(settings\.model\.eta: 0\.2 there, 0\.4 here\)"):
        fit(runs(frames), **FAST, out=tmp_path, dataset="abc", settings=settings)


def forget_revisions(folder: Path) -> None:
    """The model as it was written before descriptions named versions of the code."""
    about = json.loads((folder / "model.json").read_text())
    del about["code"]
    (folder / "model.json").write_text(json.dumps(sealed(about)))


def test_a_model_of_an_earlier_version_of_its_method_is_not_this_run(
    frames: Frames, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [trained] = fit(runs(frames), **FAST, method="single", out=tmp_path)
    assert trained.run.code == {"split": 1, "training": 1, "method": 1}
    forget_revisions(tmp_path)
    kill_in_epoch(monkeypatch, 0)  # training again would raise
    [again] = fit(runs(frames), **FAST, method="single", out=tmp_path)
    assert_identical(trained, again)
    monkeypatch.setitem(revisions.METHODS, "single", 2)
    with pytest.raises(ModelError, match=r"already holds another model \(code\.method: 1 there, 2 here\)"):
        fit(runs(frames), **FAST, method="single", out=tmp_path)


def test_a_checkpoint_of_an_earlier_version_of_its_method_is_not_this_run(
    frames: Frames, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        kill_in_epoch(patch, 1)
        with pytest.raises(Killed):
            fit(runs(frames), **FAST, method="single", out=tmp_path)
    tensors, progress = load_checkpoint(tmp_path, torch.device("cpu"))
    for run in progress["runs"]:
        del run["code"]
    save_checkpoint(tmp_path, tensors, progress)
    with monkeypatch.context() as patch:
        patch.setitem(revisions.METHODS, "single", 2)
        with pytest.raises(ModelError, match="checkpoint of another training"):
            fit(runs(frames), **FAST, method="single", out=tmp_path)
    fit(runs(frames), **FAST, method="single", out=tmp_path)
