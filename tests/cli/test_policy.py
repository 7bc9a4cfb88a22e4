"""One policy says which calibration and which rejection are usual; every command that decides frames asks it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pisa_capc.cli.help import STAGES
from pisa_capc.core.errors import PisaError
from pisa_capc.data.protocol import split
from pisa_capc.decide.calibration import UCAPC, Careful, Online, OnlineCalibrator, SourceStatistics, usual
from pisa_capc.decide.calibration.policy import rejection
from pisa_capc.evidence.evaluation.inference import COMPARED
from pisa_capc.model.inference import TrainedModel, embed
from tests.cli.test_model_commands import Command, Result
from tests.decide.identification.conftest import pisa  # noqa: F401  (a fixture)
from tests.decide.identification.test_commands import PLAIN
from tests.live.listen.air import ENROLLED, as_bytes, in_turn, played
from tests.live.listen.conftest import toy  # noqa: F401  (a fixture)
from tests.problems import small_frames

SAID = {Careful: "careful", UCAPC: "U-CAPC without a prior"}
WHOLE = ("calibrate", "calibrate fit", "predict", "identify", "verify")
STREAMING = ("calibrate stream", "listen", "serve")
SIDE_BY_SIDE = ("evaluate", "report", "figures")  # of several calibrations, the usual one among them
NOTHING_USUAL = {  # these decide nothing, go by a calibration that was kept, or by the settings of a protocol
    *("simulate", "import", "detect", "inspect", "measure", "export", "check", "limit", "split", "train", "embed"),
    *(
        "encoders",
        "methods",
        "export-model",
        "sign",
        "calibrate apply",
        "enrol",
        "bench run",
        "bench new",
        "bench select",
        "bench status",
    ),
    *("bench tables", "bench figures"),
}
AIR = ("--sample-rate", "20e6", "--carrier", "5.825e9", "--device", "cpu")


@pytest.fixture(params=["plain", "earlier"])
def model(request: pytest.FixtureRequest, trained: TrainedModel) -> TrainedModel:
    """As it is; and as an early version left it, which said too little of its source."""
    known = {"covariance": None, "session_mean": None} if request.param == "earlier" else {}
    return replace(trained, statistics=replace(trained.statistics, **known))


@pytest.fixture
def called(model: TrainedModel, pisa: Command, tmp_path: Path, toy: None) -> Callable[[str], Result]:  # noqa: F811
    """A command with the model, and nothing said of how it is to calibrate."""
    run, scores, roof = tmp_path / "run", tmp_path / "scores.npz", tmp_path / "roof.cf32"
    model.save(run)
    embed(model, split(small_frames(frames=80), ["E2", "E3"], "E1", seed=2026).target, "cpu").save(scores)
    roof.write_bytes(as_bytes(played(in_turn(20))))
    (whose := tmp_path / "whose.json").write_text(json.dumps(ENROLLED))
    arguments = {
        "calibrate": (scores, "--out", tmp_path / "out.npz"),
        "calibrate fit": (scores, "--out", tmp_path / "kept"),
        "calibrate stream": (scores, "--run", run),
        "predict": (run, roof, *PLAIN),
        "identify": (run, roof, *PLAIN),
        "verify": (run, roof, *PLAIN, "--addresses", whose),
        "listen": (f"file:{roof}", "--run", run, *AIR, "--reject", "none"),
        "serve": (f"file:{roof}", "--run", run, *AIR, "--reject", "none", "--port", 0),
    }
    return lambda command: pisa(*command.split(), *arguments[command])


def test_every_command_is_of_one_kind() -> None:
    known = {name for names in STAGES.values() for name in names}
    assert known <= {*WHOLE, *STREAMING, *SIDE_BY_SIDE, *NOTHING_USUAL}


@pytest.mark.parametrize("command", [*WHOLE, *STREAMING])
def test_every_command_uses_what_is_usual(
    command: str, model: TrainedModel, called: Callable[[str], Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(*_: object) -> None:
        raise PisaError("the listener is made; nobody waits for its page here.")

    monkeypatch.setattr("pisa_capc.live.serve.hub.Hub", leave)
    expected = usual(model.statistics).calibration
    done = called(command)
    assert done.code == (2 if command == "serve" else 0), done.err
    assert f"calibration: {SAID[type(expected)]}" in done.err


def test_the_usual_calibration_is_among_those_that_are_compared(model: TrainedModel) -> None:
    if model.statistics.covariance is not None:
        assert usual(model.statistics).calibration in COMPARED.values()


def test_a_stream_is_calibrated_as_is_usual(model: TrainedModel) -> None:
    expected = usual(model.statistics).calibration
    stream = OnlineCalibrator.usual(3, 64, False, Online(), model.statistics)
    assert (stream.source is not None) == isinstance(expected, Careful)
    assert stream.settings.calibration == expected


def test_the_usual_rejection_is_the_same_everywhere(
    model: TrainedModel,
    pisa: Command,  # noqa: F811
    called: Callable[[str], Result],
    tmp_path: Path,
) -> None:
    called("identify")  # makes the files
    expected, scores = rejection("auto", model.statistics), tmp_path / "scores.npz"
    assert rejection(None, model.statistics) is None
    assert rejection("energy", model.statistics) == "energy"
    unknown = {}
    for name in ("auto", expected):
        assert pisa("calibrate", scores, "--out", tmp_path / f"{name}.npz", "--reject", name).code == 0
        lines = pisa("calibrate", "stream", scores, "--reject", name).out.splitlines()
        identified = json.loads(
            pisa("identify", tmp_path / "run", tmp_path / "roof.cf32", *PLAIN[:-1], name, "--json").out
        )
        with np.load(tmp_path / f"{name}.npz") as written:
            unknown[name] = (
                written["unknown_score"].tolist(),
                [json.loads(line)["unknown_score"] for line in lines],
                [frame["unknown_score"] for frame in identified["frames"]],
            )
    assert unknown["auto"] == unknown[expected]


def test_nothing_usual_takes_devices_for_equally_frequent() -> None:
    known = SourceStatistics(class_mean=np.eye(3), covariance=np.eye(3), weight=np.eye(3))
    assert usual(known).calibration == Careful()
    for lacking in ("class_mean", "covariance", "weight"):
        assert usual(replace(known, **{lacking: None})).calibration == UCAPC(prior="none")
    assert usual(SourceStatistics(session_mean=np.eye(3))).rejection == "session"
    assert usual(SourceStatistics()).rejection == "knn"
