"""Evidence that grows frame by frame and may be looked at after every one: a conformal test martingale.

Let v_1 … v_n be scores of reference frames and s_1, s_2, … those of new frames, high where a frame is strange. The
conformal p-value of frame t ranks it among everything seen until then,

    p_t = (#{j: v_j ≥ s_t} + #{i ≤ t: s_i ≥ s_t}) / (n + t).

Where reference and new frames are exchangeable, these are at least as large as independent uniform numbers, which they
are once ties are broken at random (Vovk, Nouretdinov and Gammerman, Testing exchangeability on-line, ICML 2003). New
frames have to join the reference: ranks among a fixed one of n frames repeat its own error of about 1/√n in every
frame, and the product below would detect that error instead of another device.

A bet e_ε(p) = ε p^(ε−1), 0 < ε < 1, has mean one under uniform p and pays where p is small. Which ε, and from which
frame on there is something to find, is not known, so the stake is spread over both,

    M_t = 1/(t+1) + Σ_{r ≤ t} 1/(r(r+1)) · mean_ε Π_{i=r…t} e_ε(p_i),        M_0 = 1,

the first term being the stake not yet placed. M is a martingale, at least zero, so by Ville's inequality

    P(there is a t with M_t ≥ 1/α) ≤ α:

a stop at the first such t is wrong with probability at most α, however long the wait.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

BETS = np.array([0.05, 0.1, 0.2, 0.4, 0.8])  # ε, from the boldest on
_LOG_BETS = np.log(BETS)


class Ranks:
    """Conformal p-values of new scores, one after the other, among those of several references (n,) side by side."""

    def __init__(self, references: Iterable[ArrayLike]) -> None:
        self._known: list[list[float]] = [np.sort(np.asarray(one, dtype=np.float64)).tolist() for one in references]
        self.seen: list[float] = []  # in rising order

    def push(self, score: float) -> list[float]:
        """p of the next frame by each reference, which it joins."""
        insort(self.seen, score)
        seen = len(self.seen)
        above = seen - bisect_left(self.seen, score)
        return [(len(known) - bisect_left(known, score) + above) / (len(known) + seen) for known in self._known]


class ClaimEvidence:
    """log M of several tests side by side, (J,), as their p-values come."""

    def __init__(self, tests: int = 1) -> None:
        self.frames = 0
        self.placed = np.full((tests, len(BETS)), -np.inf)  # log of what each bet has won, its stakes of all starts

    def push(self, p: ArrayLike) -> NDArray[np.float64]:
        """log M after the next p-values (J,)."""
        self.frames += 1
        t, logarithm = self.frames, np.log(np.asarray(p, dtype=np.float64))[:, None]
        self.placed = np.logaddexp(self.placed, -np.log(t * (t + 1.0))) + _LOG_BETS + (BETS - 1) * logarithm
        won = np.logaddexp.reduce(self.placed, axis=1) - np.log(len(BETS))
        return np.asarray(np.logaddexp(-np.log(t + 1.0), won))


def conformal_p(score: ArrayLike, reference: ArrayLike) -> NDArray[np.float64]:
    """p (T,) of new frames with scores (T,), in time order, among reference frames with scores (n,)."""
    ranks = Ranks([reference])
    return np.array([ranks.push(value)[0] for value in np.asarray(score, dtype=np.float64).tolist()])


def log_evidence(p: ArrayLike) -> NDArray[np.float64]:
    """log M_t (T,) after each of the p-values (T,)."""
    test = ClaimEvidence()
    return np.array([test.push([value])[0] for value in np.asarray(p, dtype=np.float64)])


def first_beyond(log_m: NDArray[np.float64], alpha: float) -> int | None:
    """The number, from 1 on, of the first frame after which M ≥ 1/α; None where there is none."""
    beyond = np.flatnonzero(log_m >= -np.log(alpha))
    return int(beyond[0]) + 1 if len(beyond) else None
