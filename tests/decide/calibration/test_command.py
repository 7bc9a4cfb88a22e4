"""`pisa calibrate` reads scores, writes calibrated scores whole or not at all, and says what it did."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from pisa_capc import UCAPC
from pisa_capc.cli import app
from pisa_capc.cli import calibrate as _registers  # noqa: F401
from pisa_capc.core.errors import PisaError
from pisa_capc.decide.calibration import Careful, SourceStatistics
from pisa_capc.decide.calibration.peers.base import Direct
from tests.decide.calibration.examples import Example, shifted_captures


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["calibrate", *map(str, arguments)])


@pytest.fixture
def example() -> Example:
    return shifted_captures()


@pytest.fixture
def scores(tmp_path: Path, example: Example) -> Path:
    path = tmp_path / "scores.npz"
    np.savez(
        path,
        embedding=example.embedding,
        logits=example.logits,
        capture=np.array(["E1/L1", "E1/L2", "E1/M1"])[example.capture],
        environment=np.full(225, "E1"),
        frame=np.arange(225),
        source_weight=example.weight,
    )
    return path


@pytest.mark.parametrize("options", [["--calibration", "ucapc"], ["--prior", "balanced"]], ids=str)
def test_the_paper_preset_is_the_published_algorithm(options: list[str], scores: Path, example: Example):
    out = scores.with_name("calibrated.npz")
    ran = run(scores, "--out", out, *options)
    assert ran.exit_code == 0, ran.output
    assert "E1/L2" in ran.output
    expected = UCAPC().calibrate(example.embedding, example.logits, example.capture)
    with np.load(out, allow_pickle=False) as written:
        np.testing.assert_array_equal(written["probability"], expected.probability)
        np.testing.assert_array_equal(written["score"], expected.score)
        np.testing.assert_array_equal(written["prediction"], expected.prediction)
        np.testing.assert_array_equal(written["frame"], np.arange(225))
        assert set(written.files) == {"probability", "score", "prediction", "capture", "environment", "frame"}


@pytest.mark.parametrize(
    ("options", "calibrator"),
    [
        (["--prior", "none"], UCAPC(prior="none")),
        (["--calibration", "ucapc", "--group", "none"], UCAPC(group="none")),
        ([], UCAPC(prior="none")),
        (["--group", "none"], UCAPC(prior="none", group="none")),
        (["--calibration", "ucapc", "--prior", "none"], UCAPC(prior="none")),
        (["--calibration", "direct"], Direct()),
        (["--set", "top=5", "--set", "temperature=0.5"], UCAPC(top=5, temperature=0.5)),
    ],
    ids=str,
)
def test_options_reach_the_calibration(options: list[str], calibrator: UCAPC, scores: Path, example: Example):
    out = scores.with_name("calibrated.npz")
    assert run(scores, "--out", out, *options).exit_code == 0
    expected = calibrator.calibrate(example.embedding, example.logits, example.capture)
    np.testing.assert_array_equal(np.load(out)["probability"], expected.probability)


def test_where_nothing_is_asked_for_the_source_decides_and_the_command_says_which(scores: Path, example: Example):
    told = run(scores, "--out", scores.with_name("a.npz"))
    assert "U-CAPC without a prior, because the source statistics that careful needs are missing" in told.stderr
    covariance = np.eye(example.weight.shape[1])
    with np.load(scores) as stored:
        np.savez(scores, **stored, source_class_mean=example.weight, source_covariance=covariance)
    told = run(scores, "--out", scores.with_name("b.npz"), "--json")
    assert "calibration: careful; the published one is --calibration ucapc" in told.stderr
    captures = json.loads(told.stdout)["captures"]
    source = SourceStatistics(weight=example.weight, class_mean=example.weight, covariance=covariance)
    expected = Careful().calibrate(example.embedding, example.logits, example.capture, source)
    assert expected.judged is not None
    assert [capture["level"] for capture in captures] == [judged.level for judged in expected.judged]
    np.testing.assert_array_equal(np.load(scores.with_name("b.npz"))["prediction"], expected.prediction)


def test_other_methods_find_the_source_statistics(scores: Path):
    out = scores.with_name("calibrated.npz")
    ran = run(scores, "--out", out, "--calibration", "t3a", "--set", "supports=20", "--json")
    assert ran.exit_code == 0, ran.output
    summary = json.loads(ran.output)
    assert summary["method"] == "t3a"
    assert [capture["frames"] for capture in summary["captures"]] == [90, 60, 75]
    assert sum(capture["changed"] for capture in summary["captures"]) == summary["changed"]


def test_a_picture_is_drawn(scores: Path):
    picture = scores.with_name("capture.png")
    ran = run(scores, "--out", scores.with_name("c.npz"), "--plot", picture, "--plot-capture", "E1/M1")
    assert ran.exit_code == 0, ran.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert f"picture: {picture}" in ran.stderr
    assert f"{scores.with_name('c.npz')}: 225 frames" in ran.stdout


def test_json_names_the_output(scores: Path):
    out = scores.with_name("c.npz")
    assert json.loads(run(scores, "--out", out, "--json").stdout)["out"] == str(out)


def test_an_unknown_picture_format_is_refused_before_any_work(scores: Path):
    out = scores.with_name("c.npz")
    ran = run(scores, "--out", out, "--plot", scores.with_name("c.xyz"))
    assert "unknown picture format 'xyz'" in str(ran.exception)
    assert not out.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--calibration", "foo"], "unknown calibration 'foo'"),
        (["--reject", "foo"], "unknown rejection score 'foo'"),
        (["--alpha", "2", "--reject", "knn"], "alpha is 2"),
        (["--plot", "c.xyz"], "unknown picture format 'xyz'"),
    ],
    ids=str,
)
def test_wrong_names_are_said_before_an_output_that_exists(options: list[str], message: str, scores: Path):
    out = scores.with_name("c.npz")
    out.touch()
    assert message in str(run(scores, "--out", out, *options).exception)
    assert message in str(run(scores.with_name("nowhere.npz"), "--out", out, *options).exception)


def test_an_existing_file_is_kept_unless_forced(scores: Path):
    out = scores.with_name("calibrated.npz")
    out.write_text("precious")
    assert "--force" in str(run(scores, "--out", out).exception)
    assert out.read_text() == "precious"
    assert run(scores, "--out", out, "--force").exit_code == 0
    assert not list(scores.parent.glob("*.tmp"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--calibration", "tt3a"], "Did you mean 't3a'"),
        (["--set", "tpo=3"], "Did you mean 'top'"),
        (["--set", "top"], "expected name=value"),
        (["--set", "top=many"], "expected int"),
        (["--calibration", "bbse"], "needs source_confusion"),
        (["--calibration", "bbse"], "or add the array to the .npz"),
        (["--calibration", "lame", "--prior", "none"], "unknown setting 'prior'"),
        (["--prior", "given", "--set", "shares=[0.5,0.4]"], "sum to 0.9"),
        (["--prior", "given"], "per class, as `--prior given --set shares="),
    ],
    ids=str,
)
def test_wrong_options_are_explained(options: list[str], message: str, scores: Path):
    out = scores.with_name("calibrated.npz")
    assert message in str(run(scores, "--out", out, *options).exception)
    assert not out.exists()


def test_files_that_are_no_scores_are_explained(tmp_path: Path):
    cases = {
        "is a single array": lambda path: np.save(path.open("wb"), np.ones(3)),
        "has no logits; found embedding.": lambda path: np.savez(path, embedding=np.ones((3, 2))),
        "Expected an NPZ file": lambda path: path.write_text("scores"),
        "holds Python objects": lambda path: np.savez(path, embedding=np.array([{}]), logits=np.ones(1)),
        "does not have one value per frame": lambda path: np.savez(
            path, embedding=np.ones((3, 2)), logits=np.ones((3, 2)), frame=np.arange(2)
        ),
        # What most arrays agree on is right.
        "logits (2, 4) does not have one value per frame; expected (3, 4), as many rows as embedding, capture, frame": (
            lambda path: np.savez(
                path, embedding=np.ones((3, 2)), logits=np.ones((2, 4)), capture=["a"] * 3, frame=np.arange(3)
            )
        ),
        "embedding (2, 2) does not have one value per frame; expected (3, 2), as many rows as logits, capture": (
            lambda path: np.savez(path, embedding=np.ones((2, 2)), logits=np.ones((3, 2)), capture=np.arange(3))
        ),
        "logits (2, 2) does not have one value per frame; expected (3, 2), as many rows as embedding": (
            lambda path: np.savez(path, embedding=np.ones((3, 2)), logits=np.ones((2, 2)))
        ),
        "capture (3, 1) does not have one value per frame; expected (3,)": lambda path: np.savez(
            path, embedding=np.ones((3, 2)), logits=np.ones((3, 2)), capture=np.ones((3, 1), int)
        ),
    }
    for number, (message, write) in enumerate(cases.items()):
        path = tmp_path / f"{number}.npz"
        write(path)
        assert message in str(run(path, "--out", tmp_path / "out.npz").exception)
    assert "does not exist" in str(run(tmp_path / "none.npz", "--out", tmp_path / "out.npz").exception)


def test_a_picture_that_cannot_be_written_is_explained(scores: Path):
    out = scores.with_name("calibrated.npz")
    ran = run(scores, "--out", out, "--plot", scores / "below-a-file.png")
    assert "cannot be written" in str(ran.exception)


@pytest.mark.parametrize(
    "options", [["--preset", "safe"], ["--preset=safe", "--no-guard"], ["--method", "safe"], ["--guard"]], ids=str
)
def test_who_asks_for_the_guard_gets_what_is_usual_and_a_note(options: list[str], scores: Path, tmp_path: Path) -> None:
    with np.load(scores) as stored:
        np.savez(scores, **stored, source_guard=np.array([0.0, 100.0, 200.0]))
    usual, told = (run(scores, "--out", tmp_path / str(i), *own, "--json") for i, own in enumerate(([], options)))
    assert told.exit_code == 0
    assert all(f"note: {old}" in told.stderr for old in [" ".join(options[:2]).replace("=", " ").split(" --no")[0]])
    assert "goes with the next version" in told.stderr
    assert json.loads(told.stdout)["method"] == json.loads(usual.stdout)["method"]
    assert (tmp_path / "0").read_bytes() == (tmp_path / "1").read_bytes()


@pytest.mark.parametrize("kind", [np.int64, np.uint16])
def test_rows_that_are_not_in_time_order_are_noted_where_groups_are_looked_for(kind: type, scores: Path) -> None:
    with np.load(scores) as stored:
        arrays = dict(stored)
    order = np.argsort(arrays["capture"], kind="stable")
    embedded = {name: arrays[name][order] for name in ("embedding", "logits", "capture", "environment")}
    for name, frame, noted in (
        ("recordings", np.arange(225) % 15, True),  # each capture holds several recordings of 15 frames
        ("time", np.r_[:90, :60, :75], False),
    ):
        path = scores.with_name(f"{name}.npz")
        np.savez(path, **embedded, frame=frame.astype(kind))
        ran = run(path, "--out", scores.with_name(f"{name}-out.npz"), "--group", "auto")
        assert ran.exit_code == 0, ran.output
        assert ("note: --group auto needs frames in the order" in ran.stderr) == noted
        assert ("in capture E1/L1 frame 0 comes after frame 14" in ran.stderr) == noted
    assert "note" not in run(scores.with_name("recordings.npz"), "--out", scores.with_name("named.npz")).stderr


@pytest.mark.parametrize(
    ("arrays", "options", "message"),
    [
        (
            {"source_temperature": np.array(0.0)},
            ["--prior", "estimated"],
            "source_temperature is 0; expected",
        ),
        ({"source_temperature": np.array("hot")}, ["--prior", "estimated"], "expected numbers"),
        ({"frame": np.array(3)}, [], "does not have one value per frame"),
        ({"group": np.arange(3)}, [], "does not have one value per frame"),
        ({"cfo_hz": np.full(225, "x")}, ["--group", "auto"], "expected one finite number per frame"),
    ],
)
def test_odd_columns_are_explained(
    arrays: dict, options: list[str], message: str, scores: Path, tmp_path: Path
) -> None:
    with np.load(scores) as stored:
        np.savez(tmp_path / "odd.npz", **{**stored, **arrays})
    result = run(tmp_path / "odd.npz", "--out", tmp_path / "out.npz", *options)
    assert isinstance(result.exception, PisaError)
    assert message in str(result.exception)
    assert not (tmp_path / "out.npz").exists()
