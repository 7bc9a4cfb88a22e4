"""Frames as points on a plane, by t-SNE or UMAP: colours are devices; captures stand side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pisa_capc.core.errors import MissingExtraError
from pisa_capc.core.randomness import generator
from pisa_capc.data.protocol import Evaluator
from pisa_capc.evidence.figures.style import COLOURS, PAGE_INCHES, Picture, canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CLOSE: dict[str, Any] = {"handletextpad": 0.1, "columnspacing": 0.9}  # entries of a legend
NAMES = {"tsne": "t-SNE", "umap": "UMAP"}


@dataclass(frozen=True)
class Sample:
    """The frames that are drawn, the same in every panel.

    rows (n,) among the `total` target frames, device (n,) an index into `devices`, capture (n,) a name.
    """

    rows: NDArray[np.int64]
    device: NDArray[np.int64]
    capture: NDArray[np.str_]
    devices: tuple[str, ...]
    total: int
    seed: int

    @property
    def captures(self) -> list[str]:
        names: list[str] = np.unique(self.capture).tolist()
        return names

    def __str__(self) -> str:
        return (
            f"{len(self.rows):,} of {self.total:,} target frames, equally many of each capture, drawn with seed "
            f"{self.seed}; target labels only colour the points"
        )


@dataclass(frozen=True)
class Panel:
    """One scatter: the row of the figure it belongs to, its title, and the frames' places (n, 2)."""

    row: str
    title: str
    place: NDArray[np.float64]


def draw_sample(evaluator: Evaluator, capture: NDArray[np.str_], points: int, seed: int) -> Sample:
    """At most `points` frames, equally many of each capture where it has as many. Labels play no part in the choice."""
    names = np.unique(capture)
    each = max(1, points // len(names))
    chosen = [
        generator(seed, "picture", str(name)).permutation(np.flatnonzero(capture == name))[:each] for name in names
    ]
    rows = np.sort(np.concatenate(chosen))
    labels = evaluator.labels_for_drawing()
    return Sample(rows, labels[rows], capture[rows], evaluator.devices, len(capture), seed)


def project(space: ArrayLike, kind: str, seed: int) -> NDArray[np.float64]:
    """Frames (n, D) → places (n, 2). The neighbourhoods are the packages' defaults, or as large as n allows."""
    values = np.asarray(space, dtype=np.float32)
    if kind == "umap":
        try:
            from umap import UMAP
        except ImportError as error:
            raise MissingExtraError("umap-learn", "umap", "a UMAP figure") from error
        reducer = UMAP(n_neighbors=min(15, len(values) - 1), random_state=seed, n_jobs=1)
    else:
        from sklearn.manifold import TSNE

        reducer = TSNE(perplexity=min(30.0, (len(values) - 1) / 3), init="pca", random_state=seed)
    return np.asarray(reducer.fit_transform(values), dtype=np.float64)


def stage_panels(panels: Sequence[Panel], sample: Sample, kind: str, spaces: str, path: Path) -> Picture:
    """A row per encoder, a column per stage. spaces: what the columns show, for the caption."""
    rows = {row: [panel for panel in panels if panel.row == row] for row in dict.fromkeys(p.row for p in panels)}
    columns = max(map(len, rows.values()))
    side = PAGE_INCHES / max(columns, 3)
    with canvas(path, side * columns, side * len(rows) + 0.45) as figure:
        places = figure.subplots(len(rows), columns, squeeze=False)
        for line, (row, own) in zip(places, rows.items(), strict=True):
            for axes in line[len(own) :]:
                axes.set_visible(False)
            for axes, panel in zip(line, own, strict=False):
                _scatter(axes, panel.place, sample)
                axes.set_title(panel.title)
            line[0].set_ylabel(row)
        _device_legend(figure, sample)
    return Picture(path, f"{NAMES[kind]} of {spaces}. An exploratory view: {sample}.")


def capture_panels(panel: Panel, sample: Sample, kind: str, path: Path) -> Picture:
    """The frames of one panel, a capture at a time on the same places; those of the others are grey."""
    names = sample.captures
    columns = min(4, len(names))
    rows = -(-len(names) // columns)
    side = PAGE_INCHES / max(columns, 3)
    with canvas(path, side * columns, side * rows + 0.5) as figure:
        places = figure.subplots(rows, columns, squeeze=False)
        for axes in places.flat[len(names) :]:
            axes.set_visible(False)
        for axes, name in zip(places.flat, names, strict=False):
            x, y = panel.place[sample.capture != name].T
            axes.scatter(x, y, s=2, color="#DDDDDD", linewidths=0, zorder=0)
            _scatter(axes, panel.place, sample, name)
            axes.set_title(name)
        _device_legend(figure, sample)
    caption = (
        f"{NAMES[kind]} of what {panel.title} with {panel.row} decides by, capture by capture: all panels share their "
        f"coordinates, frames of the other captures are grey. An exploratory view: {sample}."
    )
    return Picture(path, caption)


def _scatter(axes: Axes, place: NDArray[np.float64], sample: Sample, capture: str | None = None) -> None:
    """The frames of one capture, or all."""
    shown = np.ones(len(sample.rows), dtype=bool) if capture is None else sample.capture == capture
    for device in np.unique(sample.device).tolist():
        x, y = place[shown & (sample.device == device)].T
        axes.scatter(x, y, s=5, alpha=0.8, **_ink(device))
    axes.set(xticks=[], yticks=[], box_aspect=1)  # the axes have no unit, so each fills its panel
    axes.spines[:].set(visible=True, color="#BBBBBB")


def _ink(device: int) -> dict[str, Any]:
    """Filled in its colour; the next eight devices are hollow in the same colours."""
    colour = COLOURS[device % len(COLOURS)]
    hollow = device // len(COLOURS) % 2 == 1
    return {"facecolors": "none" if hollow else colour, "edgecolors": colour, "linewidths": 0.6 if hollow else 0}


def _device_legend(figure: Figure, sample: Sample) -> None:
    devices = [
        figure.gca().scatter([], [], s=14, label=name, **_ink(i))
        for i, name in enumerate(sample.devices)
        if i in sample.device
    ]
    figure.legend(handles=devices, loc="outside lower center", ncols=10, **CLOSE)
