"""Recorded runs trained again: on the same device they are the same, and what differs shows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from studies import replicate

from pisa_capc.evidence.benchmark.records import read_records
from pisa_capc.evidence.benchmark.run import Options, run_protocol
from tests.evidence.benchmark.tools import quick
from tests.problems import write_small


def test_a_recorded_run_is_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def printed(*only: str) -> list[dict[str, object]]:
        places = ["--data", data, "--results", tmp_path / "results", "--work", tmp_path / "again"]
        arguments = ["replicate", tmp_path / "quick.yaml", *places, "--out", kept, "--only", *only]
        monkeypatch.setattr("sys.argv", [str(argument) for argument in arguments])
        replicate.main()
        rows: list[dict[str, object]] = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
        return rows

    kept = tmp_path / "replicated.json"
    data = write_small(tmp_path / "data")
    options = Options(data=data, results=tmp_path / "results", work=tmp_path / "work", device="cpu")
    run_protocol(quick(tmp_path), replace(options, only=("method=single",)))
    [row] = printed("method=single")
    assert row["validation F1"] == row["recorded validation F1"]
    assert row["target F1"] == row["recorded target F1"]
    first = read_records(tmp_path / "results" / "quick")
    for record in first:
        replace(record, validation_f1=0.999).write(tmp_path / "results" / "quick")
    [row] = printed("method=single")
    assert row["recorded validation F1"] == 0.999 != row["validation F1"]
    assert json.loads(kept.read_text())["rows"] == [row]  # in place of the first
    [other] = printed("method=single", "seed=2")
    assert [r["run"] for r in json.loads(kept.read_text())["rows"]] == [row["run"], other["run"]]
    with pytest.raises(SystemExit):
        printed("method=pisa")
    assert "holds no such record" in capsys.readouterr().err
