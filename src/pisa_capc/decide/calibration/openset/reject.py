"""Reject, then calibrate: unknown frames in a capture would draw its prototypes and its class balance to them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.decide.calibration.base import Calibrator
from pisa_capc.decide.calibration.inputs import EVERYTHING, Array, Captures, Inputs, check_inputs
from pisa_capc.decide.calibration.openset.names import DEFAULT, unknown_score
from pisa_capc.decide.calibration.openset.scores import ScoreFunction, Seen, UnknownScore, scored, single
from pisa_capc.decide.calibration.result import Calibration, Judged, Recorder
from pisa_capc.decide.calibration.workspace import Rows, batches, block_rows, row_blocks
from pisa_capc.model.inference.statistics import SourceStatistics

UNKNOWN = -1  # the decision on a rejected frame


@dataclass(frozen=True)
class OpenSet(Calibrator):
    """Any calibration, made on the frames that are taken as known. The same interface as the calibration itself.

    Rejected frames have the prediction −1 and keep the source classifier's own scores and probabilities. Frames are
    rejected where their unknown score exceeds `threshold`; where none is given it is the score's own at `alpha` (its
    `limit` says what that promises; `false_accept_threshold` is another).

    >>> open_set = OpenSet(UCAPC(), "session", alpha=0.05)                              # doctest: +SKIP
    >>> result = open_set.calibrate(embedding, logits, capture, source, sender=address) # doctest: +SKIP
    >>> result.known, result.unknown_score                                      # doctest: +SKIP
    """

    title = "rejection, then calibration"
    calibrator: Calibrator
    score: str | UnknownScore = DEFAULT
    alpha: float = 0.05
    threshold: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.score, str):
            unknown_score(self.score)
        if not 0 < self.alpha < 1:
            raise ConfigError(f"alpha is {self.alpha}; expected a share of false rejections between 0 and 1.")
        if self.threshold is not None and math.isnan(self.threshold):
            raise ConfigError("threshold is NaN; expected a number.")

    @property
    def group(self) -> str:
        return self.calibrator.group

    @property
    def counted(self) -> str:
        return "capture"

    def calibrate(
        self,
        embedding: Array,
        logits: Array,
        capture: Captures | None = None,
        source: SourceStatistics | None = None,
        out: Mapping[str, Array] | None = None,
        sender: Captures | None = None,
        carrier_hz: Array | None = None,
        error: Array | None = None,
    ) -> Calibration:
        """As the calibration's own.

        sender (N,): frames of one are taken as known or rejected together. carrier_hz (N,): carrier offset of each
        frame, error (N, D, D): of its embedding, for scores that look at them.
        """
        if sender is not None and self.chosen.needs_captures:
            raise ConfigError(
                "crowd finds out by itself which frames belong together. Leave the senders out, or choose another "
                "score for them, as session."
            )
        inputs = check_inputs(embedding, logits, capture, self.counted)
        together = None if sender is None else check_inputs(embedding, logits, sender).groups.index
        carriers = None
        if self.chosen.needs_carrier and carrier_hz is not None:
            carriers = _checked_carriers(carrier_hz, inputs)
        seen = single(inputs.embedding, inputs.logits, carriers, _checked_error(error, inputs))
        return self._calibrate(inputs, source or SourceStatistics(), Recorder(inputs, out), seen, together)

    def calibrate_frames(self, inputs: Inputs, source: SourceStatistics, recorder: Recorder) -> Calibration:
        """As the calibration's own; `source` must hold what the score needs and, without a threshold, `validation`."""
        return self._calibrate(inputs, source, recorder, single(inputs.embedding, inputs.logits))

    def _calibrate(
        self,
        inputs: Inputs,
        source: SourceStatistics,
        recorder: Recorder,
        seen: Seen,
        sender: Tensor | None = None,
    ) -> Calibration:
        function = self.chosen.fit(source, inputs.classes, inputs.embedding)
        limit, reference = self.threshold, None
        if limit is None:
            limit, reference = self.chosen.limit(source, inputs.classes, inputs.embedding, self.alpha)
        if sender is None:
            unlike = scored(function, self.chosen.gather(source, seen, inputs.groups.index))
        else:
            unlike = scored(function, self.chosen.together(source, seen, sender))[sender]
        known = unlike <= limit
        prediction = torch.full_like(inputs.groups.index, UNKNOWN)
        inner = None
        if known.any():
            group = inputs.groups.index[known]
            inner = self.calibrator.calibrate(inputs.embedding[known], inputs.logits[known], group, source)
            prediction[known] = torch.as_tensor(inner.prediction)
        _record(inputs, known, inner, recorder)
        return replace(
            recorder.finish(),
            judged=None if inner is None or inner.judged is None else _judgements(inputs, inner, inner.judged),
            prediction=inputs.give_back(prediction),
            known=inputs.give_back(known),
            unknown_score=inputs.give_back(unlike),
            p_value=None if reference is None else inputs.give_back(p_values(unlike, reference)),
        )

    @property
    def chosen(self) -> UnknownScore:
        """The score, where it was named."""
        return unknown_score(self.score)() if isinstance(self.score, str) else self.score


def p_values(unlike: Tensor, reference: NDArray[np.float64]) -> Tensor:
    """(N,) p = (1 + #{j: u_j ≥ u}) / (n + 1) of unknown scores u (N,) among those of n known frames.

    The conformal p-value of "a known device sent it": of frames like the reference at most a share α has p ≤ α.
    """
    known = torch.as_tensor(np.sort(reference), dtype=unlike.dtype, device=unlike.device)
    below = torch.searchsorted(known, unlike.contiguous())
    return (1 + len(known) - below).double() / (1 + len(known))


def _checked_carriers(carrier_hz: Array, inputs: Inputs) -> Tensor:
    carriers = torch.as_tensor(carrier_hz, dtype=torch.float64, device=inputs.embedding.device)
    if carriers.shape != inputs.embedding.shape[:1] or not torch.isfinite(carriers).all():
        raise DataError(
            f"cfo_hz {tuple(carriers.shape)}: expected a finite number of Hz for each of the {len(inputs.embedding)} "
            "frames. Leave it out where it was not recorded."
        )
    return carriers


def _checked_error(error: Array | None, inputs: Inputs) -> Tensor | None:
    if error is None:
        return None
    frames, size = inputs.embedding.shape
    errors = torch.as_tensor(error, device=inputs.embedding.device)
    if errors.shape != (frames, size, size) or torch.isnan(errors).any():
        raise DataError(
            f"error {tuple(errors.shape)}: expected ({frames}, {size}, {size}), the covariance of each embedding's own "
            "error, without NaN. Leave it out where it was not measured."
        )
    return errors


@dataclass(frozen=True, eq=False)
class Rejection:
    """A score at work on frames as they come. limit: those that score higher are rejected. reference: (n,) scores of
    known frames that the limit was drawn by."""

    score: ScoreFunction
    limit: float
    reference: NDArray[np.float64]

    @classmethod
    def fit(cls, name: str, source: SourceStatistics, classes: int, features: int, alpha: float) -> Rejection:
        score, like = unknown_score(name)(), torch.empty((0, features), dtype=torch.float64)
        if score.needs_captures:
            raise ConfigError(f"{name} needs whole captures; a stream is decided as it comes. Use session.")
        return cls(score.fit(source, classes, like), *score.limit(source, classes, like, alpha))

    def unlike(
        self,
        embedding: NDArray[Any],
        logits: NDArray[Any],
        cfo_hz: NDArray[Any] | None = None,
        error: NDArray[Any] | None = None,
    ) -> NDArray[np.float64]:
        """(N,) how little each frame resembles the source."""
        seen = (None if part is None else torch.from_numpy(part) for part in (embedding, logits, cfo_hz, error))
        return np.asarray(scored(self.score, single(*seen)).numpy())  # type: ignore[arg-type]


def _record(inputs: Inputs, known: Tensor, inner: Calibration | None, recorder: Recorder) -> None:
    """Hand over all frames: those of `inner`, which calibrated the known ones, and the others as they came."""
    score, probability = inputs.logits.clone(), torch.softmax(inputs.logits, dim=1)
    if inner is not None:
        score[known], probability[known] = torch.as_tensor(inner.score), torch.as_tensor(inner.probability)
        if inner.prototypes is not None:
            for summary, prototypes in zip(inner.captures, inner.prototypes, strict=True):
                # The calibration was given group numbers as captures, and may have put all of them together.
                own = range(len(inputs.groups)) if summary.capture == EVERYTHING else [int(summary.capture)]
                for group in own:
                    recorder.prototypes([group], torch.from_numpy(prototypes).unsqueeze(0))
    for batch in batches(inputs):
        for rows in row_blocks(inputs.groups, batch, max(1, block_rows(inputs) // len(batch)), keep=False):
            recorder.write(batch, rows, *(_columns(values, rows) for values in (inputs.logits, score, probability)))


def _judgements(inputs: Inputs, inner: Calibration, judged: tuple[Judged, ...]) -> tuple[Judged, ...]:
    """How each capture was judged; one that was rejected whole was not."""
    found = {summary.capture: own for summary, own in zip(inner.captures, judged, strict=True)}
    nothing = found.get(EVERYTHING, Judged("off", math.nan))
    return tuple(found.get(r, nothing) for r in range(len(inputs.groups)))


def _columns(values: Tensor, rows: Rows) -> Tensor:
    """Rows of `values` (N, C) as a class-major block (G, C, b), float64."""
    return values[rows.index].transpose(1, 2).double()
