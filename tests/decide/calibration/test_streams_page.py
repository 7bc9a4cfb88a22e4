"""The figures in docs/streams.md are those of the committed record, and its example gives what it says."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pisa_capc.cli import app
from pisa_capc.cli import stream as _registers  # noqa: F401

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "streams.md").read_text(encoding="utf-8")


def test_the_page_quotes_the_record():
    record = json.loads((ROOT / "results/studies/streams-1core.json").read_text(encoding="utf-8"))
    for row in record["rows"]:
        values = [f"{row[order]:.3f}" for order in ("alternating", "one after the other")]
        assert f"| {row['decided by']} | {' | '.join(values)} |" in PAGE
        for order in ("alternating", "one after the other"):
            runs = [run[row["decided by"]] for run in record["macro_f1"][order]]
            assert abs(statistics.mean(runs) - row[order]) < 1e-12
    timed = json.loads((ROOT / "results/speed/online-1core.json").read_text(encoding="utf-8"))
    for row in timed["rows"]:
        if row["frames at a time"] == 1:
            columns = [f"{row[f'CPU {name} µs']:.0f}" for name in ("p50", "p99", "max")]
            assert f"| {row['CFO']} | {row['CPU frames/s']:,.0f} | {' | '.join(columns)} |" in PAGE
    held = timed["memory"]
    assert f"{held['frames']:,} frames" in PAGE
    assert f"{held['rss_mib_start']:.1f} MiB after a tenth of them and {held['rss_mib_end']:.1f} MiB at the end" in PAGE


def test_the_producer_on_the_page_gives_the_line_on_the_page(capsys: pytest.CaptureFixture[str]):
    section = PAGE.split("## From a pipe")[1]
    producer, promised = (re.search(rf"```{kind}\n(.*?)```", section, re.DOTALL) for kind in ("python", "json"))
    assert producer
    assert promised
    exec(producer[1], {})
    ran = CliRunner().invoke(app, ["calibrate", "stream"], input=capsys.readouterr().out)
    assert ran.exit_code == 0, ran.exception
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(lines) == 300
    assert json.dumps({**lines[0], "probability": round(lines[0]["probability"], 4)}) == promised[1].strip()


def test_the_settings_on_the_page_exist():
    options = re.findall(r"--set [\w.]+=\w+", PAGE.split("## From a pipe")[1])
    assert len(options) == 3
    frame = json.dumps({"embedding": [0.5, 1.0], "logits": [0.1, 0.2]})
    ran = CliRunner().invoke(app, ["calibrate", "stream", *" ".join(options).split()], input=frame)
    assert ran.exit_code == 0, ran.exception
