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

from pisa_capc.core.provenance import machine
from tests.faults.fuzz import CLASSES, Fuzz, Outcome
from tests.faults.kills import COMMANDS, Kill, kill, shares
from tests.faults.readers import READERS, ROOT

RECORD, PAGE = ROOT / "results" / "studies" / "faults.json", ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- the record -->", "<!-- end of the record -->"
NOTHING: dict[str, Any] = {"runs": [], "readers": {}, "commands": {}, "skipped": {}, "faults": []}
KILL_COLUMNS = ("kills", "at its end already", "difference", "litter", "orphan", "error")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--cases", type=int, default=100, help="damaged files for each reader")
    parser.add_argument("--kills", type=int, default=20, help="kills, shared by the commands")
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--workers", type=int, default=2, help="processes at a time; what is damaged is the same")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin nothing after these, and count what is")
    parser.add_argument("--limit", type=float, default=10.0, help="seconds of CPU that reading a damaged file may take")
    parser.add_argument("--reader", action="append", choices=list(READERS), help="only this one; may come again")
    parser.add_argument("--command", action="append", choices=list(COMMANDS), help="only this one; may come again")
    parser.add_argument("--first", type=int, default=0, help="number of the first case: to see one again, or others")
    parser.add_argument(
        "--write", action="store_true", help=f"into {RECORD.name} and {PAGE.name}, as what was measured"
    )
    parser.add_argument(
        "--add", action="store_true", help="the same, to what is there: only cases and kills that are not"
    )
    given = parser.parse_args()
    before = json.loads(RECORD.read_text(encoding="utf-8")) if given.add else NOTHING
    readers, commands = not_in(before, given)
    if not readers and not commands:
        parser.error("all of this is in the record already, or nothing was asked for: give another --seed or --first")
    started = time.monotonic()
    outcome, kills, skipped = tried(given, readers, commands, started + given.seconds)
    found = summary(outcome, kills)
    run = {
        "command": command(given),
        "limit_s": given.limit,
        "hang": "of CPU",
        "seconds": round(time.monotonic() - started),
        "machine": {key: value for key, value in machine().items() if key != "gpu"},
        "seed": given.seed,
        "cases": [given.first, given.first + given.cases],
        "readers": list(found["readers"]),
        "commands": list(found["commands"]),
    }
    record = joined(before, {"runs": [run], **found, "skipped": skipped})
    print(tables(record))
    for fault in record["faults"]:
        print(json.dumps(fault))
    if given.write or given.add:
        RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        PAGE.write_text(with_record(PAGE.read_text(encoding="utf-8"), record), encoding="utf-8")
    print(json.dumps(record))
    return 1 if record["faults"] else 0


def not_in(before: dict[str, Any], given: argparse.Namespace) -> tuple[list[str], list[str]]:
    """The readers and commands whose cases and kills are not in the record: none is counted twice.

    A case follows from the seed, the reader and its number; kills from the seed and the command.
    """
    same = [run for run in before["runs"] if run["seed"] == given.seed]
    overlapping = [run for run in same if run["cases"][0] < given.first + given.cases and given.first < run["cases"][1]]
    read = {name for run in overlapping for name in run["readers"]}
    killed = {name for run in same for name in run["commands"]}
    readers = [name for name in given.reader or READERS if name not in read]
    commands = [name for name in given.command or COMMANDS if name not in killed]
    return readers if given.cases else [], commands if given.kills else []


def command(given: argparse.Namespace) -> str:
    """What to type to have the same cases and kills again."""
    text = f"python -m tests.faults --cases {given.cases} --kills {given.kills} --seed {given.seed}"
    text += f" --first {given.first}" if given.first else ""
    text += "" if math.isinf(given.seconds) else f" --seconds {given.seconds:g}"
    for option in ("reader", "command"):
        text += "".join(f" --{option} '{name}'" for name in getattr(given, option) or ())
    return text


def tried(
    given: argparse.Namespace, readers: list[str], commands: list[str], until: float
) -> tuple[Outcome, list[Kill], dict[str, str]]:
    """What came of the damaged files, the kills, and what is not here."""
    few = max(given.workers // 4, min(1, given.workers - 1))
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
        "commands": {name: {c: counts[c] for c in KILL_COLUMNS} for name, counts in commands.items()},
        "faults": faults,
    }


def joined(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """A record with what another run found, in the order of the readers and commands."""
    readers, commands = (_sums(before[part], now[part]) for part in ("readers", "commands"))
    skipped = {**before["skipped"], **now["skipped"]}
    return {
        "runs": [*before["runs"], *now["runs"]],
        "readers": {name: readers[name] for name in READERS if name in readers},
        "total": {c: sum(counts[c] for counts in readers.values()) for c in CLASSES},
        "commands": {name: commands[name] for name in COMMANDS if name in commands},
        "skipped": {name: package for name, package in skipped.items() if name not in readers},
        "faults": [*before["faults"], *now["faults"]],
    }


def _sums(some: dict[str, dict[str, int]], more: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """The counts of both, by name."""
    found = {name: Counter(counts) for name, counts in some.items()}
    for name, counts in more.items():
        found.setdefault(name, Counter()).update(counts)
    return {name: dict(counts) for name, counts in found.items()}


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
    said = f"{sum(record['total'].values()):,} damaged inputs, {kills} kills, {len(record['faults'])} faults.\n\n"
    for run in record["runs"]:
        made_with = ", ".join(f"{name} {run['machine'][name]}" for name in ("python", "torch", "numpy"))
        said += f"- `{run['command']}`, {run['seconds']:,} s, {made_with}\n"
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
