"""What a record can say: the stages that were planned, and scores that a run can have given."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pisa_capc.core.errors import DataError
from pisa_capc.data.scores import Scores, f1_per_class
from pisa_capc.evidence.benchmark.plan import PlannedRun
from pisa_capc.evidence.benchmark.protocols import Direction

if TYPE_CHECKING:
    from pisa_capc.evidence.benchmark.records import Record

ROUNDING = 1e-6  # of the last digits, which another processor may give


def check_record(record: Record) -> None:
    """Refuse a record with other stages than its run has, or with numbers out of range or at odds with each other."""
    run = PlannedRun(**record.run)
    Direction(tuple(run.source), tuple(run.target))
    for name, kind in (("dataset", str), ("machine", Mapping)):
        if not isinstance(found := getattr(record, name), kind):
            raise DataError(f"{name}: expected a {kind.__name__.lower()}, found {found!r}.")
    if sorted(record.stages) != sorted(run.stages):
        raise DataError(f"stages: expected {', '.join(run.stages)}, found {', '.join(record.stages) or 'none'}.")
    for stage, scores in record.stages.items():
        _check_scores(scores, f"stages.{stage}")
    _check_number(record.validation_f1, "validation_f1", 0, 1)
    _check_number(record.best_epoch, "best_epoch", 1, run.training["epochs"])
    for name in ("training", "scoring"):
        _check_number(record.seconds[name], f"seconds.{name}", 0)


def _check_scores(scores: Any, where: str) -> None:
    if not isinstance(scores, Mapping):
        raise DataError(f"{where}: expected scores by name, found {scores!r}.")
    _check_number(scores["macro_f1"], f"{where}.macro_f1", 0, 1)
    if scores.get("macro_auroc") is not None:  # without frames of two devices there is none, nor in other deployments
        _check_number(scores["macro_auroc"], f"{where}.macro_auroc", 0, 1)
    for capture, decision in scores.get("guard", {}).items():
        _check_number(decision["price"], f"{where}.guard.{capture}.price", 0)
        if not isinstance(decision["level"], str):
            raise DataError(f"{where}.guard.{capture}.level: expected a word, found {decision['level']!r}.")
    if "confusion" in scores:
        _check_confusion(Scores.from_json(scores), where)


def _check_confusion(scores: Scores, where: str) -> None:
    """Whatever follows from the confusion must be what it gives."""
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
