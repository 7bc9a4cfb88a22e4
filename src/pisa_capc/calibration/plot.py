"""One capture before and after calibration, as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pisa_capc.errors import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pisa_capc.calibration.result import Calibration

# Paul Tol's "muted" scheme: distinguishable with every common colour vision deficiency. Markers tell repeats apart.
_COLOURS = (
    *("#332288", "#88CCEE", "#44AA99", "#117733", "#999933"),
    *("#DDCC77", "#CC6677", "#882255", "#AA4499", "#777777"),
)
_MARKERS = ("o", "s", "^", "D", "v")
_POINTS_AT_MOST = 3000


def plot_capture(result: Calibration, path: Path, number: int) -> None:
    """Embeddings of a capture (first two principal axes) coloured by decision before and after, and class masses.

    Numbered discs are the capture's prototypes; frames whose decision changed are ringed in black. Large captures are
    thinned evenly to 3,000 frames in the scatter plots; the masses count all.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    summary, inputs = result.captures[number], result.inputs
    members = inputs.groups.rows(number).cpu().numpy()
    rows = members[:: max(1, -(-len(members) // _POINTS_AT_MOST))]
    before = _numpy(inputs.logits, rows).argmax(axis=1)
    after = _numpy(result.prediction, rows)
    prototypes = np.zeros((0, inputs.embedding.shape[1])) if result.prototypes is None else result.prototypes[number]
    points, discs = _principal_plane(_numpy(inputs.embedding, rows).astype(np.float64), prototypes)

    figure = Figure(figsize=(13.5, 5), layout="constrained")
    FigureCanvasAgg(figure)
    left, middle, right = figure.subplots(1, 3, width_ratios=(1, 1, 0.9))
    middle.sharex(left)
    middle.sharey(left)
    _scatter(left, points, before)
    _scatter(middle, points, after)
    x, y = points[(before != after) & (after >= 0)].T
    middle.scatter(x, y, s=34, facecolors="none", edgecolors="black", linewidths=0.8, label="changed")
    for k, (x, y) in enumerate(discs):
        colour = _COLOURS[k % len(_COLOURS)]
        middle.scatter(x, y, s=170, color=colour, edgecolors="black", linewidths=1.5, zorder=4)
        middle.annotate(str(k), (x, y), ha="center", va="center", fontsize=8, color="white", weight="bold", zorder=5)
    left.set_title("before: source classifier")
    middle.set_title(f"after: {summary.changed:,} of {summary.frames:,} decisions changed")
    for axes in (left, middle):
        axes.set(xlabel="first principal axis", ylabel="second principal axis")
    _masses(right, summary.mass_before, summary.mass_after)
    if inputs.classes <= len(_COLOURS) * len(_MARKERS):
        named = dict(zip(*reversed(left.get_legend_handles_labels()), strict=True))
        named |= dict(zip(*reversed(middle.get_legend_handles_labels()), strict=True))
        order = sorted(named, key=lambda name: (not name.isdigit(), name.zfill(4)))
        figure.legend(
            [named[name] for name in order],
            order,
            title="decided class",
            loc="outside lower center",
            ncols=16,
            fontsize=8,
        )
    figure.suptitle(f"capture {summary.capture}", weight="bold")
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: the picture cannot be written ({error}).") from error


def _numpy(values: Any, rows: np.ndarray) -> np.ndarray:
    return np.asarray(values[rows].cpu() if hasattr(values, "cpu") else values[rows])


def _principal_plane(embedding: np.ndarray, prototypes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Unit embeddings (n, D) and prototypes on the two principal axes of the embeddings."""
    length = np.linalg.norm(embedding, axis=1, keepdims=True)
    unit = embedding / np.where(length > 0, length, 1)
    centre = unit.mean(axis=0)
    axes = np.linalg.eigh((unit - centre).T @ (unit - centre))[1][:, ::-1][:, :2]
    if axes.shape[1] < 2:
        axes = np.pad(axes, ((0, 0), (0, 1)))
    present = np.linalg.norm(prototypes, axis=1) > 0
    discs = np.where(present[:, None], (prototypes - centre) @ axes, np.nan)
    return (unit - centre) @ axes, discs


def _scatter(axes: Axes, points: np.ndarray, decision: np.ndarray) -> None:
    for k in np.unique(decision).tolist():
        x, y = points[decision == k].T
        if k < 0:
            axes.scatter(x, y, s=14, alpha=0.75, linewidths=0.8, color="black", marker="x", label="rejected")
            continue
        colour, marker = _COLOURS[k % len(_COLOURS)], _MARKERS[k // len(_COLOURS) % len(_MARKERS)]
        axes.scatter(x, y, s=12, alpha=0.75, linewidths=0, color=colour, marker=marker, label=str(k))
    axes.grid(alpha=0.2)


def _masses(axes: Axes, before: np.ndarray, after: np.ndarray) -> None:
    place = np.arange(len(before))
    axes.bar(place - 0.2, before, 0.4, label="before", color="#BBBBBB", edgecolor="#555555", hatch="//")
    axes.bar(place + 0.2, after, 0.4, label="after", color="#332288")
    axes.axhline(before.sum() / len(before), color="#CC6677", linestyle="--", linewidth=1.2, label="equal share")
    axes.set(title="expected frames per class", xlabel="class", ylabel="frames")
    if len(place) <= 20:
        axes.set_xticks(place)
    axes.legend(fontsize=8)
    axes.grid(axis="y", alpha=0.2)
