"""Alarms: one for each cause and time, with the frames that raised it as SigMF, in a folder that does not grow."""

from __future__ import annotations

import json
import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.listen.events import Decision
from pisa_capc.recordings.sigmf import DATA, EXTENSIONS, META, package
from pisa_capc.store.files import atomic, write_text_atomic

CAUSES = 1024  # that are remembered
MINUTE_S, A_MINUTE = 60.0, 20  # alarms of all causes
SAMPLES = 8192  # of a frame, or of a receiver in trouble, in a snippet
RECENT_BYTES = 64 << 20  # of all frames that are kept for a while
PATTERN = "alarm-*"
GENERATOR = "pisa listen"
ANNOTATED = ("number", "start", "at", "cfo_hz", "snr_db", "like", "probability")  # of a decision


@dataclass(frozen=True, eq=False)
class Kept:
    """Samples (A, T) as received that are kept for a while, and what was decided of them, where they are a frame.

    start, at: of the first of them, in the stream and in UTC. embedding: (D,) of a frame. turn_hz: as of
    `Detection`.
    """

    iq: NDArray[np.complex64]
    cfo_hz: NDArray[np.float64]
    decision: Decision | None
    start: int
    at: str
    embedding: NDArray[np.float32] | None = None
    turn_hz: float = 0.0


class Recent:
    """The newest frames by the numbers of their decisions, as many as fit in `RECENT_BYTES`."""

    def __init__(self) -> None:
        self._bytes = 0
        self._kept: OrderedDict[int, Kept] = OrderedDict()

    def add(self, number: int, frame: Kept) -> None:
        self._kept[number] = frame
        self._bytes += frame.iq.nbytes
        while self._bytes > RECENT_BYTES:
            self._bytes -= self._kept.popitem(last=False)[1].iq.nbytes

    def get(self, number: int) -> Kept | None:
        return self._kept.get(number)


@dataclass
class Limits:
    """How often there may be an alarm. every_s: seconds between alarms of one cause."""

    every_s: float = 3600.0
    last: OrderedDict[str, float] = field(default_factory=OrderedDict)  # when each cause had its last one, UTC seconds
    suppressed: int = 0
    _recent: deque[float] = field(default_factory=lambda: deque(maxlen=A_MINUTE))

    def allow(self, cause: str, now: float | None = None) -> bool:
        """Whether an alarm of this cause may be raised now; it is counted either way."""
        now = time.time() if now is None else now
        before = self.last.get(cause)
        flood = len(self._recent) == A_MINUTE and now - self._recent[0] < MINUTE_S
        if flood or (before is not None and 0 <= now - before < self.every_s):
            self.suppressed += 1
            return False
        self.last[cause] = now
        self.last.move_to_end(cause)
        if len(self.last) > CAUSES:
            self.last.popitem(last=False)
        self._recent.append(now)
        return True


class Folder:
    """SigMF snippets, at most `most_bytes` of them: the oldest are removed."""

    def __init__(self, path: Path, sample_rate_hz: float, carrier_hz: float | None, most_bytes: int) -> None:
        self.path, self._rate_hz, self._carrier_hz, self._most = path, sample_rate_hz, carrier_hz, most_bytes
        self._version = package().__specification__
        path.mkdir(parents=True, exist_ok=True)

    def write(self, number: int, text: str, frames: Sequence[Kept]) -> str:
        """The name of the metadata of a snippet: its frames one after the other, each a capture of its own."""
        stem = f"alarm-{number:010d}"
        pieces = [frame.iq[:, :SAMPLES] for frame in frames]
        data = np.concatenate(pieces, axis=1).T.astype("<c8")
        with atomic(self.path / (stem + DATA)) as temporary:
            temporary.write_bytes(data.tobytes())
        metadata = self._metadata(text, frames, [piece.shape[1] for piece in pieces], data.shape[1])
        write_text_atomic(self.path / (stem + META), json.dumps(metadata, indent=1, ensure_ascii=False))
        self._shrink(stem)
        return stem + META

    def _metadata(self, text: str, frames: Sequence[Kept], lengths: list[int], antennas: int) -> dict[str, Any]:
        captures, notes, start = [], [], 0
        for frame, length in zip(frames, lengths, strict=True):
            capture = {"core:sample_start": start, "core:datetime": frame.at}
            if self._carrier_hz is not None:
                capture["core:frequency"] = self._carrier_hz
            captures.append(capture)
            if frame.decision is not None:
                notes.append(annotation(frame.decision, start, length, GENERATOR))
            start += length
        info = {
            "core:datatype": "cf32_le",
            "core:sample_rate": self._rate_hz,
            "core:num_channels": antennas,
            "core:version": self._version,
            "core:description": text,
            "core:recorder": GENERATOR,
            "core:extensions": EXTENSIONS,
        }
        return {"global": info, "captures": captures, "annotations": notes}

    def _shrink(self, newest: str) -> None:
        """Remove the oldest snippets, never the newest."""
        sizes: OrderedDict[str, int] = OrderedDict()
        for path in sorted(self.path.glob(PATTERN)):
            with suppress(OSError):
                sizes[path.stem] = sizes.get(path.stem, 0) + path.stat().st_size
        total = sum(sizes.values())
        for stem, size in sizes.items():
            if total <= self._most or stem == newest:
                return
            for ending in (META, DATA):
                (self.path / (stem + ending)).unlink(missing_ok=True)
            total -= size


def annotation(said: Decision, start: int, samples: int, generator: str) -> dict[str, Any]:
    """A decision as SigMF has it, of `samples` samples from `start` on."""
    plain = said.to_json()
    note: dict[str, Any] = {
        "core:sample_start": start,
        "core:sample_count": samples,
        "core:generator": generator,
        "core:label": said.device or "unknown device",
        **{f"pisa:{name}": plain[name] for name in ANNOTATED},
    }
    if said.device is not None:
        note["signal:emitter"] = {"label": said.device}
    if said.address is not None:
        note["pisa:address"] = said.address
    return note
