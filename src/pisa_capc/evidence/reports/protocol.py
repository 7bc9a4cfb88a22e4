"""The report of a protocol, from its records alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pisa_capc.data.protocol import DIRECT
from pisa_capc.evidence.benchmark.protocols import Protocol
from pisa_capc.evidence.benchmark.render import cell_text
from pisa_capc.evidence.benchmark.results import Results, mean
from pisa_capc.evidence.benchmark.tables import make_tables, model_name, shown_cell
from pisa_capc.evidence.figures.protocol import make_figures, stage_scores
from pisa_capc.evidence.reports.page import Page, score_tables
from pisa_capc.model.encoders import encoder_title
from pisa_capc.model.methods import is_solved


def report_of_protocol(protocol: Protocol, results: Results) -> Page:
    """A page about a protocol, from its records alone."""
    records = [record for runs in results.runs.values() for record in runs.values()]
    page = Page(f"{protocol.title} ({protocol.name})")
    for place in results.places():
        page.found(_finding(results, place))
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
                score_tables(page, f"{encoder_title(encoder)}, {place[0]}, {place[1]}", found)
    page.section("Figures")
    with TemporaryDirectory() as folder:
        for picture in make_figures(protocol, results, Path(folder), "svg"):
            page.picture(picture.caption, picture.path)
    page.section("Settings and provenance")
    page.values("The protocol", {k: v for k, v in asdict(protocol).items() if k != "given"})
    rows = [
        [
            record.name,
            *shown_cell(record.cell),
            *map(str, record.seeds),
            "–" if is_solved(record.run.method) else str(record.best_epoch),
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


def _finding(results: Results, place: tuple[str, str]) -> str:
    """The best row at a dataset and direction, with and without its calibration."""
    scores = {
        (key, stage): found.mean
        for key in results.runs
        if key[:2] == place
        for stage in results.stages(key)
        if "@" not in stage and (found := mean(results.f1(key, stage)))
    }
    key, stage = best = max(scores, key=scores.__getitem__)
    before = f", {scores[key, DIRECT]:.3f} without calibration" if stage != DIRECT and (key, DIRECT) in scores else ""
    guess = f"; chance is {chance:.3f}" if (chance := results.chance(place)) else ""
    return (
        f"{', '.join(place)}: the best mean Macro-F1 is {scores[best]:.3f}, of {model_name(key, stage)}{before}{guess}."
    )


def _distinct(values: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [value for i, value in enumerate(values) if value not in values[:i]]
