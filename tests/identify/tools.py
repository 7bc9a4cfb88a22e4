"""Detectors that know the truth, and recordings in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.detect import Detection, Found, detect
from pisa_capc.geometry import linear
from pisa_capc.phy import Header
from pisa_capc.recordings import About, Annotation
from tests.problems import ANTENNAS, SAMPLES, tones


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


SPACING = 2000  # samples from one frame of a played recording to the next


def played(
    sent: Sequence[tuple[int, str | None]], place: int = 0, offset_hz: float = 20e3, rate_hz: float = 20e6
) -> tuple[MemoryRecording, list[dict[str, Any]]]:
    """A recording in which device numbers of `tests.problems` send frames under addresses, and what is true of it."""
    supply = {d: iter(tones(d, place, len(sent))) for d in {device for device, _ in sent}}
    stream = np.zeros((ANTENNAS, SPACING * (len(sent) + 1)), dtype=np.complex64)
    notes = []
    for i, (device, address) in enumerate(sent):
        start, cfo_hz = SPACING * i + 100, offset_hz * device
        turn = np.exp(2j * np.pi * cfo_hz * np.arange(SAMPLES) / rate_hz)
        stream[:, start : start + SAMPLES] = next(supply[device]) * turn
        notes.append(
            {
                "core:sample_start": start,
                "core:sample_count": SAMPLES,
                "core:label": f"D{device + 1}",
                "pisa:kind": "data",
                "pisa:rate_mbps": 6.0,
                "pisa:length": 20,
                "pisa:address": address,
                "pisa:receiver": None,
                "pisa:cfo_hz": [cfo_hz] * ANTENNAS,
                "pisa:snr_db": [20.0] * ANTENNAS,
            }
        )
    about = About("played", rate_hz, 5.825e9, ANTENNAS, stream.shape[1], geometry=linear(ANTENNAS), full_scale=1e3)
    return MemoryRecording(about, stream), notes


def found_in(sent: Sequence[tuple[int, str | None]], **how: Any) -> Found:
    """The frames of a played recording, where they are."""
    recording, notes = played(sent, **how)
    return detect(recording, decode=False, detector=TruthDetector(notes, SAMPLES))
