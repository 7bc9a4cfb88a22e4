"""Samples of a stream: those that are held, and a stretch of them that is examined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pisa_capc.signal.recordings.encoding import Encoding

PART = 256  # samples whose power is looked at together: the shortest frame, of 480, fills one of them


class Chunk(Protocol):
    """Samples that follow each other, in whole parts."""

    @property
    def judged(self) -> int:
        """Samples of each part by which its power is judged: all, or as many as are enough."""
        ...

    def powers(self) -> NDArray[np.float32]:
        """(A, parts) mean |y[n]|² of each part."""
        ...

    def parts(self, chosen: NDArray[np.intp] | slice) -> NDArray[np.complex64]:
        """(A, K, PART) samples of these parts."""
        ...

    def cut(self, first: Sequence[int] | NDArray[np.intp], count: int) -> NDArray[np.complex64]:
        """(K, A, count) samples from each of `first` on."""
        ...

    def whole(self) -> NDArray[np.complex64]:
        """(A, n) all of them, in memory of their own."""
        ...


@dataclass(frozen=True)
class Plain:
    """(A, n) samples as they are."""

    iq: NDArray[np.complex64]

    judged = PART

    def powers(self) -> NDArray[np.float32]:
        numbers = self.parts(slice(None)).view(np.float32)
        return np.asarray(np.vecdot(numbers, numbers) / PART, dtype=np.float32)

    def parts(self, chosen: NDArray[np.intp] | slice) -> NDArray[np.complex64]:
        return self.iq.reshape(len(self.iq), -1, PART)[:, chosen]

    def cut(self, first: Sequence[int] | NDArray[np.intp], count: int) -> NDArray[np.complex64]:
        return np.stack([self.iq[:, at : at + count] for at in first])

    def whole(self) -> NDArray[np.complex64]:
        return self.iq.copy()


@dataclass(frozen=True)
class Coded:
    """(n,) instants as they lie in memory, antennas interleaved; only what is asked for is decoded."""

    instants: NDArray[np.void]
    antennas: int
    encoding: Encoding

    @property
    def judged(self) -> int:
        """Of all antennas together as many as two have."""
        return 2 * PART // max(self.antennas, 2)

    def powers(self) -> NDArray[np.float32]:
        numbers = self.instants.view(self.encoding.number).reshape(-1, PART, 2 * self.antennas)
        squares = numbers[:, : self.judged].astype(np.float32)
        np.square(squares, out=squares)
        sums = np.ones(self.judged, dtype=np.float32) @ squares  # a product with ones: the quickest sum
        return (sums[:, ::2] + sums[:, 1::2]).T * np.float32(self.encoding.step**2 / self.judged)

    def parts(self, chosen: NDArray[np.intp] | slice) -> NDArray[np.complex64]:
        return self._decoded(self.instants.reshape(-1, PART)[chosen])

    def cut(self, first: Sequence[int] | NDArray[np.intp], count: int) -> NDArray[np.complex64]:
        return self._decoded(np.stack([self.instants[at : at + count] for at in first])).swapaxes(0, 1).copy()

    def whole(self) -> NDArray[np.complex64]:
        return self._decoded(self.instants)

    def _decoded(self, instants: NDArray[np.void]) -> NDArray[np.complex64]:
        """(A, …)."""
        data = np.ascontiguousarray(instants).reshape(-1).view(np.uint8)
        return self.encoding.decode(data, self.antennas).reshape(self.antennas, *instants.shape)


class Room:
    """The newest samples of a stream, from its sample `first` on, in memory that is used again and again."""

    def __init__(self, samples: NDArray[Any], first: int, least: int) -> None:
        """samples: (rows, n). least: so many have room in any case."""
        self._data, self._begin, self.first, self.end = samples, 0, first, first + samples.shape[1]
        self._least = least

    def append(self, block: NDArray[Any]) -> None:
        place = self._begin + self.end - self.first
        if place + block.shape[1] > self._data.shape[1]:
            place = self._move(block.shape[1])
        self._data[:, place : place + block.shape[1]] = block
        self.end += block.shape[1]

    def _move(self, more: int) -> int:
        """Bring what is held to the beginning, in larger memory if so many more need it; where it ends."""
        held = self.span(self.first, self.end)
        needed = held.shape[1] + 2 * more
        if needed > self._data.shape[1]:
            self._data = np.empty((len(held), max(needed, self._least)), dtype=held.dtype)
        self._data[:, : held.shape[1]] = held
        self._begin = 0
        return held.shape[1]

    def span(self, first: int, end: int) -> NDArray[Any]:
        """(rows, end − first) of them, as long as nothing is appended."""
        return self._data[:, self._begin + first - self.first : self._begin + end - self.first]

    def drop(self, before: int) -> None:
        """Let go of what is before `before`."""
        self._begin, self.first = self._begin + before - self.first, before
