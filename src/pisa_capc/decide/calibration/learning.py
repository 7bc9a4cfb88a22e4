"""What frames of a stream teach, in one run of its calibration, and decisions by it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pisa_capc.decide.calibration import alarm
from pisa_capc.decide.calibration.careful import HARM, NEVER, Careful, uneven
from pisa_capc.decide.calibration.openset.reject import UNKNOWN
from pisa_capc.decide.calibration.result import Calibration
from pisa_capc.decide.calibration.safe import LEVEL_CALIBRATIONS, LEVELS, Guard, prices
from pisa_capc.decide.calibration.ucapc import UCAPC
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
    """Learns prototypes of C classes of D features; under the guard, or by `Careful` where the source is known."""

    classes: int
    features: int
    calibration: UCAPC
    guard: Guard | None
    source: SourceStatistics | None

    def learn(self, several: bool, frames: dict[str, NDArray[np.float64]]) -> Learnt:
        """What a run of U-CAPC gives; nothing that changes is looked at."""
        result = self._run(several, **frames)
        balanced, doubt = result.potentials is not None, 0.0
        prototypes = np.zeros((self.classes, self.features)) if result.prototypes is None else result.prototypes[0]
        potentials = np.zeros(self.classes) if result.potentials is None else result.potentials[0]
        if self.source is not None:
            _, exponent = self.scored(frames["unit"], frames["logits"], prototypes, balanced, potentials)
            doubt = alarm.bound(softmax(exponent))
        return Learnt(prototypes, balanced, potentials, doubt)

    def scored(
        self,
        unit: NDArray[np.float64],
        logits: NDArray[np.float64],
        prototypes: NDArray[np.float64],
        balanced: bool,
        potentials: NDArray[np.float64],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """s and s / ε + g of frames."""
        settings = self.calibration
        score = logits + (settings.fusion / settings.temperature) * (unit @ prototypes.T)
        return score, score / settings.epsilon + potentials if balanced else score

    def _run(
        self,
        several: bool,
        unit: NDArray[np.float64],
        logits: NDArray[np.float64],
        norm: NDArray[np.float64] | None = None,
    ) -> Calibration:
        """U-CAPC on some frames of a group: balanced where several send, and as far as the guard allows."""
        if self.source is not None and norm is not None:
            careful = Careful(group="none") if several else Careful(group="none", even=NEVER)
            return careful.calibrate(unit * norm[:, None], logits, source=self.source)
        if self.guard is None:
            fit = replace(self.calibration, group="none")
            fit = fit if several else replace(fit, prior="none")
            result = fit.calibrate(unit, logits)
            if uneven(fit, result, SourceStatistics()):  # said in the same words at every run: a stream may be long
                warnings.warn(f"devices seem to send unevenly in this stream. {HARM}", stacklevel=2)
            return result
        result = LEVEL_CALIBRATIONS[LEVELS[0]].calibrate(unit, logits)
        level = self.guard.level(float(prices(result)[0]))
        if not several and level in ("full", "part"):
            level = "mild"
        return result if level == LEVELS[0] else LEVEL_CALIBRATIONS[level].calibrate(unit, logits)
