"""What the page on reliability says of weeks is what the record says, and within its bounds."""

from __future__ import annotations

from pathlib import Path

from benchmarks.report import read
from pages import soak

ROOT = Path(__file__).parents[1]


def test_the_page_has_what_the_record_says() -> None:
    assert soak.weeks() in (ROOT / "docs/reliability.md").read_text(encoding="utf-8")


def test_memory_is_bounded_and_nothing_is_lost_or_said_twice() -> None:
    parts = read(soak.RECORD)["parts"]
    memory, clocks, disk, killed = (parts[name] for name in ("memory", "clocks", "disk", "kills"))
    assert memory["most MiB"] < soak.BOUND_MIB
    assert memory["minutes"] >= 60
    assert abs(memory["change"]) <= 0.02
    assert clocks["decided otherwise"] == clocks["alarms otherwise"] == 0
    assert disk["decided"] == disk["frames"]
    assert disk["alarms raised"] > 0
    assert disk["written again"]
    assert disk["named as full"] == ["alarms", "out.jsonl", "state"]
    assert parts["source"]["descriptors left open"] == 0
    assert killed["numbers twice"] == killed["frames twice"] == killed["alarms begun twice"] == 0
    assert killed["frames unsaid"] <= killed["kills"]
