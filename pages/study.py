"""The section of the results page on calibrations in every kind of deployment, from the records of that protocol."""

from __future__ import annotations

from functools import cache
from typing import Any

from benchmarks.report import RECORDS

from pages.against_paper import markdown_table as table
from pages.sides import PLACES
from pisa_capc.data.deployments import Deployment
from pisa_capc.data.protocol import DIRECT, PAPER, SAFE, stage_title
from pisa_capc.evidence.benchmark.protocols import read_protocol
from pisa_capc.evidence.benchmark.results import Deployed, deployed, load_results

NAME = "calibration-study"


@cache
def studied() -> dict[str, Deployed]:
    """The recorded models by dataset."""
    protocol = read_protocol(NAME)
    results = load_results(protocol, RECORDS / NAME)
    found = {place[0]: deployed(protocol, results, place)[0] for place in results.places()}
    return {dataset: found[dataset] for dataset in PLACES}


def shown(models: Deployed) -> list[Deployment]:
    """All deployments but those that another one is held against."""
    return [d for d in models.deployments if d.scored == "all" or d.frozen]


def rehearsed(models: Deployed) -> list[Deployment]:
    """Deployments like those that a guard has rehearsed: all but captures of a few devices."""
    return [d for d in shown(models) if d.devices is None]


def aims(models: Deployed) -> dict[str, Any]:
    """What the safe preset keeps and loses."""

    def worst(deployments: list[Deployment], stage: str) -> list[Any]:
        gain, encoder, name = min((*models.worst(d, stage), d.name) for d in deployments)
        return [round(gain, 4), encoder, name]

    def kept(part: float, whole: float) -> float | None:
        return round(part / whole, 3) if whole > 0 else None

    named = {d.name: d for d in models.deployments}
    level = [d for d in models.deployments if d.is_balanced]
    few = [d for d in shown(models) if d.devices is not None]
    shared = [d for d in rehearsed(models) if not d.calibration]
    [withheld] = [d for d in models.deployments if not d.identifiers]
    means = {stage: [models.mean(d, stage) or 0.0 for d in shared] for stage in models.stages}

    def kept_in(stage: str, here: Deployment, there: Deployment) -> float | None:
        return kept(models.gain(here, stage), models.gain(there, stage))

    return {
        "worst safe - direct": worst(rehearsed(models), SAFE),
        "worst paper - direct": worst(rehearsed(models), PAPER),
        "balanced gain kept by safe": kept(
            sum(models.gain(d, SAFE) for d in level), sum(models.gain(d, PAPER) for d in level)
        ),
        "mean over cells": {stage: round(sum(values) / len(values), 4) for stage, values in means.items()},
        "gain kept without identifiers": {
            stage: kept_in(stage, withheld, models.deployments[0]) for stage in (PAPER, SAFE)
        },
        "gain kept frozen": {stage: kept_in(stage, named["frozen"], named["not-frozen"]) for stage in (PAPER, SAFE)},
        "worst - direct, not rehearsed": {stage: worst(few, stage) for stage in (SAFE, PAPER)},
    }


def section() -> str:
    """Every calibration in every kind of deployment."""
    parts = []
    for (dataset, models), title in zip(studied().items(), PLACES.values(), strict=True):
        found = aims(models)
        rows = []
        for deployment in shown(models):
            means = [models.mean(deployment, stage) for stage in models.stages]
            best = max(value for value in means if value is not None)
            cells = ["–" if v is None else f"**{v:.3f}**" if v == best else f"{v:.3f}" for v in means]
            least = " / ".join(f"{models.worst(deployment, stage)[0]:+.3f}" for stage in (PAPER, SAFE))
            rows.append([deployment.name, *cells, least])
        kept, names = found["gain kept without identifiers"], found["mean over cells"]
        beyond = found["worst - direct, not rehearsed"]
        lead = max(names, key=names.__getitem__)
        headings = ["cell", *map(stage_title, models.stages), "worst encoder, U-CAPC / safe − direct"]
        parts.append(f"""### {title} simulation, {models.runs} models

![Change of Macro-F1 by calibration and deployment, {title}](../{dataset}-deployments.png)

{table(headings, rows)}

- Worst mean of an encoder in a cell against direct inference: safe {_text(found["worst safe - direct"])},
  U-CAPC as published {_text(found["worst paper - direct"])}. The target was −0.005 or better for safe.
- Of the published gain in the balanced cells safe keeps {100 * found["balanced gain kept by safe"]:.0f} %.
  The target was 90 %.
- Mean over the cells, without `frozen`, which the peers lack, and the last two: {names[DIRECT]:.3f} direct,
  {names[PAPER]:.3f} as published, {names[SAFE]:.3f} safe; the best is {lead} with {names[lead]:.3f}. The
  target was that safe leads.
- Identifiers withheld, groups found: {100 * kept[SAFE]:.0f} % of safe's gain is kept (target 90 %). Fitted on one half
  of each capture and applied to the other: {100 * found["gain kept frozen"][SAFE]:.0f} % (target 95 %).
- Captures of one or two devices, which no guard has rehearsed: worst mean of an encoder
  {_text(beyond[SAFE])} for safe, {_text(beyond[PAPER])} as published.
""")
    return f"""## Where calibration helps and where it harms

Macro-F1 over the classes present, PISA models of [the tables](tables.md), all target frames. U-CAPC is as published,
`safe` is U-CAPC under [the guard](../calibration.md#the-guard), whose thresholds come from source environments; all
others are peers on the same arrays, grouped by capture. Cells: captures as they are (balanced); 512 frames with class
frequencies from a Dirichlet distribution or with three classes missing; with 10 or 30 % of frames from unknown radios;
balanced captures of 32, 128 and 512 frames; identifiers withheld; fitted on one half and applied to the other. The
last two, captures of two radios and of one, were added afterwards.

{chr(10).join(parts)}
Tables of three runs per encoder, and of nine runs with fewer frames, were seen before this one; nothing was changed in
between.

Command: `pisa bench run {NAME}`, for LoRa with `--data` and its set, on the models that
`pisa bench run wifi-sim` and `lora-sim` leave in the work folder.
"""


def _text(found: list[Any]) -> str:
    return f"{found[0]:+.4f} ({found[1]}, {found[2]})"
