"""What the page about the edge says of eight bits is what the committed record has."""

from __future__ import annotations

from pathlib import Path

from benchmarks.report import read
from pages.edge import EIGHT_BITS

from pisa_capc.model.edge.eight_bits import COST

PAGE = (Path(__file__).parents[1] / "docs/edge.md").read_text(encoding="utf-8")


def test_eight_bits_are_offered_because_they_cost_less_than_is_let_pass() -> None:
    rows = read(EIGHT_BITS)["rows"]
    assert rows
    for row in rows:
        assert row["int8 costs, source"] == row["float32 source"] - row["int8 source"] < COST
        assert row["int8 costs, target"] < COST
        assert row["int8 frames/s"] > row["float32 frames/s"]
        assert row["int8 kB"] < row["float32 kB"]
    assert "`--int8 DATASET`" in PAGE
    assert f"{COST}" in PAGE
