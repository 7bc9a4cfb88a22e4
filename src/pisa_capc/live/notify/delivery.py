"""The alarms that wait for a sink: bounded, tried again, in a thread of its own that no decision waits for."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

from pisa_capc.live.listen.events import UNKNOWN_DEVICE, Alarm, Event
from pisa_capc.live.notify.base import AlarmSink

WAITING = 1024  # alarms that wait for a sink
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0  # before a sink is tried again
IDLE_S = 20.0  # between looks at a sink without alarms
CLOSE_S = 5.0  # at the end, for what still waits

Note = Callable[[str], None]


class Delivery:
    """Delivers alarms to one sink. `put` takes no longer than it takes to remember one.

    Of an alarm that waits, a newer report takes the place of the older one: it says all. Where more than `most` wait,
    the oldest about an unknown device is left out, then the oldest.
    """

    def __init__(
        self,
        sink: AlarmSink,
        note: Note = lambda text: None,
        most: int = WAITING,
        waits_s: tuple[float, float] = (FIRST_WAIT_S, LONGEST_WAIT_S),
        idle_s: float = IDLE_S,
    ) -> None:
        self.sink, self._note, self._most, self._waits_s, self._idle_s = sink, note, most, waits_s, idle_s
        self.delivered = self.left_out = self.failures = 0
        self._waiting: OrderedDict[int, Alarm] = OrderedDict()
        self._changed = threading.Condition()
        self._ending = False
        self._failing = False
        self._thread = threading.Thread(target=self._run, name=f"notify {sink.name}", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def put(self, alarm: Alarm) -> None:
        with self._changed:
            self._waiting[alarm.number] = alarm  # in the place of an older report
            if len(self._waiting) > self._most:
                strangers = (number for number, one in self._waiting.items() if one.kind == UNKNOWN_DEVICE)
                del self._waiting[next(strangers, next(iter(self._waiting)))]
                self.left_out += 1
            self._changed.notify()

    def close(self, by: float) -> None:
        """Deliver what waits, until `by` on the clock of time.monotonic; the rest is counted."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        self._thread.join(max(0.0, by - time.monotonic()))

    def _run(self) -> None:
        wait_s = self._try(self.sink.idle, self._waits_s[0])
        while True:
            with self._changed:
                if not self._waiting and not self._ending:
                    self._changed.wait(self._idle_s)
                if not self._waiting and self._ending:
                    break
                alarm = self._waiting.popitem(last=False)[1] if self._waiting else None
            if alarm is None:
                wait_s = self._try(self.sink.idle, wait_s)
                continue
            failures = self.failures
            wait_s = self._try(lambda: self.sink.send(alarm), wait_s)  # noqa: B023
            with self._changed:
                if self.failures == failures:
                    self.delivered += 1
                    continue
                if alarm.number not in self._waiting:
                    self._waiting[alarm.number] = alarm
                self._waiting.move_to_end(alarm.number, last=False)
                if self._ending:
                    break
        try:
            self.sink.close()
        except Exception as error:
            self.failures += bool(error)  # there is nothing left to tell it

    def _try(self, action: Callable[[], None], wait_s: float) -> float:
        """Do it; where that fails, report it once and wait. How long to wait the next time."""
        try:
            action()
        except Exception as error:  # of a plugin's sink, any
            self.failures += 1
            if not self._failing:
                self._note(f"{self.sink.name}: alarms are not delivered ({_words(error)}); trying again.")
            self._failing = True
            with self._changed:
                self._changed.wait_for(lambda: self._ending, wait_s)
            return min(2 * wait_s, self._waits_s[1])
        if self._failing:
            self._failing = False
            self._note(f"{self.sink.name}: alarms are delivered again; {self.left_out:,} were left out so far.")
        return self._waits_s[0]


class Notifier:
    """Delivers the alarms among a listener's events to several sinks, each at its own speed.

    >>> with Notifier([open_sink("mqtt://broker")]) as notifier:                        # doctest: +SKIP
    ...     listener.run(notifier.hear)
    """

    def __init__(self, sinks: Sequence[AlarmSink], note: Note = lambda text: None) -> None:
        self.deliveries = [Delivery(sink, note) for sink in sinks]

    def hear(self, event: Event) -> None:
        if isinstance(event, Alarm):
            for delivery in self.deliveries:
                delivery.put(event)

    def close(self, within_s: float = CLOSE_S) -> None:
        by = time.monotonic() + within_s
        for delivery in self.deliveries:
            delivery.close(by)

    def summary(self) -> list[str]:
        """What was delivered where."""
        return [
            f"{one.sink.name}: {one.delivered:,} reports of alarms delivered, {one.left_out + one.waiting:,} not."
            for one in self.deliveries
        ]

    def __enter__(self) -> Notifier:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
