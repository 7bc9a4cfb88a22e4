"""The cells of the calibration study are what they say, and its aims are counted right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from studies import calibration_study as study

from tests.calibration.examples import shifted_captures

EXAMPLE = shifted_captures(sizes=(1200, 1200), classes=10, features=16)


@pytest.fixture
def known() -> study.Arrays:
    label = EXAMPLE.label
    return {
        "embedding": EXAMPLE.embedding,
        "logits": EXAMPLE.logits,
        "capture": np.array(["E1/L1", "E1/M"])[EXAMPLE.capture],
        "frame": np.arange(len(label)),
        "label": label,
        "source_guard": np.array([0.1, 0.3, 0.9]),
        "source_class_mean": EXAMPLE.weight,
        "source_mean": EXAMPLE.weight.mean(0),
        "source_weight": EXAMPLE.weight,
        "source_bias": np.zeros(10),
        "source_prior": np.full(10, 0.1),
        "source_confusion": np.eye(10) * 50 + 1,
        "source_temperature": np.array(1.0),
    }


@pytest.fixture
def unknown(known: study.Arrays) -> study.Arrays:
    return {name: known[name][::2] for name in ("embedding", "logits", "capture")}


@pytest.mark.parametrize("cell", [cell for cell in study.EVERY if cell != "frozen"])
def test_a_cell_is_what_it_says(cell: str, known: study.Arrays, unknown: study.Arrays) -> None:
    rows, group, strange = study._draw(cell, known, unknown, np.random.default_rng(0))
    assert len(group) == len(rows) + len(strange)
    sizes = np.unique(group, return_counts=True)[1]
    own = [np.bincount(known["label"][rows][group[: len(rows)] == g], minlength=10) for g in np.unique(group)]
    if cell.startswith("unknown"):
        assert len(strange) / len(group) == pytest.approx(int(cell[-2:]) / 100, abs=0.01)
    else:
        assert not len(strange)
    if cell.startswith("captures"):
        size = int(cell.removeprefix("captures-"))
        assert len(sizes) == 2 * study.REPEATS[size]
        assert set(sizes) == {-(-size // 10) * 10}
        assert all(np.ptp(count) == 0 for count in own)
    if cell == "missing":
        assert [np.flatnonzero(count == 0).tolist() for count in own] == [np.flatnonzero(own[0] == 0).tolist()] * 2
        assert (own[0] == 0).sum() == 3
    if cell in study.UNREHEARSED:
        assert [(count > 0).sum() for count in own] == [study.UNREHEARSED[cell]] * 2
    if cell == "withheld":
        assert sorted(rows) == list(range(len(known["label"])))
        assert (np.diff((group == "E1/M").astype(int)) >= 0).all()  # one capture after the other


def test_every_calibration_is_scored_in_every_cell(known: study.Arrays, unknown: study.Arrays) -> None:
    for cell in ("captures-32", "unknown-10", "frozen"):
        scores = study.score_cell(cell, known, unknown, np.random.default_rng(0))
        named = ("direct", "paper", "safe") if cell == "frozen" else (*study.OWN, *study.PEERS)
        assert set(named) <= set(scores)
        assert all(0 <= value <= 1 for value in scores.values())


def test_aims_are_differences_of_means(tmp_path: Path) -> None:
    cell = dict.fromkeys((*study.OWN, *study.PEERS), 0.5) | {"paper": 0.6, "safe": 0.58}
    frozen = {"direct": 0.5, "paper": 0.59, "safe": 0.57, "paper, not frozen": 0.6, "safe, not frozen": 0.58}
    models = {
        name: {c: dict(frozen if c == "frozen" else cell) for c in study.EVERY} for name in ("cnn/a", "cnn/b", "tcn/a")
    }
    for name, change in (("cnn/a", -0.02), ("cnn/b", 0.01)):
        models[name]["missing"]["safe"] = 0.5 + change
        models[name]["missing"]["paper"] = 0.1
    found = study.aims(models)
    assert found["worst safe - direct"] == [-0.005, "cnn", "missing"]
    assert found["worst paper - direct"] == [-0.4, "cnn", "missing"]
    assert found["balanced gain kept by safe"] == 0.8
    assert found["worst - direct, not rehearsed"] == {
        "safe": [0.08, "cnn", "one-device"],
        "paper": [0.1, "cnn", "one-device"],
    }
    assert found["gain kept frozen"] == {"paper": 0.9, "safe": 0.875}
    study.draw(models, "made up", tmp_path / "study.svg")
    assert "safe preset" in (tmp_path / "study.svg").read_text()
