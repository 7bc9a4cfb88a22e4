"""Safe: U-CAPC under a guard, which decides without labels, capture by capture, how far a calibration may go.

The balanced transport of U-CAPC makes every class of a capture equally full. Where the classes are equally frequent
that corrects a biased classifier; where they are not it forces frames into classes they do not belong to. The two
differ in their **price**: the score that frames give up, on average, to make the classes equally full,

    price = mean_i ( max_k s_ik − s_i,ŷ(i) ),      ŷ the balanced decision, s its scores.

It is no measure of success that the transport could have optimised: it is what the constraint cost. A small price says
that the frames were about to fill the classes anyway. What is small depends on the model, so the thresholds are learnt
by rehearsal (`studies.rehearsals`): calibrations of source environments that a model like this one has not
seen, with captures resampled to all sorts of class frequencies and sizes, where the source's labels say what helped.

The price decides between four levels, from the boldest to the most cautious:

    full   U-CAPC as published: balance, held exactly
    part   balance, held loosely, ρ = 3
    mild   no balance: prototypes of the frames as they are
    off    the classifier's own decisions

Until it was dropped from the package, where careful gains as much without further trainings (`studies.guard`), this was
the calibration `safe`, whose scores many records hold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch

from pisa_capc.core.errors import DataError
from pisa_capc.decide.calibration.base import Calibrator
from pisa_capc.decide.calibration.inputs import Inputs
from pisa_capc.decide.calibration.prior import PriorUCAPC
from pisa_capc.decide.calibration.result import Calibration, Judged, Recorder
from pisa_capc.decide.calibration.ucapc import PRESETS, UCAPC, replaced
from pisa_capc.model.inference.statistics import SourceStatistics

LEVELS = ("full", "part", "mild", "off")


@dataclass(frozen=True)
class Guard:
    """Highest prices at which a calibration may go to the levels full, part and mild; above the last it is off."""

    thresholds: tuple[float, ...]

    def __post_init__(self) -> None:
        values = self.thresholds
        if (
            len(values) != len(LEVELS) - 1
            or any(math.isnan(v) for v in values)
            or any(a > b for a, b in pairwise(values))
        ):
            raise DataError(f"guard: thresholds {values}; expected three prices in rising order.")

    def level(self, price: float) -> str:
        """The boldest level whose threshold the price does not exceed."""
        return LEVELS[int(np.searchsorted(self.thresholds, price, side="left"))]


# What each level of the guard does; the last does nothing.
LEVEL_CALIBRATIONS: dict[str, UCAPC] = {
    "full": UCAPC(),
    "part": PriorUCAPC(prior="balanced", relaxation=3.0),
    "mild": UCAPC(prior="none"),
    "off": PRESETS["direct"],
}


def prices(balanced: Calibration) -> np.ndarray:
    """(R,) price of each capture: the score that its frames give up, on average, for equally full classes."""
    score = torch.as_tensor(balanced.score).double()
    chosen = torch.as_tensor(balanced.prediction).to(torch.int64)
    given_up = score.amax(dim=1) - score.gather(1, chosen.unsqueeze(1)).squeeze(1)
    groups = balanced.inputs.groups
    total = torch.zeros(len(groups), dtype=torch.float64, device=score.device)
    total.index_add_(0, groups.index.to(score.device), given_up)
    return total.cpu().numpy() / np.array(groups.counts)


@dataclass(frozen=True)
class Safe(Calibrator):
    """U-CAPC under the guard with these thresholds; without any, the classifier's own decisions.

    >>> result = Safe((0.1, 0.2, 0.4)).calibrate(embedding, logits, capture)    # doctest: +SKIP
    >>> [judged.level for judged in result.judged]                              # doctest: +SKIP
    """

    title = "safe"
    freezes = True
    thresholds: tuple[float, ...] = (-math.inf,) * 3
    group: str = "capture"  # as of `UCAPC`

    def __post_init__(self) -> None:
        super().__post_init__()
        Guard(self.thresholds)

    def calibrate_frames(self, inputs: Inputs, source: SourceStatistics, recorder: Recorder) -> Calibration:
        """As U-CAPC; the result says at which level each capture was calibrated."""
        result = LEVEL_CALIBRATIONS["full"].calibrate_frames(inputs, source, recorder)
        levels = [Guard(self.thresholds).level(price) for price in prices(result)]
        for level in LEVELS[1:]:
            if chosen := [r for r, own in enumerate(levels) if own == level]:
                result = replaced(result, chosen, LEVEL_CALIBRATIONS[level])
        return replace(result, judged=tuple(Judged(level, math.nan) for level in levels))
