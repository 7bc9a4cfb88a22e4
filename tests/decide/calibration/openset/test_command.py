"""`pisa calibrate --reject` writes which frames are known; without it nothing changes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from pisa_capc.cli import app
from pisa_capc.cli import calibrate as _registers  # noqa: F401
from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.decide.calibration import UCAPC, OpenSet
from tests.decide.calibration.openset.examples import World

WORLD = World()
SOURCE = WORLD.source()
FRAMES = WORLD.known(120)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["calibrate", *map(str, arguments)])


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    known = {f"source_{name}": value for name, value in vars(SOURCE).items() if value is not None}
    frames = {"embedding": FRAMES.embedding, "logits": FRAMES.logits, "cfo_hz": FRAMES.carrier_hz}
    np.savez(tmp_path / "scores.npz", **frames, **known)
    return tmp_path / "scores.npz"


@pytest.mark.parametrize("name", ["energy", "knn", "mahalanobis", "session", "carrier"])
def test_the_output_says_which_frames_are_known(name: str, scores: Path):
    out = scores.with_name("out.npz")
    ran = run(scores, "--out", out, "--reject", name, "--alpha", "0.2", "--calibration", "ucapc", "--json")
    assert ran.exit_code == 0, ran.output
    seen = FRAMES.embedding, FRAMES.logits
    expected = OpenSet(UCAPC(), name, 0.2).calibrate(*seen, source=SOURCE, carrier_hz=FRAMES.carrier_hz)
    with np.load(out, allow_pickle=False) as written:
        np.testing.assert_array_equal(written["known"], expected.known)
        np.testing.assert_array_equal(written["unknown_score"], expected.unknown_score)
        np.testing.assert_array_equal(written["prediction"], expected.prediction)
    assert json.loads(ran.output)["rejected"] == (~expected.known).sum() > 0


def test_without_rejection_nothing_changes(scores: Path):
    for number, options in enumerate(([], ["--reject", "none"])):
        out = scores.with_name(f"{number}.npz")
        ran = run(scores, "--out", out, *options, "--json")
        assert ran.exit_code == 0, ran.output
        assert set(np.load(out).files) == {"probability", "score", "prediction"}
        assert "rejected" not in json.loads(ran.stdout)


def test_a_capture_that_is_rejected_whole_is_not_judged(scores: Path):
    embedding = np.concatenate([FRAMES.embedding, 1e3 * FRAMES.embedding])
    logits, capture = np.tile(FRAMES.logits, (2, 1)), np.repeat(["near", "far"], len(FRAMES.logits))
    with np.load(scores) as stored:
        given = {**stored, "embedding": embedding, "logits": logits, "capture": capture}
    given |= {"source_class_mean": SOURCE.weight, "source_weight": SOURCE.weight}
    np.savez(scores, **given)
    ran = run(scores, "--out", scores.with_name("out.npz"), "--reject", "mahalanobis", "--calibration", "careful")
    [row] = [line.split() for line in ran.stdout.splitlines() if "far" in line]
    assert row[-4:-1] == ["off", "│", "–"]
    assert "nan" not in ran.stdout


def test_the_table_counts_rejected_frames(scores: Path):
    assert "rejected as" in " ".join(
        run(scores, "--out", scores.with_name("out.npz"), "--reject", "knn").output.split()
    )


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (["--reject", "knnn"], ConfigError, "Did you mean 'knn'"),
        (["--reject", "knn", "--alpha", "1.5"], ConfigError, "alpha is 1.5"),
        (["--reject", "knn", "--alpha", "0.001"], DataError, "needs at least 999"),
    ],
)
def test_what_cannot_be_is_refused(options: list[str], error: type[Exception], message: str, scores: Path):
    out = scores.with_name("out.npz")
    ran = run(scores, "--out", out, *options)
    assert isinstance(ran.exception, error)
    assert message in str(ran.exception)
    assert not out.exists()


def test_scores_of_an_older_model_are_refused_with_a_reason(scores: Path):
    older = scores.with_name("older.npz")
    np.savez(older, embedding=FRAMES.embedding, logits=FRAMES.logits, source_weight=SOURCE.weight)
    ran = run(older, "--out", scores.with_name("out.npz"), "--reject", "knn")
    assert "knn needs source_bank" in str(ran.exception)
    assert "Train the model again" in str(ran.exception)
    assert "or add the array to the .npz, as pisa calibrate --help describes it" in str(ran.exception)
