"""How well a run does where it was trained against how well it does elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pisa_capc.evidence.benchmark.results import Results
from pisa_capc.evidence.benchmark.tables import stage_name
from pisa_capc.evidence.figures.style import (
    COLOURS,
    COLUMN_INCHES,
    GREY,
    MARKERS,
    Picture,
    canvas,
    score_axis,
    stage_colour,
)
from pisa_capc.model.encoders import encoder_title


def source_against_target(results: Results, place: tuple[str, str], path: Path) -> Picture:
    """Target Macro-F1 against source-validation Macro-F1: a point per run, a marker per stage, a colour per encoder.

    Where there is one encoder, the colours tell the stages apart as the markers do.
    """
    from matplotlib.lines import Line2D

    series: dict[str, list[tuple[str, list[float], list[float]]]] = {}
    for key, runs in results.runs.items():
        if key[:2] != place:
            continue
        source = results.source_f1(key)
        for stage in next(iter(runs.values())).stages:
            target = results.f1(key, stage)
            both = [seeds for seeds in target if seeds in source]
            points = (key.encoder, [source[s] for s in both], [target[s] for s in both])
            series.setdefault(stage_name(key.method, stage, key.variant), []).append(points)
    encoders = list(dict.fromkeys(encoder for rows in series.values() for encoder, _, _ in rows))

    def colour(name: str, encoder: str) -> str:
        return COLOURS[encoders.index(encoder) % len(COLOURS)] if len(encoders) > 1 else stage_colour(name)

    labels = [
        Line2D([], [], color="#444444" if len(encoders) > 1 else colour(name, ""), label=name, **_mark(i))
        for i, name in enumerate(series)
    ]
    if len(encoders) > 1:
        labels += [Line2D([], [], color=colour("", e), label=encoder_title(e), **_mark(0)) for e in encoders]
    line: dict[str, Any] = {"color": GREY, "linewidth": 0.7, "linestyle": "--"}
    labels.append(Line2D([], [], label="target = source", **line))  # beside the line it would cover points
    columns = 4 if max(len(str(label.get_label())) for label in labels) < 16 else 2
    with canvas(path, COLUMN_INCHES, 2.9 + 0.14 * -(-len(labels) // columns)) as figure:
        axes = figure.subplots()
        axes.axline((0, 0), slope=1, zorder=0, **line)
        for i, (name, rows) in enumerate(series.items()):
            for encoder, x, y in rows:
                look: dict[str, Any] = {"marker": MARKERS[i % len(MARKERS)], "color": colour(name, encoder)}
                axes.scatter(x, y, s=14, alpha=0.8, linewidths=0, clip_on=False, **look)
        score_axis(axes)
        score_axis(axes, upright=True)
        axes.set(aspect="equal", xlabel="source-validation F1", ylabel="target Macro-F1")
        figure.legend(handles=labels, loc="outside lower center", ncols=columns, handletextpad=0.4, columnspacing=1)
    return Picture(path, f"Source-validation against target Macro-F1, {place[0]}, {place[1]}; one point per run.")


def _mark(i: int) -> dict[str, Any]:
    """A marker without a line, for the legend."""
    return {"linestyle": "", "marker": MARKERS[i % len(MARKERS)], "markersize": 4}
