"""What the page on speed calls out of reach is so by its record."""

from __future__ import annotations

from benchmarks.report import read
from pages import edge
from pages.speeds import EMBED_AIM, _of_cores


def test_embedding_as_fast_as_was_aimed_at_is_beyond_two_cores() -> None:
    cpu = read("speed/train-2core.json")
    assert _of_cores(cpu, "cnn") > 1
    assert _of_cores(cpu, "transformer") > 0.5  # of a product that is large and nothing else
    assert cpu["embed_frames_per_s"]["cpu"] < EMBED_AIM
    assert all(2 * row["frames/s"] < EMBED_AIM for row in read(edge.RECORD)["rows"] if row["method"] == "pisa")
