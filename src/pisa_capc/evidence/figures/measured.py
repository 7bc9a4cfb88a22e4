"""Flaws of transmitters: a panel per flaw in the complex plane, frames as points, an ellipse per sender."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Ellipse
from numpy.typing import NDArray
from scipy.stats import chi2

from pisa_capc.core.errors import DataError
from pisa_capc.decide.identification.explain import Explainer
from pisa_capc.evidence.evaluation import Inference
from pisa_capc.evidence.figures.style import COLOURS, GREY, MARKERS, PAGE_INCHES, Picture, canvas
from pisa_capc.signal.measurement.flaws import FLAWS
from pisa_capc.signal.measurement.senders import Measured

MOST_POINTS = 150  # of a sender: more hide the ellipses
MOST_SENDERS = len(COLOURS) * len(MARKERS)  # that colours and markers tell apart
INSIDE = np.sqrt(chi2.ppf(0.95, 2))  # standard deviations from the middle of an ellipse to its edge
PER_LINE = 7  # names of the legend


@dataclass(frozen=True)
class DrawnSender:
    """points: (n, 2J) flaws of its frames, real parts first. mean, error: (2J,), (2J, 2J) of its ellipses."""

    name: str
    points: NDArray[np.floating[Any]]
    mean: NDArray[np.floating[Any]]
    error: NDArray[np.floating[Any]]


def measured_picture(measured: Measured, path: Path) -> Picture:
    """Draw it; the suffix of `path` chooses the format."""
    value, _ = measured.measurement.features()
    usable = measured.measurement.measured
    senders = [
        DrawnSender(
            card.name,
            value[_spread_out(np.flatnonzero((measured.sender == measured.names.index(card.name)) & usable))],
            card.mean,
            card.error,
        )
        for card in measured.cards
    ]
    caption = (
        "Flaws of transmitters in the complex plane, relative to the waveform's amplitude: a point per frame, and per "
        "sender the ellipse that holds its flaw with 95 %. Crosses are at zero. The receiver's own image and leakage "
        "are in all of them."
    )
    return flaws_picture(senders, measured.cards[0].flaws, path, caption)


def decided_picture(run: Inference, path: Path) -> Picture | None:
    """The same of a run's target, each frame with the device that it was decided to be from; None of a network."""
    explainer, scores = Explainer(run.trained), run.outputs
    if not explainer.devices or scores.error is None:
        return None
    good = np.isfinite(scores.error).all(axis=(1, 2))
    value, _ = explainer.values(scores.embedding[good].astype(np.float64), scores.error[good].astype(np.float64))
    decided = scores.logits[good].argmax(axis=1)
    shown = list(explainer.regions().items())[:MOST_SENDERS]
    senders = [
        DrawnSender(name, value[_spread_out(np.flatnonzero(decided == run.trained.devices.index(name)))], *region)
        for name, region in shown
    ]
    caption = (
        "What decides: flaws of the transmitters in the complex plane, relative to the waveform's amplitude. A point "
        "is a target frame in the colour of the device it was decided to be from; an ellipse holds 95 % of what the "
        "device may look like in another place, as learnt from the source. Frames scatter around it by their own "
        "error. Crosses are at zero."
    )
    return flaws_picture(senders, explainer.flaws, path, caption)


def flaws_picture(senders: Sequence[DrawnSender], flaws: Sequence[str], path: Path, caption: str) -> Picture:
    """A panel per flaw."""
    if len(senders) > MOST_SENDERS:
        raise DataError(
            f"{path}: {len(senders)} senders; a picture distinguishes {MOST_SENDERS}. Measure some of them, or one "
            "(--sender)."
        )
    lines = -(-len(senders) // PER_LINE)
    width = PAGE_INCHES / 3
    with canvas(path, width * max(2, len(flaws)), width + 0.15 + 0.16 * lines) as figure:
        axes = figure.subplots(1, len(flaws), squeeze=False)[0]
        for i, flaw in enumerate(flaws):
            plane, shown = [i, len(flaws) + i], []
            for number, one in enumerate(senders):
                points, middle, error = 100 * one.points[:, plane], 100 * one.mean[plane], 1e4 * one.error[plane]
                _draw_sender(axes[i], points, middle, error[:, plane], number)
                if len(points):
                    shown.append(np.percentile(points, [2, 98], axis=0))
                shown.append(middle + INSIDE * np.sqrt(error[:, plane].diagonal()) * np.array([[-1], [1]]))
            _frame(axes[i], FLAWS[flaw].title, np.concatenate(shown))
        handles = [
            Line2D([], [], **_look(number), linestyle="", markersize=4, label=one.name)
            for number, one in enumerate(senders)
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=min(PER_LINE, len(senders)), handletextpad=0.2)
    return Picture(path, caption)


def _look(number: int) -> dict[str, Any]:
    """Colour or marker alone distinguishes eight senders: where colours repeat, markers differ."""
    shift = number // len(COLOURS)
    return {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[(number + shift) % len(MARKERS)]}


def _spread_out(mine: NDArray[np.intp]) -> NDArray[np.intp]:
    """Frames of a sender, some of many, from its first to its last."""
    return mine[np.unique(np.linspace(0, len(mine) - 1, MOST_POINTS).astype(int))] if len(mine) else mine


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
