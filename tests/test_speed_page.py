"""What the page on speed says of aims is so by its record."""

from __future__ import annotations

from pathlib import Path

from benchmarks.report import read
from pages.speeds import embed_reach


def test_embedding_is_as_fast_as_was_aimed_at_where_the_page_says_so() -> None:
    record = read("speed/train-cpu.json")
    reached = embed_reach(record["embed"])
    assert {row["encoder"] for row in record["embed"]} == {"transformer", "cnn"}
    assert "cnn in float32" in reached
    for row in record["embed"]:
        assert (f"{row['encoder']} in {row['precision']}" in reached) == (row["frames_per_s"] >= 10_000)


def test_the_page_says_what_looking_at_the_samples_costs() -> None:
    page = " ".join(Path("docs/reliability.md").read_text(encoding="utf-8").split())
    record = read("speed/checks-2core.json")
    bare, training = (row["added"] for row in record["rows"])
    speeds = record["GB/s"]
    assert training < 0.05
    for part in (training, bare):
        assert f"{part:.1%}".replace("%", " %") in page
    assert f"{speeds['this digest']:.0f} GB/s" in page
    assert f"CRC-32 of the standard library runs at {speeds['CRC-32']:.0f}" in page
    assert f"SHA-256 at {speeds['SHA-256']:.1f}" in page
