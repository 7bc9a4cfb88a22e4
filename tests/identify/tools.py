"""Detectors that know the truth, and recordings in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.detect import Detection
from pisa_capc.phy import Header
from pisa_capc.recordings import About, Annotation


def truth_of(meta: Path) -> list[dict[str, Any]]:
    """The annotations of a simulated recording, in time order."""
    notes: list[dict[str, Any]] = json.loads(meta.read_text())["annotations"]
    return sorted(notes, key=lambda note: note["core:sample_start"])


def header_of(note: Mapping[str, Any]) -> Header:
    return Header(note["pisa:kind"], note["pisa:rate_mbps"], note["pisa:length"], note["pisa:address"],
                  note["pisa:receiver"], True)  # fmt: skip


class TruthDetector:
    """Cuts a stream where annotations say that frames begin."""

    def __init__(self, notes: Sequence[Mapping[str, Any]], samples: int) -> None:
        self._notes, self._samples = list(notes), samples
        self._stream: NDArray[np.complex64] | None = None
        self._first = 0

    def push(self, block: NDArray[np.complex64]) -> list[Detection]:
        self._stream = block if self._stream is None else np.concatenate([self._stream, block], axis=1)
        found = []
        while self._notes and self._begin + self._samples <= self._stream.shape[1]:
            begin, note = self._begin, self._notes.pop(0)
            found.append(self._detection(note, self._stream[:, begin : begin + self._samples]))
        past = min(self._begin, self._stream.shape[1]) if self._notes else self._stream.shape[1]
        self._stream, self._first = self._stream[:, past:], self._first + past
        return found

    def finish(self) -> list[Detection]:
        assert self._stream is not None
        left = [note for note in self._notes if note["core:sample_start"] - self._first < self._stream.shape[1]]
        return [self._detection(n, self._stream[:, n["core:sample_start"] - self._first :]) for n in left]

    @property
    def _begin(self) -> int:
        return int(self._notes[0]["core:sample_start"]) - self._first

    def _detection(self, note: Mapping[str, Any], iq: NDArray[np.complex64]) -> Detection:
        return Detection(
            note["core:sample_start"],
            iq,
            np.array(note["pisa:cfo_hz"]),
            np.array(note["pisa:snr_db"]),
            1.0,
            note["core:sample_count"],
            header_of(note),
        )


@dataclass(frozen=True, eq=False)
class MemoryRecording:
    """A `Recording` of samples (A, n) in memory."""

    about: About
    samples: NDArray[np.complex64]
    annotations: tuple[Annotation, ...] = field(default=())

    def read(self, first: int, count: int) -> NDArray[np.complex64]:
        return self.samples[:, first : first + count]

    def blocks(self, size: int) -> Iterator[NDArray[np.complex64]]:
        for first in range(0, self.samples.shape[1], size):
            yield self.read(first, size)
