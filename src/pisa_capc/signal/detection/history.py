"""The last samples of a stream, by their place in it."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import DataError


class History:
    """Samples of a stream from `begin` to `end`, counted from the stream's first; older ones are let go when told."""

    def __init__(self) -> None:
        self.begin = self.end = 0
        self._blocks: deque[NDArray[np.complex64]] = deque()  # the first one begins at `begin`

    @property
    def antennas(self) -> int:
        """Of the last block; none before there is one."""
        return len(self._blocks[-1]) if self._blocks else 0

    def append(self, block: NDArray[np.complex64]) -> None:
        if block.ndim != 2 or (self._blocks and len(block) != self.antennas):
            expected = self.antennas or "any"
            raise DataError(f"a block of shape {block.shape}; expected ({expected}, n): antennas, samples")
        self._blocks.append(np.array(block, np.complex64))  # its own: a reader may use its buffer again
        self.end += block.shape[1]

    def read(self, first: int, last: int) -> NDArray[np.complex64]:
        """(A, last − first) samples from `first` on, in memory of their own; zeros where there are none."""
        out = np.zeros((self.antennas, last - first), np.complex64)
        at = self.begin
        for block in self._blocks:
            low, high = max(first, at), min(last, at + block.shape[1])
            if low < high:
                out[:, low - first : high - first] = block[:, low - at : high - at]
            at += block.shape[1]
        return out

    def drop(self, before: int) -> None:
        """Let go what is before `before`, in whole blocks; the last one stays."""
        while len(self._blocks) > 1 and self.begin + self._blocks[0].shape[1] <= before:
            self.begin += self._blocks.popleft().shape[1]
