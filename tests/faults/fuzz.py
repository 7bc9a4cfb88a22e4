"""Damaged files for every reader, in a process that may hang or crash."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.readers import READERS, ROOT

CLASSES = ("clean", "no effect", "unguarded", "traceback", "hang", "silent")
FAULTS = ("traceback", "hang", "silent")
PATIENCE_S = 60.0  # for what is not a case: imports, good files


@dataclass
class Outcome:
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    faults: list[dict[str, Any]] = field(default_factory=list)

    def add(self, reader: str, case: int, way: str, found: str, more: str) -> None:
        self.counts.setdefault(reader, Counter())[found] += 1
        if found in FAULTS:
            self.faults.append({"reader": reader, "case": case, "damage": way, "class": found, "what": more})

    def total(self, found: str) -> int:
        return sum(counts[found] for counts in self.counts.values())


def fuzz(
    cases: int,
    seed: int,
    limit_s: float = 10.0,
    readers: Iterable[str] = tuple(READERS),
    first: int = 0,
    done: Callable[[], None] = lambda: None,
) -> Outcome:
    """`cases` damaged copies for each reader; the same for the same seed."""
    outcome = Outcome()
    left = [(name, first, first + cases) for name in readers] if cases else []
    with tempfile.TemporaryDirectory() as folder:
        while left:
            ended_at = _batch(
                {"folder": folder, "seed": seed, "limit_s": limit_s, "cases": left}, outcome, limit_s, done
            )
            if ended_at is None:
                break
            name, case = ended_at
            at = [other for other, _, _ in left].index(name)
            left = [(name, case + 1, left[at][2]), *left[at + 1 :]]
    return outcome


def _batch(order: dict[str, Any], outcome: Outcome, limit_s: float, done: Callable[[], None]) -> tuple[str, int] | None:
    """Read the cases in a new process. Where it is at its end: nowhere, or the case that it did not survive."""
    errors = Path(order["folder"]) / "errors"
    with errors.open("w") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.child"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            bufsize=0,
        )
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(json.dumps(order).encode() + b"\n")
    child.stdin.close()
    begun: tuple[str, int] | None = None
    buffer = b""
    try:
        while True:
            patience = PATIENCE_S if begun is None else 2 * limit_s + 5
            if not select.select([child.stdout], [], [], patience)[0]:
                if begun is None:
                    raise RuntimeError(f"the good files cannot be made or read:\n{errors.read_text()[-2000:]}")
                outcome.add(*begun, "", "hang", f"deaf to signals for {patience:g} s")
                return begun
            got = child.stdout.read(1 << 16)
            if not got:
                break
            *lines, buffer = (buffer + got).split(b"\n")
            for line in lines:
                values = json.loads(line)
                if len(values) == 2:
                    begun = (values[0], values[1])
                else:
                    outcome.add(*values)
                    begun = None
                    done()
    finally:
        child.kill()
        code = child.wait()
    if begun is not None:
        outcome.add(*begun, "", "traceback", f"the process ended with {code}")
        return begun
    if not outcome.counts or errors.read_text().strip().startswith("Traceback"):
        raise RuntimeError(f"the process that reads ended:\n{errors.read_text()[-2000:]}")
    return None
