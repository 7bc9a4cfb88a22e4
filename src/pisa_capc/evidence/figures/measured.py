"""Measurements of transmitters: a panel per flaw in the complex plane, frames as points, an ellipse per sender."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Ellipse
from numpy.typing import NDArray
from scipy.stats import chi2

from pisa_capc.core.errors import DataError
from pisa_capc.evidence.figures.style import COLOURS, GREY, MARKERS, PAGE_INCHES, Picture, canvas
from pisa_capc.signal.measurement.flaws import FLAWS
from pisa_capc.signal.measurement.senders import Measured

MOST_POINTS = 150  # of a sender: more hide the ellipses
MOST_SENDERS = len(COLOURS) * len(MARKERS)  # that colours and markers tell apart
INSIDE = np.sqrt(chi2.ppf(0.95, 2))  # standard deviations from the middle of an ellipse to its edge
PER_LINE = 7  # names of the legend


def measured_picture(measured: Measured, path: Path) -> Picture:
    """Draw it; the suffix of `path` chooses the format."""
    cards = measured.cards
    if len(cards) > MOST_SENDERS:
        raise DataError(
            f"{path}: {len(cards)} senders; a picture distinguishes {MOST_SENDERS}. Measure some of them, or one "
            "(--sender)."
        )
    value, _ = measured.measurement.features()
    flaws = cards[0].flaws
    lines = -(-len(cards) // PER_LINE)
    width = PAGE_INCHES / 3
    with canvas(path, width * max(2, len(flaws)), width + 0.15 + 0.16 * lines) as figure:
        axes = figure.subplots(1, len(flaws), squeeze=False)[0]
        for i, flaw in enumerate(flaws):
            plane = 100 * value[:, [i, len(flaws) + i]]
            shown = []
            for number, card in enumerate(cards):
                mine = _spread_out(measured, card.name)
                middle = 100 * card.mean[[i, len(flaws) + i]]
                error = 1e4 * card.error[np.ix_([i, len(flaws) + i], [i, len(flaws) + i])]
                _draw_sender(axes[i], plane[mine], middle, error, number)
                shown.append(np.percentile(plane[mine], [2, 98], axis=0))
                shown.append(middle + INSIDE * np.sqrt(error.diagonal()) * np.array([[-1], [1]]))
            _frame(axes[i], FLAWS[flaw].title, np.concatenate(shown))
        handles = [
            Line2D([], [], **_look(number), linestyle="", markersize=4, label=card.name)
            for number, card in enumerate(cards)
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=min(PER_LINE, len(cards)), handletextpad=0.2)
    caption = (
        "Flaws of transmitters in the complex plane, relative to the waveform's amplitude: a point per frame, and per "
        "sender the ellipse that holds its flaw with 95 %. Crosses are at zero. The receiver's own image and leakage "
        "are in all of them."
    )
    return Picture(path, caption)


def _look(number: int) -> dict[str, Any]:
    """Colour or marker alone distinguishes eight senders: where colours repeat, markers differ."""
    shift = number // len(COLOURS)
    return {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[(number + shift) % len(MARKERS)]}


def _spread_out(measured: Measured, name: str) -> NDArray[np.intp]:
    """Frames of a sender, some of many, from its first to its last."""
    mine = np.flatnonzero((measured.sender == measured.names.index(name)) & measured.measurement.measured)
    return mine[np.unique(np.linspace(0, len(mine) - 1, MOST_POINTS).astype(int))]


def _draw_sender(
    axes: Axes, points: NDArray[np.floating[Any]], middle: NDArray[Any], error: NDArray[Any], number: int
) -> None:
    look, dashes = _look(number), "-" if number < len(COLOURS) else "--"
    axes.scatter(points[:, 0], points[:, 1], s=3, alpha=0.45, linewidths=0, rasterized=True, **look)
    sizes, directions = np.linalg.eigh(error)
    turn = float(np.degrees(np.arctan2(directions[1, 1], directions[0, 1])))
    wide, high = 2 * INSIDE * np.sqrt(sizes[1]), 2 * INSIDE * np.sqrt(sizes[0])
    for width, colour, line in ((2.0, "white", "-"), (1.0, look["color"], dashes)):  # a rim keeps it off its points
        ellipse = Ellipse((middle[0], middle[1]), wide, high, angle=turn, fill=False, edgecolor=colour, zorder=3)
        ellipse.set(linewidth=width, linestyle=line)
        axes.add_patch(ellipse)


def _frame(axes: Axes, title: str, shown: NDArray[np.floating[Any]]) -> None:
    axes.set_title(title, loc="left")
    axes.plot(0, 0, "+", color="black", markersize=6, markeredgewidth=0.6, zorder=4)
    low, high = np.minimum(shown.min(0), 0), np.maximum(shown.max(0), 0)
    middle, half = (low + high) / 2, 0.55 * float((high - low).max())
    axes.axhline(0, color=GREY, linewidth=0.4, zorder=0)
    axes.axvline(0, color=GREY, linewidth=0.4, zorder=0)
    axes.set(
        xlabel="real part (%)",
        ylabel="imaginary part (%)",
        xlim=(middle[0] - half, middle[0] + half),
        ylim=(middle[1] - half, middle[1] + half),
        aspect="equal",
    )
