"""Macro-F1 of every capture, stage by stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pisa_capc.data.scores import Scores, mean_and_spread
from pisa_capc.evidence.figures.style import (
    COLUMN_INCHES,
    GREY,
    MARKERS,
    Picture,
    canvas,
    mark_chance,
    score_axis,
    score_marks,
    stage_colour,
)


def capture_scores(stages: Mapping[str, Sequence[Scores]], path: Path) -> Picture:
    """A row per capture, a marker per stage: the mean over the runs, with their sample standard deviation.

    stages: the scores of all runs, by the stage's name.
    """
    most = max(map(len, stages.values()))
    captures = list(next(iter(stages.values()))[0].per_capture)
    columns = min(len(stages) + 1, 3 if max(map(len, stages)) < 16 else 2)
    height = 0.55 + 0.15 * -(-(len(stages) + 1) // columns) + max(0.24, 0.09 * len(stages)) * len(captures)
    with canvas(path, COLUMN_INCHES, height) as figure:
        axes = figure.subplots()
        for i, (name, runs) in enumerate(stages.items()):
            found = [mean_and_spread([run.per_capture[c].macro_f1 for run in runs]) for c in captures]
            score_marks(
                axes,
                [mean for mean, _ in found],
                [row + 0.7 * ((i + 0.5) / len(stages) - 0.5) for row in range(len(captures))],
                [spread or 0.0 for _, spread in found],
                marker=MARKERS[i % len(MARKERS)],
                color=stage_colour(name),
                label=name,
            )
        mark_chance(axes, 1 / len(next(iter(stages.values()))[0].per_device))
        axes.set_yticks(range(len(captures)), captures)
        axes.set_ylim(len(captures) - 0.5, -0.5)
        score_axis(axes)
        axes.set_xlabel("Macro-F1, mean ± standard deviation" if most > 1 else "Macro-F1")
        axes.hlines([row + 0.5 for row in range(len(captures) - 1)], 0, 1, color=GREY, linewidth=0.4, linestyle=":")
        axes.grid(axis="x", alpha=0.25)
        figure.legend(loc="outside upper center", ncols=columns, handletextpad=0.2, columnspacing=1)
    if most == 1:
        return Picture(path, "Target Macro-F1 by capture and stage; one run.")
    return Picture(
        path,
        f"Target Macro-F1 by capture and stage. Markers are means over up to {most} runs, lines their sample standard "
        "deviation to either side, as far as it stays between 0 and 1.",
    )
