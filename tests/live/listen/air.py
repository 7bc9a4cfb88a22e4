"""Streams of the small problem, whose frames are marked, and what finds them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pisa_capc.live.listen import Air
from pisa_capc.live.listen.ring import Ring
from pisa_capc.signal.detection import Finder, FoundFrame
from pisa_capc.signal.phy import Header
from pisa_capc.signal.recordings import About
from pisa_capc.signal.recordings.encoding import Encoding
from tests.problems import ANTENNAS, SAMPLES, tones

SPACING = 200  # samples from one frame to the next
MARK = 1000.0  # before a frame stands this, and the number of its address; its carrier offset in kHz, times j
CF32 = Encoding.named("cf32")
AIR = Air(20e6, ANTENNAS, CF32, 5.825e9)
RATE_HZ = AIR.sample_rate_hz


def address(number: int) -> str:
    return f"02:00:00:00:00:{number:02x}"


ENROLLED = {address(1): "D1", address(2): "D2", address(3): "D3"}


def played(sent: Sequence[tuple[int, int]], seed: int = 0, offset_hz: float = 0.0) -> NDArray[np.complex64]:
    """(A, n) noise in which devices, from 0 on, send under the addresses of these numbers; 0: without one.

    offset_hz: between the carriers of one device and the next.
    """
    rng = np.random.default_rng(seed)
    supply = {d: iter(tones(d, 0, len(sent))) for d in {device for device, _ in sent}}
    iq = 1e-3 * (rng.normal(size=(ANTENNAS, SPACING * len(sent), 2)) @ [1, 1j])
    for i, (device, number) in enumerate(sent):
        start = SPACING * i + 100
        cfo_hz = offset_hz * device
        iq[0, start - 1] = MARK + number + 1j * cfo_hz / 1e3
        turn = np.exp(2j * np.pi * cfo_hz * np.arange(SAMPLES) / RATE_HZ)
        iq[:, start : start + SAMPLES] = next(supply[device]) * turn
    return iq.astype(np.complex64)


def in_turn(count: int) -> list[tuple[int, int]]:
    """Devices that send in turn under their own addresses."""
    return [(i % 3, i % 3 + 1) for i in range(count)]


def as_bytes(iq: NDArray[np.complex64]) -> bytes:
    return np.ascontiguousarray(iq.T).tobytes()


class ToyDetector:
    """Finds the frames behind marks."""

    def __init__(self, about: About) -> None:
        self._held = np.empty((about.antennas, 0), dtype=np.complex64)
        self._first = 0

    def wanted(self, received: int) -> int:
        return 1

    def push(self, block: NDArray[np.complex64]) -> list[FoundFrame]:
        self._held = np.concatenate([self._held, block], axis=1)
        marks = np.flatnonzero(np.abs(self._held[0].real - MARK) < 100)
        found = [self._frame(int(at) + 1) for at in marks if at + 1 + SAMPLES <= self._held.shape[1]]
        done = max(0, self._held.shape[1] - SAMPLES)
        if len(marks) > len(found):
            done = min(done, int(marks[len(found)]))
        elif len(marks):
            done = max(done, int(marks[-1]) + 1)
        self._held, self._first = self._held[:, done:], self._first + done
        return found

    def _frame(self, at: int) -> FoundFrame:
        number = round(float(self._held[0, at - 1].real - MARK))
        header = Header("data", 6.0, 100, address(number) if number else None, address(99), True)
        iq, snr_db = self._held[:, at : at + SAMPLES], np.full(ANTENNAS, 20.0)
        cfo_hz = np.where(np.any(iq, axis=1), 1e3 * float(self._held[0, at - 1].imag), np.nan)
        return FoundFrame(self._first + at, iq.copy(), cfo_hz, snr_db, 0.9, SAMPLES, header)

    def finish(self) -> list[FoundFrame]:
        return []


class ToyFinder(Finder):
    name = "wifi"

    def detector(self, about: About, *_: object) -> ToyDetector:
        return ToyDetector(about)


@dataclass
class Script:
    """A source that does what it is told, and then ends or waits."""

    steps: Sequence[Callable[[Ring], None]]
    patient: bool = True
    connected: bool = True
    name: str = "script"
    ends: bool = True

    def read_into(self, ring: Ring, stop: threading.Event, note: Callable[[str], None]) -> None:
        for step in self.steps:
            step(ring)
        if not self.ends:
            stop.wait()


def script(*blocks: NDArray[np.complex64], **options: object) -> Script:
    """Samples, one block after the other."""
    return Script([lambda ring, iq=iq: ring.write(as_bytes(iq)) for iq in blocks], **options)  # type: ignore[misc,arg-type]


def snippet_of(iq: NDArray[np.complex64]) -> FoundFrame:
    """Samples (A, n) as a listener keeps them for an alarm, where they are no frame."""
    nowhere = np.full(len(iq), np.nan)
    return FoundFrame(0, iq, nowhere, nowhere, 0.0, utc="2026-01-01T00:00:00.000Z")
