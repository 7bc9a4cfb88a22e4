"""Where the samples of frames come from: rows in, arrays out.

A source knows which rows were recorded together, and in which order; the frames that select from it do not. So the
CFO around a frame can be had for any selection, and an unlabelled selection still shows nothing of who transmitted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]
Iq = NDArray[np.complex64]


class CfoTrace(NamedTuple):
    """The CFO of one whole recording, and which of the requested rows lie in it.

    where: (k,) positions among the requested rows.
    position: (k,) the time index of each of these rows in the trace.
    cfo_hz: (n, A) the recording in time order, or None where no CFO was recorded.
    """

    where: NDArray[np.intp]
    position: Rows
    cfo_hz: NDArray[np.float64] | None


class FrameSource(Protocol):
    """What frames need from the place that holds their samples."""

    @property
    def antennas(self) -> int: ...

    @property
    def samples(self) -> int: ...

    def read_iq(self, rows: Rows, samples: int, out: Iq | None = None) -> Iq:
        """(len(rows), A, samples): the first `samples` samples of each row; written into `out` where it is given."""

    def read_cfo_hz(self, rows: Rows) -> NDArray[np.float64] | None:
        """(len(rows), A) in Hz, or None where no CFO was recorded."""

    def cfo_traces(self, rows: Rows) -> Iterator[CfoTrace]:
        """The whole recordings that the rows are from, one after the other."""


@dataclass(frozen=True, eq=False)
class MemorySource:
    """Frames held in memory.

    recording: (N,) which recording each row is from; by default one recording.
    frame: (N,) time order within the recording; by default the order of the rows.
    """

    iq: NDArray[np.complex64]
    cfo_hz: NDArray[np.float64] | None
    recording: Rows | None = None
    frame: Rows | None = None

    @property
    def antennas(self) -> int:
        return int(self.iq.shape[1])

    @property
    def samples(self) -> int:
        return int(self.iq.shape[2])

    def read_iq(self, rows: Rows, samples: int, out: Iq | None = None) -> Iq:
        if out is None:
            return self.iq[rows, :, :samples]
        out[...] = self.iq[rows, :, :samples]
        return out

    def read_cfo_hz(self, rows: Rows) -> NDArray[np.float64] | None:
        return None if self.cfo_hz is None else self.cfo_hz[rows]

    def cfo_traces(self, rows: Rows) -> Iterator[CfoTrace]:
        recording, frame = self._recording, self._frame
        for where in groups(recording[rows]):
            members = np.flatnonzero(recording == recording[rows[where[0]]])
            members = members[np.argsort(frame[members], kind="stable")]
            time = np.empty(len(recording), dtype=np.int64)
            time[members] = np.arange(len(members))
            yield CfoTrace(where, time[rows[where]], None if self.cfo_hz is None else self.cfo_hz[members])

    @cached_property
    def _recording(self) -> Rows:
        return np.zeros(len(self.iq), dtype=np.int64) if self.recording is None else self.recording

    @cached_property
    def _frame(self) -> Rows:
        return np.arange(len(self.iq)) if self.frame is None else self.frame


@dataclass(frozen=True, eq=False)
class SelectedSource:
    """Some rows of a source, numbered from zero."""

    source: FrameSource
    rows: Rows

    @property
    def antennas(self) -> int:
        return self.source.antennas

    @property
    def samples(self) -> int:
        return self.source.samples

    def read_iq(self, rows: Rows, samples: int, out: Iq | None = None) -> Iq:
        return self.source.read_iq(self.rows[rows], samples, out)

    def read_cfo_hz(self, rows: Rows) -> NDArray[np.float64] | None:
        return self.source.read_cfo_hz(self.rows[rows])

    def cfo_traces(self, rows: Rows) -> Iterator[CfoTrace]:
        return self.source.cfo_traces(self.rows[rows])


@dataclass(frozen=True, eq=False)
class JoinedSource:
    """Several sources one after the other."""

    parts: tuple[FrameSource, ...]
    starts: Rows  # first row of each part, and the total at the end

    @property
    def antennas(self) -> int:
        return self.parts[0].antennas

    @property
    def samples(self) -> int:
        return min(part.samples for part in self.parts)

    def read_iq(self, rows: Rows, samples: int, out: Iq | None = None) -> Iq:
        out = np.empty((len(rows), self.antennas, samples), dtype=np.complex64) if out is None else out
        for part, where, local in self._by_part(rows):
            out[where] = part.read_iq(local, samples)
        return out

    def read_cfo_hz(self, rows: Rows) -> NDArray[np.float64] | None:
        out = np.empty((len(rows), self.antennas))
        for part, where, local in self._by_part(rows):
            cfo_hz = part.read_cfo_hz(local)
            if cfo_hz is None:
                return None
            out[where] = cfo_hz
        return out

    def cfo_traces(self, rows: Rows) -> Iterator[CfoTrace]:
        for part, where, local in self._by_part(rows):
            for trace in part.cfo_traces(local):
                yield trace._replace(where=where[trace.where])

    def _by_part(self, rows: Rows) -> Iterator[tuple[FrameSource, NDArray[np.intp], Rows]]:
        owner = np.searchsorted(self.starts, rows, side="right") - 1
        for where in groups(owner):
            i = int(owner[where[0]])
            yield self.parts[i], where, rows[where] - self.starts[i]


def groups(key: NDArray[np.int64]) -> list[NDArray[np.intp]]:
    """The positions of each distinct value of `key`, in order within each."""
    if not len(key):
        return []
    order = np.argsort(key, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(key[order])) + 1)
