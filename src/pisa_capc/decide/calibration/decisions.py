"""Frames of a stream, decided as they arrived."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pisa_capc.decide.calibration.openset.reject import UNKNOWN
from pisa_capc.decide.calibration.vectors import softmax


@dataclass(frozen=True)
class Decisions:
    """Frames (n) decided as they arrived, of C classes."""

    probability: NDArray[np.float64]  # (n, C), rows sum to one
    score: NDArray[np.float64]  # (n, C)
    prediction: NDArray[np.int64]  # (n,); −1 where a frame was set aside
    group: NDArray[np.int64]  # (n,) number of the group whose prototypes decided; −1 where none did
    alarm: NDArray[np.bool_]  # (n,) whether what was learnt was forgotten after this frame
    unknown_score: NDArray[np.float64] | None = None  # (n,) of a stream that sets unknown devices aside

    @property
    def known(self) -> NDArray[np.bool_] | None:
        """(n,) whether each was taken as known, in a stream that sets others aside."""
        return None if self.unknown_score is None else self.prediction != UNKNOWN

    @classmethod
    def joined(cls, parts: Sequence[Decisions]) -> Decisions:
        """One after the other."""
        names = [name for name, values in vars(parts[0]).items() if values is not None]
        return cls(**{name: np.concatenate([vars(part)[name] for part in parts]) for name in names})


def among(
    decided: Decisions, known: NDArray[np.bool_], logits: NDArray[np.float64], unlike: NDArray[np.float64]
) -> Decisions:
    """Decisions on the known frames among all; the others keep what the classifier itself says."""
    nobody = np.full(len(known), UNKNOWN)
    every = Decisions(softmax(logits), logits.copy(), nobody, nobody.copy(), np.zeros(len(known), dtype=bool), unlike)
    for name, values in vars(decided).items():
        if values is not None:
            vars(every)[name][known] = values
    return every
