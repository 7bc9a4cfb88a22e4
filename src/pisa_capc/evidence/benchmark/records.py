"""A finished run: one JSON file, named by the hash of all that determines it."""

from __future__ import annotations

import json
import math
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pisa_capc.core import plugins
from pisa_capc.core.config import differences
from pisa_capc.core.errors import DataError, PisaError
from pisa_capc.data.protocol import DIRECT
from pisa_capc.data.scores import CLAIMS, Scores, f1_per_class
from pisa_capc.data.store.files import cannot_be_read, read_json, write_text_atomic
from pisa_capc.data.store.outside import files_under
from pisa_capc.data.store.seal import KEY, warn_unsealed
from pisa_capc.evidence.benchmark.plan import Conditions, PlannedRun, digest, digest_of_plain
from pisa_capc.evidence.benchmark.protocols import Direction

ROUNDING = 1e-6  # of the last digits, which another processor may give
SAME = 1e-5  # Macro-F1 that two records of one training may be apart: some keep five digits


def check_record(record: Record) -> None:
    """Refuse a record with other stages than its run has, or with numbers out of range or at odds with each other."""
    run = record.run
    Direction(run.source, run.target)
    for name, kind in (("dataset", str), ("machine", Mapping), ("made", Mapping)):
        if not isinstance(found := getattr(record, name), kind):
            raise DataError(f"{name}: expected a {kind.__name__.lower()}, found {found!r}.")
    if sorted(record.stages) != sorted(run.stages):
        raise DataError(f"stages: expected {', '.join(run.stages)}, found {', '.join(record.stages) or 'none'}.")
    for stage, scores in record.stages.items():
        _check_scores(scores, f"stages.{stage}")
    for i, f1 in enumerate(record.repeats):
        _check_number(f1, f"repeats[{i}]", 0, 1)
    _check_number(record.validation_f1, "validation_f1", 0, 1)
    _check_number(record.best_epoch, "best_epoch", 1, run.training.epochs)
    for name in ("training", "scoring"):
        _check_number(record.seconds[name], f"seconds.{name}", 0)


def _check_scores(scores: Any, where: str) -> None:
    if not isinstance(scores, Mapping):
        raise DataError(f"{where}: expected scores by name, found {scores!r}.")
    _check_number(scores["macro_f1"], f"{where}.macro_f1", 0, 1)
    if scores.get("macro_auroc") is not None:  # without frames of two devices there is none, nor in other deployments
        _check_number(scores["macro_auroc"], f"{where}.macro_auroc", 0, 1)
    for name, most in zip(CLAIMS, (1, math.inf, 1 + ROUNDING), strict=True):  # earlier versions have none
        if scores.get(name) is not None:
            _check_number(scores[name], f"{where}.{name}", 0, most)
    for capture, decision in scores.get("guard", {}).items():
        _check_number(decision["price"], f"{where}.guard.{capture}.price", 0)
        if not isinstance(decision["level"], str):
            raise DataError(f"{where}.guard.{capture}.level: expected a word, found {decision['level']!r}.")
    if "confusion" in scores:
        _check_confusion(Scores.from_json(scores), where)


def _check_confusion(scores: Scores, where: str) -> None:
    """Refuse scores that disagree with the confusion matrix they follow from."""
    confusion, devices, captures = scores.confusion, scores.per_device, scores.per_capture
    if confusion.shape != (len(devices), len(devices)) or confusion.min() < 0 or not confusion.any():
        raise DataError(f"{where}.confusion: expected counts of {len(devices)} × {len(devices)} devices.")
    for name, capture in captures.items():
        for score in ("macro_f1", "accuracy"):
            _check_number(getattr(capture, score), f"{where}.per_capture.{name}.{score}", 0, 1)
    f1, frames, hits = f1_per_class(confusion), confusion.sum(), np.trace(confusion)
    follows = {
        "macro_f1": (scores.macro_f1, f1.mean()),
        "accuracy": (scores.accuracy, hits / frames),
        "frames of per_capture": (sum(c.frames for c in captures.values()), frames),
        "accuracy of per_capture": (sum(c.accuracy * c.frames for c in captures.values()) / frames, hits / frames),
        **{f"per_device.{name}": (devices[name], value) for name, value in zip(devices, f1, strict=True)},
    }
    for name, (found, expected) in follows.items():
        if not abs(found - expected) < ROUNDING:
            raise DataError(f"{where}: {name} is {found}; its confusion gives {expected}.")


def _check_number(value: Any, where: str, least: float, most: float = math.inf) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and least <= value <= most):
        limits = f"from {least} on" if most == math.inf else f"from {least} to {most}"
        raise DataError(f"{where}: expected a number {limits}, found {value!r}.")


SCHEMA = 1
RESULTS = Path("results/records")  # where records are unless told; each protocol has a folder of its own in it


@dataclass(frozen=True)
class Record:
    """The scores of a run, and everything they depend on.

    dataset: its name, for people. stages: scores by stage, `Scores.to_json`.
    seconds: of training and scoring, this run's share. machine: versions of packages, processor and GPU.
    strangers: fingerprint of the set of unknown devices, where there was one and it was noted. It follows from the
    dataset and the run but for what a processor rounds, and is not in the name.
    made: when, and with which commit. repeats: direct Macro-F1 of the other records of the same training, where one
    differs from this one: the training does not repeat.
    """

    run: PlannedRun
    conditions: Conditions
    dataset: str
    stages: dict[str, dict[str, Any]]
    validation_f1: float
    best_epoch: int
    seconds: dict[str, float]
    machine: dict[str, Any]
    strangers: str = ""
    made: dict[str, str] = field(default_factory=dict)
    repeats: tuple[float, ...] = ()

    @cached_property
    def name(self) -> str:
        return record_name(self.run, self.conditions)

    @cached_property
    def training(self) -> str:
        """Names the training, which records of several protocols may share."""
        return digest([self.run.training_json(), asdict(self.conditions)])

    @property
    def direct_f1(self) -> float:
        return float(self.stages[DIRECT]["macro_f1"])

    def beside(self, others: Sequence[Record]) -> Record:
        """The record beside others of the same training, which it names where one differs."""
        found = tuple(record.direct_f1 for record in others)
        return replace(self, repeats=found) if any(abs(f1 - self.direct_f1) > SAME for f1 in found) else self

    @property
    def seeds(self) -> tuple[int, int]:
        return self.run.split_seed, self.run.seed

    @property
    def cell(self) -> tuple[str, str, str, str]:
        return self.run.cell

    def path(self, folder: Path) -> Path:
        return folder / f"{self.name}.json"

    def write(self, folder: Path) -> None:
        values = {"schema": SCHEMA} | {part.name: getattr(self, part.name) for part in fields(self)}
        values |= {"run": self.run.to_json(), "conditions": asdict(self.conditions)}
        for later in ("strangers", "made", "repeats"):  # records of earlier versions have none
            if not values[later]:
                del values[later]
        text = json.dumps({**values, KEY: digest(values)}, sort_keys=True)
        write_text_atomic(self.path(folder), text + "\n")


def record_name(run: PlannedRun, conditions: Conditions) -> str:
    return digest_of_plain({"run": run.to_json(), "conditions": asdict(conditions)})


def is_recorded(run: PlannedRun, conditions: Conditions, names: Container[str]) -> bool:
    """Whether a record of these names is of the run, as it is planned or as it is made today."""
    return record_name(run, conditions) in names or record_name(run.today, conditions) in names


def by_training(folders: Iterable[Path]) -> dict[str, list[Record]]:
    """The records in several folders by the training that they are of; folders with broken records are left out."""
    found: dict[str, list[Record]] = {}
    for folder in folders:
        with suppress(DataError):
            for record in read_records(folder):
                found.setdefault(record.training, []).append(record)
    return found


def read_records(folder: Path) -> list[Record]:
    """Every record in the folder; one error names all files that are not whole records."""
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
        run, conditions = PlannedRun.from_json(values["run"]), Conditions(**values["conditions"])
        record = Record(**{**values, "run": run, "conditions": conditions, "repeats": tuple(values.get("repeats", ()))})
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
    planned = {
        digest_of_plain(described): described
        for run in runs
        for described in (run.to_json(), *([] if run.today is run else [run.today.to_json()]))
    }
    current, others = [], []
    for record in records:
        own = record.run.to_json()
        if digest_of_plain(own) in planned:
            current.append(record)
        else:
            nearest = min((differences(own, run) for run in planned.values()), key=_distance)
            others.append((record, "; ".join(_difference(*found) for found in nearest)))
    return current, others


def _difference(name: str, was: Any, now: Any) -> str:
    if name != "plugins":
        return f"{name} is {was!r}, now {now!r}"
    made = f"made with {plugins.listed(was)}" if was else "made without a plugin"
    return f"{made}, now {plugins.listed(now)}" if now else f"{made}, which is not here: --plugin FILE gives it"


def _distance(found: Sequence[tuple[str, Any, Any]]) -> tuple[int, int]:
    """How far apart two runs are: a run that differs in its code alone is the same run, made earlier or later."""
    return sum(not name.startswith("code.") for name, _, _ in found), len(found)
