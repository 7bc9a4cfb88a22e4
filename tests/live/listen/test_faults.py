"""Whatever fails, in whichever thread or process, a listener goes on or ends within five seconds; it never hangs."""

from __future__ import annotations

import itertools
import os
import signal
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pisa_capc.live.listen import Alarm, Event, Listener, ListenPlan
from pisa_capc.live.listen.events import NO_SAMPLES, OK, RECEIVER, STUCK
from pisa_capc.live.listen.ring import GAP_S, Ring
from pisa_capc.live.listen.sources.zeromq import ZmqSource
from pisa_capc.live.listen.state import Ledger, Mark
from pisa_capc.model.inference import TrainedModel
from pisa_capc.signal.recordings.encoding import Encoding
from tests.live.listen.air import AIR, ENROLLED, SPACING, Script, address, as_bytes, in_turn, played, script
from tests.live.listen.tools import Reading, header, publisher, wait_until

pytestmark = pytest.mark.usefixtures("toy")
SOON_S = 5.0


class Broken(RuntimeError):
    pass


def breaks(*args: object, **options: object) -> Any:
    raise Broken("on purpose")


class Run:
    """A listener at work in a thread of its own."""

    def __init__(self, listener: Listener, on_event: Any = None) -> None:
        self.listener, self.events, self.error = listener, list[Event](), None
        self._on_event = on_event or self.events.append
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.listener.run(self._on_event)
        except BaseException as error:
            self.error = error

    def ends(self, within_s: float = SOON_S) -> bool:
        self._thread.join(within_s)
        return not self._thread.is_alive()


def a_listener(
    trained: TrainedModel, tmp_path: Path, *, own_process: bool = False, notes: list[str] | None = None
) -> Listener:
    """Frames of all kinds of alarms, from a source that does not end by itself."""
    sent = [*in_turn(60), *[(2, 1)] * 40, *[(9, 77)] * 40]
    folders = {"state": tmp_path / "state", "alarms": tmp_path / "alarms"}
    how: dict[str, Any] = {"own_process": own_process, "save_every_s": 0.01, "buffer_s": 0.01, **folders}
    plan = ListenPlan(addresses=ENROLLED, **how)
    source = script(*(played(sent, seed=seed) for seed in range(2)), ends=False)
    return Listener(trained, source, AIR, plan, note=[].append if notes is None else notes.append)


# Where it breaks, and whether the listener goes on.
PLACES = [
    ("pisa_capc.live.listen.ring.Ring.write", False),  # the reader
    ("pisa_capc.live.listen.ring.Ring.take", False),  # what finds frames
    ("pisa_capc.live.listen.ring.Ring.free", False),
    ("pisa_capc.live.listen.hearing.Hearing.push", False),
    ("pisa_capc.live.listen.receiver.ReceiverCheck.look", False),
    ("tests.live.listen.air.ToyDetector.push", False),
    ("pisa_capc.live.listen.senders.Senders.of", False),  # what decides
    ("pisa_capc.live.listen.recognise.Recogniser.recognise", False),
    ("pisa_capc.live.listen.verifier.Verifier.tested", False),
    ("pisa_capc.live.listen.claims.Claim.push", False),
    ("pisa_capc.live.listen.alarms.Recent.add", False),
    ("pisa_capc.live.listen.alarms.Alarms.found", False),
    ("pisa_capc.live.listen.alarms.Alarms.tick", False),
    ("pisa_capc.live.listen.watch.Watch.look", False),
    ("pisa_capc.live.listen.watch.Meter.delay", False),
    ("pisa_capc.live.listen.state.Ledger.write", False),
    ("pisa_capc.live.listen.claims.Tests.state", False),
    ("pisa_capc.live.listen.alarms.Alarms.state", False),
    ("pisa_capc.live.listen.state.write_pair", True),  # what keeps the state
    ("pisa_capc.decide.calibration.OnlineCalibrator.save", True),
]


@pytest.mark.parametrize(("place", "goes_on"), PLACES)
def test_an_exception_ends_the_listener_or_is_reported(
    trained: TrainedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, goes_on: bool
) -> None:
    notes = list[str]()
    listener = a_listener(trained, tmp_path, notes=notes)
    monkeypatch.setattr(place, breaks)
    run = Run(listener)
    if not goes_on:
        assert run.ends()
        assert isinstance(run.error, Broken)
        return
    wait_until(lambda: listener.status().frames == 280)
    wait_until(lambda: any(isinstance(one, Alarm) and one.kind == RECEIVER for one in run.events))
    assert any("on purpose" in note for note in notes)
    listener.stop()
    assert run.ends()
    assert run.error is None


def test_a_full_disk_under_alarms_stops_nothing(
    trained: TrainedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    notes = list[str]()
    listener = a_listener(trained, tmp_path, notes=notes)
    monkeypatch.setattr("pisa_capc.live.listen.alarms.Folder.write", full)
    run = Run(listener)
    wait_until(lambda: listener.status().frames == 280)
    listener.stop()
    assert run.ends()
    assert run.error is None
    assert [one.snippet for one in run.events if isinstance(one, Alarm)][:1] == [None]
    assert any("No space left" in note for note in notes)


def test_whoever_hears_of_events_may_fail(trained: TrainedModel, tmp_path: Path) -> None:
    run = Run(a_listener(trained, tmp_path), breaks)
    assert run.ends()
    assert isinstance(run.error, Broken)


@pytest.mark.parametrize(
    "place",
    [
        "pisa_capc.live.listen.ring.Ring.take",
        "pisa_capc.live.listen.hearing.Hearing.wanted_after",
        "struct.Struct.pack",
    ],
)
def test_an_exception_where_samples_are_handed_to_the_process_ends_the_listener(
    trained: TrainedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    listener = a_listener(trained, tmp_path, own_process=True)
    if place == "struct.Struct.pack":
        monkeypatch.setattr(
            "pisa_capc.live.listen.finder_process._TOLD", struct.Struct("<bbb?")
        )  # too small for any number
    else:
        monkeypatch.setattr(place, breaks)
    run = Run(listener)
    assert run.ends(3 * SOON_S)  # a process begins first
    assert isinstance(run.error, Broken | struct.error)


FAULTS = """
import time
import pisa_capc.live.listen.hearing as hearing
def push(self, *args):
    {what}
hearing.Hearing.push = push
"""


@pytest.mark.parametrize(
    ("what", "words"), [("raise RuntimeError('on purpose')", "in a row"), ("time.sleep(1000)", "in a row")]
)
def test_a_process_that_fails_or_hangs_is_begun_anew_and_at_last_is_an_error(
    trained: TrainedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, words: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(FAULTS.format(what=what))
    monkeypatch.syspath_prepend(str(tmp_path))  # which the process gets
    monkeypatch.setattr("pisa_capc.live.listen.finder.STUCK_S", 0.3)
    monkeypatch.setattr("pisa_capc.live.listen.finder_process.LOST", 1)
    notes = list[str]()
    step = as_bytes(played(in_turn(30)))
    source = Script([lambda ring: [ring.write(step), wait_until(lambda: ring.missed > 0)]] * 2, ends=False)
    source.patient = False
    run = Run(Listener(trained, source, AIR, ListenPlan(addresses=ENROLLED, own_process=True), note=notes.append))
    assert run.ends(6 * SOON_S)
    assert words in str(run.error)
    assert any("another begins" in note for note in notes)


@pytest.mark.parametrize("own_process", [False, True])
def test_the_ring_is_freed_with_the_end_however_long_the_listener_is_kept(
    trained: TrainedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_process: bool
) -> None:
    monkeypatch.setattr("pisa_capc.live.listen.ring.Ring.take", breaks)
    listener = a_listener(trained, tmp_path, own_process=own_process)
    memory = weakref.ref(listener._ring._data)
    run = Run(listener)
    assert run.ends(3 * SOON_S)
    assert isinstance(run.error, Broken)
    assert memory() is None
    if (shared := listener._shared) is not None:
        assert shared.file.closed
        assert shared.memory.closed
    assert listener.status().source == "ended"


def test_what_hangs_is_seen_and_does_not_keep_the_listener_from_ending(
    trained: TrainedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pisa_capc.live.listen.listener.STUCK_S", 0.2)
    monkeypatch.setattr("pisa_capc.live.listen.listener.STOP_S", 0.5)
    monkeypatch.setattr("pisa_capc.live.listen.finder.CLOSE_S", 0.1)
    held = threading.Event()
    monkeypatch.setattr("tests.live.listen.air.ToyDetector.push", lambda self, block: held.wait() and [])
    listener = a_listener(trained, tmp_path)
    run = Run(listener)
    wait_until(lambda: listener.health == STUCK)
    listener.stop()
    assert run.ends()
    held.set()


def test_what_hangs_is_an_error_at_last(trained: TrainedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pisa_capc.live.listen.finder.STUCK_S", 0.3)
    monkeypatch.setattr("pisa_capc.live.listen.finder.CLOSE_S", 0.1)
    held = threading.Event()
    monkeypatch.setattr("tests.live.listen.air.ToyDetector.push", lambda self, block: held.wait() and [])
    run = Run(a_listener(trained, tmp_path))
    assert run.ends()
    assert "restart the listener" in str(run.error)
    held.set()


def test_a_source_that_gives_nothing_is_not_stuck(
    trained: TrainedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pisa_capc.live.listen.watch.SILENCE_S", 0.2)
    listener = Listener(
        trained, Script([], patient=False, ends=False), AIR, ListenPlan(own_process=False, buffer_s=0.01)
    )
    assert listener.health == OK
    run = Run(listener)
    wait_until(lambda: listener.health == NO_SAMPLES)
    listener.stop()
    assert run.ends()


# Counters.


@pytest.mark.parametrize("jump", [2**64 - 10**7, 2**63, 2**40])
def test_a_counter_that_jumps_is_a_break_and_not_a_gap(trained: TrainedModel, jump: int) -> None:
    pytest.importorskip("zmq")
    encoding = Encoding.named("cs16")
    with publisher() as sink:
        source = ZmqSource.named(sink.address, antennas=1, encoding=encoding)
        reading = Reading(source, encoding.sample_bytes)
        reading.ring = Ring(1 << 16, encoding.sample_bytes, rate_hz=20e6)
        with reading:
            sink.wait()
            for offset in (0, 100, jump, jump + 100):
                sink.send(header(offset) + bytes(400))
            reading.wait_for(400)
            ring = reading.ring
            assert (ring.received, ring.missed, ring.breaks) == (400, 0, 1)


@pytest.mark.parametrize("which", [0, 1])
def test_ports_whose_counters_are_far_apart_are_a_break_and_said(which: int) -> None:
    pytest.importorskip("zmq")
    encoding = Encoding.named("cs16")
    with publisher() as one, publisher() as other:
        sinks = one, other
        source = ZmqSource.named(f"{one.address},{other.address}", antennas=2, encoding=encoding)
        reading = Reading(source, 2 * encoding.sample_bytes)
        reading.ring = Ring(1 << 16, 2 * encoding.sample_bytes, rate_hz=20e6)
        with reading:
            for sink in sinks:
                sink.wait()
            for sink in sinks:
                sink.send(header(0) + bytes(400))
            reading.wait_for(100)
            sinks[which].send(header(2**62) + bytes(400))
            offsets = itertools.count(100, 100)

            def said() -> bool:  # the other port goes on, whichever of the two is read first
                sinks[1 - which].send(header(next(offsets)) + bytes(400))
                return any("samples apart" in note for note in reading.notes)

            wait_until(said)
            offset = 2**62 + 1000
            while reading.ring.received < 200:
                for sink in sinks:
                    sink.send(header(offset) + bytes(400))
                offset += 100
                time.sleep(0.01)
            assert reading.ring.missed < 10_000
            assert reading.ring.breaks >= 1


def test_a_stream_is_never_far_ahead_of_the_clock() -> None:
    ring = Ring(1000, 4, rate_hz=1000.0)
    assert ring.plausible(int(4 * 1000 * GAP_S))
    ring.skip(int(4 * 1000 * (GAP_S - 1)))
    assert not ring.plausible(4 * 2000)
    patient = Ring(1000, 4, rate_hz=1000.0, wait=True)
    patient.skip(int(4 * 1000 * (GAP_S - 1)))
    assert patient.plausible(4 * 2000), "it has no clock"
    assert not patient.plausible(int(4 * 1000 * (GAP_S + 1)))


def test_a_state_from_the_year_9000_does_not_blind_the_next_run(trained: TrainedModel, tmp_path: Path) -> None:
    notes = list[str]()
    plan = ListenPlan(addresses=ENROLLED, state=tmp_path, own_process=False, buffer_s=0.01)
    first: list[Event] = []
    Listener(trained, replace(script(played(in_turn(30))), patient=False), AIR, plan).run(first.append)
    ledger = Ledger(tmp_path / "ledger")
    ledger.write(Mark(30, 0, 2**62))
    ledger.close()
    again: list[Event] = []
    sent = replace(script(played([(2, 1)] * 60)), patient=False)
    Listener(trained, sent, AIR, plan, note=notes.append).run(again.append)
    assert [one.start for one in again if not isinstance(one, Alarm)] == [SPACING * i + 100 for i in range(60)]
    assert any(isinstance(one, Alarm) and one.address == address(1) for one in again)
    assert any("century" in note for note in notes)


# Signals.

STUCK_MAIN = """
import threading, time
from pisa_capc.live.listen.service import service
class ServedListener:
    health = "ok"
with service(ServedListener(), lambda: print("asked to end", flush=True), print, end_s=0.5):
    print("ready", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def stuck() -> Iterator[subprocess.Popen[str]]:
    paths = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", STUCK_MAIN], env=paths, text=True, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_ends_a_process_that_does_not_end_by_itself(
    stuck: subprocess.Popen[str], number: signal.Signals
) -> None:
    stuck.send_signal(number)
    out, err = stuck.communicate(timeout=SOON_S)
    assert stuck.returncode == 1
    assert "asked to end" in out
    assert "leaving at once" in err
    assert "time.sleep" in err or "line" in err, "where it was stuck is said"


def test_a_service_runs_where_there_is_no_hangup_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows."""
    from pisa_capc.live.listen import service as module

    class ServedListener:
        health = OK

    ended: list[bool] = []
    monkeypatch.delattr(signal, "SIGHUP")
    with module.service(ServedListener(), lambda: ended.append(True), lambda: None):
        signal.raise_signal(signal.SIGTERM)
    assert ended


def test_systemd_hears_that_all_is_well_unless_it_is_stuck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    from pisa_capc.live.listen import service as module

    class ServedListener:
        health = OK

    monkeypatch.setattr(module, "BEAT_S", 0.02)
    before = signal.getsignal(signal.SIGTERM)  # of an earlier test that began Ray it may be Ray's
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(SOON_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with module.service(listener := ServedListener(), lambda: None, lambda: None):
            assert [manager.recv(64) for _ in range(3)] == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"]
            listener.health = STUCK
            time.sleep(0.1)
            while True:  # those on their way
                manager.settimeout(0.2)
                try:
                    manager.recv(64)
                except TimeoutError:
                    break
            assert signal.getsignal(signal.SIGTERM) is not before
        manager.settimeout(SOON_S)
        assert manager.recv(64) == b"STOPPING=1"
    assert signal.getsignal(signal.SIGTERM) is before
