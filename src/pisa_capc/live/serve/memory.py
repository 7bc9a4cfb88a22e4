"""What was heard lately.

A listener only leaves its events in two boxes of bounded size, which takes no lock and no waiting; everything else
belongs to the one thread that answers requests. Should that thread be late, the oldest events are lost and counted.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

from pisa_capc.core.progress import visible
from pisa_capc.live.listen import Alarm, Event
from pisa_capc.live.listen.events import OPEN, UNKNOWN_DEVICE
from pisa_capc.live.serve.metrics import Histogram
from pisa_capc.live.serve.rows import STEP_S, STEPS, Key, Row, key_of
from pisa_capc.signal.detection import FoundFrame

DECISIONS, ALARMS, ROWS = 20_000, 500, 256  # that are remembered; strangers' alarms and rows are forgotten first
LONGEST = 96  # characters of a name that came over the air
LONGEST_TEXT = 500
DELAYS_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)


def shown(text: str, most: int = LONGEST) -> str:
    """Text of others as it may be shown anywhere: control and direction characters written out, not too long.

    >>> print(shown("ap\\n\\u202eevil"))
    ap\\n\\u202eevil
    """
    clean = visible(text[:most].replace("\n", "\\n"))
    return clean if len(text) <= most and len(clean) <= most else clean[: most - 1] + "…"


def _shown(text: str | None) -> str | None:
    return None if text is None else shown(text)


class Memory:
    """`hear` is for the listener's thread, all else for another one."""

    def __init__(self) -> None:
        self._decisions_in: deque[tuple[FoundFrame, float]] = deque(maxlen=DECISIONS)
        self._alarms_in: deque[Alarm] = deque(maxlen=ALARMS)
        self.decisions: OrderedDict[int, FoundFrame] = OrderedDict()
        self.alarms: OrderedDict[int, Alarm] = OrderedDict()
        self.rows: OrderedDict[Key, Row] = OrderedDict()  # who was heard last is last
        self.counts: Counter[str | None] = Counter()  # decisions by device
        self.kinds: Counter[str] = Counter()  # alarms by kind
        self.delays, self.confidences = Histogram(DELAYS_S), Histogram(SHARES)
        self.lost = 0  # decisions that were not taken out of the box in time
        self._met = 0

    def hear(self, event: Event) -> None:
        """Leave an event here."""
        if isinstance(event, FoundFrame):
            self._decisions_in.append((event, time.time()))
        else:
            self._alarms_in.append(event)

    def take(self) -> list[Event]:
        """Remember what was left here since the last time; the same, fit to be shown."""
        taken: list[Event] = []
        for _ in range(len(self._decisions_in)):
            taken.append(self._decided(*self._decisions_in.popleft()))
        for _ in range(len(self._alarms_in)):
            taken.append(self.remember(self._alarms_in.popleft()))
        return taken

    def _decided(self, frame: FoundFrame, heard_s: float) -> FoundFrame:
        said = frame.header
        texts = _shown(said.transmitter), _shown(said.receiver), _shown(said.kind)
        header = replace(said, transmitter=texts[0], receiver=texts[1], kind=texts[2])
        frame = replace(frame, header=header)
        if self.decisions:
            self.lost += max(0, frame.number - next(reversed(self.decisions)) - 1)
        self.decisions[frame.number] = frame
        if len(self.decisions) > DECISIONS:
            self.decisions.popitem(last=False)
        received_s = _seconds(frame.utc)
        self._row(frame).add(frame, int(received_s // STEP_S))
        self.counts[frame.who.device] += 1
        self.delays.add(max(0.0, heard_s - received_s))
        self.confidences.add(frame.who.probability)
        return frame

    def _row(self, frame: FoundFrame) -> Row:
        key = key_of(frame)
        row = self.rows.get(key)
        if row is None:
            self._met += 1
            row = self.rows[key] = Row(self._met, frame.utc, frame)
            if len(self.rows) > ROWS:
                others = (one for one in self.rows if one != key)
                strangers = (one for one in self.rows if one != key and not self.rows[one].enrolled)
                del self.rows[next(strangers, None) or next(others)]
        self.rows.move_to_end(key)
        return row

    def remember(self, alarm: Alarm) -> Alarm:
        """Keep the newest report of an alarm, as it may be shown."""
        alarm = replace(alarm, address=_shown(alarm.address), text=shown(alarm.text, LONGEST_TEXT))
        self.kinds[alarm.kind] += alarm.number not in self.alarms
        self.alarms[alarm.number] = alarm
        if len(self.alarms) > ALARMS:
            del self.alarms[min(self.alarms.values(), key=_worth).number]
        return alarm

    def transmitters(self, most: int = ROWS, since: int | None = None) -> list[dict[str, Any]]:
        """Those heard last come first, each with its history. since: a step; by default ten minutes ago."""
        since = now() - STEPS + 1 if since is None else since
        newest = list(self.rows.values())[: -most - 1 : -1]
        return [row.to_json(since) for row in newest]

    def heard_since(self, number: int) -> list[Row]:
        """Transmitters with a decision after this one, the newest first."""
        found = []
        for row in reversed(self.rows.values()):
            if row.newest.number <= number:
                break
            found.append(row)
        return found

    def newest_decisions(self, most: int, before: int | None = None, row: int | None = None) -> list[FoundFrame]:
        """The newest first. before: a number. row: of the transmitter that they are of."""
        chosen = next((key for key, own in self.rows.items() if own.id == row), None)
        if row is not None and chosen is None:
            return []
        found: list[FoundFrame] = []
        for frame in reversed(self.decisions.values()):
            if len(found) == most:
                break
            if (before is None or frame.number < before) and (chosen is None or key_of(frame) == chosen):
                found.append(frame)
        return found


def _worth(alarm: Alarm) -> tuple[bool, bool, int]:
    """The least is forgotten first: unknown devices' before others, ended before open ones, old before new."""
    return alarm.kind != UNKNOWN_DEVICE, alarm.state == OPEN, alarm.number


def restore(memory: Memory, alarms: Iterable[Alarm]) -> None:
    """Alarms of before a restart; they are not counted again."""
    for alarm in alarms:
        memory.remember(alarm)
    memory.kinds.clear()


def now() -> int:
    """The step that it is."""
    return int(time.time() // STEP_S)


def _seconds(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()
