"""The card of a model says what is in the run, and what hubs read of it can be read."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from pisa_capc.data.scores import Scores
from pisa_capc.evidence.evaluation import evaluate
from pisa_capc.evidence.reports.card import CardScore, f1_by_class, model_card, scores_of
from pisa_capc.model.inference import TrainedModel, load_model
from tests.problems import small_frames


def front_of(card: str) -> dict[str, object]:
    _, front, _ = card.split("---\n", 2)
    return yaml.safe_load(front)  # type: ignore[no-any-return]


def test_f1_is_that_of_scikit_learn() -> None:
    from sklearn.metrics import f1_score

    rng = np.random.default_rng(0)
    true, decided = rng.integers(0, 4, (2, 300))
    counts = np.zeros((4, 4))
    np.add.at(counts, (true, decided), 1)
    np.testing.assert_allclose(f1_by_class(counts), f1_score(true, decided, average=None))


def test_an_interval_is_over_the_devices() -> None:
    found = CardScore.of("here", {"a": 0.8, "b": 0.9, "c": 1.0})
    assert (found.macro_f1, found.margin) == (pytest.approx(0.9), pytest.approx(1.96 * 0.1 / 3**0.5))
    assert str(found) == "0.900 (0.787–1.000)"  # no score is above one


def test_the_card_has_the_scores_of_the_run(trained: TrainedModel) -> None:
    [target] = evaluate([(Path("run"), trained)], small_frames(frames=80), ["E1"], "cpu", show=False)
    card = model_card(trained, target, "cc-by-4.0", ("model.json",))
    front = front_of(card)
    assert (front["license"], front["library_name"]) == ("cc-by-4.0", "pisa-capc")
    [index] = front["model-index"]  # type: ignore[misc]
    metrics = index["results"][0]["metrics"]
    assert metrics[0]["value"] == pytest.approx(trained.run.metrics.validation_f1, abs=1e-4)
    direct: Scores = target.stages["direct"]
    assert metrics[1]["value"] == pytest.approx(direct.macro_f1, abs=1e-4)
    rows = re.findall(r"^\| (.*) \| (0\.\d{3}|1\.000) \((.*)–(.*)\) \|$", card, re.M)
    assert len(rows) == len(metrics) == len(scores_of(trained, target))
    assert all(float(low) <= float(value) <= float(high) for _, value, low, high in rows)
    for word in ("D1, D2, D3", "E2, E3", "Intended use", "Limits", "2 antennas", "`model.json`"):
        assert word in card


def test_names_are_shown_and_not_obeyed(trained: TrainedModel) -> None:
    names = ("[a](http://x)", "b: |c|", "---")
    run = replace(trained.run, devices=names, source=("E2\n---", "E3"))
    card = model_card(replace(trained, run=run))
    assert "[a](" not in card
    front_of(card)
    assert card.count("\n---\n") == 1
    assert "not scored where it was not trained" in card


def test_a_folder_with_a_card_is_a_model(trained: TrainedModel, tmp_path: Path) -> None:
    trained.save(tmp_path)
    (tmp_path / "README.md").write_text(model_card(trained))
    assert load_model(tmp_path).devices == trained.devices
