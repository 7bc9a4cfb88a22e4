"""Where the errors are: confusions, and Macro-F1 of every capture, stage by stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from pisa_capc.data.scores import Scores, mean_and_spread, pool
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


def confusion_figure(stages: Mapping[str, Sequence[Scores]], path: Path) -> Picture:
    """A confusion matrix per stage, of all its runs together. stages: the scores of all runs, by the stage's name."""
    plot_confusions(path, {name: pool(runs) for name, runs in stages.items()})
    most = max(map(len, stages.values()))
    together = f"; {most} runs together" if most > 1 else ""
    return Picture(path, f"Decisions on the target by stage, in percent of a device's frames{together}.")


def plot_confusions(path: str | Path, stages: Mapping[str, Scores]) -> None:
    """Draw confusion matrices, three to a row, each row of a matrix in percent of the device's frames.

    stages: scores by the name that stands over them. The path's suffix chooses the format.
    """
    names = list(next(iter(stages.values())).per_device)
    columns = 2 if len(stages) == 4 else min(3, len(stages))
    rows = -(-len(stages) // columns)
    side = max(1.9 if columns > 1 else 2.4, 0.19 * len(names))  # inches
    with canvas(path, side * columns + 1.3, (side + 0.75) * rows) as figure:
        places = figure.subplots(rows, columns, squeeze=False, sharey=True)
        for axes in places.flat[len(stages) :]:
            axes.set_visible(False)
        for i, (axes, (name, scores)) in enumerate(zip(places.flat, stages.items(), strict=False)):
            share = 100 * scores.confusion / np.maximum(scores.confusion.sum(axis=1, keepdims=True), 1)
            image = axes.imshow(share, cmap="cividis", vmin=0, vmax=100)
            for t, p in np.ndindex(share.shape):
                if share[t, p] >= 0.5:
                    ink = _ink(share[t, p])
                    axes.text(p, t, f"{share[t, p]:.0f}", ha="center", va="center", fontsize=6, color=ink)
            axes.set_xticks(range(len(names)), names, rotation=90)
            axes.set_yticks(range(len(names)), names)
            axes.spines[:].set_visible(False)
            axes.tick_params(length=0)
            if i + columns >= len(stages):  # nothing stands below
                axes.set_xlabel("predicted device")
            over = f"{name}\n" if name else ""
            axes.set_title(f"{over}Macro-F1 {scores.macro_f1:.3f}, accuracy {scores.accuracy:.3f}", fontsize=7)
            if i % columns == 0:
                axes.set_ylabel("true device")
        figure.colorbar(image, ax=places, label="% of the device's frames", shrink=0.8 / rows, aspect=16, pad=0.01)


def _ink(percent: float) -> str:
    """Text colour that can be read on the colour map at this value."""
    return "black" if percent > 55 else "white"


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
