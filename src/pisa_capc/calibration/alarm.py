r"""An alarm when a calibration stops paying, with a stated rate of false alarms, whenever one looks.

What was learnt of a group assumes that its frames go on as they were. Two things of a decided frame show, without
labels, that they do not: its **doubt**, one less the probability of what was decided, and its **shares**, the
probability that each class has taken of it. The hypothesis is that, whatever came before,

    E[x_t | past] ≤ m + tolerance        x: doubt and shares, m: their means over the frames that were learnt from.

Against it money is bet [1]_ [2]_: a stake :math:`\prod_t (1 + \lambda (x_t - m - \text{tolerance}))` grows in no fair
game, so the mean over several λ and all that is watched exceeds 1/rate with probability at most `rate`, at any time
in an endless stream (Ville). Frames need not be independent for that.

.. [1] I. Waudby-Smith and A. Ramdas. Estimating means of bounded random variables by betting. JRSS B 86(1), 2024.
.. [2] M. Schirmer et al. Monitoring risks in test-time adaptation. arXiv 2507.08721, 2025.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

BETS = (0.1, 0.3, 0.9)  # λ, of the largest stake that cannot be ruined
HIGHEST = 0.95  # reference beyond which a mean has no room to grow, and is not watched


class Alarm:
    """Watches frames as they are decided. Once raised it stays so.

    >>> alarm = Alarm(np.full((100, 2), 0.5))
    >>> alarm.watch(np.tile([0.99, 0.01], (60, 1)))  # one device is left
    True
    """

    def __init__(self, probability: NDArray[np.float64], rate: float = 0.01, tolerance: float = 0.1) -> None:
        """probability (n, C): of the frames that were learnt from, calibrated."""
        bound = watched(probability).mean(axis=0) + tolerance
        self.rate, self.bound = rate, np.where(bound < HIGHEST, bound, 1.0)
        self._stake = np.outer(BETS, 1 / self.bound)  # λ (x − bound) > −1 for all x in [0, 1]
        self._log_wealth = np.zeros_like(self._stake)
        self.raised = False

    @property
    def evidence(self) -> float:
        """The bet's wealth, from one at the beginning: the alarm is raised at 1/rate."""
        return float(np.exp(logsumexp(self._log_wealth) - np.log(self._log_wealth.size)))

    def watch(self, probability: NDArray[np.float64]) -> bool:
        """Take the next frames' calibrated probabilities (n, C); whether the alarm is raised, now or before."""
        for x in watched(probability):
            self._log_wealth += np.log1p(self._stake * (x - self.bound))
            self.raised |= self.evidence >= 1 / self.rate
        return self.raised


def watched(probability: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n, C + 1): doubt, and what each class has taken."""
    return np.column_stack((1 - probability.max(axis=1), probability))
