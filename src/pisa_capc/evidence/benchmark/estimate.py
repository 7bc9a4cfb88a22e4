"""How long runs will take, by the recorded seconds of runs like them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from pisa_capc.core.errors import DataError
from pisa_capc.evidence.benchmark.plan import PlannedRun
from pisa_capc.evidence.benchmark.protocols import is_guarded
from pisa_capc.evidence.benchmark.records import Record, read_records

LIKE = ("method", "encoder", "source", "training")  # what decides how long a training takes, beside data and device


class Estimate(NamedTuple):
    """seconds: of the runs that a like one is recorded of, one after the other. unknown: runs of which there is none.
    by: how many records it goes by, and the machines they were made on."""

    seconds: float
    unknown: int
    by: int
    machines: tuple[str, ...]


def estimate(runs: Sequence[PlannedRun], dataset: str, device: str, results: Path, own: str) -> Estimate:
    """From the records in `results`, those of the protocol `own` first: of the same data, device, method, encoder,
    source and training. The guard's trainings count as much again for each source environment but one."""
    wanted = {_kind(run.to_json()) for run in runs}
    found: dict[str, list[Record]] = {}
    for folder in (results / own, *sorted(path for path in results.glob("*") if path.is_dir() and path.name != own)):
        for kind, record in _like(folder, wanted - set(found), dataset, device):
            found.setdefault(kind, []).append(record)
    seconds, unknown = 0.0, 0
    for run in runs:
        if like := found.get(_kind(run.to_json())):
            trainings = len(run.source) if any(map(is_guarded, run.calibration.values())) else 1
            seconds += mean(trainings * r.seconds["training"] + r.seconds.get("scoring", 0.0) for r in like)
        else:
            unknown += 1
    records = [record for like in found.values() for record in like]
    machines = dict.fromkeys(str(r.machine.get("gpu") or f"{r.machine.get('cores')} cores") for r in records)
    return Estimate(seconds, unknown, len(records), tuple(machines))


def _like(folder: Path, wanted: set[str], dataset: str, device: str) -> Iterator[tuple[str, Record]]:
    if not wanted:
        return
    try:
        records = read_records(folder)
    except DataError:  # of a protocol that was not asked for
        return
    for record in records:
        kind = _kind(record.run)
        if kind in wanted and record.dataset == dataset and record.conditions.device == device:
            yield kind, record


def _kind(run: Mapping[str, Any]) -> str:
    return str([run[key] for key in LIKE])
