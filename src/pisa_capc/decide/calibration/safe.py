"""Calibration that may be left switched on: U-CAPC under the guard, capture by capture."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from pisa_capc.core.errors import DataError
from pisa_capc.decide.calibration.base import Calibrator, register_calibration
from pisa_capc.decide.calibration.guard import LEVELS, Decision, Guard
from pisa_capc.decide.calibration.inputs import Inputs
from pisa_capc.decide.calibration.prior import PriorUCAPC
from pisa_capc.decide.calibration.result import Calibration, Recorder
from pisa_capc.decide.calibration.ucapc import PRESETS, UCAPC
from pisa_capc.model.inference.statistics import SourceStatistics

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
            Decision(summary.capture, "off" if guard is None else guard.level(price), float(price), thresholds)
            for summary, price in zip(result.captures, prices(result), strict=True)
        )
        for level in LEVELS[1:]:
            chosen = [r for r, decision in enumerate(decisions) if decision.level == level]
            if chosen:
                result = _replaced(result, chosen, LEVEL_CALIBRATIONS[level])
        return replace(result, guard=decisions)


def stored_guard(source: SourceStatistics) -> Guard | None:
    """The guard that came with the scores, if one did."""
    if source.guard is None:
        return None
    values = np.asarray(source.guard)
    if values.dtype.kind not in "iuf":
        raise DataError(f"source_guard holds {values.dtype}; expected three prices. Write the scores with pisa embed.")
    return Guard(tuple(values.astype(np.float64).reshape(-1).tolist()))


def _replaced(result: Calibration, chosen: list[int], calibration: UCAPC) -> Calibration:
    """The result with the captures `chosen` calibrated in another way."""
    inputs = result.inputs
    rows = torch.cat([inputs.groups.rows(r) for r in chosen])
    # Group numbers as captures keep the order, whatever the captures are called.
    other = calibration.calibrate(inputs.embedding[rows], inputs.logits[rows], inputs.groups.index[rows])
    arrays: dict[str, Any] = {}
    for name in ("probability", "score", "prediction"):
        target = torch.as_tensor(getattr(result, name))
        target[rows] = torch.as_tensor(getattr(other, name)).to(target.dtype)  # in place: it may be a file
        arrays[name] = inputs.give_back(target)
    captures = list(result.captures)
    for r, summary in zip(chosen, other.captures, strict=True):
        captures[r] = replace(summary, capture=captures[r].capture)
    kept: dict[str, Any] = {}
    for name in ("prototypes", "potentials"):
        whole, part = getattr(result, name).copy(), getattr(other, name)
        whole[chosen] = 0.0 if part is None else part  # without prototypes or balance: nothing is added to a score
        kept[name] = whole
    return replace(result, **arrays, captures=tuple(captures), **kept)
