"""Rehearsals see the source and nothing else."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from pisa_capc import Frames
from pisa_capc.data.protocol import split
from pisa_capc.decide.calibration import Safe
from pisa_capc.decide.rehearsal import fit_with_guard
from pisa_capc.decide.rehearsal.guard import rehearse
from pisa_capc.decide.rehearsal.leave_one_out import runs_leaving_one_out
from pisa_capc.evidence.evaluation import infer
from pisa_capc.model.inference import load_model
from pisa_capc.model.training import Run, TrainingConfig, fit


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


def test_a_guard_is_learnt_stored_and_used(tmp_path: Path) -> None:
    frames = example()
    runs = [Run(split(frames, ["E2", "E3"], "E1", seed=1), seed) for seed in (1, 2)]
    options = {"encoder": "cnn", "training": TrainingConfig(epochs=1, batch=16), "device": "cpu", "show": False}
    plain = fit(runs, **options)
    assert plain[0].statistics.guard is None
    models = fit_with_guard(runs, out=tmp_path, **options)
    thresholds = models[0].statistics.guard
    assert thresholds.shape == (3,)
    assert np.array_equal(models[1].statistics.guard, thresholds)  # of the first run, for all
    assert sorted(p.parent.name for p in (tmp_path / "left-out").glob("*/model.json")) == ["E2", "E3"]
    assert np.array_equal(load_model(tmp_path / "split1-seed2").statistics.guard, thresholds)
    for name, value in plain[0].model.state_dict().items():
        assert torch.equal(models[0].model.state_dict()[name], value)  # training is not touched by it
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("model.json")}
    again = fit_with_guard(runs, out=tmp_path, **options)
    assert np.array_equal(again[0].statistics.guard, thresholds)
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("model.json")}
    [(_, found)] = infer(models[:1], [runs[0].split], {"safe": Safe()})
    assert found.stages["safe"].guard is not None


def test_a_guard_is_added_to_models_that_were_trained_without(tmp_path: Path) -> None:
    run = Run(split(example(), ["E2", "E3"], "E1", seed=1), 1)
    options = {"encoder": "cnn", "training": TrainingConfig(epochs=1, batch=16), "device": "cpu", "show": False}
    fit([run], out=tmp_path, **options)
    fit_with_guard([run], out=tmp_path, **options)
    assert load_model(tmp_path).statistics.guard is not None


def test_one_source_environment_gives_no_guard() -> None:
    run = Run(split(example(), "E2", "E1", seed=1), 1)
    [model] = fit_with_guard(
        [run], encoder="cnn", training=TrainingConfig(epochs=1, batch=16), device="cpu", show=False
    )
    assert model.statistics.guard is None


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
    short = TrainingConfig(epochs=1, batch=16)
    [model] = fit_with_guard([run], method="coral", encoder="cnn", training=short, device="cpu", show=False)
    assert not model.has_guard


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
    short = TrainingConfig(epochs=1, batch=16)
    [model] = fit_with_guard([run], method="coral", encoder="cnn", training=short, device="cpu", show=False)
    assert model.has_guard
    assert runs_leaving_one_out(run, least_environments=3) == {}


def test_a_guard_of_another_version_is_learnt_again(tmp_path: Path, monkeypatch) -> None:
    run = Run(split(example(), ["E2", "E3"], "E1", seed=1), 1)
    options = {"encoder": "cnn", "training": TrainingConfig(epochs=1, batch=16), "device": "cpu", "show": False}
    [model] = fit_with_guard([run], out=tmp_path, **options)
    assert model.has_guard
    monkeypatch.setattr("pisa_capc.core.revisions.GUARD", 99)
    assert not load_model(tmp_path).has_guard
    [again] = fit_with_guard([run], out=tmp_path, **options)
    assert again.has_guard
    assert (load_model(tmp_path).run.guard or {})["guard"] == 99


def test_far_and_near_are_rehearsed_and_the_target_is_not(monkeypatch) -> None:
    seen = []

    def spy(embedding, logits, label, capture, seed):
        seen.append(({key.split("/")[0] for key in capture}, len(label)))
        return rehearse(embedding, logits, label, capture, seed)

    monkeypatch.setattr("pisa_capc.decide.rehearsal.guard.rehearse", spy)
    run = Run(split(example(), ["E2", "E3"], "E1", seed=1), 1)
    fit_with_guard([run], encoder="cnn", training=TrainingConfig(epochs=1, batch=16), device="cpu", show=False)
    assert seen == [({"E2"}, 20), ({"E3"}, 20), ({"E2", "E3"}, len(run.split.validation))]
