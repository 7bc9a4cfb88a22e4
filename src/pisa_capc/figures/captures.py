"""Macro-F1 of every capture, stage by stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pisa_capc.figures.style import COLOURS, COLUMN_INCHES, GREY, MARKERS, Picture, canvas
from pisa_capc.scores import Scores, mean_and_spread


def capture_scores(stages: Mapping[str, Sequence[Scores]], path: Path) -> Picture:
    """A row per capture, a marker per stage: the mean over the runs, with their sample standard deviation.

    stages: the scores of all runs, by the stage's name.
    """
    captures = list(next(iter(stages.values()))[0].per_capture)
    with canvas(path, COLUMN_INCHES, 0.8 + 0.24 * len(captures)) as figure:
        axes = figure.subplots()
        means = {}
        for i, (name, runs) in enumerate(stages.items()):
            found = [mean_and_spread([run.per_capture[c].macro_f1 for run in runs]) for c in captures]
            means[name] = [mean for mean, _ in found]
            axes.errorbar(
                means[name],
                range(len(captures)),
                xerr=[spread or 0.0 for _, spread in found],
                fmt=MARKERS[i % len(MARKERS)],
                color=COLOURS[i % len(COLOURS)],
                markersize=4,
                elinewidth=0.7,
                label=name,
            )
        for row in range(len(captures)):
            here = [values[row] for values in means.values()]
            axes.plot([min(here), max(here)], [row, row], color=GREY, linewidth=0.8, zorder=0)
        axes.set_yticks(range(len(captures)), captures)
        axes.set(ylim=(len(captures) - 0.5, -0.5), xlim=(0, 1), xlabel="Macro-F1")
        axes.grid(axis="x", alpha=0.25)
        figure.legend(loc="outside upper center", ncols=3, handletextpad=0.2, columnspacing=1)
    most = max(map(len, stages.values()))
    return Picture(path, f"Target Macro-F1 by capture and stage; mean over {most} run{'s' * (most > 1)}.")
