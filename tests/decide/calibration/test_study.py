"""The study of calibrations: what it draws, scores and says of another head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from studies import calibrations
from studies.calibrations import STRANGERS, Model, Name, head_change, heads, kept_scores, methods, scored, summary

from tests.decide.calibration.test_joint import CLASSES, SIZE, SOURCE, frames, logits

PATH = Path("wifi-8-6-pisa-equalised-cnn-E2+E3-2026.2027.npz")


def model(strangers: int = 0) -> Model:
    """Six devices in two captures of E1 and one of E2, and some whom nobody enrolled."""
    parts = [frames(np.full(CLASSES, 1 / CLASSES), shift, n=240, seed=s) for s, shift in enumerate((0.3, 0.2, 0.0))]
    z, label = (np.concatenate(part) for part in zip(*parts, strict=True))
    capture = np.repeat(["E1/0", "E1/1", "E2/0"], 240)
    label[:strangers] = CLASSES
    environment = np.array([name[:2] for name in capture])
    return Model(Name.of(PATH), z.astype(np.float32), label, environment, capture, np.arange(len(z)), SOURCE)


def test_a_name_says_what_a_model_is_also_where_a_method_has_two_words() -> None:
    name = Name.of(PATH)
    assert (name.method, name.encoder, name.environments, name.seed) == ("pisa-equalised", "cnn", ("E2", "E3"), 2027)
    assert name.kind == ("wifi", 2, True)


def test_logits_are_those_of_the_classifier() -> None:
    built = model()
    shifted = built.logits - logits(built.embedding)
    np.testing.assert_allclose(shifted - shifted.mean(axis=1, keepdims=True), 0, atol=1e-2)
    assert built.logits.shape == (720, CLASSES)
    assert built.embedding.shape[1] == SIZE


def test_strangers_are_calibrated_and_not_scored() -> None:
    chosen = {name: methods()[name] for name in ("direct", "lda")}
    built = model(strangers=100)
    drawn = dict(built.cells("E1"))
    assert list(drawn) == [deployment.name for deployment in STRANGERS]
    assert len(drawn["captures-512"].unknown) == 0
    assert len(drawn["unknown-0.3"].unknown) > len(drawn["unknown-0.1"].unknown) > 0
    found = scored(built, "E1", chosen)
    assert found["unknown-0.3"]["direct"]["f1"] == pytest.approx(found["captures-512"]["direct"]["f1"], abs=0.1)


def test_a_method_that_some_models_lack_says_how_many_have_it() -> None:
    one = {"f1": 0.5, "captures": [0.5]}
    names = [Name.of(PATH)._replace(run=run) for run in ("1.1", "1.2")]
    results = {names[0]: {"balanced": {"direct": one, "ucapc": one}}, names[1]: {"balanced": {"direct": one}}}
    [table] = summary(results)
    assert table["cells"]["balanced"]["ucapc"]["models"] == 1
    assert "models" not in table["cells"]["balanced"]["direct"]


def test_another_head_is_judged_on_source_validation_first(monkeypatch: pytest.MonkeyPatch) -> None:
    built = model()
    changed = head_change(built, ["E1"])
    assert abs(changed) < 0.05  # both heads know the same of these devices
    monkeypatch.setattr(calibrations.Model, "read", lambda path: built)
    monkeypatch.setattr(Name, "kind", ("wifi", 2, False))
    [found] = heads([PATH], [Name.of(PATH)], "E1")
    assert found["target"] == pytest.approx(changed, abs=1e-4)
    assert found["better"] in (0, 1)
    assert ("chosen" in found) == (found["better"] == 1)


def test_the_weakest_model_is_named_with_what_the_others_have_without_it() -> None:
    def cell(direct: float, careful: float) -> dict[str, Any]:
        scores = {"direct": direct, "careful": careful}
        return {"balanced": {name: {"f1": f1, "captures": [f1]} for name, f1 in scores.items()}}

    weak, strong = (Name.of(PATH)._replace(run=run) for run in ("1.1", "1.2"))
    [table] = summary({weak: cell(0.2, 0.1), strong: cell(0.9, 0.95)})
    assert table["weakest"]["model"] == str(weak)
    assert table["weakest"]["direct"] == 0.2
    assert table["weakest"]["worst_without"]["careful"] == [0.05, "cnn"]
    assert table["cells"]["balanced"]["careful"]["worst"] == [-0.025, "cnn"]


def test_what_was_scored_counts_without_its_embeddings(tmp_path: Path) -> None:
    (tmp_path / f"{PATH.stem}-E1.json").write_text('{"balanced": {}}', encoding="utf-8")
    (tmp_path / f"{PATH.stem}-E3.json").write_text('{"missing": {}}', encoding="utf-8")
    assert kept_scores("E1", tmp_path, "") == {Name.of(PATH): {"balanced": {}}}
    assert kept_scores("E1", tmp_path, "lora") == {}
