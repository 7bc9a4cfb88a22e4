"""Devices that a run does not know: how well their frames are told from those of the devices that it knows."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import DataError
from pisa_capc.data.protocol import Evaluator
from pisa_capc.data.scores import OpenSetScores
from pisa_capc.data.trials import VerificationScores, verification_score
from pisa_capc.decide.calibration.openset.names import MEASURED
from pisa_capc.decide.calibration.openset.reject import Rejection
from pisa_capc.decide.calibration.policy import AUTO, rejection
from pisa_capc.model.inference import Embedding

ALPHA = 0.05  # of the threshold, as every command has it that rejects


@dataclass(frozen=True)
class UnknownDeviceScores:
    """score: the unknown score that this model is used with. frames: of unknown devices.

    accepted: share of these that are taken as known, and rejected: of known frames that are not, at the threshold that
    was set on the source. ratio: for a score that is a log-likelihood ratio, the claim "I am enrolled" as trials.
    """

    score: str
    frames: int
    scores: OpenSetScores
    accepted: float
    rejected: float
    ratio: VerificationScores | None = None

    def to_json(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("score", "frames", "accepted", "rejected")}
        bits = {} if self.ratio is None else {name: getattr(self.ratio, name) for name in ("cllr", "min_cllr")}
        return {**own, **self.scores.to_json(), **bits}


def score_strangers(known: Embedding, unknown: Embedding, evaluator: Evaluator) -> UnknownDeviceScores | None:
    """Frames of the target against those of unknown devices, each by itself.

    None, with a warning that says why, where a model keeps too little for its score.
    """
    name = rejection(AUTO, known.statistics)
    assert name is not None, "auto is always a score"
    try:
        found = Rejection.fit(name, known.statistics, known.logits.shape[1], known.embedding.shape[1], ALPHA)
    except DataError as error:
        warnings.warn(f"unknown devices are not scored: {error}", stacklevel=2)
        return None

    def unlike(part: Embedding) -> NDArray[np.float64]:
        return found.unlike(part.embedding, part.logits, part.cfo_hz, part.error)

    inside, outside = unlike(known), unlike(unknown)
    return UnknownDeviceScores(
        name,
        len(outside),
        evaluator.openset(known.logits, inside, outside),
        float(np.mean(outside <= found.limit)),
        float(np.mean(inside > found.limit)),
        verification_score(-inside, -outside) if name == MEASURED else None,
    )
