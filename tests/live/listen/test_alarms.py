"""An alarm begins, is updated and ends; nothing that strangers send keeps one about an enrolled device back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pisa_capc.live.listen import Alarm, Event, Listener, ListenPlan
from pisa_capc.live.listen import alarms as module
from pisa_capc.live.listen.alarms import A_MINUTE, MINUTE_S, AlarmFinding, Alarms, Folder, Recent
from pisa_capc.live.listen.events import (
    ACKNOWLEDGED,
    CHANGED,
    MANY,
    NOT_ITS_ADDRESS,
    OPEN,
    RECEIVER,
    RESOLVED,
    SHARED_ADDRESS,
    UNKNOWN_DEVICE,
)
from pisa_capc.live.listen.senders import CARRIERS, MOST, Senders
from pisa_capc.model.inference import TrainedModel
from pisa_capc.signal.detection import FoundFrame
from tests.live.listen.air import AIR, ENROLLED, address, in_turn, played, script, snippet_of
from tests.live.serve.fake import a_decision

HOUR = 3600.0


class Told:
    """Alarms under a clock that is set by hand, and what they told."""

    def __init__(self, every_s: float = HOUR, enrolled: int = 3) -> None:
        self.now, self.told, self._number = 1000.0, list[Alarm](), 0
        self.alarms = Alarms(every_s, self._begin, self.told.append, lambda: enrolled, lambda: self.now)

    def _begin(self, finding: AlarmFinding) -> Alarm:
        self._number += 1
        about = finding.kind, finding.address, finding.device, finding.text
        return Alarm(self._number - 1, 0.0, "", *about, finding.frames(), None)

    def find(self, subject: str, kind: str = UNKNOWN_DEVICE, text: str = "text") -> None:
        self.alarms.found(AlarmFinding(kind, subject, text, 0))

    def pass_(self, seconds: float) -> None:
        """Time passes, and the listener goes on."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + 1.0)
            self.alarms.tick()

    def said(self, kind: str) -> list[tuple[int, str, int]]:
        return [(one.number, one.state, one.times) for one in self.told if one.kind == kind]


def test_an_alarm_holds_while_its_cause_is_found_and_is_resolved_when_it_is_not() -> None:
    own = Told()
    for _ in range(90):
        own.find("a", text="newest")
        own.pass_(60)
    assert own.said(UNKNOWN_DEVICE) == [(0, OPEN, 1), (0, OPEN, 61)], "reported when it begins, and once an hour"
    own.pass_(HOUR)
    assert own.said(UNKNOWN_DEVICE)[2:] == [(0, RESOLVED, 90)]
    assert own.alarms.open == 0
    own.pass_(HOUR)
    own.find("a")
    assert own.said(UNKNOWN_DEVICE)[3:] == [(1, OPEN, 1)]


def test_a_cause_that_comes_back_soon_belongs_to_the_alarm_that_it_had() -> None:
    own = Told()
    own.find("silent", RECEIVER)
    own.pass_(61)
    own.find("silent", RECEIVER)
    assert own.said(RECEIVER) == [(0, OPEN, 1), (0, RESOLVED, 1), (0, OPEN, 2)]


def test_an_alarm_that_is_acknowledged_ends_and_its_cause_is_quiet_for_a_while() -> None:
    own = Told()
    own.find("a", NOT_ITS_ADDRESS)
    own.find("b", NOT_ITS_ADDRESS)
    own.alarms.acknowledge(0, "anna")
    own.alarms.acknowledge(99, "anna")  # there is none
    own.pass_(1)
    assert (own.told[-1].state, own.told[-1].by, own.told[-1].number) == (ACKNOWLEDGED, "anna", 0)
    own.find("a", NOT_ITS_ADDRESS)
    assert len(own.told) == 3
    own.pass_(HOUR)
    own.find("a", NOT_ITS_ADDRESS)
    assert own.told[-1].number == 2


def test_an_alarm_that_was_resolved_can_still_be_acknowledged() -> None:
    own = Told()
    own.find("silent", RECEIVER)
    own.pass_(61)
    own.alarms.acknowledge(0, "anna")
    own.pass_(1)
    assert [state for _, state, _ in own.said(RECEIVER)] == [OPEN, RESOLVED, ACKNOWLEDGED]


def test_each_kind_has_a_budget_and_what_waits_is_counted_said_and_raised() -> None:
    own = Told()
    for i in range(50):
        own.find(f"stranger {i}")
        own.find(f"stranger {i}")
    assert len(own.said(UNKNOWN_DEVICE)) == A_MINUTE
    assert own.alarms.withheld == {UNKNOWN_DEVICE: 50 - A_MINUTE}
    for kind in (NOT_ITS_ADDRESS, SHARED_ADDRESS, CHANGED, RECEIVER):
        own.find("own", kind)
        assert own.said(kind), "no other kind waits"
    own.pass_(1)
    [summary] = [one for one in own.told if one.kind == MANY]
    assert f"{50 - A_MINUTE} × {UNKNOWN_DEVICE} wait" in summary.text
    own.pass_(MINUTE_S)
    assert len(own.said(UNKNOWN_DEVICE)) == 2 * A_MINUTE
    own.pass_(MINUTE_S)
    assert {number for number, _, _ in own.said(UNKNOWN_DEVICE)} >= {*range(A_MINUTE)}
    assert len({number for number, _, _ in own.said(UNKNOWN_DEVICE)}) == 50
    own.pass_(2 * MINUTE_S)
    assert own.said(MANY)[-1][1] == RESOLVED


def test_there_is_room_for_an_alarm_about_every_enrolled_address() -> None:
    own = Told(enrolled=500)
    for i in range(500):
        own.find(f"address {i}", NOT_ITS_ADDRESS)
    assert len(own.said(NOT_ITS_ADDRESS)) == 500


def test_what_waits_is_raised_at_the_end_of_a_recording_and_bounded_before() -> None:
    own = Told()
    for i in range(3000):
        own.find(f"stranger {i}")
    own.alarms.finish()
    assert len(own.said(UNKNOWN_DEVICE)) == A_MINUTE + module.WAITING


def test_open_alarms_are_bounded_and_strangers_end_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OPENED", 5)
    own = Told()
    own.find("own", NOT_ITS_ADDRESS)
    for i in range(10):
        own.find(f"stranger {i}")
    assert own.alarms.open == 5
    assert own.said(NOT_ITS_ADDRESS) == [(0, OPEN, 1)]
    assert len(own.alarms.state()) <= 10


def test_alarms_go_on_after_a_restart() -> None:
    one, two = Told(), Told()
    one.find("a", NOT_ITS_ADDRESS)
    one.find("b", NOT_ITS_ADDRESS)
    one.alarms.acknowledge(1, "anna")
    one.pass_(1)
    two.now = 5.0  # another boot of the machine
    two.alarms.resume(one.alarms.state())
    two.find("a", NOT_ITS_ADDRESS)
    two.find("b", NOT_ITS_ADDRESS)
    assert not two.told, "the one is open and the other acknowledged"
    two.pass_(HOUR)
    assert two.said(NOT_ITS_ADDRESS)[0] == (0, RESOLVED, 2)


@pytest.mark.parametrize("change", [{"kind": "x"}, {"state": "x"}, {"number": None}, {"frames": 3}])
def test_an_alarm_that_is_none_is_refused(change: dict[str, Any]) -> None:
    own = Told()
    own.find("a")
    with pytest.raises((ValueError, TypeError, KeyError)):
        Alarm.from_json({**own.told[0].to_json(), **change})
    assert Alarm.from_json(own.told[0].to_json()) == own.told[0]


# What strangers cannot push out.


def test_snippets_of_strangers_go_before_those_of_enrolled_devices(tmp_path: Path) -> None:
    folder = Folder(tmp_path, 20e6, None, most_bytes=100_000)  # three
    frame = snippet_of(np.ones((4, 1000), dtype=np.complex64))
    own = folder.write(0, "text", [frame])
    for number in range(1, 20):
        folder.write(number, "text", [frame], stranger=True)
    left = sorted(path.name for path in tmp_path.glob("*.sigmf-meta"))
    assert left == [own, *(f"alarm-{number:010d}-stranger.sigmf-meta" for number in (18, 19))]
    for number in (20, 21, 22):
        own = folder.write(number, "text", [frame])
    assert folder.write(23, "text", [frame], stranger=True) is None, "it would push out one of them"
    assert sorted(path.name for path in tmp_path.glob("*.sigmf-meta"))[-1] == own


def test_recent_frames_that_claim_an_enrolled_address_outlast_a_flood(monkeypatch: pytest.MonkeyPatch) -> None:
    iq = np.zeros((4, 100), dtype=np.complex64)
    monkeypatch.setattr(module, "RECENT_BYTES", 100 * iq.nbytes)
    recent = Recent()
    for number in range(1000):
        verdict = "undecided" if number % 50 == 0 else None
        recent.add(a_decision(number, verdict=verdict, iq=iq))
    kept = [number for number in range(1000) if recent.get(number) is not None]
    assert len(kept) == 100
    assert [number for number in kept if number % 50 == 0] == list(range(0, 1000, 50))


def test_strangers_do_not_make_a_sender_forgotten_and_one_address_does_not_grow() -> None:
    senders = Senders(2, 5e9, lambda address: address == "own")
    mine = senders.of("own", np.zeros(2))
    mine.numbers.extend(range(16))
    for i in range(2 * MOST):
        senders.of(f"stranger {i}", np.zeros(2))
        senders.of("own", np.full(2, 1e6 + 1e5 * i))
    assert senders.of("own", np.zeros(2)) is mine
    assert len(senders._known["own"]) <= CARRIERS
    assert senders._count == MOST


IMPOSTER = 2, 1  # D3 sends under the address of D1
FLOOD = [(9, 9 + n // 40) for n in range(1200)]  # thirty unknown senders, one after the other


def reported_at(events: list[Event], claimed: str) -> int | None:
    """After how many of an address's frames, from the first that is not its device's on, there is an alarm about it."""
    frames = 0
    for event in events:
        if isinstance(event, FoundFrame):
            frames += event.claimed == claimed
        elif event.kind in (NOT_ITS_ADDRESS, SHARED_ADDRESS) and event.address == claimed:
            return frames
    return None


Heard = Callable[[list[tuple[int, int]]], list[Event]]


@pytest.fixture
def heard(toy: None, trained: TrainedModel, monkeypatch: pytest.MonkeyPatch) -> Heard:
    """What a listener says of frames, with less room for strangers than these can fill."""
    monkeypatch.setattr("pisa_capc.live.listen.senders.MOST", 8)
    monkeypatch.setattr("pisa_capc.live.listen.claims.MOST", 8)

    def run(sent: list[tuple[int, int]]) -> list[Event]:
        events: list[Event] = []
        Listener(trained, script(played(sent)), AIR, ListenPlan(addresses=ENROLLED)).run(events.append)
        return events

    return run


@pytest.fixture
def quiet(heard: Heard) -> int:
    """Frames of an imposter until it is reported where nobody else sends."""
    found = reported_at(heard([IMPOSTER] * 60), address(1))
    assert found is not None
    return found


@settings(max_examples=4, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    flooded=st.booleans(),
    before=st.integers(0, 200),
    between=st.lists(st.integers(0, 4), min_size=60, max_size=60),
    devices=st.integers(3, 9),
    addresses=st.integers(1, 90),
)
def test_whatever_strangers_send_an_imposter_is_reported(
    heard: Heard, quiet: int, flooded: bool, before: int, between: list[int], devices: int, addresses: int
) -> None:
    count = iter(range(10_000))

    def strangers(many: int) -> list[tuple[int, int]]:
        return [(3 + n % devices, 9 + n % addresses) for _, n in zip(range(many), count, strict=False)]

    sent = [*FLOOD * flooded, *strangers(before)]
    for many in between:
        sent += [*strangers(many), IMPOSTER]
    at = reported_at(heard(sent), address(1))
    assert at is not None
    assert at <= max(40, quiet + 10)


def test_an_imposter_after_a_flood_of_unknown_senders_is_reported(heard: Heard) -> None:
    events = heard([*in_turn(30), *FLOOD, *[IMPOSTER] * 60])
    unknown = {one.number for one in events if isinstance(one, Alarm) and one.kind == UNKNOWN_DEVICE}
    assert len(unknown) >= A_MINUTE, "else there is no flood"
    assert any(isinstance(one, Alarm) and one.kind == NOT_ITS_ADDRESS and one.address == address(1) for one in events)
