"""Frames → devices, a few at a time, as they come: embed, reject unknown devices, calibrate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from pisa_capc.core.process import keep_freed_memory
from pisa_capc.data.frames import UnlabelledFrames
from pisa_capc.data.sources import MemorySource
from pisa_capc.decide.calibration import Online, OnlineCalibrator
from pisa_capc.decide.calibration.openset import Rejection
from pisa_capc.decide.calibration.policy import AUTO, rejection
from pisa_capc.decide.identification.observation import as_trained
from pisa_capc.model.inference import TrainedModel
from pisa_capc.model.inference.embedding import fit_test_of
from pisa_capc.model.inference.inputs import available_input, available_mean
from pisa_capc.model.inference.recorded import recorded
from pisa_capc.signal.detection import FoundFrame

LAG = 64  # frames: at 500 a second they last longer than a run of what calibrates, some 50 ms where others compute


@dataclass(frozen=True)
class LiveChoices:
    """How frames are decided; as `identify.Choices` has it. No frame waits for what is learnt from others."""

    reject: str | None = AUTO
    alpha: float = 0.05
    keep_cfo: bool = False
    equalise_antennas: bool = False
    online: Online = field(default_factory=lambda: Online(lag=LAG))


@dataclass(frozen=True, eq=False)
class Recognised:
    """Decisions on N frames. probability, logits: (N, C). known: (N,). unknown: (N,) scores, where they are made.
    embedding: (N, D), before the calibration. error: (N, D, D) of it, of models that measure it. fit: of frame i, as
    `Identity` has it; tested when it is asked for, since that takes longer than to decide."""

    probability: NDArray[np.float64]
    known: NDArray[np.bool_]
    unknown: NDArray[np.float64] | None
    logits: NDArray[np.float64]
    embedding: NDArray[np.float32]
    error: NDArray[np.float32] | None = None
    fit: Callable[[int], float | None] = lambda frame: None


class Recogniser:
    """A model at work. live: frames come one by one, and none can wait."""

    def __init__(self, trained: TrainedModel, choices: LiveChoices, device: torch.device, live: bool = False) -> None:
        self.trained, self.choices, self.device = trained, choices, device
        self.samples = trained.run.samples
        self._network = trained.model.to(device).eval()
        if live and device.type == "cpu":
            keep_freed_memory()
            self._network = recorded(trained.model, trained.geometry.antennas, self.samples)
        self.classes = len(trained.devices)
        features = int(trained.model.classifier.weight.shape[2])  # type: ignore[union-attr,index]
        self.calibrator = OnlineCalibrator.usual(self.classes, features, True, choices.online, trained.statistics)
        score = rejection(choices.reject, trained.statistics)
        if score is not None:
            fitted = Rejection.fit(score, trained.statistics, self.classes, features, choices.alpha)
            self.calibrator.rejection = fitted

    @property
    def reference(self) -> NDArray[np.float64]:
        """Unknown scores of known frames; none without rejection."""
        rejection = self.calibrator.rejection
        return np.empty(0) if rejection is None else rejection.reference

    def usable(self, found: FoundFrame) -> bool:
        """Whether there is enough of a frame."""
        return found.iq.shape[1] >= self.samples and bool(np.isfinite(found.cfo_hz).any())

    def recognise(self, found: Sequence[FoundFrame], descriptor: NDArray[np.float32]) -> Recognised:
        """Who sent these frames. descriptor: (N, 4), as of `descriptors`."""
        frames = self.frames(found)
        embedding, logits, cfo_hz, error = self._embedded(frames, descriptor)
        decided = self.calibrator.push(embedding, logits, cfo_hz, error=error)
        known = np.ones(len(found), dtype=bool) if decided.known is None else decided.known
        test = fit_test_of(self.trained.model)

        def fit(i: int) -> float | None:
            return None if test is None else float(test(frames.select(np.array([i])).iq)[0])

        return Recognised(decided.probability, known, decided.unknown_score, logits, embedding, error, fit)

    @torch.no_grad()
    def _embedded(
        self, frames: UnlabelledFrames, descriptor: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], NDArray[np.float64], NDArray[np.float64], NDArray[np.float32] | None]:
        """Embedding (N, D), logits (N, C), CFO (N,) and error (N, D, D), as `embed` gives them; quicker for few."""
        iq, present = available_input(frames)
        mask = None if present.all() else torch.from_numpy(present).to(self.device)
        output = self._network(torch.from_numpy(iq).to(self.device), torch.from_numpy(descriptor).to(self.device), mask)
        embedding, logits = (np.asarray(values.float().cpu()) for values in (output.embedding, output.logits))
        assert frames.cfo_hz is not None
        error = getattr(output, "error", None)
        own = None if error is None else np.asarray(error.cpu())
        return embedding, logits.astype(np.float64), available_mean(frames.cfo_hz, present), own

    def frames(self, found: Sequence[FoundFrame]) -> UnlabelledFrames:
        """As `decide.identification.observe` shows frames to a model."""
        cfo_hz = np.array([one.cfo_hz for one in found])
        iq = np.stack([one.iq[:, : self.samples] for one in found])
        rate = self.trained.run.sample_rate_hz
        turning_hz = cfo_hz + np.array([[one.turn_hz] for one in found])
        keep_cfo = self.choices.keep_cfo or getattr(self.trained.model, "keeps_offset", False)
        iq = as_trained(iq, turning_hz, rate, keep_cfo, self.choices.equalise_antennas)
        order, one = np.arange(len(found)), np.zeros(len(found), dtype=np.int64)
        return UnlabelledFrames(
            source=MemorySource(iq, np.where(np.isfinite(cfo_hz), cfo_hz, 0.0)),  # of a dead antenna nobody asks
            rows=order,
            environment=one,
            capture=one,
            frame=order,
            environments=("air",),
            captures=("air",),
            geometry=self.trained.geometry,
            sample_rate_hz=rate,
            carrier_hz=self.trained.run.carrier_hz,
            samples=self.samples,
        )
