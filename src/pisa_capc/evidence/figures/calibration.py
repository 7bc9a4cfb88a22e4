"""A calibration before and after: one capture in detail, and all of them at a glance."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pisa_capc.evidence.figures.style import CALIBRATED_COLOUR, COLOURS, DIRECT_COLOUR, MARKERS, PAGE_INCHES, canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pisa_capc.decide.calibration.result import Calibration

_POINTS_AT_MOST = 3000
_HALO: dict[str, Any] = {"boxstyle": "round,pad=0.1", "color": "white", "alpha": 0.7}
_ABOVE: dict[str, Any] = {"xytext": (0, 4.5), "textcoords": "offset points", "ha": "center", "va": "bottom"}


def plot_capture(
    result: Calibration, path: str | Path, capture: str | int | None = None, devices: Sequence[str] | None = None
) -> None:
    """Embeddings of a capture (first two principal axes) by decision before and after, and expected frames of devices.

    capture: its name; by default the first. devices: names of the classes; numbers without them.

    Named discs are the capture's prototypes; frames whose decision changed are ringed in black. Large captures are
    thinned evenly to 3,000 frames in the scatter plots; the bars count all.
    """
    number, inputs = result.capture(capture), result.inputs
    summary = result.captures[number]
    members = inputs.groups.rows(number).cpu().numpy()
    rows = members[:: max(1, -(-len(members) // _POINTS_AT_MOST))]
    before = _numpy(inputs.logits, rows).argmax(axis=1)
    after = _numpy(result.prediction, rows)
    prototypes = np.zeros((0, inputs.embedding.shape[1])) if result.prototypes is None else result.prototypes[number]
    points, discs = _principal_plane(_numpy(inputs.embedding, rows).astype(np.float64), prototypes)

    names = [str(k) for k in range(inputs.classes)] if devices is None else list(devices)
    with canvas(path, PAGE_INCHES, 2.7) as figure:
        left, middle, right = figure.subplots(1, 3, width_ratios=(1, 1, 0.9))
        middle.sharex(left)
        middle.sharey(left)
        _scatter(left, points, before, names)
        _scatter(middle, points, after, names)
        x, y = points[(before != after) & (after >= 0)].T
        middle.scatter(x, y, s=14, facecolors="none", edgecolors="black", linewidths=0.4, label="changed")
        for k, (x, y) in enumerate(discs):
            colour = COLOURS[k % len(COLOURS)]
            middle.scatter(x, y, s=40, color=colour, edgecolors="black", linewidths=0.8, zorder=4)
            middle.annotate(names[k], (x, y), fontsize=6, weight="bold", zorder=5, bbox=_HALO, **_ABOVE)
        left.set_title("before: source classifier")
        middle.set_title(f"after: {summary.changed:,} of {summary.frames:,} changed")
        for axes in (left, middle):
            axes.set(xlabel="first principal axis", ylabel="second principal axis")
        middle.set_ylabel("")
        _masses(right, summary.mass_before, summary.mass_after, names)
        if inputs.classes <= len(COLOURS) * len(MARKERS):
            named = dict(zip(*reversed(left.get_legend_handles_labels()), strict=True))
            named |= dict(zip(*reversed(middle.get_legend_handles_labels()), strict=True))
            order = sorted(named, key=lambda name: names.index(name) if name in names else len(names))
            handles = [named[name] for name in order]
            figure.legend(handles, order, title="decided device", loc="outside lower center", ncols=16)
        figure.suptitle(f"capture {summary.capture}", weight="bold")


def plot_overview(result: Calibration, path: str | Path) -> None:
    """All captures: how many decisions changed, and how evenly the frames lie over the classes before and after.

    On the right a mark per class: its expected share of the capture's frames; 1/C is an equal share.
    """
    names = [str(summary.capture) for summary in result.captures]
    with canvas(path, PAGE_INCHES, 0.9 + 0.24 * len(names)) as figure:
        left, right = figure.subplots(1, 2, sharey=True, width_ratios=(1, 1.4))
        for row, summary in enumerate(result.captures):
            share = 100 * summary.changed / max(summary.frames, 1)
            left.barh(row, share, 0.55, color=CALIBRATED_COLOUR)
            left.annotate(f" {summary.changed:,} of {summary.frames:,}", (share, row), va="center", fontsize=6)
            for mass, shift, style in (
                (summary.mass_before, -0.14, {"color": DIRECT_COLOUR, "marker": "o"}),
                (summary.mass_after, 0.14, {"color": CALIBRATED_COLOUR, "marker": "D"}),
            ):
                right.scatter(100 * mass / max(summary.frames, 1), np.full(len(mass), row + shift), s=8, **style)
        equal = 100 / result.inputs.classes
        right.axvline(equal, color=COLOURS[1], linestyle="--", linewidth=0.8, zorder=0, label="equal share")
        right.scatter([], [], s=8, color=DIRECT_COLOUR, marker="o", label="before")
        right.scatter([], [], s=8, color=CALIBRATED_COLOUR, marker="D", label="after")
        left.set_yticks(range(len(names)), names)
        left.set(ylim=(len(names) - 0.5, -0.5), xlabel="decisions changed (%)", title="decisions")
        left.margins(x=0.35)
        right.set(xlabel="expected frames of a device (%)", title="shares of the devices")
        right.set_xlim(left=0)
        right.grid(axis="x", alpha=0.25)
        figure.legend(loc="outside upper right", ncols=3, handletextpad=0.4)


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


def _scatter(axes: Axes, points: np.ndarray, decision: np.ndarray, names: Sequence[str]) -> None:
    for k in np.unique(decision).tolist():
        x, y = points[decision == k].T
        if k < 0:
            axes.scatter(x, y, s=8, alpha=0.75, linewidths=0.5, color="black", marker="x", label="rejected")
            continue
        colour, marker = COLOURS[k % len(COLOURS)], MARKERS[k // len(COLOURS) % len(MARKERS)]
        axes.scatter(x, y, s=6, alpha=0.75, linewidths=0, color=colour, marker=marker, label=names[k])
    axes.grid(alpha=0.2)


def _masses(axes: Axes, before: np.ndarray, after: np.ndarray, names: Sequence[str]) -> None:
    place = np.arange(len(before))
    axes.bar(place - 0.2, before, 0.4, label="before", color=DIRECT_COLOUR)
    axes.bar(place + 0.2, after, 0.4, label="after", color=CALIBRATED_COLOUR)
    axes.axhline(before.sum() / len(before), color=COLOURS[1], linestyle="--", linewidth=0.8, label="equal share")
    axes.set(title="expected frames of a device", ylabel="frames")
    axes.set_ylim(top=1.35 * max(before.max(), after.max(), 1e-9))  # room for the legend
    if len(place) <= 20:
        axes.set_xticks(place, names, rotation=90 if max(map(len, names)) > 2 else 0)
    axes.legend(ncols=3, loc="upper center", handlelength=1.2, columnspacing=0.8)
    axes.grid(axis="y", alpha=0.2)
