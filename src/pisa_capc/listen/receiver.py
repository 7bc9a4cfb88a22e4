"""Whether the receiver does well: clipping, dead antennas, samples that are no numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pisa_capc.recordings.encoding import Encoding
from pisa_capc.recordings.health import CLIPPED, DEAD, TOO_LARGE

EVERY = 32  # of the samples is looked at: a clipping receiver clips often
WINDOW_S = 1.0  # after which a verdict is made


class Receiver:
    """Looks at the samples of a stream, and says for the last second which antennas clip or are dead."""

    def __init__(self, antennas: int, encoding: Encoding, sample_rate_hz: float) -> None:
        self._full_scale, self._floats = encoding.full_scale, encoding.kind == "f"
        self._window = max(1, int(WINDOW_S * sample_rate_hz / EVERY))
        self.clipped: tuple[int, ...] = ()
        self.dead: tuple[int, ...] = ()
        self.unusable = 0  # samples that are no numbers
        self._antennas = antennas
        self._begin()

    def _begin(self) -> None:
        self._seen, self._peak = 0, 0.0
        self._power, self._at_full_scale = np.zeros(self._antennas), np.zeros(self._antennas)

    def look(self, block: NDArray[np.complex64]) -> NDArray[np.complex64]:
        """The block (A, n), with zeros for what is no number."""
        if self._floats:
            with np.errstate(over="ignore", invalid="ignore"):
                power = sum(float(np.vdot(row, row).real) for row in block)
            if not np.isfinite(power):
                bad = ~(np.abs(block) < TOO_LARGE)
                self.unusable += int(np.count_nonzero(bad))
                block = np.where(bad, np.complex64(0), block)
        some = np.ascontiguousarray(block[:, ::EVERY]).view(np.float32)
        if some.size:
            magnitude = np.abs(some)
            self._seen += some.shape[1] // 2
            self._power += np.einsum("an,an->a", some, some, dtype=np.float64)
            self._peak = max(self._peak, float(magnitude.max()))
            self._at_full_scale += np.count_nonzero(magnitude >= self._full_scale, axis=1)
        if self._seen >= self._window:
            self._judge()
        return block

    def _judge(self) -> None:
        clips = self._at_full_scale >= max(4.0, CLIPPED * self._seen)
        if self._peak > 1:
            clips[:] = False  # floats in units of their own: nobody knows where the receiver's range ends
        self.clipped = tuple(np.flatnonzero(clips).tolist())
        self.dead = tuple(np.flatnonzero(self._power <= DEAD * self._power.max()).tolist())
        self._begin()
