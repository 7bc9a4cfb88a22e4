"""Frames are found in a process of its own, which may die, and which outlives nobody."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from pisa_capc.core.errors import PisaError
from pisa_capc.live.listen.finder import Part, ThreadFinder
from pisa_capc.live.listen.finder_process import FinderLink, ProcessFinder, SharedMemory
from pisa_capc.live.listen.hearing import Hearing
from pisa_capc.live.listen.ring import Ring
from tests.live.listen.test_hearing import CF32, coded, stream
from tests.live.listen.tools import wait_until

ROOM = 1 << 20  # samples


@contextmanager
def process_finder(hearing: Hearing, notes: list[str]) -> Iterator[tuple[Ring, ProcessFinder]]:
    shared = SharedMemory(ROOM * hearing.sample_bytes)
    ring = Ring(ROOM, hearing.sample_bytes, memory=shared.memory)
    finder = ProcessFinder(ring, shared, hearing, ROOM, notes.append)
    try:
        yield ring, finder
    finally:
        ring.end()
        finder.close()


def until_the_end(finder: ProcessFinder | ThreadFinder) -> list[Part]:
    parts = list[Part]()
    while (more := finder.parts()) is not None:
        parts += more
    return parts


def found(parts: list[Part]) -> list[tuple[int, int, str | None]]:
    return [(one.start, one.end, one.header.transmitter) for part in parts for one in part.frames]


def test_a_process_finds_what_a_thread_does_and_one_that_dies_is_begun_anew() -> None:
    recording, notes = stream(6), list[str]()
    data = coded(recording.read(0, recording.about.length))
    hearing = Hearing(recording.about, CF32, "wifi")
    with process_finder(hearing, notes) as (ring, finder):
        finder._child.send_signal(signal.SIGSTOP)
        ring.write(data)
        wait_until(lambda: ring._taken == len(data))
        finder._child.kill()
        while not notes:
            assert finder.parts() == []
        count = len(data) // hearing.sample_bytes
        assert (ring.missed, ring.held) == (count, 0)
        assert f"{count:,} samples that it had are missed" in notes[0]
        ring.write(data)
        ring.end()
        got = until_the_end(finder)
    here = Ring(ROOM, hearing.sample_bytes, first=count)
    here.write(data)
    here.end()
    assert found(got) == found(until_the_end(ThreadFinder(here, Hearing(recording.about, CF32, "wifi"), ROOM)))
    assert len(found(got)) == 6
    assert sum(part.taken for part in got) == len(data)


def test_a_process_that_always_dies_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    hearing = Hearing(stream(1).about, CF32, "wifi")
    with pytest.raises(PisaError, match="does not begin"), process_finder(hearing, []):
        pass


def test_the_process_ends_with_a_listener_that_is_killed_and_not_by_signals_to_all(tmp_path: Path) -> None:
    code = """
import sys, time
from pathlib import Path
from tests.live.listen.test_finder_process import Hearing, CF32, process_finder, stream
with process_finder(Hearing(stream(1).about, CF32, "wifi"), []) as (ring, finder):
    Path(sys.argv[1]).write_text(str(finder._child.pid))
    time.sleep(60)
"""
    path = tmp_path / "pid"
    listener = subprocess.Popen([sys.executable, "-c", code, str(path)], env={**os.environ, "PYTHONPATH": _paths()})
    wait_until(lambda: path.exists() and bool(path.read_text()), 60)
    child = int(path.read_text())
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(child, number)
    time.sleep(0.2)
    os.kill(child, 0)
    listener.kill()
    listener.wait()
    wait_until(lambda: not _runs(child))


def _paths() -> str:
    return os.pathsep.join(filter(None, sys.path))


def _runs(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"  # whoever is to bury it may take a while


def test_a_listener_that_is_slow_to_ask_holds_nobody_up_for_ever() -> None:
    recording = stream(6)
    data = coded(recording.read(0, recording.about.length))
    with process_finder(Hearing(recording.about, CF32, "wifi"), []) as (ring, finder):
        writer = threading.Thread(target=lambda: [ring.write(data) for _ in range(40)])
        writer.start()
        writer.join(20)
        assert not writer.is_alive()  # a radio never waits
        assert ring.missed > 0
        ring.end()
        parts = until_the_end(finder)
    assert ring.held == 0
    assert sum(part.taken for part in parts) // ring.sample_bytes + ring.missed == ring.received


def test_a_link_says_arrays_as_they_are() -> None:
    one, other = (FinderLink(end.detach()) for end in socket.socketpair())
    with one, other:
        assert not other.waits(0)
        one.send({"iq": np.arange(6, dtype=np.complex64).reshape(2, 3)})
        assert other.waits(1)
        np.testing.assert_array_equal(other.recv()["iq"], np.arange(6).reshape(2, 3))
