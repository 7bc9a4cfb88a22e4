"""What frames of a group teach, in one run of U-CAPC or what takes its place, and decisions by it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pisa_capc.decide.calibration import alarm
from pisa_capc.decide.calibration.balance import HARM, uneven
from pisa_capc.decide.calibration.careful import NEVER, Careful
from pisa_capc.decide.calibration.guard import LEVELS, Guard
from pisa_capc.decide.calibration.result import Calibration
from pisa_capc.decide.calibration.safe import LEVEL_CALIBRATIONS, prices
from pisa_capc.decide.calibration.ucapc import UCAPC
from pisa_capc.decide.calibration.vectors import softmax
from pisa_capc.model.inference.statistics import SourceStatistics


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
