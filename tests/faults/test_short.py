"""A few damaged files for every reader and a few kills; `make test-faults` does many."""

from __future__ import annotations

import json

from tests.faults.__main__ import PAGE, RECORD, with_record
from tests.faults.fuzz import CLASSES, fuzz
from tests.faults.kills import COMMANDS, kill
from tests.faults.readers import READERS, missing_extras


def test_damaged_files_are_refused_or_have_no_effect() -> None:
    outcome = fuzz(cases=2, seed=1)
    assert outcome.faults == []
    there = [name for name in READERS if name not in missing_extras(READERS)]
    assert {name: sum(counts.values()) for name, counts in outcome.counts.items()} == dict.fromkeys(there, 2)


def test_a_killed_command_run_again_ends_with_the_same_bytes() -> None:
    kills = [*kill("import", 1, seed=1), *kill("simulate", 1, seed=1)]
    assert [(one.command, one.faults) for one in kills] == [("import", []), ("simulate", [])], kills


def test_the_page_has_the_record() -> None:
    page, record = PAGE.read_text(encoding="utf-8"), json.loads(RECORD.read_text(encoding="utf-8"))
    assert with_record(page, record) == page
    assert {*record["readers"], *record["skipped"]} == set(READERS)
    assert set(record["commands"]) == set(COMMANDS)
    assert record["total"] == {c: sum(counts[c] for counts in record["readers"].values()) for c in CLASSES}
