"""Frames of unknown devices in a stream: set aside, and nothing is learnt from them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from pisa_capc.cli import app
from pisa_capc.cli import stream as _registers  # noqa: F401
from pisa_capc.decide.calibration import UCAPC, OnlineCalibrator, OpenSet
from pisa_capc.decide.calibration.openset import Rejection
from tests.decide.calibration.openset.test_session import APART, CLASSES, FEATURES, RADIOS, Radios

FRAMES = 400


@pytest.fixture(scope="module")
def heard() -> tuple[np.ndarray, np.ndarray]:
    """(N, D) frames of all devices in turn, and of one far off after every fourth; (N,) which are of the known ones."""
    radios = Radios()  # whose draws no other test has part in
    known = radios.sessions(np.arange(CLASSES), FRAMES // CLASSES + 1)
    known = known.reshape(CLASSES, -1, FEATURES).swapaxes(0, 1).reshape(-1, FEATURES)[:FRAMES]
    far = radios.sessions(np.zeros(1, dtype=int), FRAMES // 4, radios.classes[:1] + 2 * APART)
    mixed = np.insert(known, np.arange(4, FRAMES + 1, 4), far, axis=0)
    return mixed, np.arange(len(mixed)) % 5 != 4


def rejection() -> Rejection:
    return Rejection.fit("session", RADIOS.source, CLASSES, FEATURES, 0.05)


def test_strangers_change_nothing_of_what_is_learnt(heard: tuple[np.ndarray, np.ndarray]) -> None:
    z, known = heard
    with_them, without = (OnlineCalibrator(CLASSES, FEATURES) for _ in range(2))
    with_them.rejection = without.rejection = rejection()
    every = with_them.push(z, RADIOS.logits(z))
    own = without.push(z[known], RADIOS.logits(z[known]))
    assert every.known is not None
    assert every.unknown_score is not None
    assert own.unknown_score is not None
    assert not every.known[~known].any()
    assert every.known[known].mean() > 0.9
    np.testing.assert_allclose(every.unknown_score[known], own.unknown_score, rtol=1e-9)
    for name in ("probability", "prediction", "group"):
        np.testing.assert_array_equal(vars(every)[name][known], vars(own)[name])
    aside = ~every.known
    assert (every.prediction[aside] == -1).all()
    assert (every.group[aside] == -1).all()
    np.testing.assert_allclose(every.probability.sum(axis=1), 1)


def test_a_stream_of_strangers_alone_is_decided_too(heard: tuple[np.ndarray, np.ndarray]) -> None:
    z, known = heard
    stream = OnlineCalibrator(CLASSES, FEATURES)
    stream.rejection = rejection()
    assert (stream.push(z[~known], RADIOS.logits(z[~known])).prediction == -1).all()
    assert stream.finder.seen == 0


def test_the_command_sets_aside_what_the_calibration_of_captures_does(
    heard: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    z, _ = heard
    scores = {"embedding": z, "logits": RADIOS.logits(z)}
    source = {f"source_{name}": values for name, values in RADIOS.source.known().items()}
    np.savez(tmp_path / "scores.npz", **scores, **source, devices=[f"D{k}" for k in range(CLASSES)])
    said = ["calibrate", "stream", f"{tmp_path / 'scores.npz'}", "--reject", "auto", "--calibration", "ucapc"]
    done = CliRunner().invoke(app, [*said, "--out", str(tmp_path / "out.npz")])
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    expected = OpenSet(UCAPC(), "session").calibrate(*scores.values(), None, RADIOS.source)
    assert [line["prediction"] >= 0 for line in lines] == list(expected.known)
    np.testing.assert_allclose([line["unknown_score"] for line in lines], expected.unknown_score)
    assert f"{np.sum(~expected.known):,} set aside as unknown" in done.stderr
    with np.load(tmp_path / "out.npz") as out:
        assert (out["known"] == expected.known).all()
        assert (out["device"][~expected.known] == "unknown").all()


@pytest.mark.parametrize(
    ("reject", "message"), [("auto", "--reject needs what is known of the source"), ("sesion", "session")]
)
def test_what_cannot_be_asked_for_is_explained(reject: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text(json.dumps({"embedding": [0.0, 1.0], "logits": [1.0, 0.0]}) + "\n")
    done = CliRunner().invoke(app, ["calibrate", "stream", str(path), "--reject", reject])
    assert done.exit_code != 0
    assert message in str(done.exception)
