"""The faults, in a size of choice: a table, and one JSON object as the last line. Exit code 1 where one was found."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pisa_capc.provenance import machine
from tests.faults.fuzz import CLASSES, Fuzz, Outcome
from tests.faults.kills import COMMANDS, Kill, kill, shares
from tests.faults.readers import READERS, ROOT

RECORD, PAGE = ROOT / "results" / "studies" / "faults.json", ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- the record -->", "<!-- end of the record -->"
KILL_COLUMNS = ("kills", "at its end already", "difference", "litter", "orphan", "error")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--cases", type=int, default=100, help="damaged files for each reader")
    parser.add_argument("--kills", type=int, default=20, help="kills, shared by the commands")
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--workers", type=int, default=2, help="processes at a time; what is damaged is the same")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin nothing after these, and count what is")
    parser.add_argument("--limit", type=float, default=10.0, help="seconds that reading a damaged file may take")
    parser.add_argument("--reader", action="append", choices=list(READERS), help="only this one; may come again")
    parser.add_argument("--command", action="append", choices=list(COMMANDS), help="only this one; may come again")
    parser.add_argument("--first", type=int, default=0, help="number of the first case, to see one again")
    parser.add_argument(
        "--write", action="store_true", help=f"into {RECORD.name} and {PAGE.name}, as what was measured"
    )
    given = parser.parse_args()
    started = time.monotonic()
    outcome, kills, skipped = tried(given, started + given.seconds)
    found = {**summary(outcome, kills), "skipped": skipped}
    print(tables(found))
    for fault in found["faults"]:
        print(json.dumps(fault))
    command = f"python -m tests.faults --cases {given.cases} --kills {given.kills} --seed {given.seed}"
    record = {
        "command": command,
        "limit_s": given.limit,
        "seconds": round(time.monotonic() - started),
        "machine": machine(),
        **found,
    }
    if given.write:
        RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        PAGE.write_text(with_record(PAGE.read_text(encoding="utf-8"), record), encoding="utf-8")
    print(json.dumps(record))
    return 1 if found["faults"] else 0


def tried(given: argparse.Namespace, until: float) -> tuple[Outcome, list[Kill], dict[str, str]]:
    """Everything that was asked for: what came of the damaged files, the kills, and readers that are not here."""
    readers, commands = given.reader or tuple(READERS), given.command or tuple(COMMANDS)
    few = given.workers // 4
    with (
        Fuzz(given.cases, given.seed, given.limit, readers, given.first, until, _Dots(100)) as fuzz,
        ThreadPoolExecutor(given.workers) as pool,  # each waits for processes of its own
    ):
        for name, package in fuzz.skipped.items():
            print(f"skipped: {name} (there is no {package} here)", file=sys.stderr)
        # Kills take long and come first, beside a few that read; the other readers follow them.
        reading = [pool.submit(fuzz.work) for _ in range(few)]
        killing = [
            pool.submit(kill, name, share, given.seed, until, _Dots(1))
            for name, share in shares(given.kills, commands).items()
        ]
        reading += [pool.submit(fuzz.work) for _ in range(given.workers - few)]
        for each in reading:
            each.result()
        kills = [one for each in killing for one in each.result()]
    print("", file=sys.stderr)
    return fuzz.outcome, kills, fuzz.skipped


def summary(outcome: Outcome, kills: list[Kill]) -> dict[str, Any]:
    """Counts by reader and by command, their sums, and every fault."""
    commands: dict[str, Counter[str]] = {}
    faults = list(outcome.faults)
    for one in kills:
        counts = commands.setdefault(one.command, Counter())
        counts.update(["kills", *one.faults, *["at its end already"] * one.finished])
        if one.faults:
            faults.append({**vars(one), "class": ", ".join(one.faults)})
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
    if packages := sorted(set(record["skipped"].values())):
        said += f"\nNot tried there, for want of {', '.join(packages)}: {', '.join(record['skipped'])}.\n"
    return f"{before}{BEGIN}\n{said}\n{tables(record)}{END}{after}"


def _table(what: str, columns: tuple[str, ...], rows: list[tuple[str, dict[str, int]]]) -> str:
    lines = [f"| {what} | {' | '.join(columns)} |", f"|---|{'---:|' * len(columns)}"]
    lines += [f"| {name} | {' | '.join(f'{counts[c]:,}' for c in columns)} |" for name, counts in rows]
    return "\n".join(lines) + "\n"


class _Dots:
    """A dot for every so many."""

    def __init__(self, every: int) -> None:
        self._every, self._done = every, 0

    def __call__(self) -> None:
        self._done += 1
        if self._done % self._every == 0:
            print(".", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
