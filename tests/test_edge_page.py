"""What the page about the edge says of eight bits is what the committed record has."""

from __future__ import annotations

from pathlib import Path

from benchmarks.report import read
from pages.edge import COST, EIGHT_BITS, offered

LITTLE = 1.2  # times the speed
PAGE = (Path(__file__).parents[1] / "docs/edge.md").read_text(encoding="utf-8")


def test_eight_bits_are_not_offered_because_they_cost_more_than_is_let_pass() -> None:
    [row] = read(EIGHT_BITS)["rows"]
    assert not offered(row)
    assert max(row["int8 costs, source"], row["int8 costs, target"]) > COST
    assert row["int8 frames/s"] < LITTLE * row["float32 frames/s"]
    assert "Eight bits are not offered" in PAGE
    assert f"{COST}" in PAGE
