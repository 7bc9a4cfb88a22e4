"""Whether the receiver does well: clipping, dead antennas, samples that are no numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pisa_capc.signal.recordings.encoding import Encoding
from pisa_capc.signal.recordings.health import CLIPPED, DEAD, TOO_LARGE

EVERY = 128  # of the samples is looked at: a clipping receiver clips often
WINDOW_S = 1.0  # after which a verdict is made


@dataclass(frozen=True)
class Health:
    """Antennas that clipped or were dead in the last second, and how many samples were no numbers, ever."""

    clipped: tuple[int, ...] = ()
    dead: tuple[int, ...] = ()
    unusable: int = 0

    @property
    def in_trouble(self) -> bool:
        return self != Health()


class ReceiverCheck:
    """Looks at the samples of a stream, and says how well the receiver does."""

    def __init__(self, antennas: int, encoding: Encoding, sample_rate_hz: float) -> None:
        self._encoding = encoding
        self._window = max(1, int(WINDOW_S * sample_rate_hz / EVERY))
        self.health = Health()
        self._antennas = antennas
        self._begin()

    def _begin(self) -> None:
        self._seen, self._peak = 0, 0.0
        self._power, self._at_full_scale = np.zeros(self._antennas), np.zeros(self._antennas)

    def look(self, data: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The samples as they came, with zeros for what is no number."""
        if self._encoding.kind == "f":
            data = self._numbers(data)
        instants = data.reshape(-1, self._antennas * self._encoding.sample_bytes)[::EVERY]
        some = self._encoding.decode(instants.reshape(-1), self._antennas).view(np.float32)
        if some.size:
            magnitude = np.abs(some)
            self._seen += some.shape[1] // 2
            self._power += np.einsum("an,an->a", some, some, dtype=np.float64)
            self._peak = max(self._peak, float(magnitude.max()))
            self._at_full_scale += np.count_nonzero(magnitude >= self._encoding.full_scale, axis=1)
        if self._seen >= self._window:
            self._judge()
        return data

    def _numbers(self, data: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Floats; some may be NaN, infinite or so large that their squares are."""
        values = data.view(self._encoding.number).reshape(-1, 2)
        with np.errstate(over="ignore", invalid="ignore"):
            if np.vdot(values, values) < TOO_LARGE**2:
                return data
        bad = ~(np.abs(values) < TOO_LARGE).all(axis=1)
        self.health = replace(self.health, unusable=self.health.unusable + int(np.count_nonzero(bad)))
        good = values.copy()
        good[bad] = 0
        return good.view(np.uint8).reshape(-1)

    def _judge(self) -> None:
        clips = self._at_full_scale >= max(4.0, CLIPPED * self._seen)
        if self._peak > 1:
            clips[:] = False  # floats in units of their own: nobody knows where the receiver's range ends
        clipped, dead = (
            tuple(np.flatnonzero(which).tolist()) for which in (clips, self._power <= DEAD * self._power.max())
        )
        self.health = Health(clipped, dead, self.health.unusable)
        self._begin()
