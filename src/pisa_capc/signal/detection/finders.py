"""How frames are found, waveform by waveform: the registry of finders, and samples that a detector still needs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.core.registry import Registry
from pisa_capc.signal.detection.base import Detector, FoundFrame
from pisa_capc.signal.phy import Header
from pisa_capc.signal.recordings import About, Recording, resampled
from pisa_capc.signal.recordings.encoding import Encoding
from pisa_capc.signal.waveforms import WAVEFORMS, Waveform


class Finder:
    """How the frames of a waveform are found; a subclass under `@register_finder("name")`, the name of the waveform.

    takes_bytes: whether its detector takes samples as they lie in memory, where they are not unsigned. in_parts:
    whether its detectors can share a recording, each beginning anywhere; ahead, longest: the samples that one then
    needs before its part and behind it.
    """

    takes_bytes: ClassVar[bool] = False
    in_parts: ClassVar[bool] = False
    ahead: ClassVar[int] = 0
    longest: ClassVar[int] = 0
    name: ClassVar[str] = ""  # set by `register_finder`

    def with_settings(self, text: str) -> Finder:
        """The same with what stands behind a colon, as in burst:gap=5e-3."""
        raise ConfigError(f"waveform {self.name}:{text}: has no settings. Give --waveform {self.name}.")

    def keeping(self, samples: int) -> Finder:
        """The same, whose frames hold so many samples, where no waveform says how long they are."""
        return self

    def waveform(self, about: About) -> Waveform:
        """What is found in a recording or stream."""
        return WAVEFORMS[self.name]

    def stream(self, recording: Recording) -> Recording:
        """The recording at the waveform's rate, where found frames are read."""
        known = self.waveform(recording.about)
        return resampled(recording, known.sample_rate_hz, known.occupied)

    def searched(self, recording: Recording) -> Recording:
        """The recording as a detector is given it."""
        return self.stream(recording)

    def detector(
        self, about: About, encoding: Encoding | None = None, first: int = 0, end: int | None = None
    ) -> Detector:
        """A detector of a stream at the waveform's rate. encoding: of blocks that are bytes. first, end: its part."""
        raise NotImplementedError

    def with_headers(self, found: Sequence[FoundFrame], addresses_only: bool = False) -> list[FoundFrame]:
        """The frames with what their headers say; addresses_only: no further than that, where this is quicker."""
        return list(found)

    def without_headers(self, found: Sequence[FoundFrame]) -> list[FoundFrame]:
        return [replace(frame, header=Header()) for frame in found]

    def sent(self, found: Sequence[FoundFrame], about: About) -> list[NDArray[np.complex128] | None]:
        """(T,) each whole frame as it was sent, from its bits; None where no checksum says that they are right."""
        return [None] * len(found)


FINDERS: Registry[Finder] = Registry("finder")
F = TypeVar("F", bound=type[Finder])


def register_finder(waveform: str) -> Callable[[F], F]:
    """Make known how frames of a waveform are found; of one without a finder, by its preamble."""

    def add(cls: F) -> F:
        FINDERS.add(waveform, cls())
        cls.name = waveform
        return cls

    return add


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
