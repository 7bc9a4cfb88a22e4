"""What a listener says: frames with their decisions, alarms, and how it is doing. `to_json` writes each as JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pisa_capc.signal.detection import FoundFrame

UNKNOWN_DEVICE, NOT_ITS_ADDRESS, SHARED_ADDRESS = "unknown device", "not its address", "shared address"
CHANGED, RECEIVER, MANY = "changed", "receiver", "many alarms"
ALARMS = (NOT_ITS_ADDRESS, SHARED_ADDRESS, CHANGED, RECEIVER, UNKNOWN_DEVICE, MANY)  # the most pressing first
OPEN, RESOLVED, ACKNOWLEDGED = "open", "resolved", "acknowledged"
STATES = (OPEN, RESOLVED, ACKNOWLEDGED)
CONNECTED, WAITING, ENDED = "connected", "waiting", "ended"
OK, NO_SAMPLES, STUCK = "ok", "no samples", "stuck"


@dataclass(frozen=True)
class Alarm:
    """Something that a person should look at. It is open until its cause is gone or a user acknowledges it.

    An alarm is reported when it begins, now and then while it stands, and when it ends: each time as a whole, under
    the same number. A consumer keeps the newest report of each.

    number: its id; never given twice, restarts included. time_s, at: its beginning, in the stream and in UTC. kind: one
    of `ALARMS`. address, device: what it is about, if it is about one of them. frames: numbers of the decisions that
    raised it. snippet: the name, within the folder of alarms, of the SigMF metadata of these frames; None where nothing
    was kept. state: one of `STATES`. times: how often its cause was found. updated_at: UTC of this report. by: who
    acknowledged it.
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
    state: str = OPEN
    times: int = 1
    updated_at: str = ""
    by: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {"event": "alarm", **_plain(self)}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Alarm:
        """What `to_json` wrote, those of earlier versions included; ValueError or KeyError where it is none."""
        texts = {name: str(found[name]) for name in ("at", "kind", "text")}
        maybe = {name: found[name] and str(found[name]) for name in ("address", "device", "snippet")}
        state, by = str(found.get("state", OPEN)), found.get("by")
        if texts["kind"] not in ALARMS or state not in STATES:
            raise ValueError(f"an alarm of the kind {texts['kind']!r} in the state {state!r}")
        return cls(
            number=int(found["number"]),
            time_s=float(found["time_s"]),
            frames=tuple(int(number) for number in found["frames"]),
            state=state,
            times=int(found.get("times", 1)),
            updated_at=str(found.get("updated_at", texts["at"])),
            by=None if by is None else str(by),
            **texts,
            **maybe,
        )


@dataclass(frozen=True)
class Status:
    """How a listener is doing.

    source: connected, waiting or ended. since: UTC of its beginning, ISO 8601. samples, missed: of each antenna, since
    the state was begun. breaks: how often the source restarted, with an unknown gap. rate_hz:
    samples a second that come in. frames: decided since the state was begun. frames_per_s: in the last seconds.
    delay_ms: from the arrival of a frame's last sample to its decision, (median, 99th percentile) of recent frames.
    clipped, dead: antennas. waiting_s: of samples not yet looked at. alarms: raised since the state was begun;
    open_alarms: those of them that are open. withheld: alarms by kind that had to wait, as there were too many.
    health: as of `Listener.health`.
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
    open_alarms: int = 0
    withheld: Mapping[str, int] = field(default_factory=dict)
    health: str = OK

    def to_json(self) -> dict[str, Any]:
        return {"event": "status", **_plain(self)}


Event = FoundFrame | Alarm
OnEvent = Callable[[Event], None]


def _plain(event: Alarm | Status) -> dict[str, Any]:
    """JSON has no word for numbers that are not finite."""
    return {name: _finite(value) for name, value in vars(event).items()}


def _finite(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_finite(one) for one in value]
    if isinstance(value, Mapping):
        return dict(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
