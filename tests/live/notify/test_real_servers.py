"""Alarms arrive at real servers, where they are installed: Debian's mosquitto and rsyslog."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pisa_capc.live.notify import Notifier, open_sink
from tests.live.listen.tools import wait_until
from tests.live.serve.fake import an_alarm

pytestmark = pytest.mark.slow
MOSQUITTO, RSYSLOG = (shutil.which(name) or shutil.which(f"/usr/sbin/{name}") for name in ("mosquitto", "rsyslogd"))


def free_port(kind: int = socket.SOCK_STREAM) -> int:
    with socket.socket(type=kind) as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[tuple[int, Callable[[], None], Callable[[], None]]]:
    """A broker that asks for a password: its port, and how to start and to kill it."""
    if MOSQUITTO is None or shutil.which("mosquitto_passwd") is None or shutil.which("mosquitto_sub") is None:
        pytest.skip("mosquitto or mosquitto-clients are not installed")
    port, passwords = free_port(), tmp_path / "passwords"
    subprocess.run(["mosquitto_passwd", "-b", "-c", passwords, "me", "right"], check=True)
    (tmp_path / "conf").write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous false\npassword_file {passwords}\nuser {tmp_path.owner()}\n"
    )
    running = list[subprocess.Popen[bytes]]()

    def start() -> None:
        running.append(subprocess.Popen([MOSQUITTO, "-c", tmp_path / "conf"], stderr=subprocess.DEVNULL))
        wait_until(lambda: _listens(port))

    def kill() -> None:
        running[-1].send_signal(signal.SIGKILL)
        running[-1].wait()

    start()
    yield port, start, kill
    kill()


def _listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def test_mosquitto_hands_alarms_on_also_after_it_was_killed(
    mosquitto: tuple[int, Callable[[], None], Callable[[], None]], tmp_path: Path
) -> None:
    port, start, kill = mosquitto
    notes, url = list[str](), f"mqtt://me:right@127.0.0.1:{port}/pisa/roof"
    heard = ["mosquitto_sub", "-h", "127.0.0.1", "-p", str(port), "-u", "me", "-P", "right", "-v", "-t", "pisa/#"]
    notifier = Notifier([open_sink(url)], notes.append)

    def listening(name: str) -> subprocess.Popen[bytes]:
        with (tmp_path / name).open("wb") as file:
            found = subprocess.Popen([*heard], stdout=file)
        wait_until(lambda: "availability online" in (tmp_path / name).read_text())
        return found

    first = listening("first")
    notifier.hear(an_alarm(1))
    wait_until(lambda: "events" in (tmp_path / "first").read_text() and "devices" in (tmp_path / "first").read_text())
    kill()
    notifier.hear(an_alarm(2))
    wait_until(lambda: len(notes) == 1)
    start()
    wait_until(lambda: len(notes) == 2, 30)
    assert "alarms are delivered again; 0 were left out" in notes[1]
    first.kill()
    kept = listening("second")
    wait_until(lambda: "devices" in (tmp_path / "second").read_text())
    notifier.close()
    wait_until(lambda: "availability offline" in (tmp_path / "second").read_text())
    kept.kill()
    [device] = [line for line in (tmp_path / "second").read_text().splitlines() if "/devices/" in line]
    assert json.loads(device.partition(" ")[2])["number"] == 2


def test_mosquitto_refuses_a_wrong_password(
    mosquitto: tuple[int, Callable[[], None], Callable[[], None]],
) -> None:
    notes = list[str]()
    with Notifier([open_sink(f"mqtt://me:wrong@127.0.0.1:{mosquitto[0]}")], notes.append):
        wait_until(lambda: bool(notes))
    assert "not authorised" in notes[0] or "wrong user name or password" in notes[0]


def test_rsyslog_writes_alarms_that_apprise_sends(tmp_path: Path) -> None:
    pytest.importorskip("apprise", reason="an extra that is not installed")
    if RSYSLOG is None:
        pytest.skip("rsyslog is not installed")
    port, log = free_port(socket.SOCK_DGRAM), tmp_path / "log"
    (tmp_path / "conf").write_text(
        f'module(load="imudp")\ninput(type="imudp" address="127.0.0.1" port="{port}")\n'
        f'*.* action(type="omfile" file="{log}")\n'
    )
    server = subprocess.Popen([RSYSLOG, "-n", "-f", tmp_path / "conf", "-i", tmp_path / "pid"])
    try:
        with Notifier([open_sink(f"rsyslog://127.0.0.1:{port}")]) as notifier:
            for number in range(50):  # the first may come before it listens
                notifier.hear(an_alarm(number))
                time.sleep(0.1)
                if log.exists() and "not its address" in log.read_text():
                    break
        assert "is the address of" in log.read_text()
    finally:
        server.terminate()
        server.wait()
