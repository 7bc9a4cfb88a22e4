"""What a recording is: samples of all antennas on one clock; in files, one of all antennas or one per antenna."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import DataError
from pisa_capc.core.quantities import MOST_ANTENNAS, frequency, size
from pisa_capc.data.geometry import ArrayGeometry
from pisa_capc.data.store.files import reading
from pisa_capc.signal.recordings.encoding import Encoding


@dataclass(frozen=True)
class About:
    """What is known of a recording besides its samples.

    name: what its frames are remembered by. length: samples per antenna. time: of the first sample, where it is known.
    geometry: of the array, where the recording says it. environment, capture: where and when, where it says it.
    full_scale: I or Q at which a receiver may have clipped.
    """

    name: str
    sample_rate_hz: float
    carrier_hz: float | None
    antennas: int
    length: int
    time: datetime | None = None
    geometry: ArrayGeometry | None = None
    environment: str | None = None
    capture: str | None = None
    full_scale: float = 1.0

    def __post_init__(self) -> None:
        frequency(self.sample_rate_hz, f"{self.name}: sample rate", DataError)
        if self.carrier_hz is not None:
            frequency(self.carrier_hz, f"{self.name}: carrier", DataError)
        size(self.antennas, f"{self.name}: antennas", MOST_ANTENNAS, DataError)


@dataclass(frozen=True)
class Annotation:
    """An annotation of a part of a recording: samples start … start + count."""

    start: int
    count: int | None
    label: str | None


class Recording(Protocol):
    """Samples that are read when they are asked for; integers come at a full scale of one."""

    @property
    def about(self) -> About: ...

    @property
    def annotations(self) -> tuple[Annotation, ...]: ...

    def read(self, first: int, count: int) -> NDArray[np.complex64]:
        """(A, count) samples from `first` on; fewer at the end of the recording."""
        ...

    def blocks(self, size: int) -> Iterator[NDArray[np.complex64]]:
        """(A, at most size) samples, one block after the other, to the end."""
        ...


@dataclass(frozen=True)
class SampleFile:
    """A file of interleaved channels.

    length: samples per channel. skip: bytes before the first. meta: the SigMF metadata that describes it, if any does.
    """

    path: Path
    encoding: Encoding
    channels: int
    length: int
    skip: int = 0
    meta: Path | None = None

    def raw(self, first: int, count: int) -> NDArray[np.uint8]:
        """The bytes of samples first … first + count of all channels; fewer at the end."""
        size = self.encoding.sample_bytes * self.channels
        count = max(0, min(count, self.length - first))
        with reading(self.path, "the samples of a recording"):
            data = np.fromfile(self.path, np.uint8, count * size, offset=self.skip + first * size)
        if len(data) < count * size:
            raise DataError(f"{self.path}: has become shorter while it was read. Wait until it is whole.")
        return data

    def read(self, first: int, count: int) -> NDArray[np.complex64]:
        return self.encoding.decode(self.raw(first, count), self.channels)


@dataclass(frozen=True)
class FileRecording:
    """A `Recording` in files of one or several antennas each, in the order of the files."""

    about: About
    files: tuple[SampleFile, ...]
    annotations: tuple[Annotation, ...] = ()

    def read(self, first: int, count: int) -> NDArray[np.complex64]:
        if len(self.files) == 1:
            return self.files[0].read(first, count)
        return np.concatenate([file.read(first, count) for file in self.files])

    def blocks(self, size: int) -> Iterator[NDArray[np.complex64]]:
        for first in range(0, self.about.length, size):
            yield self.read(first, size)
