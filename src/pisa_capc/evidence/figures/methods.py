"""Macro-F1 of every method of a comparison, before and after calibration."""

from __future__ import annotations

from pathlib import Path

from pisa_capc.data.protocol import DIRECT, PAPER
from pisa_capc.evidence.benchmark.protocols import Protocol
from pisa_capc.evidence.benchmark.results import Key, Results, mean
from pisa_capc.evidence.benchmark.tables import FULL, shared_stages, stage_name
from pisa_capc.evidence.figures.style import (
    COLUMN_INCHES,
    MARKERS,
    Picture,
    canvas,
    mark_chance,
    score_axis,
    score_marks,
    stage_colour,
)
from pisa_capc.model.encoders import encoder_title


def method_scores(protocol: Protocol, results: Results, place: tuple[str, str], encoder: str, path: Path) -> Picture:
    """A line per method, best direct inference on top; a marker per stage with the standard deviation over the runs.

    Stages that not every method has are left to the tables.
    """
    keys = {row.method: Key(*place, row.method, FULL, encoder) for row in protocol.methods}
    direct = {method: f1.mean for method, key in keys.items() if (f1 := mean(results.f1(key, DIRECT)))}
    methods = sorted(direct, key=direct.__getitem__)
    shared = shared_stages(protocol)
    with canvas(path, COLUMN_INCHES, 0.8 + 0.2 * len(methods)) as figure:
        axes = figure.subplots()
        if chance := results.chance(place):
            mark_chance(axes, chance)
        for i, stage in enumerate((DIRECT, *shared)):
            scores = {y: mean(results.f1(keys[method], stage)) for y, method in enumerate(methods)}
            found = {y + 0.22 * (len(shared) / 2 - i): score for y, score in scores.items() if score is not None}
            name = {DIRECT: "direct", PAPER: "U-CAPC"}.get(stage, stage)
            values, spreads = [score.mean for score in found.values()], [score.std or 0.0 for score in found.values()]
            score_marks(axes, values, found, spreads, color=stage_colour(name), marker=MARKERS[i], label=name)
        axes.set_yticks(range(len(methods)), [stage_name(method, DIRECT) for method in methods])
        score_axis(axes)
        axes.set_xlabel("target Macro-F1")
        axes.grid(axis="x", linewidth=0.3)
        figure.legend(loc="outside upper center", ncols=2 + len(shared), handletextpad=0.4, columnspacing=1)
    where = f"{encoder_title(encoder)}, {place[0]}, {place[1]}"
    line = "; the dotted line is a guess among the devices" if chance else ""
    return Picture(path, f"{where}. Target Macro-F1 by method and stage, mean and standard deviation over runs{line}.")
