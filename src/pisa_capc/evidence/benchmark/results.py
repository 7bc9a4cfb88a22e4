"""Records grouped by method and encoder, and the comparison of results, run by run."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

import numpy as np

from pisa_capc.core.errors import DataError
from pisa_capc.data.deployments import Deployment
from pisa_capc.data.protocol import DIRECT
from pisa_capc.data.scores import Scores, mean_and_spread
from pisa_capc.evidence.benchmark.plan import Conditions, PlannedRun, digest, plan
from pisa_capc.evidence.benchmark.protocols import Protocol
from pisa_capc.evidence.benchmark.records import RESULTS, Record, read_records, sort_out

CONFIDENCE = 0.95
COLLAPSED = 0.5  # of the best source validation among runs that differ in their seeds; what has less has collapsed


class Mean(NamedTuple):
    """Mean and sample standard deviation; a single run has no spread.

    median, collapsed: where some trainings collapsed, the median and the share of those; see `Results.collapsed`.
    """

    mean: float
    std: float | None
    median: float | None = None
    collapsed: float = 0.0


class Difference(NamedTuple):
    """Mean of the differences of paired runs, and the limits of its 95 % confidence interval."""

    mean: float
    low: float
    high: float


class Key(NamedTuple):
    """What runs have in common that differ only in their seeds."""

    dataset: str
    direction: str
    method: str
    variant: str
    encoder: str


Values = dict[tuple[int, int], float]  # one number of each run, by split seed and training seed


@dataclass(frozen=True)
class Results:
    """The records of a protocol by key and seeds; `others` are of other settings or code, with what differs.

    earlier: keys whose records are of earlier code, because there are none of the present one, with what differs.
    """

    runs: dict[Key, dict[tuple[int, int], Record]]
    others: list[tuple[Record, str]]
    earlier: dict[Key, str] = field(default_factory=dict)

    def chance(self, place: tuple[str, str]) -> float | None:
        """The score of a guess at a dataset and direction, one over its devices, where records count decisions."""
        for key, runs in self.runs.items():
            if key[:2] == place:
                for record in runs.values():
                    if confusion := record.stages[DIRECT].get("confusion"):
                        return 1 / len(confusion)
        return None

    def places(self) -> list[tuple[str, str]]:
        """Every dataset and direction with records, in the order of the protocol."""
        return list(dict.fromkeys((key.dataset, key.direction) for key in self.runs))

    def stages(self, key: Key) -> Counter[str]:
        """How many runs each stage is recorded of, in the order of the stages."""
        return Counter(stage for record in self.runs[key].values() for stage in record.stages)

    def remark(self, place: tuple[str, str] | None = None) -> str:
        """Which results, of one dataset and direction or of all, are of earlier code; empty where none is."""
        found: dict[str, list[str]] = {}
        for key, difference in self.earlier.items():
            if place in (None, key[:2]):
                found.setdefault(difference, []).append(_short(*key[2:]))
        which = "; ".join(f"{', '.join(dict.fromkeys(names))} ({difference})" for difference, names in found.items())
        return which and f"Of earlier code, until `pisa bench run` makes them again: {which}."

    def values(self, key: Key, value: Callable[[Record], float | None]) -> Values:
        """One number of each run; runs for which it is not defined are left out."""
        found = {seeds: value(record) for seeds, record in self.runs.get(key, {}).items()}
        return {seeds: number for seeds, number in found.items() if number is not None}

    def f1(self, key: Key, stage: str) -> Values:
        return self.values(key, lambda record: record.stages.get(stage, {}).get("macro_f1"))

    def auroc(self, key: Key, stage: str) -> Values:
        return self.values(key, lambda record: record.stages.get(stage, {}).get("macro_auroc"))

    def score(self, key: Key, stage: str, name: str) -> Values:
        """Any number of `Scores`, where the stage has a confusion; it may be younger than the record."""

        def value(record: Record) -> float | None:
            stored = record.stages.get(stage, {})
            found = getattr(Scores.from_json(stored), name) if "confusion" in stored else math.nan
            return None if math.isnan(found) else found

        return self.values(key, value)

    def source_f1(self, key: Key) -> Values:
        return self.values(key, lambda record: record.validation_f1)

    def collapsed(self, key: Key) -> list[tuple[int, int]]:
        """The runs whose training collapsed, judged by the source validation alone against the method's best run."""
        found = self.source_f1(key)
        return [seeds for seeds, f1 in found.items() if f1 < COLLAPSED * max(found.values())]

    def mean(self, key: Key, values: Values) -> Mean | None:
        """Mean and spread of numbers of the runs of a key, with the median where some of them have collapsed."""
        lost = [seeds for seeds in self.collapsed(key) if seeds in values]
        found = mean(values)
        if found is None or not lost:
            return found
        return found._replace(median=median(values.values()), collapsed=len(lost) / len(values))

    def unrepeated(self, place: tuple[str, str]) -> str:
        """Which trainings at a dataset and direction did not repeat, and how far apart they ended."""
        parts = []
        for key, runs in self.runs.items():
            found = [record for record in runs.values() if record.repeats and key[:2] == place]
            if found:
                scores = [f1 for record in found for f1 in (record.direct_f1, *record.repeats)]
                ends = f"{min(scores):.4f} to {max(scores):.4f}"
                parts.append(f"{_short(*key[2:])}, {len(found)} of {len(runs)} runs ({ends})")
        which = "; ".join(parts)
        return which and f"Trained more than once with other results (direct Macro-F1): {which}."


def load_results(protocol: Protocol, folder: Path) -> Results:
    """The records of the protocol in `folder`, in its order. Datasets, devices and precisions are never mixed.

    Where a method and encoder has only records of earlier code, these stand in and are named as such.
    """
    runs = plan(protocol)
    records, others = sort_out(read_records(folder), runs)
    stand_ins = _stand_ins(records, others, runs)
    others = [(record, difference) for record, difference in others if record.name not in stand_ins]
    records += [record for record, _ in stand_ins.values()]
    if not records:
        old = f" It holds {len(others)} records of other settings or code." if others else ""
        raise DataError(f"{folder}: holds no records of {protocol.name}.{old} Make them: {_command(protocol, folder)}")
    order = {cell: i for i, cell in enumerate(dict.fromkeys(run.cell for run in runs))}
    names = _names(records)
    found: dict[Key, dict[tuple[int, int], Record]] = {}
    earlier: dict[Key, str] = {}
    for record in records:
        key = Key(names[record.conditions], *record.cell)
        found.setdefault(key, {})[record.seeds] = record
        if record.name in stand_ins:
            earlier[key] = stand_ins[record.name][1]
    ordered = sorted(found, key=lambda key: (key.dataset, order[key[1:]]))
    return Results(
        {key: dict(sorted(found[key].items())) for key in ordered},
        others,
        {key: earlier[key] for key in ordered if key in earlier},
    )


def not_recorded(protocol: Protocol, results: Results, place: tuple[str, str]) -> list[str]:
    """Cells with no record at a dataset and direction, or fewer than planned, as 'irm cnn' or 'single cnn 1 of 2'.

    Other directions are named only if the dataset has no record of them at all.
    """
    dataset, direction = place
    missing = []
    for cell, planned in Counter(run.cell for run in plan(protocol)).items():
        runs = len(results.runs.get(Key(dataset, *cell), ()))
        if cell[0] == direction and runs < planned:
            missing.append(_short(*cell[1:]) + (f" {runs} of {planned}" if runs else ""))
    return missing + [d.name for d in protocol.directions if (dataset, d.name) not in results.places()]


def _short(method: str, variant: str, encoder: str) -> str:
    return f"{method} {variant} {encoder}".replace(" full ", " ")


def _command(protocol: Protocol, folder: Path) -> str:
    """The command that makes the records of a protocol in `folder`."""
    data = [] if protocol.dataset.simulate else ["--data", "FOLDER"]
    results = [] if folder.parent == RESULTS else ["--results", str(folder.parent)]
    return shlex.join(["pisa", "bench", "run", protocol.given, *data, *results])


def _stand_ins(
    records: Sequence[Record], others: Sequence[tuple[Record, str]], runs: Sequence[PlannedRun]
) -> dict[str, tuple[Record, str]]:
    """Records, by name, that differ by their earlier code alone: of each cell without a record of the present code, all
    of the latest version.
    """
    planned = {digest({**run.to_json(), "code": None}): run.code for run in runs}
    present = {(record.conditions, record.cell) for record in records}
    earlier = []
    for record, why in others:
        code, now = record.run.code, planned.get(digest({**record.run.to_json(), "code": None}))
        if now and code.keys() == now.keys() and all(code[part] <= now[part] for part in now):
            earlier.append((record, why))
    latest: dict[Any, list[int]] = {}
    for record, _ in earlier:
        cell = record.conditions, record.cell
        latest[cell] = max(latest.get(cell, []), _version(record))
    return {
        record.name: (record, why)
        for record, why in earlier
        if (cell := (record.conditions, record.cell)) not in present and _version(record) == latest[cell]
    }


def _version(record: Record) -> list[int]:
    return [version for _, version in sorted(record.run.code.items())]


def _names(records: Sequence[Record]) -> dict[Conditions, str]:
    """The name of each set of conditions: the dataset's, and whatever else is needed to tell two apart."""
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


@dataclass(frozen=True)
class Deployed:
    """The runs of one method and variant. place: dataset and direction. stages: direct inference comes first."""

    place: tuple[str, str]
    method: str
    variant: str
    stages: tuple[str, ...]
    deployments: tuple[Deployment, ...]
    records: dict[str, list[Record]]  # by encoder

    @property
    def runs(self) -> int:
        return sum(map(len, self.records.values()))

    def mean(self, deployment: Deployment, stage: str, encoder: str | None = None) -> float | None:
        """Mean Macro-F1 over the runs, of one encoder or of all; none where the stage is not scored there."""
        values = [f1 for f1, _ in self._pairs(deployment, stage, encoder)]
        return fmean(values) if values else None

    def gain(self, deployment: Deployment, stage: str, encoder: str | None = None) -> float:
        """Mean change of Macro-F1 against direct inference in the same deployment."""
        return fmean(f1 - direct for f1, direct in self._pairs(deployment, stage, encoder))

    def worst(self, deployment: Deployment, stage: str) -> tuple[float, str]:
        """The least gain of an encoder, and which it is."""
        return min((self.gain(deployment, stage, encoder), encoder) for encoder in self.records)

    def _pairs(self, deployment: Deployment, stage: str, encoder: str | None) -> Iterator[tuple[float, float]]:
        """Macro-F1 of each run after the stage, and by direct inference."""
        for own, records in self.records.items():
            for record in records if encoder in (None, own) else ():
                if after := record.stages.get(deployment.stage(stage)):
                    yield after["macro_f1"], record.stages[deployment.stage(DIRECT)]["macro_f1"]


def deployed(protocol: Protocol, results: Results, place: tuple[str, str]) -> list[Deployed]:
    """Every method and variant that is recorded at a dataset and direction."""
    found = []
    for row in protocol.methods:
        for variant in row.variants:
            keys = [Key(*place, row.method, variant, encoder) for encoder in protocol.encoders]
            records = {key.encoder: list(results.runs[key].values()) for key in keys if key in results.runs}
            if records:
                stages = (DIRECT, *row.calibration)
                found.append(Deployed(place, row.method, variant, stages, protocol.deployments, records))
    return found
