"""The speed benchmarks run, and what they print holds what it says; how fast they are is not a test's business."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks import bytecode, calibrate, grid, start, train
from benchmarks.report import begin

from pisa_capc.decide.calibration import calibrators
from tests.model.methods.tools import IN_EPOCHS

Printed = Callable[..., dict[str, Any]]


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Printed:
    def run(main: Callable[[], None], *arguments: str) -> dict[str, Any]:
        monkeypatch.setattr("sys.argv", ["benchmark", *arguments])
        begin(main)
        found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
        return found

    return run


@pytest.mark.slow
def test_a_grid_trains_nine_runs_of_each_encoder(printed: Printed) -> None:
    found = printed(grid.main, "--encoders", "cnn,cvcnn", "--scale", "0.005", "--epochs", "1")
    assert (found["runs"], [row["encoder"] for row in found["rows"]]) == (18, ["cnn", "cvcnn"])
    assert sum(row["seconds"] for row in found["rows"]) <= found["seconds"] + 0.2


@pytest.mark.slow
def test_training_speed_is_of_every_encoder_asked_for_and_of_every_method(printed: Printed) -> None:
    found = {
        (r["encoder"], r["method"]): r
        for r in printed(train.main, "--encoders", "cnn,transformer", "--seconds", "0.01")["rows"]
    }
    assert set(found) == {("cnn", "pisa"), *(("transformer", name) for name in IN_EPOCHS)}
    assert [key for key, row in found.items() if "eager ms" in row] == [("cnn", "pisa"), ("transformer", "pisa")]
    one = found["transformer", "single"]["ours ms"]
    assert all(found[key]["× single"] == found[key]["ours ms"] / one for key in found if key[0] == "transformer")
    assert "× single" not in found["cnn", "pisa"]


def test_what_a_benchmark_cannot_work_with_ends_in_one_line(printed: Printed) -> None:
    with pytest.raises(SystemExit, match=r"^error: --only 'encoder=cnnn': unknown encoder 'cnnn'\. Did you mean 'cnn'"):
        printed(grid.main, "--encoders", "cnnn")
    with pytest.raises(SystemExit, match=r"^error: unknown encoder 'cnnn'\."):
        printed(start.main, "--encoders", "cnnn")


def test_every_calibration_is_measured(printed: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "FRAMES", 600)
    found = printed(calibrate.main, "--repeats", "1", "--threads", "1")["rows"]
    assert {f"{name} cpu" for name in calibrators()} <= set(found)
    assert all(row["frames_per_s"] == pytest.approx(600 / (row["ms"] / 1e3)) for row in found.values())


@pytest.mark.parametrize("keeps", [False, True])
def test_processes_of_a_benchmark_find_python_compiled(keeps: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the machine keeps nothing; else it has them already."""
    monkeypatch.setattr(bytecode, "TRAINING", ("colorsys",))
    monkeypatch.setattr(sys, "dont_write_bytecode", not keeps)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    before = dict(os.environ)
    with bytecode.kept_bytecode():
        if keeps:
            assert dict(os.environ) == before
        else:
            assert "PYTHONDONTWRITEBYTECODE" not in os.environ
            assert [*Path(os.environ["PYTHONPYCACHEPREFIX"]).rglob("colorsys.*.pyc")]
    assert dict(os.environ) == before
