"""Transmitters: whose frames belong together, who that is, and how it was over the last minutes."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.signal.detection import FoundFrame

STEP_S, STEPS = 2.0, 300  # ten minutes
VOTERS = 32  # newest frames that say who a transmitter is
COUNT, CFO, SNR, CONFIDENCE = range(4)
MEASURED = {"cfo_hz": CFO, "snr_db": SNR, "confidence": CONFIDENCE}

Key = tuple[str, str | None]


def key_of(frame: FoundFrame) -> Key:
    """By what frames of one transmitter are known: the address they claim, or else the device they sound like."""
    return ("device", frame.who.device) if frame.claimed is None else ("address", frame.claimed)


class TransmitterHistory:
    """Sums over steps of time, the newest `STEPS` of them."""

    def __init__(self) -> None:
        self._step = np.full(STEPS, -1, dtype=np.int64)
        self._sums = np.zeros((4, STEPS))

    def add(self, step: int, values: Sequence[float]) -> None:
        """A frame's CFO, SNR and confidence."""
        at = step % STEPS
        if self._step[at] > step:
            return
        if self._step[at] < step:
            self._step[at], self._sums[:, at] = step, 0.0
        self._sums[:, at] += (1.0, *values)

    def since(self, step: int) -> dict[str, list[Any]]:
        """From a step on, those with frames: their numbers, counts and means."""
        there = np.flatnonzero(self._step >= step)
        there = there[np.argsort(self._step[there])]
        sums = self._sums[:, there]
        means = {name: [_rounded(x) for x in sums[k] / sums[COUNT]] for name, k in MEASURED.items()}
        return {"step": self._step[there].tolist(), "frames": sums[COUNT].astype(int).tolist(), **means}


@dataclass(eq=False)
class Row:
    """One transmitter. votes: (device, probability) of its newest frames."""

    id: int
    first_at: str
    newest: FoundFrame
    frames: int = 0
    votes: deque[tuple[str | None, float]] = field(default_factory=lambda: deque(maxlen=VOTERS))
    history: TransmitterHistory = field(default_factory=TransmitterHistory)

    def add(self, frame: FoundFrame, step: int) -> None:
        self.newest, self.frames, who = frame, self.frames + 1, frame.who
        self.votes.append((who.device, who.probability))
        values = (middle(frame.cfo_hz), middle(frame.snr_db), who.probability)
        self.history.add(step, values)

    @property
    def enrolled(self) -> bool:
        """Whether its address is enrolled, or without one it sounds like a device that is."""
        newest = self.newest
        return newest.who.device is not None if newest.claimed is None else newest.verdict is not None

    @property
    def identity(self) -> tuple[str | None, int]:
        """The device that most of its newest frames sound like, and how many."""
        return Counter(device for device, _ in self.votes).most_common(1)[0]

    def to_json(self, since: int) -> dict[str, Any]:
        """As the page has it, with its history from a step on."""
        device, agree = self.identity
        confidences = [probability for voted, probability in self.votes if voted == device]
        newest = self.newest
        return {
            "id": self.id,
            "device": device,
            "like": newest.who.like,
            "address": newest.claimed,
            "confidence": _rounded(sum(confidences) / len(confidences)),
            "agree": agree,
            "of": len(self.votes),
            "verdict": newest.verdict,
            "frames": self.frames,
            "first_at": self.first_at,
            "last_at": newest.utc,
            "newest": newest.number,
            "kind": newest.header.kind,
            "rate_mbps": newest.header.rate_mbps,
            "cfo_hz": _rounded(middle(newest.cfo_hz)),
            "snr_db": _rounded(middle(newest.snr_db)),
            "history": self.history.since(since),
        }


def middle(values: NDArray[np.float64]) -> float:
    """The mean over antennas, dead ones left out; NaN where all are."""
    finite = [value for value in values.tolist() if math.isfinite(value)]
    return math.fsum(finite) / len(finite) if finite else math.nan


def _rounded(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None
