"""The figures in docs/streams.md are those of the committed record."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_quotes_the_record():
    page = (ROOT / "docs" / "streams.md").read_text(encoding="utf-8")
    record = json.loads((ROOT / "results" / "bench-online-1core.json").read_text(encoding="utf-8"))
    for row in record["rows"]:
        values = [f"{row[order]:.3f}" for order in ("alternating", "one after the other")]
        assert f"| {row['decided by']} | {' | '.join(values)} |" in page
        for order in ("alternating", "one after the other"):
            runs = [run[row["decided by"]] for run in record["macro_f1"][order]]
            assert abs(statistics.mean(runs) - row[order]) < 1e-12
    for row in record["speed"]:
        if row["frames at a time"] == 1:
            columns = [f"{row[f'CPU {name} µs']:.0f}" for name in ("p50", "p99", "max")]
            assert f"| {row['CFO']} | {row['CPU frames/s']:,.0f} | {' | '.join(columns)} |" in page
    held = record["memory"]
    assert f"{held['frames']:,} frames" in page
    assert f"{held['rss_mib_start']:.1f} MiB after a tenth of them and {held['rss_mib_end']:.1f} MiB at the end" in page
