"""DET curves: both errors of a decision over its threshold, on axes on which Gaussian scores give straight lines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pisa_capc.data.trials import det_curve
from pisa_capc.evidence.figures.style import COLOURS, COLUMN_INCHES, GREY, Picture, canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pisa_capc.data.trials import VerificationScores

TICKS = (0.001, 0.01, 0.05, 0.2, 0.5, 0.8, 0.95)
LEAST, MOST = 0.0005, 0.99  # shown
LINES = ("-", "--", ":", "-.")

Rates = tuple[NDArray[np.float64], NDArray[np.float64]]


def plot_det(path: str | Path, curves: Mapping[str, VerificationScores]) -> Picture:
    """A line for each stage: misses over false accepts, with the EER where the line meets the diagonal."""
    with canvas(path, COLUMN_INCHES, 0.95 * COLUMN_INCHES) as figure:
        axes = figure.subplots()
        det_axes(axes)
        for i, (name, curve) in enumerate(curves.items()):
            draw_det(axes, (curve.miss, curve.false_accept), f"{name} (EER {100 * curve.eer:.1f} %)", i)
        axes.legend(loc="upper right")
    return Picture(Path(path), "DET curves of claims: every frame claims every device. The dotted line is the EER's.")


def det_axes(axes: Axes) -> None:
    """Normal deviates of both errors, and the diagonal on which they are equal."""
    from scipy.special import ndtri

    names = [f"{100 * tick:g}" for tick in TICKS]
    axes.set_xticks(ndtri(TICKS), names)
    axes.set_yticks(ndtri(TICKS), names)
    limits = ndtri(LEAST), ndtri(MOST)
    axes.set(xlim=limits, ylim=limits, xlabel="false accepts (%)", ylabel="misses (%)", aspect="equal")
    axes.plot(limits, limits, color=GREY, linewidth=0.6, linestyle=":")
    axes.grid(alpha=0.25)


def draw_det(axes: Axes, rates: Rates, name: str, number: int) -> None:
    """One curve; errors that are smaller than the axes show lie on their edge."""
    from scipy.special import ndtri

    found = det_curve(*rates)
    x, y = (ndtri(np.clip(found[side], LEAST, MOST)) for side in ("false_accept", "miss"))
    line = LINES[number // len(COLOURS) % len(LINES)]
    axes.plot(x, y, label=name, color=COLOURS[number % len(COLOURS)], linestyle=line)
