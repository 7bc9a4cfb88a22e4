"""What the page on speed calls out of reach is so by its record."""

from __future__ import annotations

from pathlib import Path

from benchmarks.report import read
from pages import edge
from pages.speeds import EMBED_AIM, _of_cores


def test_embedding_as_fast_as_was_aimed_at_is_beyond_two_cores() -> None:
    cpu = read("speed/train-2core.json")
    assert _of_cores(cpu, "cnn") > 1
    assert _of_cores(cpu, "transformer") > 0.5  # of a product that is large and nothing else
    assert cpu["embed_frames_per_s"]["cpu"] < EMBED_AIM
    assert all(2 * row["frames/s"] < EMBED_AIM for row in read(edge.RECORD)["rows"] if row["method"] == "pisa")


def test_the_page_says_what_looking_at_the_samples_costs() -> None:
    page = " ".join(Path("docs/reliability.md").read_text(encoding="utf-8").split())
    record = read("speed/checks-2core.json")
    bare, training = (row["added"] for row in record["rows"])
    speeds = record["GB/s"]
    assert training < 0.05
    assert f"adds {training:.1%} to".replace("%", " %") in page
    assert f"and {bare:.1%} to that of reading a set".replace("%", " %") in page
    assert f"runs at {speeds['this digest']:.0f} GB/s" in page
    assert f"library at {speeds['CRC-32']:.0f}, a SHA-256 at {speeds['SHA-256']:.1f}." in page
