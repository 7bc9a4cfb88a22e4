"""A finished run: one JSON file, named by the hash of all that determines it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pisa_capc.core import plugins
from pisa_capc.core.config import differences
from pisa_capc.core.errors import DataError, PisaError
from pisa_capc.data.store.files import cannot_be_read, read_json, write_text_atomic
from pisa_capc.data.store.outside import files_under
from pisa_capc.data.store.seal import KEY, warn_unsealed
from pisa_capc.evidence.benchmark.checks import check_record
from pisa_capc.evidence.benchmark.plan import Conditions, PlannedRun, digest
from pisa_capc.evidence.benchmark.protocols import Direction

SCHEMA = 1
RESULTS = Path("results/records")  # where records are unless told; each protocol has a folder of its own in it


@dataclass(frozen=True)
class Record:
    """What was measured, and all it depends on.

    run: `PlannedRun.to_json`. dataset: its name, for people. stages: scores by stage, `Scores.to_json`.
    seconds: of training and scoring, this run's share. machine: versions of packages, processor and GPU.
    strangers: fingerprint of the set of unknown devices, where there was one and it was noted. It follows from the
    dataset and the run but for what a processor rounds, and is not in the name.
    """

    run: dict[str, Any]
    conditions: Conditions
    dataset: str
    stages: dict[str, dict[str, Any]]
    validation_f1: float
    best_epoch: int
    seconds: dict[str, float]
    machine: dict[str, Any]
    strangers: str = ""

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
        values = {"schema": SCHEMA, **asdict(self)}
        if not self.strangers:
            del values["strangers"]
        text = json.dumps({**values, KEY: digest(values)}, sort_keys=True)
        write_text_atomic(self.path(folder), text + "\n")


def record_name(run: Mapping[str, Any], conditions: Conditions) -> str:
    return digest({"run": run, "conditions": asdict(conditions)})


def read_records(folder: Path) -> list[Record]:
    """Every record in the folder; files that are not whole records are one error that names them all."""
    records, broken, unsealed = [], [], 0
    for path in files_under(folder, ".json", deep=False):
        try:
            record, sealed = _read(path)
            records.append(record)
            unsealed += not sealed
        except OSError as error:
            raise cannot_be_read(path, error) from error
        except DataError as error:
            broken.append(str(error))
    if len(broken) == 1:
        raise DataError(f"{broken[0]} Remove the file; `pisa bench run` makes the record again.")
    if broken:
        found = "\n".join(broken)
        raise DataError(
            f"{folder}: {len(broken)} of {len(broken) + len(records)} records cannot be used. Remove these files; "
            f"`pisa bench run` makes the records again.\n{found}"
        )
    if unsealed:
        warn_unsealed(f"{folder}: {unsealed} of {len(records)} records")
    return records


def _read(path: Path) -> tuple[Record, bool]:
    """A record, and whether it has a digest, which it then fits."""
    try:
        values = read_json(path)
        mark = values.pop(KEY, None)  # records of earlier versions have none
        content = digest(values)
        schema = values.pop("schema")
        if schema != SCHEMA:
            raise DataError(f"written with schema {schema}; this version reads {SCHEMA}.")
        record = Record(**{**values, "conditions": Conditions(**values["conditions"])})
        if record.name != path.stem:
            raise DataError(f"its content is that of {record.name}.json; it was changed or renamed.")
        if mark not in (None, content):
            raise DataError(f"its content has the digest {content} and says {mark}; it was changed.")
        check_record(record)
    except PisaError as error:
        raise DataError(f"{path}: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{path}: not a whole record ({type(error).__name__}: {error}).") from error
    return record, mark is not None


def sort_out(records: Iterable[Record], runs: Iterable[PlannedRun]) -> tuple[list[Record], list[tuple[Record, str]]]:
    """The records of the runs, and the others with what differs: settings or versions of another time."""
    planned = {digest(described): described for described in (run.to_json() for run in runs)}
    current, others = [], []
    for record in records:
        if digest(record.run) in planned:
            current.append(record)
        else:
            nearest = min((differences(record.run, run) for run in planned.values()), key=_distance)
            others.append((record, "; ".join(_difference(*found) for found in nearest)))
    return current, others


def _difference(name: str, was: Any, now: Any) -> str:
    if name != "plugins":
        return f"{name} is {was!r}, now {now!r}"
    made = f"made with {plugins.listed(was)}" if was else "made without a plugin"
    return f"{made}, now {plugins.listed(now)}" if now else f"{made}, which is not here: --plugin FILE gives it"


def _distance(found: Sequence[tuple[str, Any, Any]]) -> tuple[int, int]:
    """How far apart two runs are: one that differs in its code alone is the same run of another time."""
    return sum(not name.startswith("code.") for name, _, _ in found), len(found)
