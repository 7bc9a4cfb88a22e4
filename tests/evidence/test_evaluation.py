"""Scores of trained runs on the target."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pisa_capc.data.scores import mean_and_spread
from pisa_capc.evidence.evaluation import RunScores, evaluate, pooled, summary, unseen_frames
from pisa_capc.model.inference import TrainedModel, embed
from pisa_capc.model.training import TrainingConfig, fit
from tests.problems import runs, small_frames

FRAMES = small_frames(frames=24)
RUNS = runs(FRAMES, (1, 1), (2, 1), (1, 2))


@pytest.fixture(scope="module")
def trained() -> list[tuple[Path, TrainedModel]]:
    training = TrainingConfig(epochs=2, batch=32)
    models = fit(RUNS, method="single", encoder="cnn", training=training, device="cpu", show=False)
    return [(Path(model.name), model) for model in models]


@pytest.fixture(scope="module")
def results(trained: list[tuple[Path, TrainedModel]]) -> list[RunScores]:
    return evaluate(trained, FRAMES, ["E1"], show=False)


def test_each_run_is_scored_on_the_target_of_its_own_split(
    trained: list[tuple[Path, TrainedModel]], results: list[RunScores]
) -> None:
    assert [result.name for result in results] == ["split1-seed1", "split2-seed1", "split1-seed2"]
    for run, (_, model), result in zip(RUNS, trained, results, strict=True):
        expected = run.split.evaluator.score(embed(model, run.split.target).logits)
        assert result.stages["direct"].to_json() == expected.to_json()
    assert len(RUNS[0].split.target) == 54
    assert not np.array_equal(RUNS[0].split.target.rows, RUNS[1].split.target.rows)


def test_the_summary_is_mean_and_sample_deviation(results: list[RunScores]) -> None:
    values = [result.stages["direct"].accuracy for result in results]
    found = summary(results)["direct"]["accuracy"]
    assert found["mean"] == pytest.approx(np.mean(values))
    assert found["std"] == pytest.approx(np.std(values, ddof=1))
    assert mean_and_spread([0.5]) == (0.5, None)


def test_the_pooled_confusion_holds_all_runs(results: list[RunScores]) -> None:
    together = pooled(results, "direct")
    assert together.confusion.sum() == 3 * 54
    assert together.macro_f1 == pytest.approx(np.mean([r.stages["direct"].macro_f1 for r in results]))


def test_unseen_frames_leave_out_the_few_shot_frames_of_the_target_alone(
    trained: list[tuple[Path, TrainedModel]],
) -> None:
    model = trained[1][1]
    target = RUNS[1].split.target
    np.testing.assert_array_equal(unseen_frames(model, FRAMES, ["E1"]).rows, target.rows)
    assert len(unseen_frames(model, FRAMES, ["E3"])) == 72
    both = unseen_frames(model, FRAMES, ["E1", "E3"])
    assert len(both) == 54 + 72
    assert not hasattr(both, "device")
