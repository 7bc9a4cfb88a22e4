"""Alarms from their beginning to their end, with the frames that raised them as SigMF, in a folder that does not grow.

Senders decide how many alarms there could be, so each kind has its own budget: unknown devices use up only theirs.
Alarms over budget are counted, wait, and are raised when there is room; one alarm reports that others wait. Those about
enrolled devices are bounded by the number of these devices, and never wait for those about unknown ones.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from pisa_capc.data.store.files import atomic, write_text_atomic
from pisa_capc.live.listen.events import (
    ACKNOWLEDGED,
    ALARMS,
    MANY,
    OPEN,
    RECEIVER,
    RESOLVED,
    UNKNOWN_DEVICE,
    Alarm,
)
from pisa_capc.signal.detection import FoundFrame
from pisa_capc.signal.recordings import sigmf
from pisa_capc.signal.recordings.encoding import Encoding
from pisa_capc.signal.recordings.sigmf import DATA, META

MINUTE_S, A_MINUTE = 60.0, 20  # alarms of one kind
WAITING = 1024  # causes of one kind that wait for room; of more the oldest is left out
OPENED = 2048  # alarms that are open; of more the oldest about a stranger is closed
TICK_S = 1.0  # between looks at what has ended and what waits
RECENT_BYTES = 64 << 20  # of all frames that are kept for a while
SAMPLES = 8192  # of a frame, or of a receiver in trouble, in a snippet
STRANGER = "-stranger"  # ends the name of a snippet that goes first
PATTERN = "alarm-*"
GENERATOR = "pisa listen"
STORED = Encoding.named("cf32")  # samples of snippets
ANNOTATED = ("number", "start", "at", "cfo_hz", "snr_db", "like", "probability")  # of a decision


class Recent:
    """The newest frames by their numbers, with their samples, as many as fit in `RECENT_BYTES`.

    Half of the room is for frames that claim an enrolled address: however many others come, those are there when an
    alarm is to show them.
    """

    def __init__(self) -> None:
        self._kept: dict[bool, OrderedDict[int, FoundFrame]] = {claimed: OrderedDict() for claimed in (False, True)}
        self._bytes = {False: 0, True: 0}

    def add(self, frame: FoundFrame) -> None:
        claimed = frame.verdict is not None
        self._kept[claimed][frame.number] = frame
        self._bytes[claimed] += frame.iq.nbytes
        while sum(self._bytes.values()) > RECENT_BYTES:
            larger = self._bytes[True] > RECENT_BYTES // 2
            self._bytes[larger] -= self._kept[larger].popitem(last=False)[1].iq.nbytes

    def get(self, number: int) -> FoundFrame | None:
        return self._kept[True].get(number) or self._kept[False].get(number)


@dataclass(frozen=True, eq=False)
class AlarmFinding:
    """Something that gives cause for an alarm; as long as it stands it is found again and again.

    subject: what tells it from others of its kind. sample: where in the stream. frames: gives the numbers of the
    decisions that show it. kept: samples that show it where no frame does.
    """

    kind: str
    subject: str
    text: str
    sample: int
    address: str | None = None
    device: str | None = None
    frames: Callable[[], tuple[int, ...]] = tuple
    kept: Sequence[FoundFrame] = ()


@dataclass(eq=False)
class _Held:
    """An alarm, and when its cause was last found, when it was last reported, and when it ended."""

    alarm: Alarm
    found_s: float
    told_s: float
    ended_s: float = 0.0


Key = tuple[str, str]  # kind and subject


class Alarms:
    """Raises alarms, updates them while their cause stands, and ends them.

    every_s: seconds between two reports of one alarm; also how long its cause must not have been found before it is
    resolved (a receiver's trouble: a minute at most), and how long a cause that comes back belongs to the alarm that it
    had. begin: makes an alarm of a finding. tell: reports it. enrolled: gives the number of enrolled devices or
    addresses, which bounds the alarms about them. `acknowledge` may be called from any thread.
    """

    def __init__(
        self,
        every_s: float,
        begin: Callable[[AlarmFinding], Alarm],
        tell: Callable[[Alarm], None],
        enrolled: Callable[[], int] = lambda: 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._every_s, self._begin, self._tell, self._clock = every_s, begin, tell, clock
        self._enrolled = enrolled
        self.withheld: Counter[str] = Counter()  # findings of each kind that had to wait
        self._open: OrderedDict[Key, _Held] = OrderedDict()
        self._ended: OrderedDict[Key, _Held] = OrderedDict()  # lately
        self._waiting: dict[str, OrderedDict[Key, tuple[AlarmFinding, float]]] = {
            kind: OrderedDict() for kind in ALARMS
        }
        self._raised: dict[str, deque[float]] = {kind: deque() for kind in ALARMS}
        self._acknowledged: deque[tuple[int, str]] = deque(maxlen=OPENED)
        self._ticked_s = -np.inf

    @property
    def open(self) -> int:
        return len(self._open)

    def found(self, finding: AlarmFinding) -> None:
        """Raise an alarm about this, or update the one that there is."""
        key, now = (finding.kind, finding.subject), self._clock()
        held = self._open.get(key)
        if held is not None:
            held.found_s = now
            held.alarm = replace(held.alarm, times=held.alarm.times + 1, text=finding.text)
            if now - held.told_s >= self._every_s:
                self._report(held, now)
        elif (before := self._ended.get(key)) is not None and now - before.ended_s < self._every_s:
            before.found_s = now
            if before.alarm.state == RESOLVED:
                self._open[key] = self._ended.pop(key)
                before.alarm = replace(before.alarm, state=OPEN, times=before.alarm.times + 1, text=finding.text)
                self._report(before, now)
        elif self._waiting[finding.kind] or not self._room(finding.kind, now):
            self._wait(key, finding, now)
        else:
            self._raise(key, finding, now)

    def acknowledge(self, number: int, by: str) -> None:
        """Acknowledged by a user: it ends, and its cause raises no other for `every_s`."""
        self._acknowledged.append((number, by))

    def tick(self) -> None:
        """End what is over, and raise what waits, as far as there is room."""
        while self._acknowledged:
            self._acknowledge(*self._acknowledged.popleft())
        now = self._clock()
        if now - self._ticked_s < TICK_S:
            return
        self._ticked_s = now
        for key, held in list(self._open.items()):
            if now - held.found_s >= self._quiet_s(held.alarm.kind):
                self._end(key, RESOLVED, now)
        for key, held in list(self._ended.items()):
            if now - held.ended_s >= self._every_s:
                del self._ended[key]
        for kind, waiting in self._waiting.items():
            while waiting and self._room(kind, now):
                key, (finding, _) = waiting.popitem(last=False)
                self._raise(key, finding, now)
            while waiting and now - next(iter(waiting.values()))[1] >= max(self._every_s, MINUTE_S):
                waiting.popitem(last=False)  # not found for so long
        self._summarise()

    def finish(self) -> None:
        """Raise all that waits: nothing more will come."""
        for waiting in self._waiting.values():
            while waiting:
                key, (finding, _) = waiting.popitem(last=False)
                self._raise(key, finding, self._clock())

    # One alarm.

    def _raise(self, key: Key, finding: AlarmFinding, now: float) -> None:
        self._ended.pop(key, None)
        self._raised[finding.kind].append(now)
        self._open[key] = held = _Held(self._begin(finding), now, now)
        self._tell(held.alarm)
        if len(self._open) > OPENED:
            strangers = (key for key in self._open if key[0] == UNKNOWN_DEVICE)
            self._end(next(strangers, next(iter(self._open))), RESOLVED, now)

    def _report(self, held: _Held, now: float) -> None:
        held.told_s = now
        held.alarm = replace(held.alarm, updated_at=utc(time.time()))
        self._tell(held.alarm)

    def _end(self, key: Key, state: str, now: float, by: str | None = None) -> None:
        held = self._open.pop(key, None) or self._ended.pop(key)
        held.alarm, held.ended_s = replace(held.alarm, state=state, by=by), now
        self._ended[key] = held
        if len(self._ended) > OPENED:
            self._ended.popitem(last=False)
        self._report(held, now)

    def _acknowledge(self, number: int, by: str) -> None:
        for key, held in [*self._open.items(), *self._ended.items()]:
            if held.alarm.number == number and held.alarm.state != ACKNOWLEDGED:
                return self._end(key, ACKNOWLEDGED, self._clock(), by)

    def _quiet_s(self, kind: str) -> float:
        """How long a cause must not have been found before its alarm is resolved. A receiver is looked at all the
        time, and so is what waits."""
        return min(MINUTE_S, self._every_s) if kind in (RECEIVER, MANY) else self._every_s

    # Room.

    def _room(self, kind: str, now: float) -> bool:
        raised = self._raised[kind]
        while raised and now - raised[0] >= MINUTE_S:
            raised.popleft()
        return len(raised) < (A_MINUTE if kind in (RECEIVER, UNKNOWN_DEVICE) else max(A_MINUTE, self._enrolled()))

    def _wait(self, key: Key, finding: AlarmFinding, now: float) -> None:
        waiting = self._waiting[finding.kind]
        if key not in waiting:
            self.withheld[finding.kind] += 1
        waiting[key] = finding, now
        if len(waiting) > WAITING:
            waiting.popitem(last=False)

    def _summarise(self) -> None:
        counts = {kind: len(waiting) for kind, waiting in self._waiting.items() if waiting}
        if counts:
            said = ", ".join(f"{count:,} × {kind}" for kind, count in counts.items())
            text = f"more alarms than {A_MINUTE} of a kind in a minute: {said} wait until there is room."
            self.found(AlarmFinding(MANY, "", text, -1))

    # What outlives a listener.

    def state(self) -> list[dict[str, Any]]:
        """All alarms that are open or ended lately, with moments in UTC seconds."""
        since = time.time() - self._clock()
        return [
            {
                "subject": subject,
                "found": held.found_s + since,
                "told": held.told_s + since,
                "ended": held.ended_s + since,
                "alarm": held.alarm.to_json(),
            }
            for held_by in (self._open, self._ended)
            for (_, subject), held in held_by.items()
        ]

    def resume(self, kept: Iterable[Mapping[str, Any]]) -> None:
        """Go on with these; of an alarm that is here already in the same state, what was found last counts."""
        now, there = self._clock(), time.time()
        for one in kept:
            alarm = Alarm.from_json(one["alarm"])
            # A clock that was set back must not keep an alarm open, or a cause quiet, for longer than it may be.
            moments = (now - max(0.0, there - float(one[name])) for name in ("found", "told", "ended"))
            key, held = (alarm.kind, str(one["subject"])), _Held(alarm, *moments)
            before = self._open.pop(key, None) or self._ended.pop(key, None)
            if before is not None and before.alarm.state == alarm.state and before.found_s > held.found_s:
                held = before
            (self._open if held.alarm.state == OPEN else self._ended)[key] = held

    def tell_again(self, number: int) -> None:
        """Report an alarm whose last report a kill may have prevented."""
        for held in (*self._open.values(), *self._ended.values()):
            if held.alarm.number == number:
                self._tell(held.alarm)


class Folder:
    """SigMF snippets, at most `most_bytes` of them: those of unknown devices are removed first, then the oldest."""

    def __init__(self, path: Path, sample_rate_hz: float, carrier_hz: float | None, most_bytes: int) -> None:
        self.path, self._rate_hz, self._carrier_hz, self._most = path, sample_rate_hz, carrier_hz, most_bytes
        path.mkdir(parents=True, exist_ok=True)

    def write(self, number: int, text: str, frames: Sequence[FoundFrame], stranger: bool = False) -> str | None:
        """The name of the metadata of a snippet: its frames one after the other, each a capture of its own.

        None for an unknown device if those of enrolled devices fill the folder.
        """
        stem = f"alarm-{number:010d}{STRANGER if stranger else ''}"
        pieces = [frame.iq[:, :SAMPLES] for frame in frames]
        data = np.concatenate(pieces, axis=1).T.astype("<c8")
        with atomic(self.path / (stem + DATA)) as temporary:
            temporary.write_bytes(data.tobytes())
        metadata = self._metadata(text, frames, [piece.shape[1] for piece in pieces], data.shape[1])
        write_text_atomic(self.path / (stem + META), sigmf.as_text(metadata))
        return None if stem in self._shrink(keep=stem) else stem + META

    def _metadata(self, text: str, frames: Sequence[FoundFrame], lengths: list[int], antennas: int) -> dict[str, Any]:
        captures, notes, start = [], [], 0
        for frame, length in zip(frames, lengths, strict=True):
            captures.append(sigmf.capture(self._carrier_hz, frame.utc, start))
            if frame.identity is not None:
                notes.append(annotation(frame, start, length, GENERATOR))
            start += length
        info = sigmf.global_info(STORED, self._rate_hz, antennas, {"description": text, "recorder": GENERATOR})
        return {"global": info, "captures": captures, "annotations": notes}

    def _shrink(self, keep: str) -> list[str]:
        """Remove snippets until the rest fits, and name them; `keep` goes last, unless it is an unknown device's."""
        sizes: dict[str, int] = {}
        for path in self.path.glob(PATTERN):
            with suppress(OSError):
                sizes[path.stem] = sizes.get(path.stem, 0) + path.stat().st_size
        total, gone = sum(sizes.values()), list[str]()
        for stem in sorted(sizes, key=lambda stem: (not stem.endswith(STRANGER), stem)):
            if total <= self._most:
                break
            if stem == keep and not stem.endswith(STRANGER):
                continue
            for ending in (META, DATA):
                (self.path / (stem + ending)).unlink(missing_ok=True)
            total -= sizes[stem]
            gone.append(stem)
        return gone


def utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def annotation(frame: FoundFrame, start: int, samples: int, generator: str) -> dict[str, Any]:
    """A frame with its decision as SigMF has it, of `samples` samples from `start` on."""
    said = frame.to_json()
    device, address = said["device"], said["address"]
    known = {name: said[name] for name in ANNOTATED}
    return sigmf.annotation(
        start,
        samples,
        device or "unknown device",
        emitter=None if device is None else {"label": device},
        generator=generator,
        pisa=known if address is None else {**known, "address": address},
    )
