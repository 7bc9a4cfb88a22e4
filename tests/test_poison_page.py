"""The sections on the guard and on poisoned captures say what their records do, and their studies count rightly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pages import poison
from studies import guard as guard_study
from studies import poison as poison_study
from studies.calibrations import Name

CELLS = ("balanced", "one-device")


def scores(direct: float, safe: float, careful: float) -> dict[str, Any]:
    found = {"direct": direct, "safe": safe, "careful": careful, "ucapc": 0.0}
    return {name: {"f1": f1, "captures": [f1, f1 + 0.01]} for name, f1 in found.items()}


def test_the_guard_is_compared_on_the_same_captures() -> None:
    names = [Name.of(Path(f"wifi-10-10-pisa-{encoder}-E1+E2-1.1.npz")) for encoder in ("cnn", "tcn")]
    one = {"balanced": scores(0.5, 0.6, 0.6), "one-device": scores(0.5, 0.4, 0.5)}
    other = {"balanced": scores(0.5, 0.6, 0.7), "one-device": scores(0.5, 0.5, 0.5)}
    cost = {"training": 2.0, "guard": 3.0}
    found = guard_study.table([(names[0], one, cost), (names[1], other, cost)])
    assert (found["models"], found["direct"], found["seconds"]) == (2, 0.5, {"training": 4.0, "guard": 6.0})
    assert (found["safe"]["gain"], found["careful"]["gain"]) == (0.025, 0.075)
    assert found["safe"]["worst"] == [-0.1, "cnn", "one-device"]
    assert (found["safe"]["lost"], found["careful"]["lost"]) == (0.25, 0.0)


@pytest.mark.parametrize("name", list(poison_study.POISONS))
def test_each_poison_makes_as_many_frames_as_it_is_asked_for(name: str) -> None:
    rng = np.random.default_rng(0)
    z, label = rng.normal(size=(60, 4)), np.arange(60) % 3
    made = poison_study.POISONS[name](z, label, 7, rng)
    assert made.shape == (7, 4)
    if name == "one device":
        assert len({int(label[(z == row).all(axis=1)][0]) for row in made}) == 1
    if name == "far point":
        assert np.linalg.norm(made[0]) == pytest.approx(poison_study.FAR * np.linalg.norm(z, axis=1).mean())


def test_the_sections_say_what_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    means = dict.fromkeys(poison.SHOWN, 0.9)
    cells = {"clean": {**means, "suspect": 0.0}}
    for kind in ("one device", "walk", "far point", "noise"):
        for share in poison_study.SHARES:
            changed = {**means, "careful": 0.85, "suspect": 0.5} if kind == "walk" else {**means, "suspect": 1.0}
            cells[f"{kind}, {share:g}"] = changed
    record = {
        "tables": {"wifi": {"models": 2, "cells": cells, "false alarms": {"balanced": [1, 20], "missing": [2, 5]}}}
    }
    monkeypatch.setattr(poison, "read", lambda _: record)
    text = " ".join(poison.poison().split())
    assert "finds 100% of the captures with a far point or noise" in text
    assert "50%, 50%, 50%, 50%, 50% of those with a walk" in text
    assert "Of 25 clean captures of all kinds of deployment, unbalanced ones included, it takes 3 for poisoned" in text
    assert "careful -0.050" in text
    own = {"gain": 0.1, "worst": [0.0, "cnn", "balanced"], "lost": 0.25}
    table = {"models": 2, "direct": 0.5, "seconds": {"training": 10.0, "guard": 20.0}, "safe": own}
    table["careful"] = {**own, "gain": 0.2, "lost": 0.05}
    monkeypatch.setattr(poison, "read", lambda _: {"settings": {"epochs": 1}, "tables": {"wifi": table}})
    text = " ".join(poison.guard().split())
    assert (
        "Over all 4 models the guard gains +0.100 and careful +0.200. The guard loses more than 0.02 in 25.0%" in text
    )
    assert "Learning the guard took 40 s of training, the models themselves 20 s" in text
