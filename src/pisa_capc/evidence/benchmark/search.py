"""Hyperparameters by leaving out one source environment at a time: the target takes no part.

Every point of the protocol's grid is trained without one of the source environments and scored on that one, by direct
inference; the point with the highest mean over the environments left out is chosen. The trainings are ordinary runs of
an ordinary protocol with records of their own, on a dataset that holds the source environments and nothing else.

Where only one environment is left to train on, its captures stand in for environments, or methods that work across
environments could not be trained at all.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from pisa_capc.core.config import merged
from pisa_capc.core.engines import check_engine
from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.core.progress import console
from pisa_capc.data.protocol import DIRECT
from pisa_capc.data.store.dataset import Dataset
from pisa_capc.data.store.files import write_text_atomic
from pisa_capc.data.store.native import fingerprint
from pisa_capc.evidence.benchmark.data import prepare, search_record, searched_dataset, source_dataset
from pisa_capc.evidence.benchmark.plan import Conditions, plan
from pisa_capc.evidence.benchmark.protocols import Direction, MethodPlan, Protocol, Search
from pisa_capc.evidence.benchmark.records import Record, read_records, sort_out
from pisa_capc.evidence.benchmark.run import Options, run_protocol

SCHEMA = 1


@dataclass(frozen=True)
class Point:
    """Settings that were tried, and their Macro-F1 by the environment left out."""

    settings: dict[str, Any]
    macro_f1: dict[str, float]

    @property
    def mean(self) -> float:
        return fmean(self.macro_f1.values())


@dataclass(frozen=True)
class SearchResult:
    """The result of a search: the points of every method, in the order of the grid."""

    protocol: str
    search: Search
    encoders: tuple[str, ...]
    conditions: Conditions
    domains: str
    points: dict[str, list[Point]]

    def chosen(self, method: str) -> Point:
        """The point with the highest mean; of equal ones the first."""
        return max(self.points[method], key=lambda point: point.mean)

    def tied(self, method: str) -> list[Point]:
        """The points that are as good as the chosen one and come after it."""
        best = self.chosen(method)
        return [point for point in self.points[method] if point.mean == best.mean and point is not best]

    def to_json(self) -> dict[str, Any]:
        methods = {
            method: {
                "chosen": self.chosen(method).settings,
                "points": [{**asdict(point), "mean": point.mean} for point in points],
            }
            for method, points in self.points.items()
        }
        about = {key: getattr(self.search, key) for key in ("epochs", "split_seed", "seeds")}
        return {
            "schema": SCHEMA,
            "protocol": self.protocol,
            "conditions": asdict(self.conditions),
            "encoders": list(self.encoders),
            "domains": self.domains,
            **about,
            "methods": methods,
        }


def search_protocol(protocol: Protocol, options: Options) -> SearchResult:
    """Run what is missing of the protocol's search, and write what was found as `<protocol>-search.json`.

    Stopped at any moment, it goes on from there the next time.
    """
    _, sources = _checked(protocol)
    check_engine(options.engine, options.workers, options.gpus)
    data = source_dataset(prepare(protocol.dataset, options.data, options.work), sources, options.work)
    dataset, path = fingerprint(data), search_record(options.results, protocol.name)
    _check_free(path, dataset)
    points = point_protocols(protocol, data)
    if _finer(points, sources):
        console.print(
            f"Without one of {', '.join(sources)} a single environment is left to train on, so captures stand in for "
            f"environments: {points[0].directions[0].target[0]} is one.",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
    failed: list[tuple[str, str]] = []
    for i, point in enumerate(points, 1):
        console.print(f"point {i} of {len(points)} of every method", highlight=False)
        failed += run_protocol(point, replace(options, data=data)).failed
    if failed:
        name, reason = failed[0]
        raise DataError(f"{len(failed)} jobs of the search failed, first {name}: {reason} Run it again when it can go.")
    found = collect(protocol, points, dataset, options)
    write_text_atomic(path, json.dumps(found.to_json(), indent=1) + "\n")
    return found


def _check_free(path: Path, dataset: str) -> None:
    """Refuse, before any training, to overwrite the result of a search on a different dataset."""
    found = searched_dataset(path)
    if found not in (None, dataset):
        raise DataError(f"{path}: is of other frames ({found}; these are {dataset}). Choose other --results.")


def _checked(protocol: Protocol) -> tuple[Search, tuple[str, ...]]:
    """The search and the source environments; refused where none of them can be left out."""
    if protocol.search is None:
        raise ConfigError(
            f"{protocol.given}: has no section `search`, so nothing can be chosen. Add one as external-baselines has."
        )
    if len(protocol.directions) > 1:
        raise ConfigError(
            f"{protocol.given}: a search needs one direction, found {len(protocol.directions)}: the source of one "
            "is the target of another."
        )
    [direction] = protocol.directions
    if len(direction.source) < 2:
        raise ConfigError(f"{protocol.given}: leaving out a source environment needs two or more, found one.")
    return protocol.search, direction.source


def point_protocols(protocol: Protocol, data: Path) -> list[Protocol]:
    """The i-th points of all methods make the i-th protocol; all write their records into one folder."""
    search, sources = _checked(protocol)
    environments = dict.fromkeys(capture.environment for capture in Dataset.read(data).captures)
    domains = {name: tuple(e for e in environments if _of(e, sources) == name) for name in sources}
    directions = tuple(
        Direction(tuple(d for name in sources if name != left_out for d in domains[name]), domains[left_out])
        for left_out in sources
    )
    rows = [row for row in protocol.methods if row.method in search.grid]
    return [
        replace(
            protocol,
            name=f"{protocol.name}-search",
            directions=directions,
            split_seeds=(search.split_seed,),
            seeds=search.seeds,
            training=replace(protocol.training, epochs=search.epochs),
            methods=tuple(
                MethodPlan(row.method, merged(row.settings, search.points(row.method)[i]), {"full": {}}, ())
                for row in rows
            ),
            calibration={},
            deployments=(),
            search=None,
        )
        for i in range(len(search.points(rows[0].method)))
    ]


def _finer(points: Sequence[Protocol], sources: Sequence[str]) -> bool:
    """Whether captures stand in for environments."""
    return points[0].directions[0].target[0] not in sources


def _of(environment: str, sources: Sequence[str]) -> str:
    """The source environment that an environment of `source_dataset` is, or is a capture position of."""
    return next(name for name in sources if environment == name or environment.startswith(f"{name}."))


def collect(protocol: Protocol, points: Sequence[Protocol], dataset: str, options: Options) -> SearchResult:
    """The scores of the points from their records, of one device and precision: a GPU's where there are several."""
    search, sources = _checked(protocol)
    records = read_records(options.results / f"{protocol.name}-search")
    own = [sort_out(records, plan(point))[0] for point in points]
    runs = sum(len(plan(point)) for point in points)
    device = options.device.split(":")[0]
    asked = [r.conditions for found in own for r in found if device in ("auto", r.conditions.device)]
    whole = [c for c, count in Counter(asked).items() if count == runs and c.dataset == dataset]
    if not whole:
        raise DataError(f"{protocol.name}: the search has no whole set of records. Run `pisa bench select` again.")
    conditions = max(whole, key=str)
    scores: dict[str, list[Point]] = {}
    for method in (row.method for row in protocol.methods if row.method in search.grid):
        scores[method] = [
            Point(settings, _by_environment([r for r in found if r.conditions == conditions], method, sources))
            for settings, found in zip(search.points(method), own, strict=True)
        ]
    domains = "captures" if _finer(points, sources) else "environments"
    return SearchResult(protocol.name, search, protocol.encoders, conditions, domains, scores)


def _by_environment(records: Sequence[Record], method: str, sources: Sequence[str]) -> dict[str, float]:
    """Macro-F1 of a method by the environment left out, the mean over encoders and seeds."""
    return {
        left_out: fmean(
            record.stages[DIRECT]["macro_f1"]
            for record in records
            if record.run.method == method and _of(record.run.target[0], sources) == left_out
        )
        for left_out in sources
    }
