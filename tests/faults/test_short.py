"""A damaged file for every reader and a kill; `make test-faults` does many."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import Any

import pytest

from tests.faults.__main__ import PAGE, RECORD, joined, not_in, with_record
from tests.faults.fuzz import CLASSES, fuzz
from tests.faults.kills import COMMANDS, kill
from tests.faults.readers import READERS, missing_extras


def test_damaged_files_are_refused_or_have_no_effect() -> None:
    outcome = fuzz(cases=1, seed=1)
    assert outcome.faults == []
    there = [name for name in READERS if name not in missing_extras(READERS)]
    assert {name: sum(counts.values()) for name, counts in outcome.counts.items()} == dict.fromkeys(there, 1)


def test_a_killed_command_run_again_ends_with_the_same_bytes() -> None:
    [killed] = kill("simulate", 1, seed=1)  # which has workers
    assert killed.faults == [], killed


def test_the_page_has_the_record() -> None:
    page, record = PAGE.read_text(encoding="utf-8"), json.loads(RECORD.read_text(encoding="utf-8"))
    assert with_record(page, record) == page
    assert {*record["readers"], *record["skipped"]} == set(READERS)
    assert set(record["commands"]) == set(COMMANDS)
    assert record["total"] == {c: sum(counts[c] for counts in record["readers"].values()) for c in CLASSES}


@pytest.mark.parametrize(
    ("given", "readers", "commands"),
    [
        ({"seed": 1, "first": 0, "cases": 10}, ["frames.csv"], ["import"]),
        ({"seed": 1, "first": 99, "cases": 2}, ["frames.csv"], ["import"]),
        ({"seed": 1, "first": 100, "cases": 2}, ["model.json", "frames.csv"], ["import"]),
        ({"seed": 2, "first": 0, "cases": 10}, ["model.json", "frames.csv"], ["train", "import"]),
        ({"seed": 2, "first": 0, "cases": 0, "kills": 0}, [], []),
    ],
)
def test_what_is_in_the_record_is_not_tried_again(
    given: dict[str, int], readers: list[str], commands: list[str]
) -> None:
    run = {"seed": 1, "cases": [0, 100], "readers": ["model.json"], "commands": ["train"]}
    asked = {"kills": 5, "reader": ["model.json", "frames.csv"], "command": ["train", "import"], **given}
    assert not_in({"runs": [run]}, Namespace(**asked)) == (readers, commands)


def test_counts_of_two_runs_are_summed_and_both_commands_stay() -> None:
    def found(run: str, clean: int, kills: int, faults: list[str]) -> dict[str, Any]:
        readers, commands = {"model.json": dict.fromkeys(CLASSES, clean)}, {"train": {"kills": kills, "orphan": 0}}
        return {"runs": [run], "readers": readers, "commands": commands, "skipped": {}, "faults": faults}

    record = joined(found("first", 3, 1, []), found("second", 4, 2, ["one"]))
    assert record["runs"] == ["first", "second"]
    assert record["readers"] == {"model.json": dict.fromkeys(CLASSES, 7)}
    assert record["total"] == dict.fromkeys(CLASSES, 7)
    assert record["commands"] == {"train": {"kills": 3, "orphan": 0}}
    assert record["faults"] == ["one"]
