"""The guard: how far a capture's calibration may go, decided without labels, capture by capture.

The balanced transport of U-CAPC makes every class of a capture equally full. Where the classes are equally frequent
that corrects a biased classifier; where they are not it forces frames into classes they do not belong to. The two
differ in their **price**: the score that frames give up, on average, to make the classes equally full,

    price = mean_i ( max_k s_ik − s_i,ŷ(i) ),      ŷ the balanced decision, s its scores.

It is no measure of success that the transport could have optimised: it is what the constraint cost. A small price says
that the frames were about to fill the classes anyway. What is small depends on the model, so the thresholds are learnt
by rehearsal (`rehearse`, `Guard.learn`): calibrations of source environments that a model like this one has not
seen, with captures resampled to all sorts of class frequencies and sizes, where the source's labels say what helped.

The price decides between four levels, from the boldest to the most cautious:

    full   U-CAPC as published: balance, held exactly
    part   balance, held loosely, ρ = 3
    mild   no balance: prototypes of the frames as they are
    off    the classifier's own decisions
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import DataError, unknown_name

LEVELS = ("full", "part", "mild", "off")
TOLERATED_LOSS = 0.002  # of Macro-F1, in the mean over the rehearsals of one kind in one environment
PENALTY = 5.0  # what a loss beyond that weighs against a mean gain
CANDIDATES = 24  # thresholds that are tried: quantiles of the prices in rehearsal


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
class Rehearsals:
    """Calibrations of captures whose labels are known. One row per rehearsal.

    price (N,), gain (N, 4) of Macro-F1 over direct inference by level, kind (N,) number of the environment and kind of
    resampling that the rehearsal belongs to.
    """

    price: NDArray[np.float64]
    gain: NDArray[np.float64]
    kind: NDArray[np.int64]

    @staticmethod
    def join(parts: Sequence[Rehearsals]) -> Rehearsals:
        """All rehearsals; kinds of different parts stay different."""
        shifts = np.cumsum([0, *(int(part.kind.max()) + 1 for part in parts[:-1])])
        return Rehearsals(
            np.concatenate([part.price for part in parts]),
            np.concatenate([part.gain for part in parts]),
            np.concatenate([part.kind + shift for part, shift in zip(parts, shifts, strict=True)]),
        )


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

    @classmethod
    def learn(cls, rehearsals: Rehearsals) -> Guard:
        """The thresholds with the highest mean gain over the kinds of rehearsal, losses of a kind counted dearly.

        What a kind loses beyond what is tolerated counts `PENALTY` times against the mean gain. Where thresholds are
        equally good the more cautious are taken. A price above all that were rehearsed is never trusted.
        """
        price, gain = rehearsals.price, rehearsals.gain
        cuts = np.concatenate([[-np.inf], np.unique(np.quantile(price, np.linspace(0, 1, CANDIDATES)))])
        # sums[c, l, k]: gain at level l of the rehearsals of kind k whose price is at most cuts[c].
        below = price[None] <= cuts[:, None]
        member = np.eye(rehearsals.kind.max() + 1)[rehearsals.kind]
        member = member[:, member.any(axis=0)]  # a kind that could not be drawn has no say
        sums = np.einsum("cn,nl,nk->clk", below, gain, member) / member.sum(0)
        best, chosen = -np.inf, (-np.inf, -np.inf, -np.inf)
        for i in range(len(cuts)):
            for j in range(i, len(cuts)):
                middle = sums[i, 0] + sums[j, 1] - sums[i, 1]
                means = middle + sums[j:, 2] - sums[j, 2]  # one row per third cut; beyond it the gain is zero
                lost = np.maximum(0.0, -TOLERATED_LOSS - means).sum(axis=1)
                values = means.mean(axis=1) - PENALTY * lost
                m = int(np.argmax(values))
                if values[m] > best + 1e-9:
                    best, chosen = values[m], (cuts[i], cuts[j], cuts[j + m])
        return cls(tuple(float(cut) for cut in chosen))
