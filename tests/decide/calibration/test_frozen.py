"""A frozen calibration gives the frames of its fit the result of the fit, and other frames one result each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner, Result

from pisa_capc import UCAPC
from pisa_capc.cli import app
from pisa_capc.cli import calibrate as _registers  # noqa: F401
from pisa_capc.core.errors import ConfigError, DataError, ModelError
from pisa_capc.data.store.seal import sealed
from pisa_capc.decide.calibration import FrozenCalibration, PriorUCAPC
from tests.decide.calibration.examples import shifted_captures

# What the published calibration says of the examples.
pytestmark = pytest.mark.filterwarnings("ignore:devices seem to send unevenly")

NAMES = np.array(["E1/L1", "E1/L2", "E1/M1"])
SETTINGS = [
    UCAPC(),
    UCAPC(prior="none"),
    UCAPC(group="none"),
    UCAPC(passes=0),
    UCAPC(epsilon=0.5, fusion=1.0, top=7, balance=0.5),
    UCAPC(epsilon=2.0, prior="none", threshold=0.5),
    PriorUCAPC(fusion=0.5, temperature=1.0, epsilon=2.0),
    PriorUCAPC(prior="none"),
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_frames_of_the_fit_get_the_result_of_the_fit(settings: UCAPC):
    example = shifted_captures()
    expected = settings.calibrate(example.embedding, example.logits, example.capture)
    frozen = FrozenCalibration.fit(example.embedding, example.logits, example.capture, settings)
    result = frozen.apply(example.embedding, example.logits, example.capture)
    np.testing.assert_allclose(result.probability, expected.probability, rtol=0, atol=1e-10)
    np.testing.assert_allclose(result.score, expected.score, rtol=0, atol=1e-10)
    np.testing.assert_array_equal(result.prediction, expected.prediction)
    assert result.pooled == ()
    assert [c.changed for c in result.captures] == [c.changed for c in expected.captures]


def test_what_an_earlier_version_fitted_under_its_guard_is_still_read(tmp_path: Path):
    example = shifted_captures()
    frozen = FrozenCalibration.fit(example.embedding, example.logits, example.capture)
    frozen.save(tmp_path)
    path = tmp_path / "calibration.json"
    about = {name: value for name, value in json.loads(path.read_text()).items() if name != "digest"}
    decided = {"level": "part", "price": 0.2, "thresholds": ["-inf", 0.3, 0.4]}
    about |= {"guard": [{"capture": c, **decided} for c in range(3)], "pooled_guard": {"capture": "all", **decided}}
    path.write_text(json.dumps(sealed(about)))
    again = FrozenCalibration.load(tmp_path).apply(example.embedding, example.logits, example.capture)
    expected = frozen.apply(example.embedding, example.logits, example.capture)
    np.testing.assert_array_equal(again.probability, expected.probability)


def test_a_frame_depends_on_itself_alone():
    example = shifted_captures()
    frozen = FrozenCalibration.fit(example.embedding, example.logits, example.capture)
    whole = frozen.apply(example.embedding, example.logits, example.capture).probability
    for i in range(0, 225, 37):
        here = slice(i, i + 1)
        alone = frozen.apply(example.embedding[here], example.logits[here], example.capture[here]).probability
        np.testing.assert_allclose(alone[0], whole[i], rtol=0, atol=1e-12)


def test_an_unknown_capture_is_said_and_gets_the_pooled_set():
    example = shifted_captures()
    frozen = FrozenCalibration.fit(example.embedding, example.logits, NAMES[example.capture])
    pooled = UCAPC(group="none").calibrate(example.embedding, example.logits)
    renamed = np.where(example.capture == 1, "E9/L1", NAMES[example.capture])
    with pytest.warns(UserWarning, match="E9/L1"):
        result = frozen.apply(example.embedding, example.logits, renamed)
    assert result.pooled == ("E9/L1",)
    own = UCAPC().calibrate(example.embedding, example.logits, example.capture)
    expected = np.where((example.capture == 1)[:, None], pooled.probability, own.probability)
    np.testing.assert_allclose(result.probability, expected, rtol=0, atol=1e-10)


def test_without_captures_everything_is_pooled(recwarn: pytest.WarningsRecorder):
    example = shifted_captures()
    frozen = FrozenCalibration.fit(example.embedding, example.logits, example.capture)
    recwarn.clear()
    result = frozen.apply(example.embedding, example.logits)
    pooled = UCAPC(group="none").calibrate(example.embedding, example.logits)
    np.testing.assert_allclose(result.probability, pooled.probability, rtol=0, atol=1e-10)
    assert not recwarn.list


def test_tensors_stay_tensors():
    example = shifted_captures()
    embedding, logits = torch.tensor(example.embedding), torch.tensor(example.logits)
    frozen = FrozenCalibration.fit(embedding, logits, torch.tensor(example.capture))
    assert isinstance(frozen.apply(embedding, logits, torch.tensor(example.capture)).probability, torch.Tensor)


def test_found_groups_cannot_be_frozen():
    example = shifted_captures()
    with pytest.raises(ConfigError, match="no names"):
        FrozenCalibration.fit(example.embedding, example.logits, settings=UCAPC(group="auto"))


@pytest.mark.parametrize("settings", SETTINGS[:4], ids=str)
@pytest.mark.parametrize("names", [NAMES, np.arange(3)], ids=["strings", "integers"])
def test_what_is_saved_is_what_is_loaded(tmp_path: Path, settings: UCAPC, names: np.ndarray):
    example = shifted_captures()
    frozen = FrozenCalibration.fit(example.embedding, example.logits, names[example.capture], settings)
    frozen.save(tmp_path / "cal")
    assert sorted(p.name for p in (tmp_path / "cal").iterdir()) == ["calibration.json", "calibration.safetensors"]
    again = FrozenCalibration.load(tmp_path / "cal")
    assert (again.settings, again.captures) == (frozen.settings, frozen.captures)
    for a, b in zip(
        *(f.apply(example.embedding, example.logits, names[example.capture]).probability for f in (frozen, again)),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    example = shifted_captures()
    FrozenCalibration.fit(example.embedding, example.logits, NAMES[example.capture]).save(tmp_path / "cal")
    return tmp_path / "cal"


def edit(folder: Path, **changes: Any) -> None:
    path = folder / "calibration.json"
    path.write_text(json.dumps(sealed(json.loads(path.read_text()) | changes)))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "calibration.json").unlink(), "holds no calibration.json"),
        (lambda f: (f / "calibration.safetensors").unlink(), "pisa calibrate fit"),
        (lambda f: (f / "calibration.json").write_text("{"), "damaged"),
        (lambda f: (f / "calibration.json").write_text("[]"), "damaged"),
        (lambda f: edit(f, schema=99), "schema 99; this version reads 1"),
        (lambda f: edit(f, classes=5), r"pooled_potentials is \(4,\), expected \(5,\)"),
        (lambda f: edit(f, features=7), "do not fit their description"),
        (lambda f: edit(f, captures=["E1/L1"]), "do not fit their description"),
        (lambda f: edit(f, settings={"prior": "none"}), "do not fit their description"),
        (lambda f: edit(f, settings={"topp": 3}), "Did you mean 'top'"),
        (lambda f: (f / "calibration.safetensors").write_bytes(b"12345678"), "damaged"),
        (lambda f: (f / "calibration.safetensors").open("ab").write(b"\0"), "damaged"),
    ],
)
def test_what_does_not_fit_is_refused(saved: Path, damage: Any, message: str):
    damage(saved)
    with pytest.raises(ModelError, match=message):
        FrozenCalibration.load(saved)


def test_scores_of_another_model_are_refused(saved: Path):
    other = shifted_captures(classes=5)
    with pytest.raises(DataError, match="fitted for 4 classes and 6 features; these scores have 5 and 6"):
        FrozenCalibration.load(saved).apply(other.embedding, other.logits)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["calibrate", *map(str, arguments)])


def test_fit_and_apply_on_the_command_line(tmp_path: Path):
    example = shifted_captures()
    scores = tmp_path / "scores.npz"
    np.savez(scores, embedding=example.embedding, logits=example.logits, capture=NAMES[example.capture])
    cal, out = tmp_path / "cal", tmp_path / "out.npz"
    assert "E1/L2" in run("fit", scores, "--out", cal, "--prior", "none").output
    assert f"{out}: {len(example.logits)} frames" in run("apply", cal, scores, "--out", out).output
    expected = UCAPC(prior="none").calibrate(example.embedding, example.logits, example.capture)
    with np.load(out, allow_pickle=False) as written:
        np.testing.assert_allclose(written["probability"], expected.probability, rtol=0, atol=1e-10)
        np.testing.assert_array_equal(written["capture"], NAMES[example.capture])
    assert "--force" in str(run("fit", scores, "--out", cal).exception)
    assert "unknown calibration 'foo'" in str(run("fit", scores, "--out", cal, "--calibration", "foo").exception)
    assert "--force" in str(run("apply", cal, scores, "--out", out).exception)
    ran = run("apply", cal, scores, "--out", out, "--force", "--json")
    assert json.loads(ran.stdout)["changed"] == expected.changed
    assert json.loads(ran.stdout)["out"] == str(out)


def test_the_command_says_which_captures_are_pooled(saved: Path, tmp_path: Path):
    example = shifted_captures()
    scores = tmp_path / "scores.npz"
    np.savez(scores, embedding=example.embedding, logits=example.logits, capture=example.capture)
    ran = run("apply", saved, scores, "--out", tmp_path / "out.npz")
    assert ran.exit_code == 0
    assert "3 captures were not fitted" in ran.output


def test_the_plain_command_needs_no_name(tmp_path: Path):
    """Options may come first, and --help is that of the plain command."""
    example = shifted_captures()
    scores, out = tmp_path / "scores.npz", tmp_path / "out.npz"
    np.savez(scores, embedding=example.embedding, logits=example.logits)
    assert run("--out", out, scores).exit_code == 0
    assert out.exists()
    assert "--plot-capture" in run("--help").output
    assert "--plot-capture" not in run("fit", "--help").output
    assert run().exit_code == 2
