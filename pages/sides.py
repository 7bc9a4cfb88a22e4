"""The two sides of a comparison, by row: the paper's printed numbers and our records."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from benchmarks.report import RECORDS

from pisa_capc.core.config import read_yaml
from pisa_capc.data.protocol import DIRECT
from pisa_capc.evidence.benchmark.protocols import Protocol, read_protocol
from pisa_capc.evidence.benchmark.results import Key, Mean, Results, Values, load_results, mean
from pisa_capc.evidence.benchmark.tables import FULL, is_comparison, stage_name
from pisa_capc.model.encoders import encoder_title

PUBLISHED = Path(__file__).with_name("paper_tables.yaml")

PLACES = {"wifi-sim": "Wi-Fi", "lora-sim": "LoRa"}  # sets in which every device has a channel of its own
SHARED = {"wifi": "Wi-Fi", "lora": "LoRa"}  # and those in which it is the place's


class Row(NamedTuple):
    """What a number is of."""

    direction: str
    method: str
    variant: str
    encoder: str
    stage: str

    @property
    def label(self) -> str:
        variant = "" if self.variant == FULL else f" {self.variant}"
        return f"{encoder_title(self.encoder)}: {stage_name(self.method, self.stage)}{variant}"


@dataclass(frozen=True)
class Published:
    """A table of the paper. numbers: f1, and auroc and source where it has them, as printed."""

    table: str
    data: str
    numbers: dict[Row, dict[str, str]]

    def f1(self, row: Row) -> float | None:
        printed = self.numbers.get(row, {}).get("f1")
        return None if printed is None else float(printed.split(" ± ")[0])

    def change(self, row: Row, before: Row) -> float | None:
        """The difference of the printed means."""
        value, base = self.f1(row), self.f1(before)
        return None if value is None or base is None else value - base


@cache
def recorded(name: str) -> Results:
    """The committed records of a protocol, read once."""
    return load_results(read_protocol(name), RECORDS / name)


@cache
def published() -> dict[str, Published]:
    """The paper's tables, in its order, by protocol."""
    default = {"direction": "E2,E3 → E1", "method": "pisa", "variant": FULL, "stage": DIRECT}
    tables = {}
    for name, values in read_yaml(PUBLISHED).items():
        numbers: dict[Row, dict[str, str]] = {}
        for given in values["rows"]:
            described = {**default, **given}
            row = Row(**{field: described.pop(field) for field in Row._fields})
            numbers[row] = described
        tables[name] = Published(values["table"], values["data"], numbers)
    return tables


@dataclass(frozen=True)
class Ours:
    """The records of one dataset, by row."""

    results: Results
    dataset: str

    def key(self, row: Row) -> Key:
        return Key(self.dataset, row.direction, row.method, row.variant, row.encoder)

    def rows(self, direction: str) -> list[Row]:
        return [
            Row(*key[1:], stage)
            for key, runs in self.results.runs.items()
            if (key.dataset, key.direction) == (self.dataset, direction)
            for stage in next(iter(runs.values())).stages
        ]

    def f1(self, row: Row) -> Values:
        return self.results.f1(self.key(row), row.stage)

    def auroc(self, row: Row) -> Values:
        return self.results.auroc(self.key(row), row.stage)

    def source(self, row: Row) -> Values:
        return self.results.source_f1(self.key(row))

    def mean(self, row: Row, values: Values) -> Mean | None:
        return self.results.mean(self.key(row), values)

    def mean_f1(self, row: Row) -> float | None:
        found = mean(self.f1(row))
        return found and found.mean


def reference(protocol: Protocol, row: Row) -> Row | None:
    """What a row's change is measured from."""
    if row.variant != FULL:
        return row._replace(variant=FULL)
    if row.stage != DIRECT:
        return row._replace(stage=DIRECT)
    if is_comparison(protocol):
        return None if row.method == "pisa" else row._replace(method="pisa")
    methods = {given.method for given in protocol.methods}
    return row._replace(method="single") if row.method == "pisa" and "single" in methods else None
