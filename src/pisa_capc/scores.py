"""Scores of a closed-set identification: Macro-F1, accuracy, one-vs-rest Macro-AUROC, and where the errors are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pisa_capc.errors import DataError


@dataclass(frozen=True)
class CaptureScore:
    """Scores of one capture setting; Macro-F1 is over the devices recorded in it."""

    macro_f1: float
    accuracy: float
    frames: int


@dataclass(frozen=True)
class Scores:
    """How well the devices were told apart.

    macro_f1: unweighted mean of the F1 of all C devices.
    macro_auroc: unweighted mean over devices of the one-vs-rest AUROC of its probability; NaN where undefined for all.
    confusion: (C, C) counts, true device by row, predicted device by column.
    """

    macro_f1: float
    accuracy: float
    macro_auroc: float
    per_device: dict[str, float]
    per_capture: dict[str, CaptureScore]
    confusion: NDArray[np.int64]

    def to_json(self) -> dict[str, Any]:
        return {
            "macro_f1": self.macro_f1,
            "accuracy": self.accuracy,
            "macro_auroc": None if np.isnan(self.macro_auroc) else self.macro_auroc,
            "per_device": self.per_device,
            "per_capture": {name: vars(score) for name, score in self.per_capture.items()},
            "confusion": self.confusion.tolist(),
        }

    def plot_confusion(self, path: str | Path) -> None:
        """Draw the confusion matrix; see `plot_confusions`."""
        plot_confusions(path, {"": self})


def mean_and_spread(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and sample standard deviation; a single value has no spread."""
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None


def plot_confusions(path: str | Path, stages: Mapping[str, Scores]) -> None:
    """Draw confusion matrices side by side, each row in percent of the device's frames.

    stages: scores by the name that stands over them. The path's suffix chooses the format.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = list(next(iter(stages.values())).per_device)
    size = 2.2 + 0.42 * len(names)
    figure = Figure(figsize=(size * len(stages) + 0.6, size + 0.4), layout="constrained")
    FigureCanvasAgg(figure)
    places = figure.subplots(1, len(stages), squeeze=False, sharey=True)[0]
    for axes, (name, scores) in zip(places, stages.items(), strict=True):
        share = 100 * scores.confusion / np.maximum(scores.confusion.sum(axis=1, keepdims=True), 1)
        image = axes.imshow(share, cmap="cividis", vmin=0, vmax=100)
        for i, j in np.ndindex(share.shape):
            if share[i, j] >= 0.5:
                axes.text(j, i, f"{share[i, j]:.0f}", ha="center", va="center", fontsize=8, color=_ink(share[i, j]))
        axes.set_xticks(range(len(names)), names, rotation=90)
        axes.set_yticks(range(len(names)), names)
        axes.set_xlabel("predicted device")
        over = f"{name}: " if name else ""
        axes.set_title(f"{over}Macro-F1 {scores.macro_f1:.3f}, accuracy {scores.accuracy:.3f}", fontsize=10)
    places[0].set_ylabel("true device")
    figure.colorbar(image, ax=places, label="% of the device's frames", shrink=0.8)
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: the picture cannot be written ({error}).") from error


def score(outputs: ArrayLike, labels: NDArray[np.int64], devices: Sequence[str], captures: NDArray[np.str_]) -> Scores:
    """Scores of class outputs (N, C), probabilities or logits, against labels (N,).

    Rows that are non-negative and sum to one are taken as probabilities; anything else goes through a softmax. The
    AUROC compares frames with each other and therefore needs probabilities, not logits.
    """
    probability = as_probability(outputs)
    if probability.shape != (len(labels), len(devices)):
        raise DataError(
            f"class outputs: expected ({len(labels)}, {len(devices)}) (frames, devices), found {probability.shape}."
        )
    predictions = probability.argmax(axis=1)
    confusion = confusion_matrix(labels, predictions, len(devices))
    f1 = f1_per_class(confusion)
    return Scores(
        macro_f1=float(f1.mean()),
        accuracy=_accuracy(confusion),
        macro_auroc=macro_auroc(labels, probability),
        per_device={name: float(value) for name, value in zip(devices, f1, strict=True)},
        per_capture={
            str(name): _capture_score(labels[captures == name], predictions[captures == name], len(devices))
            for name in np.unique(captures)
        },
        confusion=confusion,
    )


def macro_f1(labels: ArrayLike, predictions: ArrayLike, classes: int) -> float:
    """Unweighted mean of the F1 of classes 0 … classes − 1; a class without true positives has F1 = 0."""
    return float(f1_per_class(confusion_matrix(np.asarray(labels), np.asarray(predictions), classes)).mean())


def macro_auroc(labels: NDArray[np.int64], probability: NDArray[np.float64]) -> float:
    """Mean over classes of P(p_c of a frame of class c > p_c of another frame), ties counted half.

    By the Mann–Whitney statistic of mid-ranks. A class that no frame, or every frame, belongs to has no AUROC and is
    left out of the mean.
    """
    values = []
    for c in range(probability.shape[1]):
        positive = labels == c
        n, m = int(positive.sum()), int((~positive).sum())
        if n and m:
            ranks = _mid_ranks(probability[:, c])
            values.append((ranks[positive].sum() - n * (n + 1) / 2) / (n * m))
    return float(np.mean(values)) if values else float("nan")


def _mid_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks from 1; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def confusion_matrix(labels: NDArray[Any], predictions: NDArray[Any], classes: int) -> NDArray[np.int64]:
    """(classes, classes) counts, true class by row."""
    if labels.shape != predictions.shape or labels.ndim != 1:
        raise DataError(
            f"labels {labels.shape} and predictions {predictions.shape}: expected two vectors of one length."
        )
    for name, values in (("labels", labels), ("predictions", predictions)):
        if len(values) and not (values.min() >= 0 and values.max() < classes):
            raise DataError(f"{name}: expected classes 0 to {classes - 1}, found {values.min()} to {values.max()}.")
    counts = np.bincount(labels.astype(np.int64) * classes + predictions.astype(np.int64), minlength=classes**2)
    return counts.reshape(classes, classes).astype(np.int64)


def f1_per_class(confusion: NDArray[np.int64]) -> NDArray[np.float64]:
    """F1_c = 2 TP / (2 TP + FP + FN), and 0 where a class neither occurs nor is predicted."""
    hits = np.diag(confusion)
    total = confusion.sum(axis=0) + confusion.sum(axis=1)
    return 2 * hits / np.maximum(total, 1)


def as_probability(outputs: ArrayLike) -> NDArray[np.float64]:
    """Class probabilities (N, C) of probabilities or logits."""
    values = np.asarray(outputs, dtype=np.float64)
    if values.ndim != 2:
        raise DataError(f"class outputs: expected (frames, devices), found shape {values.shape}.")
    if not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values).all(axis=1))[0])
        raise DataError(f"class outputs: frame {row} is NaN or infinite; expected probabilities or logits.")
    if (values >= 0).all() and np.allclose(values.sum(axis=1), 1, atol=1e-3):
        return values
    values = np.exp(values - values.max(axis=1, keepdims=True, initial=-np.inf))
    return values / values.sum(axis=1, keepdims=True)


def _capture_score(labels: NDArray[np.int64], predictions: NDArray[np.intp], classes: int) -> CaptureScore:
    confusion = confusion_matrix(labels, predictions, classes)
    recorded = confusion.sum(axis=1) > 0
    return CaptureScore(float(f1_per_class(confusion)[recorded].mean()), _accuracy(confusion), len(labels))


def _accuracy(confusion: NDArray[np.int64]) -> float:
    return float(np.trace(confusion) / max(confusion.sum(), 1))


def _ink(percent: float) -> str:
    """Text colour that can be read on the colour map at this value."""
    return "black" if percent > 55 else "white"
