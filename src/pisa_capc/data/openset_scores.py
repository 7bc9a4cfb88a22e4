"""Scores of an open-set identification: can unknown devices be told from known ones, and are the known ones right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pisa_capc.core.errors import DataError


@dataclass(frozen=True)
class OpenSetScores:
    """Curves over the threshold t on the unknown score, from rejecting all frames to accepting all, and their areas.

    false_accept: share of unknown frames with u ≤ t. accept: the same of known frames. correct: share of known frames
    that are accepted and rightly named, the correct classification rate.
    auroc: P(u of a known frame < u of an unknown one), ties counted half.
    fpr95: false_accept at the smallest threshold that accepts 95 % of known frames.
    oscr: area under `correct` over `false_accept` (Dhamija, Günther and Boult, NeurIPS 2018).
    """

    false_accept: NDArray[np.float64]
    accept: NDArray[np.float64]
    correct: NDArray[np.float64]

    @property
    def auroc(self) -> float:
        return _area(self.false_accept, self.accept)

    @property
    def fpr95(self) -> float:
        return self.false_accepts_at(0.05)

    def false_accepts_at(self, rejected: float) -> float:
        """false_accept at the smallest threshold that rejects at most this share of known frames."""
        return float(self.false_accept[np.searchsorted(self.accept, 1 - rejected - 1e-12)])

    @property
    def oscr(self) -> float:
        return _area(self.false_accept, self.correct)

    @property
    def accuracy(self) -> float:
        """Accuracy on known frames where nothing is rejected."""
        return float(self.correct[-1])

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("auroc", "fpr95", "oscr", "accuracy")}


def openset_score(known: ArrayLike, correct: ArrayLike, unknown: ArrayLike) -> OpenSetScores:
    """Scores of the unknown scores of `known` (N,) and `unknown` (M,) frames; `correct` (N,): rightly named ones."""
    inside, outside = np.asarray(known, dtype=np.float64), np.asarray(unknown, dtype=np.float64)
    right = np.asarray(correct)
    if inside.ndim != 1 or right.shape != inside.shape or right.dtype != bool or outside.ndim != 1:
        raise DataError(
            f"open-set scores: expected known (N,), correct (N,) true or false and unknown (M,), "
            f"found {inside.shape}, {right.shape} of {right.dtype} and {outside.shape}."
        )
    if not len(inside) or not len(outside):
        raise DataError(
            f"open-set scores: {len(inside)} known and {len(outside)} unknown frames; expected some of both."
        )
    if np.isnan(inside).any() or np.isnan(outside).any():
        raise DataError("open-set scores: an unknown score is NaN; expected numbers.")
    thresholds = np.unique(np.concatenate([inside, outside]))

    def share(values: NDArray[np.float64], of: int) -> NDArray[np.float64]:
        return np.concatenate([[0.0], np.searchsorted(np.sort(values), thresholds, side="right") / of])

    return OpenSetScores(share(outside, len(outside)), share(inside, len(inside)), share(inside[right], len(inside)))


def plot_openset(path: str | Path, scores: Mapping[str, OpenSetScores]) -> None:
    """Draw the ROC and OSCR curves of several unknown scores, by name. The path's suffix chooses the format."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 4.8), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    styles = ("-", "--", "-.", ":")
    for i, (name, found) in enumerate(scores.items()):
        style = {"linestyle": styles[i % len(styles)], "color": f"C{i % 10}", "linewidth": 1.6}
        left.plot(found.false_accept, found.accept, label=f"{name}: {found.auroc:.3f}", **style)
        right.plot(found.false_accept, found.correct, label=f"{name}: {found.oscr:.3f}", **style)
    left.plot([0, 1], [0, 1], color="#999999", linewidth=0.8)
    left.set(title="ROC", ylabel="known frames accepted")
    right.set(title="open-set classification rate", ylabel="known frames accepted and rightly named")
    for axes in (left, right):
        axes.set(xlabel="unknown frames accepted", xlim=(0, 1), ylim=(0, 1))
        axes.legend(title="area", loc="lower right", fontsize=8)
        axes.grid(alpha=0.2)
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: the picture cannot be written ({error}).") from error


def _area(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    return float((np.diff(x) * (y[1:] + y[:-1]) / 2).sum())
