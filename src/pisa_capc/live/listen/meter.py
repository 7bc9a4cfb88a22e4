"""How fast things come, and how long decisions take."""

from __future__ import annotations

import time
from collections import deque

import numpy as np

LAST_S = 10.0  # that rates are of
STEP_S = 0.5
DELAYS = 2000  # newest decisions


class Meter:
    """Rates over the last seconds, and delays of the newest decisions."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int, int]] = deque(maxlen=int(LAST_S / STEP_S) + 1)
        self._delays_s: deque[float] = deque(maxlen=DELAYS)

    def mark(self, samples: int, frames: int) -> None:
        """Remember how many there were by now."""
        now = time.monotonic()
        if not self._marks or now - self._marks[-1][0] >= STEP_S:
            self._marks.append((now, samples, frames))

    def rates(self) -> tuple[float, float]:
        """Samples and frames a second."""
        marks = list(self._marks)
        if len(marks) < 2:
            return 0.0, 0.0
        (t0, s0, f0), (t1, s1, f1) = marks[0], marks[-1]
        return (s1 - s0) / (t1 - t0), (f1 - f0) / (t1 - t0)

    @property
    def full(self) -> bool:
        """Whether rates are of all the seconds that they should be of."""
        return len(self._marks) == self._marks.maxlen

    def delay(self, seconds: float) -> None:
        self._delays_s.append(seconds)

    def delays_ms(self) -> tuple[float, float]:
        """Median and 99th percentile."""
        delays = list(self._delays_s)
        if not delays:
            return 0.0, 0.0
        median, high = np.quantile(delays, (0.5, 0.99))
        return float(1e3 * median), float(1e3 * high)
