"""Damaged files for every reader, in processes that may hang or crash.

Which cases there are and what is done to each file follow from the seed, the reader and the case's number alone: the
counts do not depend on how many read them.
"""

from __future__ import annotations

import json
import math
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.readers import READERS, ROOT, missing_extras

CLASSES = ("clean", "no effect", "unguarded", "traceback", "hang", "silent")
FAULTS = ("traceback", "hang", "silent")
PATIENCE_S = 120.0  # on the clock: for imports and good files, and for a case that waits and does not work
CHUNK = 50  # cases that a process is given at a time
# Threads are not faster with files this small, and a GPU's addresses do not fit into the bound on memory.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}

Cases = tuple[str, int, int]  # of a reader: the first, and the one after the last


@dataclass
class Outcome:
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    faults: list[dict[str, Any]] = field(default_factory=list)

    def add(self, reader: str, case: int, way: str, found: str, more: str) -> None:
        self.counts.setdefault(reader, Counter())[found] += 1
        if found in FAULTS:
            self.faults.append({"reader": reader, "case": case, "damage": way, "class": found, "what": more})

    def in_order(self) -> Outcome:
        """The same, in the order of the readers, whoever came first."""
        at = {name: i for i, name in enumerate(READERS)}
        faults = sorted(self.faults, key=lambda fault: (at[fault["reader"]], fault["case"]))
        return Outcome({name: self.counts[name] for name in sorted(self.counts, key=at.__getitem__)}, faults)


class Fuzz:
    """`cases` damaged copies for each reader. Any number of threads may `work`, each with a process of its own.

    until: when to stop with what there is, on the clock of time.monotonic. first: the number of the first case.
    """

    def __init__(
        self,
        cases: int,
        seed: int,
        limit_s: float = 10.0,
        readers: Iterable[str] = tuple(READERS),
        first: int = 0,
        until: float = math.inf,
        done: Callable[[], None] = lambda: None,
    ) -> None:
        self.seed, self.limit_s, self.until, self._done = seed, limit_s, until, done
        chosen = list(readers)
        self.skipped = missing_extras(chosen)
        self.readers = [name for name in chosen if name not in self.skipped] if cases else []
        starts = range(first, first + cases, CHUNK)
        # In turn, so that where time is over all readers have come as far.
        self._todo: deque[Cases] = deque(
            (name, start, min(start + CHUNK, first + cases)) for start in starts for name in self.readers
        )
        self._lock, self._outcome = threading.Lock(), Outcome()
        self._place = tempfile.TemporaryDirectory()

    @property
    def outcome(self) -> Outcome:
        return self._outcome.in_order()

    def __enter__(self) -> Fuzz:
        if self.readers:
            making = [sys.executable, "-m", "tests.faults.originals", self._place.name, *self.readers]
            made = subprocess.run(making, cwd=ROOT, env=os.environ | ENVIRONMENT, capture_output=True, text=True)
            if made.returncode:
                self._place.cleanup()
                raise RuntimeError(f"the good files cannot be made:\n{made.stderr[-2000:]}")
        return self

    def __exit__(self, *error: object) -> None:
        self._place.cleanup()

    @property
    def over(self) -> bool:
        return time.monotonic() >= self.until

    def work(self) -> None:
        """Have cases read until there are none left, or time is over."""
        process: _Process | None = None
        try:
            while (cases := self._next()) is not None:
                process = process or _Process(self._place.name, self.seed, self.limit_s)
                ended_at = process.read(cases, self)
                if ended_at is not None:
                    process.end()
                    process = None
                    self._todo.appendleft((cases[0], ended_at + 1, cases[2]))
        finally:
            if process is not None:
                process.end()

    def _next(self) -> Cases | None:
        with suppress(IndexError):
            while not self.over:
                name, first, last = self._todo.popleft()
                if first < last:
                    return name, first, last
        return None

    def add(self, *found: Any) -> None:
        with self._lock:
            self._outcome.add(*found)
        self._done()


class _Process:
    """One that reads damaged files, and what it says of each."""

    def __init__(self, place: str, seed: int, limit_s: float) -> None:
        self._limit_s = limit_s
        self._folder = tempfile.TemporaryDirectory(dir=place)
        self._errors = Path(self._folder.name) / "errors"
        with self._errors.open("w") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.child"],
                cwd=ROOT,
                env=os.environ | ENVIRONMENT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
            )
        self._said = b""
        self._tell({"originals": place, "folder": self._folder.name, "seed": seed, "limit_s": limit_s})

    def read(self, cases: Cases, fuzz: Fuzz) -> int | None:
        """Have these read; the number of the case that the process did not survive, None where it did."""
        self._tell(cases)
        name, first, last = cases
        case: int | None = None  # that is being read
        while not (case is None and fuzz.over):
            line = self._line(max(PATIENCE_S, 10 * self._limit_s))
            if line is None:
                fuzz.add(name, first if case is None else case, "", *self._why())
                return last if case is None else case  # without the good file there is no case to read
            number, *found = json.loads(line)
            case = None if found else number
            if found:
                fuzz.add(name, number, *found)
                if number + 1 == last:
                    break
        return None

    def _tell(self, order: Any) -> None:
        assert self._child.stdin is not None
        with suppress(BrokenPipeError):  # it has ended, as will be seen
            self._child.stdin.write(json.dumps(order).encode() + b"\n")

    def _line(self, patience_s: float) -> bytes | None:
        """What it says next; None where it says nothing any more."""
        assert self._child.stdout is not None
        while b"\n" not in self._said:
            if not select.select([self._child.stdout], [], [], patience_s)[0]:
                return None
            got = self._child.stdout.read(1 << 16)
            if not got:
                return None
            self._said += got
        line, _, self._said = self._said.partition(b"\n")
        return line

    def _why(self) -> tuple[str, str]:
        try:
            return "traceback", f"the process ended with {self._child.wait(1)}: {self._errors.read_text()[-500:]}"
        except subprocess.TimeoutExpired:
            return "hang", "waits, or is deaf to signals"

    def end(self) -> None:
        self._child.kill()
        self._child.communicate()
        self._folder.cleanup()


def fuzz(cases: int, seed: int, readers: Iterable[str] = tuple(READERS)) -> Outcome:
    """All of it by one process."""
    with Fuzz(cases, seed, readers=readers) as all_of_it:
        all_of_it.work()
    return all_of_it.outcome
