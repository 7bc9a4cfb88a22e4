"""The paper's tables from the records of a protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pisa_capc.benchmark.protocols import DIRECT, MethodPlan, Protocol
from pisa_capc.benchmark.results import Difference, Key, Mean, Results, mean, paired_difference

FULL, PAPER = "full", "paper"  # the reference of the component ablation, and of the calibration ablation
STAGES = (("Single", "single", DIRECT), ("PISA", "pisa", DIRECT), ("PISA-CAPC", "pisa", PAPER))
NAMES = {
    "cnn": "CNN",
    "mscnn": "MSCNN",
    "resnet": "ResNet",
    "tcn": "TCN",
    "cvcnn": "CVCNN",
    "cldnn": "CLDNN",
    "transformer": "Transformer",
}
PAIRED = (
    "Mean ± sample standard deviation over the runs. Differences are those of runs with the same seeds, with their "
    "95 % confidence interval (t distribution over runs; runs that share a split are taken as independent)."
)
COLUMNS = (
    "dataset",
    "direction",
    "method",
    "variant",
    "encoder",
    "stage",
    "macro_f1_mean",
    "macro_f1_std",
    "auroc_mean",
    "auroc_std",
    "source_f1_mean",
    "runs",
)

Cell = str | int | Mean | Difference | None


@dataclass(frozen=True)
class Table:
    title: str
    headings: tuple[str, ...]
    rows: list[list[Cell]]
    note: str = PAIRED


def make_tables(protocol: Protocol, results: Results) -> list[Table]:
    """The tables that the protocol's comparisons call for; a plain list of scores where it has none."""
    tables = []
    for place in results.places():
        if {"single", "pisa"} <= {row.method for row in protocol.methods}:
            tables.append(_three_stages(protocol, results, *place))
        for row in protocol.methods:
            if FULL in row.variants and len(row.variants) > 1:
                tables += [_components(row, encoder, results, *place) for encoder in protocol.encoders]
            if PAPER in row.calibration and len(row.calibration) > 1:
                tables += [_calibrations(row, encoder, results, *place) for encoder in protocol.encoders]
    return tables or [_scores(protocol, results)]


def flat_rows(results: Results) -> list[dict[str, Any]]:
    """One row per dataset, direction, method, variant, encoder and stage, for programs; see COLUMNS."""
    rows = []
    for key, runs in results.runs.items():
        source = mean(results.source_f1(key))
        for stage in next(iter(runs.values())).stages:
            f1, auroc = mean(results.f1(key, stage)), mean(results.auroc(key, stage))
            numbers = (*(f1 or (None, None)), *(auroc or (None, None)), source and source.mean, len(runs))
            rows.append(dict(zip(COLUMNS, (*key, stage, *numbers), strict=True)))
    return rows


def _three_stages(protocol: Protocol, results: Results, dataset: str, direction: str) -> Table:
    """Single, PISA and PISA-CAPC by encoder, each with what it adds to the one before."""
    headings = ["Encoder", "runs"]
    for i, (name, _, _) in enumerate(STAGES):
        headings += [f"{name} F1", f"{name} AUROC"] + ([f"Δ{STAGES[i - 1][0]}"] if i else [])
    rows: list[list[Cell]] = []
    for encoder in protocol.encoders:
        keys = [Key(dataset, direction, method, FULL, encoder) for _, method, _ in STAGES]
        if not any(key in results.runs for key in keys):
            continue
        row: list[Cell] = [NAMES.get(encoder, encoder), max(len(results.runs.get(key, ())) for key in keys)]
        before = None
        for key, (_, _, stage) in zip(keys, STAGES, strict=True):
            f1 = results.f1(key, stage)
            row += [mean(f1), mean(results.auroc(key, stage))]
            if before is not None:
                row.append(paired_difference(f1, before))
            before = f1
        rows.append(row)
    return Table(f"{dataset}, {direction}: three stages", tuple(headings), rows)


def _components(row: MethodPlan, encoder: str, results: Results, dataset: str, direction: str) -> Table:
    """Variants of a method by direct inference, and what each loses against the whole."""
    whole = results.f1(Key(dataset, direction, row.method, FULL, encoder), DIRECT)
    rows: list[list[Cell]] = []
    for variant in row.variants:
        key = Key(dataset, direction, row.method, variant, encoder)
        f1 = results.f1(key, DIRECT)
        drop = None if variant == FULL else paired_difference(whole, f1)
        rows.append([variant, len(results.runs.get(key, ())), mean(results.source_f1(key)), mean(f1), drop])
    title = f"{dataset}, {direction}: components of {row.method} with {NAMES.get(encoder, encoder)}"
    return Table(title, ("Variant", "runs", "Source val F1", "Target F1", "Drop"), rows)


def _calibrations(row: MethodPlan, encoder: str, results: Results, dataset: str, direction: str) -> Table:
    """Stages of one trained model, each against U-CAPC as published."""
    key = Key(dataset, direction, row.method, next(iter(row.variants)), encoder)
    published = results.f1(key, PAPER)
    rows: list[list[Cell]] = []
    for stage in (DIRECT, *row.calibration):
        f1 = results.f1(key, stage)
        delta = None if stage == PAPER else paired_difference(f1, published)
        rows.append([stage, len(f1), mean(f1), mean(results.auroc(key, stage)), delta])
    title = f"{dataset}, {direction}: calibration of {row.method} with {NAMES.get(encoder, encoder)}"
    return Table(title, ("Stage", "runs", "Target F1", "Target AUROC", "ΔF1"), rows)


def _scores(protocol: Protocol, results: Results) -> Table:
    rows: list[list[Cell]] = [
        [*key, stage, len(runs), mean(results.source_f1(key)), mean(results.f1(key, stage))]
        for key, runs in results.runs.items()
        for stage in next(iter(runs.values())).stages
    ]
    headings = ("Dataset", "Direction", "Method", "Variant", "Encoder", "Stage", "runs", "Source val F1", "Target F1")
    return Table(protocol.title, headings, rows, "Mean ± sample standard deviation over the runs.")
