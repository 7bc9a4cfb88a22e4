"""Identify the senders of frames: embed, reject unknown devices, calibrate, decide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from pisa_capc.data.frames import UnlabelledFrames
from pisa_capc.decide.calibration import Calibration, Calibrator, OpenSet, SourceStatistics
from pisa_capc.decide.calibration.careful import warn_where_uneven
from pisa_capc.decide.calibration.policy import AUTO, rejection, usual
from pisa_capc.decide.identification.explain import Explainer
from pisa_capc.decide.identification.likelihood import log10_ratio, pooled_scores
from pisa_capc.decide.identification.observation import Observed, observe
from pisa_capc.decide.identification.tracks import decide_together, groups_in_time
from pisa_capc.model.inference import Embedding, TrainedModel, embed
from pisa_capc.signal.detection import Found, FoundFrame, Identity
from pisa_capc.signal.measurement.fit import SUSPECTED

UNKNOWN = -1


@dataclass(frozen=True)
class Choices:
    """How frames are decided.

    calibration: what corrects the model's decisions with the recording's own frames; each recording is a capture. None:
    the usual one of the model.
    reject: the score that sets unknown devices aside, as `pisa calibrate --reject` has them; `auto`: the usual one of
    the model; None: all are known.
    alpha: share of frames of known devices that are set aside at most, as the score promises it.
    together_s: seconds within which frames of one claimed address are decided together, and set aside together; None:
    each by itself.
    keep_cfo, equalise_antennas: what the model's training set was like; see `observe`.
    """

    calibration: Calibrator | None = None
    reject: str | None = AUTO
    alpha: float = 0.05
    together_s: float | None = None
    keep_cfo: bool = False
    equalise_antennas: bool = False

    def __post_init__(self) -> None:
        self.decider(SourceStatistics())  # what is wrong is said before a long recording is read

    def calibrator(self, source: SourceStatistics) -> Calibrator:
        """What was chosen, or is usual with this source."""
        return usual(source).calibration if self.calibration is None else self.calibration

    def decider(self, source: SourceStatistics) -> Calibrator:
        """What makes decisions of embeddings and logits."""
        chosen = self.calibrator(source)
        reject = rejection(self.reject, source)
        return chosen if reject is None else OpenSet(chosen, reject, self.alpha)


@dataclass(frozen=True, eq=False, repr=False)
class Predicted:
    """Decisions on frames.

    input: what the model saw. probability: (N, C) of each of the model's devices. decision: (N,) their number; −1: of
    no device that the model knows. unknown_score, p_value: (N,) how little a frame resembles the source, and how
    often a frame of a known device resembles it as little, where that was asked.
    scores: what the model itself made of the frames. calibration: what was made of that.
    """

    input: UnlabelledFrames
    devices: tuple[str, ...]
    probability: NDArray[np.float64]
    decision: NDArray[np.int64]
    unknown_score: NDArray[np.float64] | None
    p_value: NDArray[np.float64] | None
    scores: Embedding
    calibration: Calibration
    choices: Choices
    explainer: Explainer

    def __len__(self) -> int:
        return len(self.decision)

    def __repr__(self) -> str:
        unknown = int((self.decision == UNKNOWN).sum())
        return f"{type(self).__name__}({len(self):,} frames, {len(self.devices)} devices, {unknown:,} frames unknown)"

    @cached_property
    def identities(self) -> tuple[Identity, ...]:
        """Who sent each frame."""
        who = identities(self.devices, self.probability, self.decision, self.unknown_score)
        evidence = log10_ratio(self.scores, self.probability.argmax(axis=1))
        p_values = [None] * len(who) if self.p_value is None else self.p_value.tolist()
        fits = [None] * len(who) if self.scores.fit is None else known_numbers(self.scores.fit)
        explained = bool(self.explainer.devices)
        return tuple(
            replace(one, reason=self.reason(i, one) if explained else None, p_value=p, evidence=e, fit=f)
            for i, (one, p, e, f) in enumerate(zip(who, p_values, evidence, fits, strict=True))
        )

    def reason(self, i: int, who: Identity) -> str | None:
        """Why frame i was decided as it was; None where the model measures nothing."""
        error = None if self.scores.error is None else self.scores.error[[i]]
        order = self.scores.logits[i].argsort()[::-1]
        beside = next((name for k in order if (name := self.devices[k]) != who.device), None)
        return self.explainer.reason(
            self.scores.embedding[[i]],
            error,
            who.like,
            None if who.device is None else beside,
            None if self.scores.fit is None else float(self.scores.fit[i]),
        )

    @property
    def misfits(self) -> int | None:
        """Frames that do not fit the waveform; None where the model cannot tell."""
        return None if self.scores.fit is None else int((self.scores.fit < SUSPECTED).sum())

    @property
    def device(self) -> list[str | None]:
        """The name of each frame's device, None for one that the model does not know."""
        return [None if k == UNKNOWN else self.devices[k] for k in self.decision.tolist()]

    @property
    def like(self) -> list[str]:
        """The device each frame is most like, whether or not it is taken as known."""
        return [self.devices[k] for k in self.probability.argmax(axis=1).tolist()]

    @property
    def confidence(self) -> NDArray[np.float64]:
        """(N,) probability of that device among those the model knows."""
        return np.asarray(self.probability.max(axis=1))


@dataclass(frozen=True, eq=False, repr=False)
class Identified(Predicted):
    """Decisions on the frames of recordings."""

    seen: Observed

    @cached_property
    def frames(self) -> tuple[FoundFrame, ...]:
        """The frames, each with who sent it."""
        return tuple(replace(frame, identity=one) for frame, one in zip(self.seen.about, self.identities, strict=True))


def identities(
    devices: Sequence[str],
    probability: NDArray[np.float64],
    decision: NDArray[np.int64],
    unknown_score: NDArray[np.float64] | None,
) -> list[Identity]:
    """Decisions on N frames, one by one; as of `Identified`."""
    like, there = probability.argmax(axis=1), np.arange(len(probability))
    scores = [None] * len(probability) if unknown_score is None else unknown_score.tolist()
    columns = zip(decision.tolist(), like.tolist(), probability[there, like].tolist(), scores, strict=True)
    return [Identity(None if k == UNKNOWN else devices[k], devices[most], p, u) for k, most, p, u in columns]


def known_numbers(values: NDArray[np.float64]) -> list[float | None]:
    """None for what is not finite."""
    return [value if np.isfinite(value) else None for value in values.tolist()]


def identify(
    trained: TrainedModel,
    found: Sequence[Found],
    choices: Choices | None = None,
    device: str | torch.device = "auto",
    after_batch: Callable[[int], None] = lambda frames: None,
) -> Identified:
    """Who sent the frames that were found in recordings.

    >>> trained = load_model("run")                                         # doctest: +SKIP
    >>> found = detect(open_recording("room.sigmf-meta"), "wifi")           # doctest: +SKIP
    >>> who = identify(trained, [found])                                    # doctest: +SKIP
    >>> who.device[:3], who.confidence[:3]                                  # doctest: +SKIP
    """
    choices = choices or Choices()
    seen = observe(trained, found, choices.keep_cfo, choices.equalise_antennas)
    group = None
    if choices.together_s is not None:
        group = groups_in_time(seen.address, seen.track, seen.time_s, choices.together_s)
    return Identified(**vars(predict(trained, seen.frames, choices, device, after_batch, group)), seen=seen)


def predict(
    trained: TrainedModel,
    frames: UnlabelledFrames,
    choices: Choices | None = None,
    device: str | torch.device = "auto",
    after_batch: Callable[[int], None] = lambda frames: None,
    group: NDArray[np.int64] | None = None,
) -> Predicted:
    """Who sent frames, of a dataset for instance; their labels are not read. Each capture is calibrated by itself.

    group: (N,) numbers from 0 on; frames of one are decided as one.

    >>> who = predict(load_model("run"), load("yard"))                      # doctest: +SKIP
    >>> who.device[:3], who.confidence[:3], who.p_value[:3]                 # doctest: +SKIP
    """
    choices = choices or Choices()
    choices = replace(choices, calibration=choices.calibrator(trained.statistics))
    scores = embed(trained, frames, device, after_batch=after_batch, fit=True)
    pooled = None if group is None else pooled_scores(scores, group)
    decider = choices.decider(trained.statistics)
    result = _decided(decider, scores, group) if pooled is None else _decided(decider, pooled, None)
    warn_where_uneven(choices.calibrator(trained.statistics), result, trained.statistics)
    probability, decision = np.asarray(result.probability, dtype=np.float64), np.asarray(result.prediction)
    if group is not None and pooled is None:
        probability = decide_together(probability, group)
        decision = np.where(decision == UNKNOWN, UNKNOWN, probability.argmax(axis=1))
    return Predicted(
        frames,
        trained.devices,
        probability,
        decision,
        None if result.unknown_score is None else np.asarray(result.unknown_score),
        None if result.p_value is None else np.asarray(result.p_value),
        scores,
        result,
        choices,
        Explainer(trained),
    )


def _decided(decider: Calibrator, scores: Embedding, sender: NDArray[np.int64] | None) -> Calibration:
    """Decisions of frames; those of a sender are set aside together where they are set aside."""
    frames = scores.embedding, scores.logits, scores.capture, scores.statistics
    if isinstance(decider, OpenSet):
        return decider.calibrate(*frames, sender=sender, carrier_hz=scores.cfo_hz, error=scores.error)
    return decider.calibrate(*frames)
