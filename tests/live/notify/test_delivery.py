"""Alarms wait for a sink, and no decision for an alarm."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from pisa_capc.live.listen.events import RESOLVED, UNKNOWN_DEVICE, Alarm
from pisa_capc.live.notify import AlarmSink, Notifier
from pisa_capc.live.notify.delivery import Delivery
from tests.live.listen.tools import wait_until
from tests.live.serve.fake import a_decision, an_alarm

QUICK = (0.01, 0.02)


class Kept(AlarmSink):
    """Keeps what it gets; fails or waits where it is told to."""

    shape = "kept:"

    def __init__(self, fails: Callable[[], bool] = lambda: False) -> None:
        super().__init__("kept:")
        self.got, self.fails, self.open, self.closed = list[Alarm](), fails, threading.Event(), False
        self.open.set()

    def send(self, alarm: Alarm) -> None:
        self.open.wait()
        if self.fails():
            raise OSError("the server vanished")
        self.got.append(alarm)

    def close(self) -> None:
        self.closed = True


def test_alarms_are_delivered_in_order_and_frames_are_not() -> None:
    sink = Kept()
    with Notifier([sink]) as notifier:
        for number in range(5):
            notifier.hear(an_alarm(number))
            notifier.hear(a_decision(number))
    assert [alarm.number for alarm in sink.got] == list(range(5))
    assert sink.closed
    assert notifier.summary() == ["kept:: 5 reports of alarms delivered, 0 not."]


def test_what_was_not_delivered_is_tried_again_and_both_are_said() -> None:
    notes, down = list[str](), threading.Event()
    down.set()
    sink = Kept(down.is_set)
    delivery = Delivery(sink, notes.append, waits_s=QUICK)
    for number in range(3):
        delivery.put(an_alarm(number))
    wait_until(lambda: delivery.failures > 3)
    assert notes == ["kept:: alarms are not delivered (the server vanished); trying again."]
    down.clear()
    wait_until(lambda: delivery.delivered == 3)
    assert [alarm.number for alarm in sink.got] == [0, 1, 2]
    assert notes[1:] == ["kept:: alarms are delivered again; 0 were left out so far."]
    delivery.close(time.monotonic() + 1)


def test_a_newer_report_takes_the_place_of_one_that_waits() -> None:
    sink = Kept()
    sink.open.clear()
    delivery = Delivery(sink)
    delivery.put(an_alarm(9))
    wait_until(lambda: not delivery.waiting)  # it is being sent
    for times in (1, 2, 3):
        delivery.put(an_alarm(0, times=times))
    delivery.put(an_alarm(1))
    delivery.put(an_alarm(0, times=4, state=RESOLVED))
    sink.open.set()
    delivery.close(time.monotonic() + 5)
    assert [(alarm.number, alarm.times, alarm.state) for alarm in sink.got[1:]] == [(0, 4, RESOLVED), (1, 1, "open")]


def test_ten_thousand_alarms_are_bounded_counted_and_delay_nobody() -> None:
    sink = Kept()
    sink.open.clear()
    delivery = Delivery(sink)
    delivery.put(an_alarm(0))
    wait_until(lambda: not delivery.waiting)
    delivery.put(an_alarm(1))  # about an enrolled device: the oldest that waits
    began = time.monotonic()
    for number in range(2, 10_002):
        delivery.put(an_alarm(number, kind=UNKNOWN_DEVICE, device=None))
    assert (time.monotonic() - began) / 10_000 < 0.005
    assert delivery.waiting == 1024
    assert delivery.left_out == 10_001 - 1024
    sink.open.set()
    wait_until(lambda: delivery.delivered == 1025)
    numbers = [alarm.number for alarm in sink.got]
    assert numbers[:2] == [0, 1]
    assert numbers[2:] == list(range(10_002 - 1023, 10_002))
    delivery.close(time.monotonic() + 1)


def test_a_sink_that_hangs_delays_neither_the_others_nor_the_end() -> None:
    stuck, well = Kept(), Kept()
    stuck.open.clear()
    notifier = Notifier([stuck, well])
    for number in range(3):
        notifier.hear(an_alarm(number))
    wait_until(lambda: len(well.got) == 3)
    began = time.monotonic()
    notifier.close(within_s=0.2)
    assert time.monotonic() - began < 2
    assert notifier.deliveries[0].delivered == 0
    stuck.open.set()


def test_a_server_that_stays_away_does_not_delay_the_end() -> None:
    sink = Kept(lambda: True)
    notifier = Notifier([sink])
    for number in range(50):
        notifier.hear(an_alarm(number))
    began = time.monotonic()
    notifier.close()
    assert time.monotonic() - began < 4  # the first wait is one second, and is cut short
    assert notifier.summary() == ["kept:: 0 reports of alarms delivered, 50 not."]


def test_a_sink_is_looked_after_while_nothing_happens() -> None:
    calls = list[float]()

    class Idle(Kept):
        def idle(self) -> None:
            calls.append(time.monotonic())

    delivery = Delivery(Idle(), idle_s=0.01)
    wait_until(lambda: len(calls) > 3)
    delivery.close(time.monotonic() + 1)


@pytest.mark.parametrize("error", [ValueError("odd"), KeyError()])
def test_a_plugin_that_fails_in_any_way_ends_nothing(error: Exception) -> None:
    notes, broken = list[str](), [True]

    class Odd(Kept):
        def send(self, alarm: Alarm) -> None:
            if broken:
                broken.clear()
                raise error
            super().send(alarm)

    sink = Odd()
    delivery = Delivery(sink, notes.append, waits_s=QUICK)
    delivery.put(an_alarm(0))
    wait_until(lambda: len(sink.got) == 1)
    assert (str(error) or "KeyError") in notes[0]
    delivery.close(time.monotonic() + 1)
