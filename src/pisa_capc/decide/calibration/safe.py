"""U-CAPC under a guard, which decides without labels, capture by capture, how far a calibration may go.

The balanced transport of U-CAPC makes every class of a capture equally full. Where the classes are equally frequent
that corrects a biased classifier; where they are not it forces frames into classes they do not belong to. The two
differ in their **price**: the score that frames give up, on average, to make the classes equally full,

    price = mean_i ( max_k s_ik − s_i,ŷ(i) ),      ŷ the balanced decision, s its scores.

It is no measure of success that the transport could have optimised: it is what the constraint cost. A small price says
that the frames were about to fill the classes anyway. What is small depends on the model, so the thresholds are learnt
by rehearsal (`decide.rehearsal`): calibrations of source environments that a model like this one has not
seen, with captures resampled to all sorts of class frequencies and sizes, where the source's labels say what helped.

The price decides between four levels, from the boldest to the most cautious:

    full   U-CAPC as published: balance, held exactly
    part   balance, held loosely, ρ = 3
    mild   no balance: prototypes of the frames as they are
    off    the classifier's own decisions
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch

from pisa_capc.core.errors import DataError, unknown_name
from pisa_capc.decide.calibration.base import Calibrator, register_calibration
from pisa_capc.decide.calibration.inputs import Inputs
from pisa_capc.decide.calibration.prior import PriorUCAPC
from pisa_capc.decide.calibration.result import Calibration, Recorder
from pisa_capc.decide.calibration.ucapc import PRESETS, UCAPC, replaced
from pisa_capc.model.inference.statistics import SourceStatistics

LEVELS = ("full", "part", "mild", "off")


@dataclass(frozen=True)
class Decision:
    """What the guard decided for one capture, and on what grounds. thresholds: highest price of full, part and mild."""

    capture: str | int
    level: str
    price: float
    thresholds: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        """For a file: JSON knows no infinity, so a number that is not finite becomes a word, as "-inf"."""
        price, *thresholds = (v if math.isfinite(v) else str(v) for v in (self.price, *self.thresholds))
        return {**asdict(self), "price": price, "thresholds": thresholds}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Decision:
        """A decision as `to_json` wrote it."""
        if values["level"] not in LEVELS:
            raise DataError(unknown_name("guard level", str(values["level"]), LEVELS))
        guard = Guard(tuple(map(float, values["thresholds"])))
        return cls(values["capture"], values["level"], float(values["price"]), guard.thresholds)


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
            raise DataError(
                f"guard: thresholds {values}; expected three prices in rising order. Train again to make them."
            )

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


@register_calibration("safe")
@dataclass(frozen=True)
class Safe(Calibrator):
    """U-CAPC with the guard that was trained with the model; without one, the classifier's own decisions.

    >>> result = Safe().calibrate(embedding, logits, capture, source)       # doctest: +SKIP
    >>> [(d.capture, d.level, d.price, d.thresholds) for d in result.guard] # doctest: +SKIP
    """

    title = "safe"
    freezes = True
    _boldest: ClassVar[str] = LEVELS[0]
    group: str = "capture"  # as of `UCAPC`

    def calibrate_frames(self, inputs: Inputs, source: SourceStatistics, recorder: Recorder) -> Calibration:
        """As U-CAPC; `source.guard` holds the thresholds. The result says what was decided, and why."""
        result = LEVEL_CALIBRATIONS["full"].calibrate_frames(inputs, source, recorder)
        guard = stored_guard(source)
        if guard is None:
            warnings.warn(
                "the scores hold no guard thresholds (source_guard), so nothing is calibrated: decisions are the "
                "classifier's own. Train the model with `pisa train --guard` and two or more source environments.",
                stacklevel=3,
            )
        thresholds = (-np.inf,) * 3 if guard is None else guard.thresholds
        decisions = tuple(
            Decision(summary.capture, "off" if guard is None else self._level(guard, price), float(price), thresholds)
            for summary, price in zip(result.captures, prices(result), strict=True)
        )
        for level in LEVELS[1:]:
            chosen = [r for r, decision in enumerate(decisions) if decision.level == level]
            if chosen:
                result = replaced(result, chosen, LEVEL_CALIBRATIONS[level])
        return replace(result, guard=decisions)

    def without_balance(self) -> Safe:
        return _WithoutBalance(self.group)

    def _level(self, guard: Guard, price: float) -> str:
        return max(guard.level(price), self._boldest, key=LEVELS.index)


@dataclass(frozen=True)
class _WithoutBalance(Safe):
    title = Safe.title
    _boldest = "mild"


def stored_guard(source: SourceStatistics) -> Guard | None:
    """The guard that came with the scores, if one did."""
    if source.guard is None:
        return None
    values = np.asarray(source.guard)
    if values.dtype.kind not in "iuf":
        raise DataError(f"source_guard holds {values.dtype}; expected three prices. Write the scores with pisa embed.")
    return Guard(tuple(values.astype(np.float64).reshape(-1).tolist()))
