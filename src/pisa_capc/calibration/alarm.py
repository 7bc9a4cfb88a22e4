r"""An alarm when a calibration stops paying, with a stated rate of false alarms, whenever one looks.

What was learnt of a group holds while its frames go on as they were. Where they do not, decisions become unsure, which
shows without labels. With the **doubt** of a frame, x_t = 1 − max_k π_tk, the hypothesis is that, whatever came before,

    E[x_t | past] ≤ m,      m = the mean doubt of the frames that were learnt from + `TOLERANCE`.

Against it money is bet [1]_ [2]_: the wealth :math:`\prod_t (1 + \lambda (x_t / m - 1))` grows in no fair game, so its
mean over several λ reaches 1/rate with probability at most `rate`, at any time of an endless stream (Ville). Frames
need not be independent for that, and m may change with what has been learnt.

.. [1] I. Waudby-Smith and A. Ramdas. Estimating means of bounded random variables by betting. JRSS B 86(1), 2024.
.. [2] M. Schirmer et al. Monitoring risks in test-time adaptation. arXiv 2507.08721, 2025.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BETS = np.array([0.05, 0.2, 0.8])  # λ
TOLERANCE = 0.1  # by which frames may be less sure than those that were learnt from
RATE = 0.01  # of false alarms


def doubt(probability: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n,) of frames with class probabilities (n, C)."""
    return np.asarray(1 - probability.max(axis=1))


def bound(probability: NDArray[np.float64]) -> float:
    """m, from the calibrated probabilities (n, C) of the frames that were learnt from."""
    return float(doubt(probability).mean()) + TOLERANCE


def bet(log_wealth: NDArray[np.float64], m: float, probability: NDArray[np.float64]) -> NDArray[np.float64]:
    """The logarithm of the wealth (bets,) after each of the next frames, (n, bets)."""
    won = np.log1p(BETS * (doubt(probability)[:, None] / m - 1))
    return np.asarray(log_wealth + np.cumsum(won, axis=0))


def raised(log_wealth: NDArray[np.float64], rate: float = RATE) -> NDArray[np.bool_]:
    """(…,) whether the mean of the wealth (…, bets) has reached 1/rate."""
    return np.asarray(np.exp(np.minimum(log_wealth, 700.0)).mean(axis=-1) >= 1 / rate)
