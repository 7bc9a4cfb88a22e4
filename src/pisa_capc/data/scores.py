"""Scores of an identification: Macro-F1, accuracy, one-vs-rest Macro-AUROC, where the errors are, and how well claims
are verified; and in an open set, whether unknown devices can be told from known ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pisa_capc.core.brief import brief
from pisa_capc.core.errors import DataError
from pisa_capc.data.trials import claim_scores, equal_error_rate

CLAIMS = ("eer", "cllr", "min_cllr")  # of verification; records of earlier versions do not have them


@dataclass(frozen=True)
class CaptureScore:
    """Scores of one capture setting; Macro-F1 is over the devices recorded in it."""

    macro_f1: float
    accuracy: float
    frames: int


@dataclass(frozen=True)
class Scores:
    """How well the devices were told apart.

    macro_f1: unweighted mean of the F1 of all C devices. accuracy: share of frames that are right, the rank-1 rate.
    macro_auroc: unweighted mean over devices of the one-vs-rest AUROC of its probability; NaN where undefined for all.
    confusion: (C, C) counts, true device by row, predicted device by column.
    eer, cllr, min_cllr: of claims, where every frame claims every device; see `trials`. NaN where there is no claim,
    and in records of earlier versions.
    """

    macro_f1: float
    accuracy: float
    macro_auroc: float
    per_device: dict[str, float]
    per_capture: dict[str, CaptureScore]
    confusion: NDArray[np.int64]
    eer: float = float("nan")
    cllr: float = float("nan")
    min_cllr: float = float("nan")

    __repr__ = brief

    @property
    def balanced_accuracy(self) -> float:
        """Unweighted mean of the recall of the devices that have frames."""
        frames = self.confusion.sum(axis=1)
        there = frames > 0
        return float((self.confusion.diagonal()[there] / frames[there]).mean()) if there.any() else float("nan")

    def to_json(self) -> dict[str, Any]:
        optional = {name: getattr(self, name) for name in ("macro_auroc", *CLAIMS)}
        return {
            "macro_f1": self.macro_f1,
            "accuracy": self.accuracy,
            **{name: None if np.isnan(value) else value for name, value in optional.items()},
            "per_device": self.per_device,
            "per_capture": {name: vars(score) for name, score in self.per_capture.items()},
            "confusion": self.confusion.tolist(),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Scores:
        """Scores as `to_json` wrote them."""
        found = {name: values.get(name) for name in ("macro_auroc", *CLAIMS)}
        optional = {name: float("nan") if value is None else value for name, value in found.items()}
        return cls(
            macro_f1=values["macro_f1"],
            accuracy=values["accuracy"],
            per_device=dict(values["per_device"]),
            per_capture={name: CaptureScore(**score) for name, score in values["per_capture"].items()},
            confusion=np.array(values["confusion"], dtype=np.int64),
            **optional,
        )


def mean_and_spread(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and sample standard deviation; a single value has no spread."""
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None


def pool(runs: Sequence[Scores]) -> Scores:
    """Runs as one, for a picture: mean scores, and the confusions of all of them together."""
    return replace(
        runs[0],
        macro_f1=float(np.mean([run.macro_f1 for run in runs])),
        accuracy=float(np.mean([run.accuracy for run in runs])),
        confusion=np.sum([run.confusion for run in runs], axis=0),
    )


def score(
    outputs: ArrayLike,
    labels: NDArray[np.int64],
    devices: Sequence[str],
    captures: NDArray[np.str_],
    present: bool = False,
) -> Scores:
    """Scores of class outputs (N, C), probabilities or logits, against labels (N,).

    present: over the devices that have frames, instead of all C.

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
    counted = np.flatnonzero(confusion.sum(axis=1)) if present else np.arange(len(devices))
    claims = claim_scores(labels, probability)
    return Scores(
        macro_f1=mean_f1(confusion, present),
        accuracy=_accuracy(confusion),
        macro_auroc=macro_auroc(labels, probability),
        per_device={devices[c]: float(f1[c]) for c in counted.tolist()},
        per_capture={
            str(name): _capture_score(labels[captures == name], predictions[captures == name], len(devices))
            for name in np.unique(captures)
        },
        confusion=confusion,
        **({} if claims is None else claims.to_json()),
    )


def macro_f1(labels: ArrayLike, predictions: ArrayLike, classes: int, present: bool = False) -> float:
    """Unweighted mean of the F1 of classes 0 … classes − 1; a class without true positives has F1 = 0.

    present: over the classes that have frames, by which a capture without some of them can be judged.
    """
    return mean_f1(confusion_matrix(np.asarray(labels), np.asarray(predictions), classes), present)


def mean_f1(confusion: NDArray[np.int64], present: bool = False) -> float:
    """Macro-F1 of a confusion; see `macro_f1`."""
    f1 = f1_per_class(confusion)
    return float((f1[confusion.any(axis=1)] if present else f1).mean())


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


def f1_per_class(confusion: Any) -> Any:
    """F1_c = 2 TP / (2 TP + FP + FN), and 0 where a class neither occurs nor is predicted: (…, C, C) → (…, C).

    Of NumPy arrays and of torch tensors, which should be of floats, alike.
    """
    hits = confusion.diagonal(0, -2, -1)
    return 2 * hits / (confusion.sum(-2) + confusion.sum(-1)).clip(1)


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
    return CaptureScore(mean_f1(confusion, present=True), _accuracy(confusion), len(labels))


def _accuracy(confusion: NDArray[np.int64]) -> float:
    return float(np.trace(confusion) / max(confusion.sum(), 1))


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
    def eer(self) -> float:
        """Where as large a share of known frames is rejected as of unknown ones is accepted."""
        return equal_error_rate((1 - self.accept)[::-1], self.false_accept[::-1])

    @property
    def oscr(self) -> float:
        return _area(self.false_accept, self.correct)

    @property
    def accuracy(self) -> float:
        """Accuracy on known frames where nothing is rejected."""
        return float(self.correct[-1])

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("auroc", "eer", "fpr95", "oscr", "accuracy")}


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


def _area(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    return float((np.diff(x) * (y[1:] + y[:-1]) / 2).sum())
