"""The figures in README and docs are those of the committed records."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from benchmarks import results_page

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def record(name: str) -> Any:
    return json.loads((ROOT / "results" / name).read_text(encoding="utf-8"))


def test_readme_quotes_the_records() -> None:
    train = {row["encoder"]: row for row in record("bench-train-h200.json")["rows"]}
    ours, eager = ([train[e][column] for e in ("cnn", "transformer")] for column in ("ours ms", "eager ms"))
    assert f"{ours[0]:.2f} / {ours[1]:.2f} ms (plain eager: {eager[0]:.1f} / {eager[1]:.1f})" in README
    grid = record("wifi-pisa.json")["encoders"]
    seconds = [entry["train_seconds"] for entry in grid.values()]
    assert f"{min(seconds):.0f} to {max(seconds):.0f} s on one GPU" in README
    assert f"one H200 | {grid['resnet']['train_seconds']:.0f} s |" in README
    scores = [[run[stage]["macro_f1"] for run in grid["resnet"]["runs"]] for stage in ("direct", "paper")]
    assert " → ".join(f"{statistics.mean(s):.3f} ± {statistics.stdev(s):.3f}" for s in scores) in README
    assert f"{record('bench-calibrate-2core.json')['rows']['ucapc cpu']['ms']:.0f} ms" in README
    demo = record("demo.json")
    assert f"(Single): {demo['source_validation_f1']['Single']:.2f} on held-out frames" in README


def test_the_results_page_is_made_from_the_records(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(results_page, "PAGE", tmp_path / "results.md")
    results_page.main()
    assert (tmp_path / "results.md").read_text() == (ROOT / "docs/results.md").read_text()
