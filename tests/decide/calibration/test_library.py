"""Calibrations from the side of a person who has a classifier: columns of tables, estimators, short words."""

from __future__ import annotations

import subprocess
import sys
import warnings
from datetime import date, datetime
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone, is_classifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pisa_capc import UCAPC, CalibratedClassifier, Careful, OpenSet, SourceStatistics
from pisa_capc.core.brief import brief
from pisa_capc.core.errors import ConfigError, DataError, MissingExtraError
from pisa_capc.decide.calibration.inputs import check_inputs
from pisa_capc.decide.calibration.peers import Direct
from tests.cli.test_model_commands import Command, pisa, refused  # noqa: F401  (a fixture)

CLASSES, FEATURES = 4, 8


def world(frames: int = 200, moved: float = 0.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Embeddings (N, D) and classes (N,); `moved`: how far a capture moves all of its frames."""
    rng = np.random.default_rng(seed)
    centres = 3 * np.random.default_rng(99).normal(size=(CLASSES, FEATURES))
    label = np.arange(frames) % CLASSES
    return centres[label] + rng.normal(size=(frames, FEATURES)) + moved * rng.normal(size=FEATURES), label


def scores(frames: int = 200) -> tuple[np.ndarray, np.ndarray]:
    embedding, label = world(frames)
    return embedding, LogisticRegression(max_iter=500).fit(embedding, label).decision_function(embedding)


def test_exchanged_arrays_are_noticed_and_others_are_not() -> None:
    embedding, logits = scores()
    with pytest.warns(UserWarning, match=r"embedding \(4 columns\) and logits \(8 columns\) look exchanged"):
        check_inputs(logits, embedding)
    narrow = np.random.default_rng(0).normal(size=(200, 3))
    many = narrow @ np.random.default_rng(1).normal(size=(3, 9)) + 1  # nine classes told from three features
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_inputs(embedding, logits)
        check_inputs(narrow, many)
        check_inputs(narrow, np.random.default_rng(2).normal(size=(200, 9)))
        check_inputs(logits[:10], embedding[:10])  # too few to say


def test_captures_may_be_columns_of_a_table() -> None:
    embedding, logits = scores(8)
    names = ["roof", "yard"] * 4
    days = [date(2026, 3, 1), date(2026, 3, 2)] * 4
    expected = UCAPC().calibrate(embedding, logits, names).probability
    for capture in (
        np.array(names, dtype=object),
        np.array(names, dtype="T"),
        np.array(days, dtype=object),
        np.array(days, dtype="datetime64[D]"),
        np.array([datetime(2026, 3, d.day, 12) for d in days], dtype=object),
        np.array([1, 2] * 4, dtype=object),
    ):
        np.testing.assert_array_equal(UCAPC().calibrate(embedding, logits, capture).probability, expected)
    for missing in (
        np.array([*names[:7], None], dtype=object),
        np.array([*names[:7], np.nan], dtype=object),
        np.array([*days[:7], "NaT"], dtype="datetime64[D]"),
    ):
        with pytest.raises(DataError, match="capture is missing in 1 frames"):
            UCAPC().calibrate(embedding, logits, missing)


def test_columns_of_pandas_are_captures() -> None:
    pandas = pytest.importorskip("pandas", reason="an extra that is not installed")
    embedding, logits = scores(8)
    names = pandas.Series(["roof", "yard"] * 4, index=range(100, 108))
    expected = UCAPC().calibrate(embedding, logits, names.tolist()).probability
    for capture in (
        names,
        names.astype("category"),
        names.astype("string"),
        pandas.Series(pandas.to_datetime(["2026-03-01", "2026-03-02"] * 4)),
        pandas.Series([1, 2] * 4, dtype="Int64"),
    ):
        result = UCAPC().calibrate(pandas.DataFrame(embedding), pandas.DataFrame(logits), capture)
        np.testing.assert_array_equal(result.probability, expected)
    with pytest.raises(DataError, match="capture is missing in 1 frames"):
        UCAPC().calibrate(embedding, logits, names.where(names.index != 100))
    with pytest.raises(DataError, match="capture is missing in 1 frames"):
        UCAPC().calibrate(embedding, logits, names.astype("string").where(names.index != 100))


def test_decisions_alone() -> None:
    embedding, logits = scores()
    result = UCAPC().calibrate(embedding, logits, ["a"] * 200)
    np.testing.assert_array_equal(UCAPC().fit_predict(embedding, logits, ["a"] * 200), result.prediction)
    assert isinstance(UCAPC().fit_predict(torch.tensor(embedding), torch.tensor(logits)), torch.Tensor)


@pytest.mark.parametrize("installed", [True, False])
def test_a_result_is_a_table(installed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With pandas where it is there, and with a stand-in that keeps the columns."""
    embedding, logits = scores()
    source = SourceStatistics.from_source(embedding, logits, world()[1])
    capture = np.repeat(["b", "a"], 100)
    result = OpenSet(Careful(), "mahalanobis", alpha=0.2).calibrate(embedding, logits, capture, source)
    if installed:
        pytest.importorskip("pandas", reason="an extra that is not installed")
    else:
        fake = ModuleType("pandas")
        fake.DataFrame = lambda columns: {k: np.asarray(v) for k, v in columns.items()}  # type: ignore[attr-defined]
        fake.__spec__ = SimpleNamespace()  # type: ignore[assignment]
        monkeypatch.setitem(sys.modules, "pandas", fake)
    table: Any = result.to_frame(classes=["D1", "D2", "D3", "D4"])
    assert list(table) == [
        *("capture", "prediction", "probability_D1", "probability_D2", "probability_D3", "probability_D4"),
        *("known", "unknown_score", "p_value"),
    ]
    np.testing.assert_array_equal(table["capture"], capture)
    np.testing.assert_array_equal(table["probability_D2"], np.asarray(result.probability)[:, 1])
    expected = [f"D{k + 1}" if k >= 0 else None for k in np.asarray(result.prediction).tolist()]
    assert [name if isinstance(name, str) else None for name in table["prediction"]] == expected
    with pytest.raises(DataError, match="3 names; expected 4"):
        result.to_frame(classes=["D1", "D2", "D3"])


def test_a_table_needs_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pisa_capc.decide.calibration.result.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'pisa-capc\[pandas\]'"):
        UCAPC().calibrate(*scores()).to_frame()


def test_an_estimator_is_one_of_scikit_learn() -> None:
    model = CalibratedClassifier(calibration=UCAPC(prior="none"))
    assert is_classifier(model)
    assert clone(model).get_params()["calibration__prior"] == "none"
    model.set_params(calibration__prior="balanced", calibration__top=8)
    assert (model.calibration.prior, model.calibration.top) == ("balanced", 8)  # type: ignore[union-attr]
    with pytest.raises(ConfigError, match="no calibration is named"):
        CalibratedClassifier().set_params(calibration__top=8)
    with pytest.raises(ValueError, match="not fitted"):
        model.predict(world()[0])


def test_it_is_calibrated_as_by_hand() -> None:
    (z, y), (later, _) = world(), world(moved=1.0, seed=1)
    names = np.array(["D1", "D2", "D3", "D4"])[y]
    model = CalibratedClassifier(calibration=UCAPC()).fit(z, names)
    logits = LogisticRegression(max_iter=1000).fit(z, names).decision_function(later)
    capture = np.repeat(["a", "b"], 100)
    expected = UCAPC().calibrate(later, logits, capture)
    np.testing.assert_array_equal(model.predict_proba(later, capture), expected.probability)
    np.testing.assert_array_equal(model.predict(later, capture), model.classes_[np.asarray(expected.prediction)])


@pytest.mark.parametrize("classifier", [None, LogisticRegression(), KNeighborsClassifier()])
def test_a_pipeline_and_a_grid_take_it(classifier: Any) -> None:
    z, y = world(160, moved=0.5)
    pipeline = make_pipeline(StandardScaler(), CalibratedClassifier(classifier, UCAPC()))
    assert cross_val_score(pipeline, z, y, cv=3, scoring="f1_macro").min() > 0.9
    name = "calibratedclassifier__calibration"
    search = GridSearchCV(pipeline, {f"{name}__prior": ["balanced", "none"], name: [UCAPC(), UCAPC(top=4)]}, cv=2)
    search.fit(z, y)
    assert len(search.cv_results_["params"]) == 4
    assert search.best_score_ > 0.9


def test_two_classes_and_a_frozen_classifier() -> None:
    frozen = pytest.importorskip("sklearn.frozen", reason="of scikit-learn 1.6")
    z, y = world()
    two = y < 2
    model = CalibratedClassifier(frozen.FrozenEstimator(LogisticRegression().fit(z[two], y[two])), Direct())
    model.fit(z[two], y[two])
    proba = LogisticRegression().fit(z[two], y[two]).predict_proba(z[two])
    np.testing.assert_allclose(model.predict_proba(z[two]), proba, atol=1e-9)
    assert f1_score(y[two], model.predict(z[two]), average="macro") > 0.95


def test_what_holds_arrays_is_shown_in_a_line() -> None:
    embedding, logits = scores()
    source = SourceStatistics.from_source(embedding, logits, world()[1])
    result = UCAPC().calibrate(embedding, logits)
    for one in (source, result, result.captures[0], result.inputs, result.inputs.groups):
        assert "\n" not in repr(one)
        assert len(repr(one)) < 1200
    assert "class_mean=(4, 8) float32" in repr(source)
    assert "embedding=(200, 8) float64" in repr(result.inputs)
    assert SourceStatistics.__repr__ is brief


@pytest.mark.slow
def test_a_calibration_comes_without_networks_and_signals() -> None:
    code = "import sys; from pisa_capc import UCAPC, Careful; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    for part in ("pisa_capc.signal", "pisa_capc.model.networks", "pisa_capc.model.methods", "scipy.stats"):
        assert part not in loaded


def in_folder(folder: Path, **arrays: Any) -> Path:
    folder.mkdir()
    for name, values in arrays.items():
        np.save(folder / f"{name}.npy", values)
    return folder


def test_a_folder_of_arrays_and_labelled_source_frames_are_calibrated(
    pisa: Command,  # noqa: F811
    tmp_path: Path,
) -> None:
    (z, y), logits = world(400), scores(400)[1]
    later, capture = world(200, moved=1.0, seed=3)[0], np.repeat(["a", "b"], 100)
    later_logits = LogisticRegression(max_iter=500).fit(z, y).decision_function(later)
    new = in_folder(tmp_path / "new", embedding=later, logits=later_logits, capture=capture)
    old = in_folder(tmp_path / "old", embedding=z, logits=logits, labels=y)
    done = pisa("calibrate", new, "--labels", old, "--out", tmp_path / "out.npz", "--reject", "mahalanobis")
    assert done.code == 0, done.err
    assert "calibration: careful" in done.err
    source = SourceStatistics.from_source(z, logits, y)
    expected = OpenSet(Careful(), "mahalanobis").calibrate(later, later_logits, capture, source)
    with np.load(tmp_path / "out.npz") as found:
        np.testing.assert_array_equal(found["prediction"], expected.prediction)
    quiet = pisa("calibrate", new, "--out", tmp_path / "two.npz", "--quiet")
    assert (quiet.code, quiet.err) == (0, "")
    np.save(old / "labels.npy", np.array(["D1", "D2", "D3", "D4"])[y])
    refused(pisa("calibrate", new, "--labels", old, "--out", tmp_path / "3.npz", "--quiet"), "no devices (C,)")
    np.save(old / "devices.npy", np.array(["D1", "D2", "D3", "D4"]))
    named = pisa("calibrate", new, "--labels", old, "--out", tmp_path / "3.npz", "--reject", "mahalanobis")
    assert named.code == 0, named.err
    with np.load(tmp_path / "3.npz") as found:
        np.testing.assert_array_equal(found["prediction"], expected.prediction)
    (old / "labels.npy").unlink()
    refused(pisa("calibrate", new, "--labels", old, "--out", tmp_path / "4.npz"), "has no labels")
    np.save(old / "labels.npy", np.array([{}] * 400, dtype=object), allow_pickle=True)
    refused(pisa("calibrate", new, "--labels", old, "--out", tmp_path / "4.npz"), "labels.npy: cannot be read")
    refused(pisa("calibrate", tmp_path, "--out", tmp_path / "4.npz"), "found nothing")
    assert not (tmp_path / "4.npz").exists()
