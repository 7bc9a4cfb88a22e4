"""Rehearsals see the source and nothing else."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from studies.leave_one_out import runs_leaving_one_out
from studies.rehearsals import learn_guard, rehearse
from studies.safe import Guard

from pisa_capc import Frames
from pisa_capc.data.protocol import split
from pisa_capc.model.inference import TrainedModel
from pisa_capc.model.training import Run, TrainingConfig, fit

HOW: dict[str, Any] = {"encoder": "cnn", "training": TrainingConfig(epochs=1, batch=16), "device": "cpu", "show": False}


def learnt(run: Run, method: str = "pisa") -> Guard | None:
    """The guard of a model of the run, from models that leave an environment out."""

    def train(name: str, left_out: Run) -> TrainedModel:
        return fit(left_out, method=method, **HOW)[0]

    return learn_guard(run, train("", run), train, torch.device("cpu"))


def example() -> Frames:
    rng = np.random.default_rng(0)
    return Frames.from_arrays(
        rng.normal(size=(60, 2, 16)), device=["D1", "D2"] * 30, environment=np.repeat(["E1", "E2", "E3"], 20)
    )


def test_each_source_environment_is_left_out_once() -> None:
    run = Run(split(example(), ["E2", "E3"], "E1", seed=1), 7)
    without = runs_leaving_one_out(run)
    assert list(without) == ["E2", "E3"]
    source = set(run.split.train.rows) | set(run.split.validation.rows)
    for name, left_out in without.items():
        part = left_out.split
        seen = set(part.train.rows) | set(part.validation.rows)
        assert {part.train.environments[i] for i in part.train.environment} == {"E2", "E3"} - {name}
        assert {part.target.environments[i] for i in part.target.environment} == {name}
        assert seen | set(part.target.rows) == source
        assert not seen & set(part.target.rows)
        assert (left_out.split_seed, left_out.seed) == (1, 7)


def test_a_source_of_one_environment_has_no_without() -> None:
    assert runs_leaving_one_out(Run(split(example(), "E2", "E1", seed=1), 1)) == {}


def test_one_source_environment_gives_no_guard() -> None:
    assert learnt(Run(split(example(), "E2", "E1", seed=1), 1)) is None


def test_a_device_of_one_environment_is_left_out_of_its_left_out() -> None:
    frames = example()
    alone = frames.select((frames.device == 0) | (frames.environment != 2))  # the second device is not in E3
    without = runs_leaving_one_out(Run(split(alone.select(alone.device == 0), ["E2", "E3"], "E1", seed=1), 1))
    assert list(without) == ["E2", "E3"]
    source = alone.where(environment=["E2", "E3"])
    run = Run(split(alone, ["E2", "E3"], "E1", seed=1), 1)
    held_out = runs_leaving_one_out(run)["E2"].split.target
    there = source.select(np.isin(source.rows, held_out.rows))
    assert set(there.device.tolist()) == {0}


def test_a_method_that_finds_too_few_environments_has_no_without() -> None:
    run = Run(split(example(), ["E2", "E3"], "E1", seed=1), 1)
    assert runs_leaving_one_out(run, least_environments=2) == {}
    assert learnt(run, "coral") is None


def test_captures_stand_in_for_environments_where_one_is_left() -> None:
    frames = example()
    there = frames.environment != 0
    frames = replace(frames, capture=np.arange(60) // 2 % 2, captures=("L1", "L2"))
    run = Run(split(frames, ["E2", "E3"], "E1", seed=1), 1)
    without = runs_leaving_one_out(run, least_environments=2)
    assert list(without) == ["E2", "E3"]
    part = without["E3"].split
    assert {part.train.environments[i] for i in part.train.environment} == {"E2.L1", "E2.L2"}
    assert {part.target.environments[i] for i in part.target.environment} == {"E3.L1", "E3.L2"}
    seen = [*part.train.rows, *part.validation.rows, *part.target.rows]
    assert sorted(seen) == frames.rows[there].tolist()
    assert learnt(run, "coral") is not None
    assert runs_leaving_one_out(run, least_environments=3) == {}


def test_far_and_near_are_rehearsed_and_the_target_is_not(monkeypatch) -> None:
    seen = []

    def spy(embedding, logits, label, capture, seed):
        seen.append(({key.split("/")[0] for key in capture}, len(label)))
        return rehearse(embedding, logits, label, capture, seed)

    monkeypatch.setattr("studies.rehearsals.rehearse", spy)
    run = Run(split(example(), ["E2", "E3"], "E1", seed=1), 1)
    assert len(learnt(run).thresholds) == 3
    assert seen == [({"E2"}, 20), ({"E3"}, 20), ({"E2", "E3"}, len(run.split.validation))]
