"""A finished run: one JSON file, named by the hash of all that determines it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pisa_capc.benchmark.plan import Conditions, PlannedRun, digest
from pisa_capc.benchmark.protocols import Direction
from pisa_capc.config import differences
from pisa_capc.errors import DataError
from pisa_capc.store.files import write_text_atomic

SCHEMA = 1


@dataclass(frozen=True)
class Record:
    """What was measured, and all it depends on.

    run: `PlannedRun.to_json`. dataset: its name, for people. stages: scores by stage, `Scores.to_json`.
    seconds: of training and scoring, this run's share. machine: versions of packages, processor and GPU.
    """

    run: dict[str, Any]
    conditions: Conditions
    dataset: str
    stages: dict[str, dict[str, Any]]
    validation_f1: float
    best_epoch: int
    seconds: dict[str, float]
    machine: dict[str, Any]

    @property
    def name(self) -> str:
        return record_name(self.run, self.conditions)

    @property
    def seeds(self) -> tuple[int, int]:
        return self.run["split_seed"], self.run["seed"]

    @property
    def cell(self) -> tuple[str, str, str, str]:
        """Direction, method, variant and encoder, as of `PlannedRun`."""
        direction = Direction(tuple(self.run["source"]), tuple(self.run["target"]))
        return direction.name, self.run["method"], self.run["variant"], self.run["encoder"]

    def path(self, folder: Path) -> Path:
        return folder / f"{self.name}.json"

    def write(self, folder: Path) -> None:
        write_text_atomic(self.path(folder), json.dumps({"schema": SCHEMA, **asdict(self)}, sort_keys=True) + "\n")


def record_name(run: Mapping[str, Any], conditions: Conditions) -> str:
    return digest({"run": run, "conditions": asdict(conditions)})


def read_records(folder: Path) -> list[Record]:
    """Every record in the folder; a file that is not a whole record is an error that names it."""
    return [_read(path) for path in sorted(folder.glob("*.json"))]


def _read(path: Path) -> Record:
    remedy = "Remove the file; `pisa bench run` makes the record again."
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        schema = values.pop("schema")
        if schema != SCHEMA:
            raise DataError(f"{path}: written with schema {schema}; this version reads {SCHEMA}. {remedy}")
        record = Record(**{**values, "conditions": Conditions(**values["conditions"])})
        whole = record.name == path.stem
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{path}: not a whole record ({type(error).__name__}: {error}). {remedy}") from error
    if not whole:
        raise DataError(f"{path}: its content is that of {record.name}.json; it was changed or renamed. {remedy}")
    return record


def sort_out(records: Iterable[Record], runs: Iterable[PlannedRun]) -> tuple[list[Record], list[tuple[Record, str]]]:
    """The records of the runs, and the others with what differs: settings or versions of another time."""
    planned = {digest(run.to_json()): run.to_json() for run in runs}
    current, others = [], []
    for record in records:
        if digest(record.run) in planned:
            current.append(record)
        else:
            nearest = min((differences(record.run, run) for run in planned.values()), key=len)
            others.append((record, "; ".join(f"{name} is {was!r}, now {now!r}" for name, was, now in nearest)))
    return current, others
