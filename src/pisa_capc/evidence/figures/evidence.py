"""Evidence for and against claimed addresses, frame by frame."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pisa_capc.decide.identification import Verdict
from pisa_capc.evidence.figures.style import COLOURS, GREY, PAGE_INCHES, canvas

COLUMNS = 3
MOST = 30  # addresses that are drawn: those with the most evidence against them first
CEILING = 12.0  # powers of ten: what is beyond is as good as certain


def plot_evidence(path: str | Path, verdicts: Sequence[Verdict], alpha: float) -> None:
    """A panel per enrolled address: log10 M against the claim and for it after each tested frame, and 1/α."""
    tested = [verdict for verdict in verdicts if len(verdict.rows)]
    tested = sorted(tested, key=lambda verdict: -float(verdict.against.max()))[:MOST]
    rows = max(1, math.ceil(len(tested) / COLUMNS))
    with canvas(path, PAGE_INCHES, 0.5 + 1.35 * rows) as figure:
        grid = figure.subplots(rows, COLUMNS, squeeze=False, sharey=True)
        for axes in grid.flat[len(tested) :]:
            axes.set_axis_off()
        for axes, verdict in zip(grid.flat, tested, strict=False):
            frames = np.arange(1, len(verdict.rows) + 1)
            for curve, colour, name in (
                (verdict.against, COLOURS[1], "against"),
                (verdict.support, COLOURS[0], "for the claim"),
            ):
                axes.plot(frames, np.clip(curve / np.log(10), -CEILING / 4, CEILING), color=colour, label=name)
            axes.axhline(-math.log10(alpha), color=GREY, linestyle="--", linewidth=0.8)
            axes.set_title(f"{verdict.address}: {verdict.verdict}", fontsize=6.5)
            axes.grid(alpha=0.2)
        for axes in grid[:, 0]:
            axes.set_ylabel("evidence, log10")
        for axes in grid.flat[max(0, len(tested) - COLUMNS) : len(tested)]:  # the lowest of each column
            axes.set_xlabel("frames tested")
        if tested:
            handles, names = grid.flat[0].get_legend_handles_labels()
            figure.legend(handles, names, loc="outside upper right", ncols=2)
