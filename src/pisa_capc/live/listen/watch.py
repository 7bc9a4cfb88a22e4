"""Whether samples come as they should, and how fast: rates, delays, and trouble with the receiver in words."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pisa_capc.live.listen.receiver import Health
from pisa_capc.live.listen.ring import Ring
from pisa_capc.live.listen.sources import Source

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


SILENCE_S = 5.0  # without a sample
SLOW, FAST = 0.98, 1.05  # of the sample rate, beyond which a source does not do what was said


class Trouble(NamedTuple):
    """cause: what tells it from other trouble. shown: whether samples show it."""

    cause: str
    text: str
    shown: bool = False


class Watch:
    """Looks at how samples come in."""

    def __init__(self, source: Source, meter: Meter, sample_rate_hz: float) -> None:
        self._source, self._meter, self._rate_hz = source, meter, sample_rate_hz
        self._missed = self._received = 0
        self._heard_at = time.monotonic()

    @property
    def silent(self) -> bool:
        """Whether a radio has given no sample for a while."""
        return not self._source.patient and time.monotonic() - self._heard_at > SILENCE_S

    def look(self, ring: Ring, health: Health) -> Iterator[Trouble]:
        """What is wrong now; the same trouble comes again as long as it lasts."""
        yield from _antennas(health)
        if ring.missed > self._missed:
            new, self._missed = ring.missed - self._missed, ring.missed
            yield Trouble("missed", f"{new:,} samples, {1e3 * new / self._rate_hz:.3g} ms, were missed.")
        if ring.received != self._received:
            self._heard_at, self._received = time.monotonic(), ring.received
            yield from self._rate()
        elif self.silent and not ring.ended:
            yield Trouble("silent", f"nothing has come from {self._source.name} for {SILENCE_S:g} s.")

    def _rate(self) -> Iterator[Trouble]:
        if self._source.patient or not self._meter.full:
            return
        part = self._meter.rates()[0] / self._rate_hz
        if not SLOW <= part <= FAST:
            why = "Samples are lost before they come here." if part < 1 else "Is --sample-rate right?"
            said = f"{self._source.name} gives {part:.1%} of the {self._rate_hz / 1e6:g} MS/s given as --sample-rate."
            yield Trouble("rate", f"{said} {why}")


def _antennas(health: Health) -> Iterator[Trouble]:
    for antenna in health.clipped:
        what = f"antenna {antenna} clips"
        yield Trouble(what, f"{what}: frames are distorted. Lower the gain.", True)
    for antenna in health.dead:
        what = f"antenna {antenna} is dead"
        yield Trouble(what, f"{what}. Look at its cable and its channel.", True)
    if health.unusable:
        text = f"{health.unusable:,} samples are NaN, infinite or absurdly large, and are read as zero."
        yield Trouble("unusable", text, True)
