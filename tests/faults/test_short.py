"""A few damaged files for every reader and a few kills; `make test-faults` does many."""

from __future__ import annotations

import json

from tests.faults.__main__ import PAGE, RECORD, with_record
from tests.faults.fuzz import CLASSES, fuzz
from tests.faults.kills import COMMANDS, kill_commands
from tests.faults.readers import READERS


def test_damaged_files_are_refused_or_have_no_effect() -> None:
    outcome = fuzz(cases=15, seed=1)
    assert outcome.faults == []
    assert {name: sum(counts.values()) for name, counts in outcome.counts.items()} == dict.fromkeys(READERS, 15)


def test_a_killed_command_run_again_ends_with_the_same_bytes() -> None:
    kills = kill_commands(2, seed=1, commands=["import", "simulate"])
    assert [(kill.command, kill.faults) for kill in kills] == [("import", []), ("simulate", [])], kills


def test_the_page_has_the_record() -> None:
    page, record = PAGE.read_text(encoding="utf-8"), json.loads(RECORD.read_text(encoding="utf-8"))
    assert with_record(page, record) == page
    assert set(record["readers"]) == set(READERS)
    assert set(record["commands"]) == set(COMMANDS)
    assert record["total"] == {c: sum(counts[c] for counts in record["readers"].values()) for c in CLASSES}
