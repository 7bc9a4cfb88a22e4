"""The faults, in a size of choice: a table, and one JSON object as the last line. Exit code 1 where one was found."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.faults.fuzz import CLASSES, Outcome, fuzz
from tests.faults.kills import COMMANDS, Kill, kill_commands
from tests.faults.readers import READERS, ROOT

RECORD, PAGE = ROOT / "results" / "studies" / "faults.json", ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- the record -->", "<!-- end of the record -->"
KILL_COLUMNS = ("kills", "at its end already", "difference", "litter", "orphan", "error")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--cases", type=int, default=100, help="damaged files for each reader")
    parser.add_argument("--kills", type=int, default=20, help="kills, shared by the commands")
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--limit", type=float, default=10.0, help="seconds that reading a damaged file may take")
    parser.add_argument("--reader", action="append", choices=list(READERS), help="only this one; may come again")
    parser.add_argument("--command", action="append", choices=list(COMMANDS), help="only this one; may come again")
    parser.add_argument("--first", type=int, default=0, help="number of the first case, to see one again")
    parser.add_argument(
        "--write", action="store_true", help=f"into {RECORD.name} and {PAGE.name}, as what was measured"
    )
    given = parser.parse_args()
    started = time.perf_counter()
    with ThreadPoolExecutor(2) as both:  # each waits for processes of its own
        readers, commands = given.reader or tuple(READERS), given.command or tuple(COMMANDS)
        fuzzed = both.submit(fuzz, given.cases, given.seed, given.limit, readers, given.first, _dot)
        killed = both.submit(kill_commands, given.kills, given.seed, commands, _dot)
    print("", file=sys.stderr)
    found = summary(fuzzed.result(), killed.result())
    print(tables(found))
    for fault in found["faults"]:
        print(json.dumps(fault))
    command = f"python -m tests.faults --cases {given.cases} --kills {given.kills} --seed {given.seed}"
    record = {"command": command, "limit_s": given.limit, "seconds": round(time.perf_counter() - started), **found}
    if given.write:
        RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        PAGE.write_text(with_record(PAGE.read_text(encoding="utf-8"), record), encoding="utf-8")
    print(json.dumps(record))
    return 1 if found["faults"] else 0


def summary(outcome: Outcome, kills: list[Kill]) -> dict[str, Any]:
    """Counts by reader and by command, their sums, and every fault."""
    commands: dict[str, Counter[str]] = {}
    faults = list(outcome.faults)
    for kill in kills:
        counts = commands.setdefault(kill.command, Counter())
        counts.update(["kills", *kill.faults, *["at its end already"] * kill.finished])
        if kill.faults:
            faults.append({**vars(kill), "class": ", ".join(kill.faults)})
    return {
        "readers": {name: {c: counts[c] for c in CLASSES} for name, counts in outcome.counts.items()},
        "total": {c: outcome.total(c) for c in CLASSES},
        "commands": {name: {c: counts[c] for c in KILL_COLUMNS} for name, counts in commands.items()},
        "faults": faults,
    }


def tables(found: dict[str, Any]) -> str:
    """The counts as Markdown."""
    rows = [*found["readers"].items(), ("all", found["total"])] if found["readers"] else []
    text = _table("reader", CLASSES, rows) if rows else ""
    if found["commands"]:
        text += ("\n" if text else "") + _table("command", KILL_COLUMNS, list(found["commands"].items()))
    return text


def with_record(page: str, record: dict[str, Any]) -> str:
    """The page with the tables of a record between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    kills = sum(counts["kills"] for counts in record["commands"].values())
    said = f"`{record['command']}`: {sum(record['total'].values()):,} damaged files, {kills} kills, "
    said += f"{len(record['faults'])} of them with a fault.\n"
    return f"{before}{BEGIN}\n{said}\n{tables(record)}{END}{after}"


def _table(what: str, columns: tuple[str, ...], rows: list[tuple[str, dict[str, int]]]) -> str:
    lines = [f"| {what} | {' | '.join(columns)} |", f"|---|{'---:|' * len(columns)}"]
    lines += [f"| {name} | {' | '.join(f'{counts[c]:,}' for c in columns)} |" for name, counts in rows]
    return "\n".join(lines) + "\n"


def _dot() -> None:
    print(".", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
