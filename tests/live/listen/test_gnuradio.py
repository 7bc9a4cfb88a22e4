"""Flow graphs of Debian's GNU Radio as the source: those of examples/listen/."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from pisa_capc.live.listen import Air, Event, Listener, ListenPlan, open_source
from pisa_capc.signal.detection import FoundFrame
from pisa_capc.signal.recordings.encoding import Encoding
from tests.live.listen.air import AIR, CF32, SPACING, as_bytes, in_turn, played
from tests.live.listen.tools import Reading, wait_until

PYTHON = "/usr/bin/python3"  # Debian's packages are for Debian's Python
PLAY = Path(__file__).parents[3] / "examples" / "listen" / "play.py"
DRAWN = PLAY.with_name("play_graph.grc")
PORT = 45551


@cache
def has_gnuradio() -> bool:
    if not Path(PYTHON).exists():
        return False
    return not subprocess.run([PYTHON, "-c", "from gnuradio import zeromq"], capture_output=True).returncode


pytestmark = [pytest.mark.slow, pytest.mark.skipif(not has_gnuradio(), reason="Debian's gnuradio is not installed")]


@contextmanager
def playing(path: Path, *options: str) -> Iterator[str]:
    """The flow graph at work, and its address."""
    address = f"tcp://127.0.0.1:{PORT}"
    command = [PYTHON, str(PLAY), str(path), "--address", address, *options]
    graph = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sys.stderr, text=True)
    try:
        assert graph.stdout is not None
        assert address in graph.stdout.readline()
        yield address
    finally:
        graph.kill()
        graph.wait()


@pytest.mark.parametrize("options", [(), ("--no-tags",)])
@pytest.mark.parametrize("antennas", [1, 4])
def test_samples_arrive_as_they_were_sent(tmp_path: Path, antennas: int, options: tuple[str, ...]) -> None:
    count, rate = 60_000, "20000"
    numbers = (np.arange(count)[:, None] + 1j * np.arange(antennas)).astype(np.complex64)
    (tmp_path / "air.cf32").write_bytes(numbers.tobytes())
    shape = ("--antennas", str(antennas), "--sample-rate", rate)
    with playing(tmp_path / "air.cf32", *shape, *options) as address:
        source = open_source(f"zmq:{address}", antennas=antennas, encoding=CF32)
        with Reading(source, 8 * antennas) as reading:
            reading.wait_for(20_000)
            got = np.concatenate([data for _, data in reading.taken()]).view(np.complex64).reshape(-1, antennas)
    first = int(got[0, 0].real)  # whoever comes late has missed the beginning
    np.testing.assert_array_equal(got, numbers[first : first + len(got)])
    assert source.ports[0].tagged == (not options)  # type: ignore[attr-defined]


@pytest.mark.skipif(shutil.which("grcc") is None, reason="Debian's gnuradio is not installed")
def test_the_drawn_flow_graph_compiles_and_sends_the_same(tmp_path: Path) -> None:
    numbers = (np.arange(60_000)[:, None] + 1j * np.arange(4)).astype(np.complex64)
    (tmp_path / "air.cf32").write_bytes(numbers.tobytes())
    subprocess.run(["grcc", "-o", tmp_path, DRAWN], check=True, env={**os.environ, "HOME": str(tmp_path)})
    address = f"tcp://127.0.0.1:{PORT + 1}"
    options = ["--path", tmp_path / "air.cf32", "--address", address, "--sample-rate", "20k", "--antennas", "4"]
    graph = subprocess.Popen([PYTHON, tmp_path / "play_graph.py", *options], stdin=subprocess.DEVNULL)
    try:
        source = open_source(f"zmq:{address}", antennas=4, encoding=CF32)
        with Reading(source, 32) as reading:
            reading.wait_for(20_000)
            got = np.concatenate([data for _, data in reading.taken()]).view(np.complex64).reshape(-1, 4)
    finally:
        graph.kill()
        graph.wait()
    first = int(got[0, 0].real)
    np.testing.assert_array_equal(got, np.resize(numbers, (2 * len(numbers), 4))[first : first + len(got)])
    assert source.ports[0].tagged  # type: ignore[attr-defined]


@pytest.mark.usefixtures("toy")
def test_a_flow_graph_is_listened_to(trained: object, tmp_path: Path) -> None:
    iq = played(in_turn(1000))
    (tmp_path / "air.cf32").write_bytes(as_bytes(iq))
    events: list[Event] = []
    air = Air(20e6, AIR.antennas, Encoding.named("cf32"), 5.825e9)
    options = ("--antennas", str(AIR.antennas), "--sample-rate", "200000", "--repeat")
    with playing(tmp_path / "air.cf32", *options) as address:
        source = open_source(f"zmq:{address}", antennas=AIR.antennas, encoding=CF32)
        plan = ListenPlan(own_process=False)  # another process would not have the toy's detector
        listener = Listener(trained, source, air, plan)  # type: ignore[arg-type]
        runner = threading.Thread(target=listener.run, args=(events.append,))
        runner.start()
        wait_until(lambda: len(events) > 300, 60)
        listener.stop()
        runner.join(20)
    starts = np.array([event.start for event in events if isinstance(event, FoundFrame)])
    assert listener.status().missed == 0
    assert len(starts) > 300
    assert set(np.diff(starts).tolist()) == {SPACING}
