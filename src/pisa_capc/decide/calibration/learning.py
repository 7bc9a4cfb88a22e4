"""What frames of a stream teach, in one run of its calibration, and decisions by it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from pisa_capc.decide.calibration import alarm
from pisa_capc.decide.calibration.base import Calibrator
from pisa_capc.decide.calibration.careful import HARM, LEFT_ALONE, SUSPECT, distilled, uneven
from pisa_capc.decide.calibration.openset.reject import UNKNOWN
from pisa_capc.decide.calibration.ucapc import UCAPC, head_of, scored_rows
from pisa_capc.decide.calibration.vectors import softmax
from pisa_capc.model.inference.statistics import SourceStatistics


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


class Learnt(NamedTuple):
    """Of a group: prototypes (C, D), whether classes are balanced, potentials (C,), and the bound of the alarm."""

    prototypes: NDArray[np.float64]
    balanced: bool
    potentials: NDArray[np.float64]
    doubt: float


@dataclass(frozen=True, eq=False)
class Learner:
    """Learns prototypes of C classes of D features by any calibration.

    known: what it may know of the source. watched: whether there is an alarm, and embeddings keep their lengths.
    """

    classes: int
    features: int
    calibration: Calibrator
    known: SourceStatistics
    watched: bool

    def learn(self, several: bool, frames: dict[str, NDArray[np.float64]]) -> Learnt:
        """What a run of the calibration gives; nothing that changes is looked at."""
        unit, logits, doubt = frames["unit"], frames["logits"], 0.0
        embedding = unit * frames["norm"][:, None] if self.watched else unit
        chosen = (self.calibration if several else self.calibration.without_balance()).set_params(group="none")
        result = chosen.calibrate(embedding, logits, source=self.known)
        if uneven(chosen, result, SourceStatistics()):  # said in the same words at every run: a stream may be long
            warnings.warn(f"devices seem to send unevenly in this stream. {HARM}", stacklevel=2)
        if result.judged is not None and result.judged[0].level == SUSPECT:
            warnings.warn(f"a group of this stream looks poisoned. {LEFT_ALONE}", stacklevel=2)
        prototypes, potentials = np.zeros((self.classes, self.features)), None
        if not chosen.freezes:
            given = (np.asarray(result.probability), embedding, logits)
            prototypes, potentials = (part.numpy() for part in distilled(*map(torch.from_numpy, given)))
        elif result.prototypes is not None:
            prototypes = result.prototypes[0]
        if chosen.freezes and result.potentials is not None:
            potentials = result.potentials[0]
        if self.watched:
            doubt = alarm.bound(softmax(self.scored(unit, logits, prototypes, potentials)[1]))
        balanced = potentials is not None
        return Learnt(prototypes, balanced, np.zeros(self.classes) if potentials is None else potentials, doubt)

    def scored(
        self,
        unit: NDArray[np.float64],
        logits: NDArray[np.float64],
        prototypes: NDArray[np.float64],
        potentials: NDArray[np.float64] | None,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """s and s / ε + g of frames."""
        return scored_rows(unit, logits, prototypes, potentials, self._head)

    @cached_property
    def _head(self) -> UCAPC:
        return head_of(self.calibration)
