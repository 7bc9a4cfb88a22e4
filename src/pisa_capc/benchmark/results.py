"""Records by what they are of, and how results are compared: run by run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pisa_capc.benchmark.plan import Conditions, plan
from pisa_capc.benchmark.protocols import Protocol
from pisa_capc.benchmark.records import Record, read_records, sort_out
from pisa_capc.errors import DataError
from pisa_capc.scores import mean_and_spread

CONFIDENCE = 0.95


class Mean(NamedTuple):
    """Mean and sample standard deviation; a single run has no spread."""

    mean: float
    std: float | None


class Difference(NamedTuple):
    """Mean of the differences of paired runs, and the limits of its 95 % confidence interval."""

    mean: float
    low: float
    high: float


class Key(NamedTuple):
    """What runs that differ only in their seeds are of."""

    dataset: str
    direction: str
    method: str
    variant: str
    encoder: str


Values = dict[tuple[int, int], float]  # one number of each run, by split seed and training seed


@dataclass(frozen=True)
class Results:
    """The records of a protocol by key and seeds; `others` are of other settings or code, with what differs."""

    runs: dict[Key, dict[tuple[int, int], Record]]
    others: list[tuple[Record, str]]

    def places(self) -> list[tuple[str, str]]:
        """Every dataset and direction that there are records of, in the order of the protocol."""
        return list(dict.fromkeys((key.dataset, key.direction) for key in self.runs))

    def stages(self, key: Key) -> Counter[str]:
        """How many runs each stage is recorded of, in the order of the stages."""
        return Counter(stage for record in self.runs[key].values() for stage in record.stages)

    def values(self, key: Key, value: Callable[[Record], float | None]) -> Values:
        """One number of each run; runs for which it is not defined are left out."""
        found = {seeds: value(record) for seeds, record in self.runs.get(key, {}).items()}
        return {seeds: number for seeds, number in found.items() if number is not None}

    def f1(self, key: Key, stage: str) -> Values:
        return self.values(key, lambda record: record.stages.get(stage, {}).get("macro_f1"))

    def auroc(self, key: Key, stage: str) -> Values:
        return self.values(key, lambda record: record.stages.get(stage, {}).get("macro_auroc"))

    def source_f1(self, key: Key) -> Values:
        return self.values(key, lambda record: record.validation_f1)


def load_results(protocol: Protocol, folder: Path) -> Results:
    """The records of the protocol in `folder`, in its order. Datasets, devices and precisions are never mixed."""
    runs = plan(protocol)
    records, others = sort_out(read_records(folder), runs)
    if not records:
        old = f" It holds {len(others)} records of other settings or code." if others else ""
        data = "" if protocol.dataset.simulate else " --data FOLDER"
        raise DataError(
            f"{folder}: holds no records of {protocol.name}.{old} Make them: pisa bench run {protocol.name}{data}"
        )
    order = {cell: i for i, cell in enumerate(dict.fromkeys(run.cell for run in runs))}
    names = _names(records)
    found: dict[Key, dict[tuple[int, int], Record]] = {}
    for record in records:
        key = Key(names[record.conditions], *record.cell)
        found.setdefault(key, {})[record.seeds] = record
    ordered = sorted(found, key=lambda key: (key.dataset, order[key[1:]]))
    return Results({key: dict(sorted(found[key].items())) for key in ordered}, others)


def _names(records: Sequence[Record]) -> dict[Conditions, str]:
    """What each set of conditions is called: the dataset's name, and whatever else is needed to tell two apart."""
    labels = {record.conditions: record.dataset for record in records}
    names = {}
    for conditions, label in labels.items():
        rivals = [other for other, name in labels.items() if name == label and other != conditions]
        if any(other.dataset != conditions.dataset for other in rivals):
            label += f" {conditions.dataset[:6]}"
        if any((other.device, other.precision) != (conditions.device, conditions.precision) for other in rivals):
            label += f" ({conditions.device}, {conditions.precision})"
        names[conditions] = label
    return names


def mean(values: Values) -> Mean | None:
    return Mean(*mean_and_spread(list(values.values()))) if values else None


def paired_difference(values: Values, reference: Values) -> Difference | None:
    """values − reference over the runs that have both: d̄ ± t(0.975, n − 1) s_d / √n.

    Runs share their seeds, so what a split makes easy or hard cancels. None without two such runs.
    """
    from scipy.special import stdtrit

    differences = np.array([values[seeds] - reference[seeds] for seeds in values if seeds in reference])
    count = len(differences)
    if count < 2:
        return None
    middle = float(differences.mean())
    reach = float(stdtrit(count - 1, (1 + CONFIDENCE) / 2) * differences.std(ddof=1) / math.sqrt(count))
    return Difference(middle, middle - reach, middle + reach)
