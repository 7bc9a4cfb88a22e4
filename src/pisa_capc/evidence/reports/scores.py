"""Tables of scores that every report has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pisa_capc.data.chance import stages_at_chance
from pisa_capc.data.scores import Scores, mean_and_spread, pool
from pisa_capc.evidence.benchmark.render import cell_text
from pisa_capc.evidence.benchmark.results import Mean
from pisa_capc.evidence.evaluation import METRICS
from pisa_capc.evidence.reports.page import Page

HEADINGS = {"macro_f1": "Macro-F1", "accuracy": "accuracy", "macro_auroc": "Macro-AUROC"}


def score_tables(page: Page, title: str, found: Mapping[str, Sequence[Scores]]) -> None:
    """Of every stage, over its runs: all metrics, then by capture and by device."""
    first = next(iter(found.values()))[0]

    def table(caption: str, names: Sequence[str], value: Callable[[Scores, str], float]) -> None:
        def cell(runs: Sequence[Scores], name: str) -> str:
            return cell_text(Mean(*mean_and_spread([value(run, name) for run in runs])))

        rows = [[stage, *(cell(runs, name) for name in names)] for stage, runs in found.items()]
        page.table(f"{title}: {caption}", ["stage", *(HEADINGS.get(name, name) for name in names)], rows)

    table("target scores", METRICS, getattr)
    if at_chance := stages_at_chance({stage: pool(runs).confusion for stage, runs in found.items()}):
        page.text(at_chance)
    table("Macro-F1 by capture", list(first.per_capture), lambda scores, name: scores.per_capture[name].macro_f1)
    table("F1 by device", list(first.per_device), lambda scores, name: scores.per_device[name])
