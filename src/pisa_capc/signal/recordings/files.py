"""Samples in files, one of all antennas or one per antenna, read piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import DataError
from pisa_capc.data.store.files import reading
from pisa_capc.signal.recordings.base import About, Annotation
from pisa_capc.signal.recordings.encoding import Encoding


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
    """A `Recording` of which each file has one antenna or several, in the order of the files."""

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
