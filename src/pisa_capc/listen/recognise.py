"""Frames → devices, a few at a time, as they come: embed, set strangers aside, calibrate under the guard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from pisa_capc.calibration import Online, OnlineCalibrator, OpenSet, Safe
from pisa_capc.calibration.guard import Guard
from pisa_capc.calibration.openset import conformal_threshold, score_frames
from pisa_capc.calibration.openset.reject import validation_scores
from pisa_capc.calibration.safe import stored_guard
from pisa_capc.detect import Detection
from pisa_capc.frames import UnlabelledFrames
from pisa_capc.identify.observe import as_trained
from pisa_capc.inference import TrainedModel, embed
from pisa_capc.listen.senders import Sender
from pisa_capc.sources import CfoTrace, Iq, Rows, groups

NO_GUARD = Guard((-np.inf,) * 3)  # a model without one is not calibrated, as `Safe` has it


@dataclass(frozen=True)
class Choices:
    """How frames are decided; as `identify.Choices` has it."""

    reject: str | None = "knn"
    alpha: float = 0.05
    keep_cfo: bool = False
    equalise_antennas: bool = False
    online: Online = field(default_factory=Online)


@dataclass(frozen=True, eq=False)
class Recognised:
    """Decisions on N frames. probability, logits: (N, C). known: (N,). unknown: (N,) scores, where they are made.
    embedding: (N, D), before the calibration."""

    probability: NDArray[np.float64]
    known: NDArray[np.bool_]
    unknown: NDArray[np.float64] | None
    logits: NDArray[np.float64]
    embedding: NDArray[np.float32]


class Recogniser:
    """A model at work."""

    def __init__(self, trained: TrainedModel, choices: Choices, device: torch.device) -> None:
        self.trained, self.choices, self.device = trained, choices, device
        self.samples = int(trained.about["samples"])
        self.classes = len(trained.devices)
        features = int(trained.model.classifier.weight.shape[2])  # type: ignore[union-attr,index]
        guard = stored_guard(trained.statistics) or NO_GUARD
        self.calibrator = OnlineCalibrator(self.classes, features, True, choices.online, guard)
        self.limit, self.reference = np.inf, np.empty(0)
        if choices.reject is not None:
            self._fit_rejection(choices.reject, features)

    def _fit_rejection(self, name: str, features: int) -> None:
        """The threshold, and the scores of the device that it is drawn by: whose own frames are strangest."""
        source, like = self.trained.statistics, torch.empty((0, features), dtype=torch.float64)
        self._score = OpenSet(Safe(), name, self.choices.alpha).fit_score(source, self.classes, like)
        score, label = validation_scores(self._score, source, self.classes, like)
        limits = {int(k): conformal_threshold(score, label, self.choices.alpha, [int(k)]) for k in np.unique(label)}
        strangest = max(limits, key=limits.__getitem__)
        self.limit, self.reference = limits[strangest], score[label == strangest]

    def usable(self, found: Detection) -> bool:
        """Whether there is enough of a frame."""
        return found.iq.shape[1] >= self.samples and bool(np.isfinite(found.cfo_hz).any())

    def recognise(self, found: Sequence[Detection], senders: Sequence[Sender]) -> Recognised:
        """Who sent these frames; senders: of each, the frame's carrier offset in its trace."""
        scores = embed(self.trained, self._frames(found, senders), self.device)
        logits = np.asarray(scores.logits, dtype=np.float64)
        unknown, known = None, np.ones(len(found), dtype=bool)
        if self.choices.reject is not None:
            embedding = torch.from_numpy(scores.embedding)
            unknown = score_frames(self._score, embedding, torch.from_numpy(scores.logits)).numpy()
            known = unknown <= self.limit
        weight = np.exp(logits - logits.max(axis=1, keepdims=True))
        probability = weight / weight.sum(axis=1, keepdims=True)
        if known.any():
            cfo_hz = None if scores.cfo_hz is None else scores.cfo_hz[known]
            probability[known] = self.calibrator.push(scores.embedding[known], logits[known], cfo_hz).probability
        return Recognised(probability, known, unknown, logits, scores.embedding)

    def _frames(self, found: Sequence[Detection], senders: Sequence[Sender]) -> UnlabelledFrames:
        """As `identify.observe` shows frames to a model."""
        cfo_hz = np.array([one.cfo_hz for one in found])
        iq = np.stack([one.iq[:, : self.samples] for one in found])
        rate = float(self.trained.about["sample_rate_hz"])
        iq = as_trained(iq, cfo_hz, rate, self.choices.keep_cfo, self.choices.equalise_antennas)
        order, one = np.arange(len(found)), np.zeros(len(found), dtype=np.int64)
        return UnlabelledFrames(
            source=_Live(iq, senders),
            rows=order,
            environment=one,
            capture=one,
            frame=order,
            environments=("air",),
            captures=("air",),
            geometry=self.trained.geometry,
            sample_rate_hz=rate,
            carrier_hz=float(self.trained.about.get("carrier_hz", 0.0)),
            samples=self.samples,
        )


class _Live:
    """A `FrameSource` of frames that have just been received, each with what is remembered of its sender."""

    def __init__(self, iq: Iq, senders: Sequence[Sender]) -> None:
        self._iq = iq
        self._number = {id(sender): i for i, sender in enumerate(senders)}
        self._sender = np.array([self._number[id(sender)] for sender in senders], dtype=np.int64)
        self._traces = [sender.trace for sender in senders]
        newer = [int((self._sender[i + 1 :] == own).sum()) for i, own in enumerate(self._sender)]
        self._place = np.array([len(self._traces[k]) - 1 - n for k, n in zip(self._sender, newer, strict=True)])

    @property
    def antennas(self) -> int:
        return int(self._iq.shape[1])

    @property
    def samples(self) -> int:
        return int(self._iq.shape[2])

    def read_iq(self, rows: Rows, samples: int, out: Iq | None = None) -> Iq:
        if out is None:
            return self._iq[rows, :, :samples]
        out[...] = self._iq[rows, :, :samples]
        return out

    def read_cfo_hz(self, rows: Rows) -> NDArray[np.float64]:
        return np.array([self._traces[self._sender[i]][max(self._place[i], 0)] for i in rows.tolist()])

    def cfo_traces(self, rows: Rows) -> Iterator[CfoTrace]:
        for where in groups(self._sender[rows]):
            own = rows[where]
            yield CfoTrace(where, np.maximum(self._place[own], 0), self._traces[self._sender[own[0]]])
