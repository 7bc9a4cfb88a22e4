"""What is remembered: who a transmitter is, how it was, and never more than there is room for."""

from __future__ import annotations

import time

import pytest

from pisa_capc.live.serve import memory as module
from pisa_capc.live.serve.memory import Memory, now, shown
from pisa_capc.live.serve.rows import STEP_S, STEPS, VOTERS
from tests.live.serve.fake import ADDRESSES, DEVICES, a_decision, an_alarm


def heard(*events: object) -> Memory:
    memory = Memory()
    for event in events:
        memory.hear(event)  # type: ignore[arg-type]
    memory.take()
    return memory


def test_frames_of_one_address_are_one_transmitter_whom_most_of_the_newest_frames_name() -> None:
    devices = [DEVICES[0]] * 20 + [None] + [DEVICES[1]] * 3
    memory = heard(*(a_decision(n, device=device) for n, device in enumerate(devices)))
    [row] = memory.transmitters()
    assert (row["device"], row["agree"], row["of"]) == (DEVICES[0], 20, 24)
    for n in range(24, 24 + VOTERS):
        memory.hear(a_decision(n, device=DEVICES[1]))
    memory.take()
    assert memory.transmitters()[0]["device"] == DEVICES[1]


def test_frames_without_an_address_are_told_apart_by_their_device() -> None:
    memory = heard(*(a_decision(n, address=None, device=d) for n, d in enumerate((*DEVICES[:3], None, DEVICES[0]))))
    assert [row["device"] for row in memory.transmitters()] == [DEVICES[0], None, DEVICES[2], DEVICES[1]]


def test_history_has_the_mean_of_each_step_and_forgets_what_is_older() -> None:
    end = (now() + 0.5) * STEP_S
    old = a_decision(0, end - STEP_S * (STEPS + 5))
    before = a_decision(1, end - 3 * STEP_S, cfo_hz=(100.0, float("nan")), probability=0.5)
    two = [a_decision(n, end, cfo_hz=(own, own)) for n, own in ((2, 10.0), (3, 30.0))]
    [row] = heard(old, before, *two).transmitters()
    assert row["frames"] == 4
    assert row["history"]["frames"] == [1, 2]
    assert row["history"]["cfo_hz"] == [100.0, 20.0]
    assert row["history"]["step"] == [now() - 3, now()]


def test_a_step_takes_the_place_of_the_one_ten_minutes_before() -> None:
    end = time.time()
    memory = heard(*(a_decision(n, end + n * STEP_S) for n in range(STEPS + 40)))
    history = next(iter(memory.rows.values())).history.since(0)
    assert len(history["step"]) == STEPS
    assert history["frames"] == [1] * STEPS


def test_nothing_grows_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, most in (("DECISIONS", 50), ("ALARMS", 10), ("ROWS", 20)):
        monkeypatch.setattr(module, name, most)
    memory = Memory()
    for n in range(500):
        memory.hear(a_decision(n, address=f"address {n}"))
        memory.hear(an_alarm(n))
        if n % 40 == 0:
            memory.take()
    memory.take()
    assert len(memory.decisions) == 50
    assert len(memory.alarms) == 10
    assert len(memory.rows) == 20
    assert memory.transmitters()[0]["address"] == "address 499"


def test_what_did_not_fit_into_the_box_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DECISIONS", 10)
    memory = heard(a_decision(0))
    for n in range(1, 31):
        memory.hear(a_decision(n))
    assert len(memory.take()) == 10
    assert memory.lost == 20


def test_alarms_come_through_a_flood_of_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DECISIONS", 10)
    memory = heard(an_alarm(7), *(a_decision(n) for n in range(100)))
    assert list(memory.alarms) == [7]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("plain", "plain"),
        ("\x1b[2J\x00", r"\x1b[2J\x00"),
        ("a\nb", r"a\nb"),
        ("\u202egpj.exe", r"\u202egpj.exe"),
        ("\ud800", r"\ud800"),
        ("<script>", "<script>"),  # is text, and stays text
    ],
)
def test_names_of_others_are_shown_with_what_cannot_be_seen_written_out(given: str, expected: str) -> None:
    assert shown(given) == expected


@pytest.mark.parametrize("given", ["x" * 10_000_000, "\u202e" * 1000, "\U0001f4a9" * 500])
def test_names_of_others_are_never_long(given: str) -> None:
    assert len(shown(given)) <= 96
    assert shown(given).endswith("…")


def test_newest_decisions_of_a_transmitter_before_a_number() -> None:
    memory = heard(*(a_decision(n, address=ADDRESSES[n % 2]) for n in range(10)))
    row = next(own.id for key, own in memory.rows.items() if key[1] == ADDRESSES[1])
    assert [one.number for one in memory.newest_decisions(3, before=8, row=row)] == [7, 5, 3]
    assert memory.newest_decisions(3, row=99) == []
