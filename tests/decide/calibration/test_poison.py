"""Captures with frames of no device are found, reported, and left as the classifier decides them."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from studies.poison import POISONS
from typer.testing import CliRunner

from pisa_capc.cli.calibrate import app
from pisa_capc.decide.calibration import UCAPC, Careful, Online, OnlineCalibrator, SourceStatistics
from pisa_capc.decide.calibration.careful import used, warn_where_uneven
from pisa_capc.decide.calibration.openset.scores import score_frames
from pisa_capc.decide.calibration.openset.session import SessionDistance
from pisa_capc.decide.calibration.poison import FAR, FEW, MARGIN, MEASURED, SHARE, watch
from tests.decide.calibration.openset.examples import World

WORLD = World(classes=5, features=8)
SOURCE = WORLD.source(train=4000, validation=1000)
CLEAN = WORLD.known(400)
LIKE = torch.empty((0, 8), dtype=torch.float64)


def logits(z: np.ndarray) -> np.ndarray:
    return np.asarray(z @ WORLD.weight.T / 4 + WORLD.bias)


def poisoned(name: str, share: float) -> tuple[np.ndarray, np.ndarray]:
    """The clean capture, a share of its frames replaced, and which these are."""
    rng = np.random.default_rng(1)
    bad = rng.permutation(400) < share * 400
    z = CLEAN.embedding.copy()
    z[bad] = POISONS[name](CLEAN.embedding, CLEAN.label, int(bad.sum()), rng)
    return z, bad


def suspect(z: np.ndarray, source: SourceStatistics = SOURCE) -> bool:
    found = watch(source, LIKE, 5)
    assert found is not None
    return found(torch.from_numpy(z), torch.from_numpy(logits(z)))


def test_clean_captures_are_not_suspect_whoever_sends() -> None:
    draws = [WORLD.known(count).embedding for count in [32] * 200 + [400] * 20]
    one = [CLEAN.embedding[CLEAN.label == k] for k in range(5)]
    assert np.mean([suspect(z) for z in draws]) <= 0.01
    assert not any(map(suspect, one))
    assert not suspect(poisoned("one device", 0.9)[0])  # which is a device that sends often


@pytest.mark.parametrize(("name", "share"), [("far point", 2 * FEW), ("far point", 0.9), ("walk", 0.9)])
def test_frames_of_no_device_make_a_capture_suspect(name: str, share: float) -> None:
    z, _ = poisoned(name, share)
    assert suspect(z)
    found = Careful().calibrate(z, logits(z), source=SOURCE)
    assert [one.level for one in found.judged or ()] == ["suspect"]
    np.testing.assert_array_equal(found.prediction, logits(z).argmax(axis=1))
    unwatched = Careful(watch=False).calibrate(z, logits(z), source=SOURCE)
    assert [one.level for one in unwatched.judged or ()] != ["suspect"]


def test_the_share_that_is_borne_falls_with_the_frames() -> None:
    known, z = used(SOURCE), torch.from_numpy(np.concatenate((CLEAN.embedding, WORLD.unknown(2000).embedding)))
    times = score_frames(SessionDistance().fit(known, 5, LIKE), z, z).numpy() / float(known.unlike_limit)  # type: ignore[arg-type]
    near, far = (z.numpy()[where] for where in (times < 1, (times > 1) & (times < FAR)))
    for n in (40, 300):
        borne = int(n * (SHARE + MARGIN / np.sqrt(n)))
        for more in (0, 1):
            assert suspect(np.concatenate((far[: borne + more], near[: n - borne - more]))) == bool(more)


def test_other_captures_are_calibrated_and_a_fit_keeps_nothing_of_one_that_is_suspect() -> None:
    bad, _ = poisoned("far point", 0.5)
    z, capture = np.concatenate((CLEAN.embedding, bad)), np.repeat(["clean", "bad"], 400)
    result = Careful().calibrate(z, logits(z), capture, SOURCE)
    alone = Careful().calibrate(CLEAN.embedding, CLEAN.logits, source=SOURCE)
    np.testing.assert_array_equal(np.asarray(result.probability)[:400], alone.probability)
    with pytest.warns(UserWarning, match=r"^bad: looks poisoned; .* It is left uncalibrated\."):
        kept = Careful().fit(z, logits(z), capture, SOURCE)
    np.testing.assert_array_equal(kept.predict(bad, logits(bad), np.repeat("bad", 400)), logits(bad).argmax(axis=1))


def test_other_calibrations_are_made_all_the_same_and_a_warning_says_so() -> None:
    z, _ = poisoned("far point", 0.5)
    result = UCAPC(prior="none").calibrate(z, logits(z))
    with pytest.warns(UserWarning, match=r"looks poisoned; .* It was calibrated all the same"):
        warn_where_uneven(UCAPC(prior="none"), result, SOURCE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_where_uneven(UCAPC(prior="none"), result, SourceStatistics())  # nothing is known: nothing is said


def test_a_stream_learns_nothing_from_a_group_that_looks_poisoned_and_its_state_knows_the_limit(tmp_path: Path) -> None:
    z, _ = poisoned("far point", 0.5)
    known = used(SOURCE)
    assert known.validation is None
    assert known.unlike_limit is not None
    assert suspect(z, known) == suspect(z)
    stream = OnlineCalibrator(5, 8, settings=Online(Careful(), warmup=64, refresh=64), source=known)
    with pytest.warns(UserWarning, match="a group of this stream looks poisoned"):
        first = stream.push(z, logits(z))
    np.testing.assert_array_equal(first.prediction, logits(z).argmax(axis=1))
    stream.save(tmp_path)
    assert suspect(z, OnlineCalibrator.load(tmp_path).source)  # type: ignore[arg-type]


@pytest.mark.parametrize("lacking", ["session_mean", "validation_session"])
def test_a_source_that_lacks_something_is_watched_by_nothing(lacking: str) -> None:
    z, _ = poisoned("far point", 0.5)
    source = replace(SOURCE, **{lacking: None})
    assert watch(source, LIKE, 5) is None
    assert [one.level for one in Careful().calibrate(z, logits(z), source=source).judged or ()] != ["suspect"]


def test_a_source_of_few_validation_frames_has_no_limit_and_is_watched_by_nothing() -> None:
    few = {name: getattr(SOURCE, name)[:18] for name in MEASURED}
    assert watch(replace(SOURCE, **few), LIKE, 5) is None
    assert watch(replace(SOURCE, **{name: getattr(SOURCE, name)[::2] for name in MEASURED}), LIKE, 5) is not None


def test_the_command_reports_it(tmp_path: Path) -> None:
    z, _ = poisoned("far point", 0.5)
    stored = {f"source_{name}": values for name, values in SOURCE.known().items()}
    np.savez(tmp_path / "scores.npz", embedding=z, logits=logits(z), **stored)
    given = ["calibrate", str(tmp_path / "scores.npz"), "--out", str(tmp_path / "out.npz"), "--json"]
    told = CliRunner().invoke(app, given)
    assert json.loads(told.stdout)["captures"][0]["level"] == "suspect"
    assert "note: all: looks poisoned" in told.stderr
