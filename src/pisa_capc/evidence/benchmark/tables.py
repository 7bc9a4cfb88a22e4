"""The paper's tables from the records of a protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from pisa_capc.data.protocol import DIRECT, PAPER, SAFE, stage_title
from pisa_capc.evidence.benchmark.protocols import MethodPlan, Protocol, is_guarded
from pisa_capc.evidence.benchmark.results import (
    Deployed,
    Difference,
    Key,
    Mean,
    Results,
    deployed,
    mean,
    not_recorded,
    paired_difference,
)
from pisa_capc.model.encoders import encoder_title
from pisa_capc.model.methods import is_solved, method_title
from pisa_capc.model.runs import NO_ENCODER

FULL = "full"  # the reference of the component ablation


class PaperStage(NamedTuple):
    """A stage of the paper's comparison, and the name of the one that it is measured against."""

    name: str
    method: str
    stage: str
    before: str


STAGES = (
    PaperStage("Single", "single", DIRECT, ""),
    PaperStage("PISA", "pisa", DIRECT, "Single"),
    PaperStage("PISA-CAPC", "pisa", PAPER, "PISA"),
    PaperStage("PISA-CAPC (safe)", "pisa", SAFE, "PISA"),
)
PAIRED = (
    "Mean ± sample standard deviation over the runs. Differences are those of runs with the same seeds, with their "
    "95 % confidence interval (t distribution over runs; runs that share a split are taken as independent)."
)
BIMODAL = (
    "A training has collapsed where its source-validation Macro-F1 is below half of the best of its row; with such "
    "trainings the median stands beside the mean."
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
    "earlier_code",  # what differs, where only earlier code has made the row
    "macro_f1_median",
    "collapsed",  # share of the runs
    "accuracy_mean",  # the rank-1 rate
    "balanced_accuracy_mean",
    "eer_mean",  # of claims, where every frame claims every device; records of earlier versions have none
    "cllr_mean",
    "min_cllr_mean",
)
FURTHER = tuple(name.removesuffix("_mean") for name in COLUMNS[-5:])

Cell = str | int | Mean | Difference | None


@dataclass(frozen=True)
class Table:
    title: str
    headings: tuple[str, ...]
    rows: list[list[Cell]]
    note: str = PAIRED


def make_tables(protocol: Protocol, results: Results) -> list[Table]:
    """The tables that the protocol's comparisons call for; a plain list of scores where it has none."""
    tables = [
        replace(
            table,
            note=_joined(
                table.note,
                BIMODAL * _has_collapsed(table),
                _gaps(protocol, results, [place]),
                results.remark(place),
                results.unrepeated(place),
            ),
        )
        for place in results.places()
        for table in _comparisons(protocol, results, *place)
    ]
    return tables or [_scores(protocol, results)]


def _gaps(protocol: Protocol, results: Results, places: Sequence[tuple[str, str]]) -> str:
    """Which runs of the plan have no record; empty where all have."""
    found = {place: missing for place in places if (missing := not_recorded(protocol, results, place))}
    where = {place: f" of {', '.join(place)}" if len(places) > 1 else "" for place in found}
    return _joined(*(f"Not recorded{where[place]}: {'; '.join(missing)}." for place, missing in found.items()))


def _has_collapsed(table: Table) -> bool:
    return any(isinstance(cell, Mean) and cell.collapsed > 0 for row in table.rows for cell in row)


def _joined(*sentences: str) -> str:
    return " ".join(filter(None, sentences))


def _comparisons(protocol: Protocol, results: Results, dataset: str, direction: str) -> list[Table]:
    place, tables = (dataset, direction), []
    if protocol.deployments:
        return [_deployments(found) for found in deployed(protocol, results, place)]
    if is_comparison(protocol):
        for encoder in protocol.encoders:
            tables += _groups(protocol, encoder, results, *place)
            tables += _composed(protocol, encoder, results, *place)
        return tables
    if {"single", "pisa"} <= {row.method for row in protocol.methods}:
        tables.append(_three_stages(protocol, results, *place))
    for row in protocol.methods:
        if FULL in row.variants and len(row.variants) > 1:
            tables += [_components(row, encoder, results, *place) for encoder in protocol.encoders]
        if PAPER in row.calibration and len(protocol.methods) == 1 and len(row.calibration) > 1:
            tables += [_calibrations(row, encoder, results, *place) for encoder in protocol.encoders]
    return tables


def is_comparison(protocol: Protocol) -> bool:
    """Whether PISA is compared with more than Single: the table of external baselines."""
    methods = {row.method for row in protocol.methods}
    return "pisa" in methods and not methods <= {"single", "pisa"}


def stage_name(method: str, stage: str, variant: str = FULL) -> str:
    """What a method's stage is called in the paper: PISA-CAPC, or 'SigMix + U-CAPC'; other settings are named."""
    if variant != FULL:
        return f"{stage_name(method, stage)} {variant}"
    name = method_title(method)
    if stage == DIRECT:
        return name
    calibrated = "PISA-CAPC" if method == "pisa" else f"{name} + U-CAPC"
    return calibrated if stage == PAPER else f"{calibrated} ({stage})"


def model_name(key: Key, stage: str = DIRECT) -> str:
    """What a stage of a method is called beside others: 'PISA-CAPC with CNN'; a solved method has no encoder."""
    return stage_name(key.method, stage, key.variant) + _with(key.method, key.encoder)


def _with(method: str, encoder: str) -> str:
    return "" if is_solved(method) else f" with {encoder_title(encoder)}"


def shown_cell(cell: Sequence[str]) -> list[str]:
    """Direction, method, variant and encoder as tables show them."""
    return [*cell[:3], NO_ENCODER if is_solved(cell[1]) else cell[3]]


def flat_rows(results: Results) -> list[dict[str, Any]]:
    """One row per dataset, direction, method, variant, encoder and stage, for programs; see COLUMNS."""
    rows = []
    for key in results.runs:
        source = results.mean(key, results.source_f1(key))
        for stage, count in results.stages(key).items():
            f1, auroc = results.mean(key, results.f1(key, stage)), mean(results.auroc(key, stage))
            mean_f1, std, middle, collapsed = f1 or (None, None, None, None)
            numbers = (mean_f1, std, *(auroc or (None, None))[:2], source and source.mean, count)
            of, more = (key.dataset, *shown_cell(key[1:]), stage), (results.earlier.get(key), middle, collapsed)
            further = [mean(results.score(key, stage, name)) for name in FURTHER]
            means = [None if found is None else found.mean for found in further]
            rows.append(dict(zip(COLUMNS, (*of, *numbers, *more, *means), strict=True)))
    return rows


def _three_stages(protocol: Protocol, results: Results, dataset: str, direction: str) -> Table:
    """Single, PISA and PISA-CAPC by encoder, and the safe one where it is recorded, each with its gain."""
    found = {
        (encoder, stage.name): Key(dataset, direction, stage.method, FULL, encoder)
        for encoder in protocol.encoders
        for stage in STAGES
    }
    stages = stages_of(results, (dataset, direction))
    headings = ["Encoder", "runs"]
    for stage in stages:
        headings += [f"{stage.name} F1", f"{stage.name} AUROC"]
        headings += [f"{stage.name} Δ{stage.before}"] if stage.before else []
    rows: list[list[Cell]] = []
    for encoder in protocol.encoders:
        runs = max(len(results.runs.get(found[encoder, stage.name], ())) for stage in STAGES)
        if not runs:
            continue
        row: list[Cell] = [encoder_title(encoder), runs]
        f1 = {stage.name: results.f1(found[encoder, stage.name], stage.stage) for stage in STAGES}
        for stage in stages:
            key = found[encoder, stage.name]
            row += [results.mean(key, f1[stage.name]), mean(results.auroc(key, stage.stage))]
            row += [paired_difference(f1[stage.name], f1[stage.before])] if stage.before else []
        rows.append(row)
    return Table(f"{dataset}, {direction}: three stages", tuple(headings), rows)


def stages_of(results: Results, place: tuple[str, str]) -> list[PaperStage]:
    """The paper's three stages, and the safe one where it is recorded at this dataset and direction."""
    recorded = {
        (key.method, stage)
        for key, runs in results.runs.items()
        if key[:2] == place
        for record in runs.values()
        for stage in record.stages
    }
    return [stage for stage in STAGES if stage.stage in (DIRECT, PAPER) or (stage.method, stage.stage) in recorded]


def _groups(protocol: Protocol, encoder: str, results: Results, dataset: str, direction: str) -> list[Table]:
    """The paper's Group A, direct inference, against PISA; and Group B, after U-CAPC, against PISA-CAPC."""
    keys = {row.method: Key(dataset, direction, row.method, FULL, encoder) for row in protocol.methods}
    recorded = {method: key for method, key in keys.items() if key in results.runs}
    if not recorded:
        return []
    pisa, capc = (results.f1(keys["pisa"], stage) for stage in (DIRECT, PAPER))
    group_a: list[list[Cell]] = []
    group_b: list[list[Cell]] = []
    for method, key in recorded.items():
        direct = results.f1(key, DIRECT)
        scores = (results.mean(key, direct), mean(results.auroc(key, DIRECT)))
        delta = None if method == "pisa" else paired_difference(direct, pisa)
        source = results.mean(key, results.source_f1(key))
        group_a.append([stage_name(method, DIRECT), len(direct), source, *scores, delta])
        for stage in results.stages(key):
            if stage == DIRECT or is_guarded(protocol.calibration.get(stage, {})):  # beside each other in _composed
                continue
            f1 = results.f1(key, stage)
            scores = (results.mean(key, f1), mean(results.auroc(key, stage)))
            delta = None if (method, stage) == ("pisa", PAPER) else paired_difference(f1, capc)
            group_b.append([stage_name(method, stage), len(f1), source, *scores, paired_difference(f1, direct), delta])
    title = f"{dataset}, {direction}, {encoder_title(encoder)}: Group"
    headings = ("Method", "runs", "Source val F1", "Target F1", "Target AUROC")
    tables = [Table(f"{title} A, direct inference", (*headings, "ΔPISA"), group_a)]
    if group_b:
        tables.append(Table(f"{title} B, after U-CAPC", (*headings, "Δdirect", "ΔPISA-CAPC"), group_b))
    return tables


def _composed(protocol: Protocol, encoder: str, results: Results, dataset: str, direction: str) -> list[Table]:
    """How much of each method's score its training gives, and how much a calibration."""
    shared = shared_stages(protocol)
    rows: list[list[Cell]] = []
    for planned in protocol.methods:
        key = Key(dataset, direction, planned.method, FULL, encoder)
        direct = results.f1(key, DIRECT)
        if direct:
            after = [results.f1(key, stage) for stage in shared]
            changes = [cell for f1 in after for cell in (results.mean(key, f1), paired_difference(f1, direct))]
            rows.append([stage_name(planned.method, DIRECT), len(direct), results.mean(key, direct), *changes])
    if not shared or not rows:
        return []
    headings = [
        heading for stage in shared for heading in (f"{stage_title(stage)} F1", f"{stage_title(stage)} Δdirect")
    ]
    title = f"{dataset}, {direction}, {encoder_title(encoder)}: training and calibration"
    return [Table(title, ("Method", "runs", "direct F1", *headings), rows)]


def shared_stages(protocol: Protocol) -> list[str]:
    """The calibrations after which every method is scored."""
    return [stage for stage in protocol.calibration if all(stage in row.calibration for row in protocol.methods)]


def _components(row: MethodPlan, encoder: str, results: Results, dataset: str, direction: str) -> Table:
    """Variants of a method by direct inference, and what each loses against the full method."""
    whole = results.f1(Key(dataset, direction, row.method, FULL, encoder), DIRECT)
    rows: list[list[Cell]] = []
    for variant in row.variants:
        key = Key(dataset, direction, row.method, variant, encoder)
        f1 = results.f1(key, DIRECT)
        drop = None if variant == FULL else paired_difference(whole, f1)
        source = results.mean(key, results.source_f1(key))
        rows.append([variant, len(results.runs.get(key, ())), source, results.mean(key, f1), drop])
    title = f"{dataset}, {direction}: components of {row.method}{_with(row.method, encoder)}"
    return Table(title, ("Variant", "runs", "Source val F1", "Target F1", "Drop"), rows)


def _calibrations(row: MethodPlan, encoder: str, results: Results, dataset: str, direction: str) -> Table:
    """Stages of one trained model, each against U-CAPC as published."""
    key = Key(dataset, direction, row.method, next(iter(row.variants)), encoder)
    published = results.f1(key, PAPER)
    rows: list[list[Cell]] = []
    for stage in (DIRECT, *row.calibration):
        f1 = results.f1(key, stage)
        delta = None if stage == PAPER else paired_difference(f1, published)
        rows.append([stage_title(stage), len(f1), results.mean(key, f1), mean(results.auroc(key, stage)), delta])
    title = f"{dataset}, {direction}: calibration of {row.method}{_with(row.method, encoder)}"
    return Table(title, ("Stage", "runs", "Target F1", "Target AUROC", "ΔF1"), rows)


def _deployments(found: Deployed) -> Table:
    """Mean Macro-F1 of every stage in every deployment, over the runs of all encoders."""
    rows: list[list[Cell]] = []
    for deployment in found.deployments:
        means = [found.mean(deployment, stage) for stage in found.stages]
        rows.append([deployment.name, *(None if value is None else Mean(value, None) for value in means)])
    title = f"{', '.join(found.place)}: {stage_name(found.method, DIRECT, found.variant)} in every deployment"
    encoders = ", ".join(encoder_title(encoder) for encoder in found.records)
    note = f"Macro-F1 over the devices that are there, mean of {found.runs} runs with {encoders}."
    return Table(title, ("Deployment", *map(stage_title, found.stages)), rows, note)


def _scores(protocol: Protocol, results: Results) -> Table:
    rows: list[list[Cell]] = [
        [
            key.dataset,
            *shown_cell(key[1:]),
            stage_title(stage),
            count,
            results.mean(key, results.source_f1(key)),
            results.mean(key, results.f1(key, stage)),
        ]
        for key in results.runs
        for stage, count in results.stages(key).items()
    ]
    headings = ("Dataset", "Direction", "Method", "Variant", "Encoder", "Stage", "runs", "Source val F1", "Target F1")
    spread = "Mean ± sample standard deviation over the runs."
    note = _joined(spread, _gaps(protocol, results, results.places()), results.remark())
    return Table(protocol.title, headings, rows, note)
