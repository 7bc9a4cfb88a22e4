r"""An alarm when a calibration stops paying, with a stated rate of false alarms.

What was learnt of a group holds while its frames go on as they were. Where they do not, decisions become unsure, which
shows without labels. With the **doubt** of a frame, x_t = 1 − max_k π_tk, the hypothesis is that, whatever came before,

    E[x_t | past] ≤ m,      m = the mean doubt of the frames that were learnt from + `TOLERANCE`.

Against it money is bet [1]_ [2]_, one unit more with every frame, because the change may come at any time [3]_:

    M_t = (M_{t−1} + 1) (1 + λ (x_t / m − 1)),      alarm where the mean over some λ reaches `FRAMES`.

While the hypothesis holds M_t − t wins nothing on average, so the mean time to a false alarm is at least `FRAMES`
frames. Frames need not be independent for that, and m may change with what has been learnt.

.. [1] I. Waudby-Smith and A. Ramdas. Estimating means of bounded random variables by betting. JRSS B 86(1), 2024.
.. [2] M. Schirmer et al. Monitoring risks in test-time adaptation. arXiv 2507.08721, 2025.
.. [3] J. Shin, A. Ramdas and A. Rinaldo. E-detectors: a nonparametric framework for sequential change detection.
   New England Journal of Statistics in Data Science 2(2), 2024.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BETS = (0.05, 0.2, 0.8)  # λ
TOLERANCE = 0.1  # by which frames may be less sure than those that were learnt from
FRAMES = 10_000  # from one false alarm to the next, on average, at least


def doubt(probability: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n,) of frames with class probabilities (n, C)."""
    return np.asarray(1 - probability.max(axis=1))


def bound(probability: NDArray[np.float64]) -> float:
    """m, from the calibrated probabilities (n, C) of the frames that were learnt from."""
    return float(doubt(probability).mean()) + TOLERANCE


def evidence(before: NDArray[np.float64], m: float, probability: NDArray[np.float64]) -> NDArray[np.float64]:
    """M (n, bets) after each of the next frames, (bets,) before."""
    rows, row = [], before.tolist()  # three numbers are sooner multiplied than NumPy is called
    for x in doubt(probability).tolist():
        row = [min((money + 1) * (1 + bet * (x / m - 1)), 1e300) for money, bet in zip(row, BETS, strict=True)]
        rows.append(row)
    return np.array(rows, dtype=np.float64).reshape(-1, len(BETS))


def raised(found: NDArray[np.float64], frames: float = FRAMES) -> NDArray[np.bool_]:
    """(n,) whether the mean of M (n, bets) has reached what it has once in so many frames."""
    return np.asarray(found.mean(axis=-1) >= frames)
