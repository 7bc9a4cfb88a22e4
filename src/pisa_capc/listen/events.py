"""What a listener says: decisions, alarms, and how it is doing. Everything in them can be written as JSON."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

UNKNOWN_DEVICE, NOT_ITS_ADDRESS, SHARED_ADDRESS = "unknown device", "not its address", "shared address"
CHANGED, RECEIVER = "changed", "receiver"
ALARMS = (UNKNOWN_DEVICE, NOT_ITS_ADDRESS, SHARED_ADDRESS, CHANGED, RECEIVER)
CONNECTED, WAITING, ENDED = "connected", "waiting", "ended"


@dataclass(frozen=True)
class Decision:
    """Who sent one frame.

    number: increasing, and never given twice, restarts included. start: the frame's first sample in the stream, those
    that were missed counted; time_s: the same in seconds. at: UTC, ISO 8601. device: None for one that the model does
    not know; like: the device it is most like all the same, and probability: of that one among the known.
    address, receiver, kind, rate_mbps: as its header says, None where it does not. cfo_hz, snr_db: of each antenna, NaN
    where one is dead. quality: as of `Detection`. verdict: on the claim of its address, so far; None where nobody is
    enrolled with it.
    """

    number: int
    time_s: float
    at: str
    start: int
    device: str | None
    like: str
    probability: float
    address: str | None
    receiver: str | None
    kind: str | None
    rate_mbps: float | None
    cfo_hz: tuple[float, ...]
    snr_db: tuple[float, ...]
    quality: float
    verdict: str | None

    def to_json(self) -> dict[str, Any]:
        return {"event": "decision", **_plain(self)}


@dataclass(frozen=True)
class Alarm:
    """Something that somebody should look at.

    number: of alarms, as of decisions. kind: one of `ALARMS`. address, device: whom it is about, where it is about
    somebody. text: plain words. frames: numbers of the decisions that raised it. snippet: the name, within the folder
    of alarms, of the SigMF metadata of these frames; None where nothing was kept.
    """

    number: int
    time_s: float
    at: str
    kind: str
    address: str | None
    device: str | None
    text: str
    frames: tuple[int, ...]
    snippet: str | None

    def to_json(self) -> dict[str, Any]:
        return {"event": "alarm", **_plain(self)}


@dataclass(frozen=True)
class Status:
    """How a listener is doing.

    source: connected, waiting or ended. since: UTC of its beginning, ISO 8601. samples, missed: of each antenna, since
    the state was begun. breaks: how often the source began anew, with nobody knowing what was in between. rate_hz:
    samples a second that come in. frames: decided since the state was begun. frames_per_s: in the last seconds.
    delay_ms: from the arrival of a frame's last sample to its decision, (median, 99th percentile) of recent frames.
    clipped, dead: antennas. waiting_s: of samples not yet looked at. alarms: raised; suppressed: not raised, since one
    like them just was.
    """

    source: str
    since: str
    samples: int
    missed: int
    breaks: int
    rate_hz: float
    frames: int
    frames_per_s: float
    delay_ms: tuple[float, float]
    clipped: tuple[int, ...]
    dead: tuple[int, ...]
    waiting_s: float
    alarms: int
    suppressed: int

    def to_json(self) -> dict[str, Any]:
        return {"event": "status", **_plain(self)}


Event = Decision | Alarm
OnEvent = Callable[[Event], None]


def _plain(event: Decision | Alarm | Status) -> dict[str, Any]:
    """JSON has no word for numbers that are not finite."""
    return {name: _finite(value) for name, value in vars(event).items()}


def _finite(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
