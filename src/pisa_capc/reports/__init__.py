"""What a report of a trained run, and one of a protocol, say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from pisa_capc.benchmark.protocols import Protocol
from pisa_capc.benchmark.render import cell_text
from pisa_capc.benchmark.results import Mean, Results
from pisa_capc.benchmark.tables import FULL, NAMES, make_tables, stage_name
from pisa_capc.calibration import Calibration
from pisa_capc.calibration.guard import LEVELS
from pisa_capc.evaluation import METRICS
from pisa_capc.figures.dataset import dataset_picture
from pisa_capc.figures.protocol import make_figures, stage_scores
from pisa_capc.figures.run import POINTS, USUAL, Subject, draw_run, stages
from pisa_capc.figures.style import Picture
from pisa_capc.protocol import DIRECT, PAPER, SAFE
from pisa_capc.provenance import machine
from pisa_capc.reports.page import Page
from pisa_capc.scores import Scores, mean_and_spread
from pisa_capc.store.dataset import Dataset

HEADINGS = {"macro_f1": "Macro-F1", "accuracy": "accuracy", "macro_auroc": "Macro-AUROC"}


def report_of_runs(
    subjects: Sequence[Subject], dataset: Path, kinds: Sequence[str] = USUAL, points: int = POINTS, note: str = ""
) -> Page:
    """A page about trained runs on the target: the first subject, and what stands beside it; see `figures.run`.

    note: a sentence to read before the numbers.
    """
    main = subjects[0][0]
    about = main.trained.about
    target = ", ".join(np.unique(main.outputs.environment).tolist())
    page = Page(f"Trained in {', '.join(about['source'])}, tested in {target}")
    page.text(
        f"{len(main.evaluator):,} target frames of {len(main.trained.devices)} devices, never seen in training. "
        "Stages with CAPC in their name are calibrated without labels, capture by capture; the others decide directly."
    )
    if note:
        page.text(note)
    page.section("Scores")
    for encoder, found in stages(subjects).items():
        _score_tables(page, encoder, found)
    _training_table(page, subjects)
    page.section("Calibration")
    _calibration_tables(page, main.stages[PAPER])
    if SAFE in main.stages:
        page.text("The same under the guard that was trained with the model, which decides how far each capture goes:")
        _calibration_tables(page, main.stages[SAFE])
    page.section("Figures")
    with TemporaryDirectory() as folder:
        frames = Path(folder) / "frames.png"
        dataset_picture(dataset, frames)
        pictures = draw_run(subjects, Path(folder), "svg", kinds, points)
        for picture in (*pictures, Picture(frames, "The dataset: a frame, its spectrum, CFO over time, echoes.")):
            page.picture(picture.caption, picture.path)
    page.section("Settings and provenance")
    described = {k: v for k, v in about.items() if k not in ("history", "metrics", "schema")}
    page.values(f"The model in {main.folder.name}", described)
    page.values("The dataset", {"fingerprint": about["dataset"], **Dataset.read(dataset).provenance})
    page.values("Where this report was made", machine())
    return page


def report_of_protocol(protocol: Protocol, results: Results) -> Page:
    """A page about a protocol, from its records alone."""
    records = [record for runs in results.runs.values() for record in runs.values()]
    page = Page(f"{protocol.title} ({protocol.name})")
    page.text(f"{len(records)} recorded runs. {len(results.others)} records of other settings or code are left out.")
    if remark := results.remark():
        page.text(remark)
    page.section("Results")
    for table in make_tables(protocol, results):
        page.table(table.title, table.headings, [[cell_text(cell) for cell in row] for row in table.rows])
        page.text(table.note)
    for place in results.places():
        for encoder in protocol.encoders:
            if found := stage_scores(results, place, encoder):
                _score_tables(page, f"{NAMES.get(encoder, encoder)}, {place[0]}, {place[1]}", found)
    _guard_tables(page, results)
    page.section("Figures")
    with TemporaryDirectory() as folder:
        for picture in make_figures(protocol, results, Path(folder), "svg"):
            page.picture(picture.caption, picture.path)
    page.section("Settings and provenance")
    page.values("The protocol", {k: v for k, v in asdict(protocol).items() if k != "given"})
    rows = [
        [
            record.name,
            *record.cell,
            *map(str, record.seeds),
            str(record.best_epoch),
            f"{record.seconds['training']:.1f}",
        ]
        for record in records
    ]
    headings = ["record", "direction", "method", "variant", "encoder", "split seed", "seed", "best epoch", "seconds"]
    page.table("Runs", headings, rows)
    for conditions in dict.fromkeys(record.conditions for record in records):
        own = [record for record in records if record.conditions == conditions]
        page.values(f"Dataset {own[0].dataset}", {"fingerprint": conditions.dataset})
        for found in _distinct([{**asdict(conditions), **record.machine} for record in own]):
            page.values(f"Machine of runs on {own[0].dataset}", {k: v for k, v in found.items() if k != "dataset"})
    return page


def _score_tables(page: Page, title: str, found: Mapping[str, Sequence[Scores]]) -> None:
    """Of every stage, over its runs: all metrics, then by capture and by device."""
    first = next(iter(found.values()))[0]

    def table(caption: str, names: Sequence[str], value: Callable[[Scores, str], float]) -> None:
        def cell(runs: Sequence[Scores], name: str) -> str:
            return cell_text(Mean(*mean_and_spread([value(run, name) for run in runs])))

        rows = [[stage, *(cell(runs, name) for name in names)] for stage, runs in found.items()]
        page.table(f"{title}: {caption}", ["stage", *(HEADINGS.get(name, name) for name in names)], rows)

    table("target scores", METRICS, getattr)
    table("Macro-F1 by capture", list(first.per_capture), lambda scores, name: scores.per_capture[name].macro_f1)
    table("F1 by device", list(first.per_device), lambda scores, name: scores.per_device[name])


def _guard_tables(page: Page, results: Results) -> None:
    """Of every dataset, direction and guarded stage: models by row, captures by column, runs by what was decided."""
    tables: dict[str, dict[str, dict[str, Counter[str]]]] = {}
    for key, runs in results.runs.items():
        variant = "" if key.variant == FULL else f", {key.variant}"
        model = f"{NAMES.get(key.encoder, key.encoder)}: {stage_name(key.method, DIRECT)}{variant}"
        for record in runs.values():
            for stage, scores in record.stages.items():
                for capture, decision in scores.get("guard", {}).items():
                    table = tables.setdefault(f"{key.dataset}, {key.direction}, stage {stage}", {})
                    counts = table.setdefault(model, {}).setdefault(capture, Counter())
                    counts[decision["level"]] += 1
    for place, rows in tables.items():
        captures = list(dict.fromkeys(capture for row in rows.values() for capture in row))
        page.table(
            f"Decisions of the calibration's guard: {place}",
            ["model", *captures],
            [[model, *(_counted(row.get(capture, Counter())) for capture in captures)] for model, row in rows.items()],
        )
    if tables:
        page.text(
            "Runs by how far the guard let a capture's calibration go: full, part and mild were accepted, from the "
            "boldest to the most cautious; off are those that kept the classifier's own decisions."
        )


def _counted(counts: Counter[str]) -> str:
    """'2 part, 7 mild', the boldest first."""
    order = (*LEVELS, *counts)
    return ", ".join(f"{counts[name]} {name}" for name in sorted(counts, key=order.index)) or "–"


def _training_table(page: Page, subjects: Sequence[Subject]) -> None:
    rows = []
    for one in (one for subject in subjects for one in subject):
        about, metrics = one.trained.about, one.trained.about["metrics"]
        f1, epoch = f"{metrics['validation_f1']:.4f}", f"{metrics['best_epoch']} of {about['training']['epochs']}"
        rows.append([about["method"], about["encoder"], one.trained.name, f1, epoch, f"{about['seconds']:.1f}"])
    page.table("Training", ["method", "encoder", "run", "source-validation F1", "best epoch", "seconds"], rows)


def _calibration_tables(page: Page, result: Calibration) -> None:
    """Every number a capture's summary holds, and what a guard decided where there was one."""
    names = [f.name for f in fields(result.captures[0]) if np.ndim(getattr(result.captures[0], f.name)) == 0]
    masses = ("mass_before", "mass_after")
    rows = [
        [str(getattr(summary, name)) for name in names]
        + [f"{mass.min():,.1f} … {mass.max():,.1f}" for mass in (getattr(summary, m) for m in masses)]
        for summary in result.captures
    ]
    headings = [*names, "emptiest … fullest class before", "after"]
    page.table(f"{result.changed:,} of {len(result.prediction):,} decisions changed", headings, rows)
    if result.guard is not None:
        rows = [
            [str(d.capture), d.level, f"{d.price:.4f}", ", ".join(f"{limit:.4f}" for limit in d.thresholds)]
            for d in result.guard
        ]
        headings = ["capture", "level", "price", f"highest price of {', '.join(LEVELS[:-1])}"]
        page.table("Decisions of the guard", headings, rows)


def _distinct(values: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [value for i, value in enumerate(values) if value not in values[:i]]
