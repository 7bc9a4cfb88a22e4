"""A run remembers how its frames were split, and is not taken for one whose frames were split otherwise."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pisa_capc.core.errors import ConfigError, ModelError
from pisa_capc.data.frames import Frames
from pisa_capc.data.protocol import SplitRecipe, split
from pisa_capc.data.store.seal import sealed
from pisa_capc.evidence.evaluation import unseen_frames
from pisa_capc.model.inference import load_model
from pisa_capc.model.training import Run, TrainingConfig, fit
from tests.model.training.tools import FAST
from tests.problems import small_frames


@pytest.fixture(scope="module")
def frames() -> Frames:
    return small_frames()


def parts(frames: Frames, seed: int = 1, **rule: float) -> Run:
    return Run(split(frames, ["E2", "E3"], "E1", seed, **rule), seed=5)  # type: ignore[arg-type]


def test_a_split_carries_its_recipe_and_the_recipe_makes_it_again(frames: Frames) -> None:
    part = parts(frames, 7, validation=0.3, few_shot=4).split
    assert part.recipe == SplitRecipe(("E2", "E3"), ("E1",), 7, 0.3, 4)
    again = part.recipe.split(frames)
    for name in ("train", "validation", "target"):
        np.testing.assert_array_equal(getattr(again, name).rows, getattr(part, name).rows)


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"validation": 0.4}, r"split\.validation: 0\.2 there, 0\.4 here"),
        ({"few_shot": 2}, r"split\.few_shot: 16 there, 2 here"),
        ({"seed": 2}, r"split_seed: 1 there, 2 here"),
    ],
)
def test_a_model_of_another_split_is_not_this_run(frames: Frames, tmp_path: Path, other: dict, named: str) -> None:
    fit(parts(frames), **FAST, out=tmp_path)
    with pytest.raises(ModelError, match=named):
        fit(parts(frames, **other), **FAST, out=tmp_path)


def test_the_unseen_frames_are_those_of_the_runs_own_rule(frames: Frames, tmp_path: Path) -> None:
    run = parts(frames, few_shot=2)
    fit(run, **FAST, out=tmp_path)
    trained = load_model(tmp_path)
    assert trained.recipe == run.split.recipe
    np.testing.assert_array_equal(unseen_frames(trained, frames, ["E1"]).rows, run.split.target.rows)


def test_a_model_that_does_not_say_had_the_published_rule(frames: Frames, tmp_path: Path) -> None:
    run = parts(frames)
    fit(run, **FAST, out=tmp_path)
    about = json.loads((tmp_path / "model.json").read_text())
    del about["split"]
    (tmp_path / "model.json").write_text(json.dumps(sealed(about)))
    assert load_model(tmp_path).recipe == run.split.recipe
    fit(run, **FAST, out=tmp_path)  # it is this run


def test_settings_of_the_training_are_taken_by_name_and_as_a_mapping(frames: Frames) -> None:
    how = {"encoder": "cnn", "device": "cpu", "show": False}
    [by_name] = fit(parts(frames), epochs=1, batch=16, **how)
    [by_mapping] = fit(parts(frames), training={"epochs": 1, "batch": 16}, **how)
    [over] = fit(parts(frames), training=TrainingConfig(epochs=5, batch=16), epochs=1, **how)
    assert by_name.run.training == by_mapping.run.training == over.run.training
    with pytest.raises(ConfigError, match=r"training\.epoch: unknown setting 'epoch'\. Did you mean 'epochs'"):
        fit(parts(frames), epoch=1, **how)
    with pytest.raises(ConfigError, match=r"expected a TrainingConfig or a mapping, .* found int"):
        fit(parts(frames), training=3, **how)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"expected runs, .* found Split"):
        fit([parts(frames).split], epochs=1, **how)  # type: ignore[list-item]
