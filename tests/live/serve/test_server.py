"""The service at an address of its own, beside a listener that is one."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest
from typer.testing import CliRunner
from websockets.sync.client import connect

from pisa_capc.cli import app
from pisa_capc.cli import serve as command_module
from pisa_capc.cli.serve import keys, link
from pisa_capc.core.errors import ConfigError
from pisa_capc.decide.enrolment import remove
from pisa_capc.live.listen import Listener, ListenPlan
from pisa_capc.live.serve import hub as hub_module
from pisa_capc.live.serve import server
from pisa_capc.live.serve.app import create_app
from pisa_capc.live.serve.audit import Audit
from pisa_capc.live.serve.gate import Rules
from pisa_capc.live.serve.hub import Hub
from pisa_capc.live.serve.keepsakes import newest
from pisa_capc.live.serve.keys import Keys, Token
from pisa_capc.live.serve.memory import Memory
from pisa_capc.live.serve.server import bound, serving, url_of
from pisa_capc.model.inference import TrainedModel, load_model
from tests.live.listen.air import AIR, ENROLLED, Script, as_bytes, in_turn, played, script
from tests.live.listen.tools import wait_until
from tests.live.serve.fake import a_decision, a_hub
from tests.live.serve.test_gate import TOKEN
from tests.live.serve.tools import PAGE, a_client
from tests.problems import ANTENNAS


def got(url: str, **headers: str) -> Any:
    with urlopen(Request(url, headers=headers), timeout=20) as answer:
        return json.load(answer)


@pytest.mark.usefixtures("toy")
def test_a_listener_is_seen_with_its_frames_among_the_devices(trained: TrainedModel, tmp_path: Path) -> None:
    stream = script(played([*in_turn(60), *[(2, 1)] * 60]))  # D3 sends as D1 in the end
    listener = Listener(trained, stream, AIR, ListenPlan(addresses=ENROLLED, alarms=tmp_path))
    hub, at = Hub(listener, Memory(), "script", tmp_path), bound("127.0.0.1", 0)
    url = url_of(at)
    with serving(create_app(hub, Rules()), at):
        with connect(url.replace("http", "ws") + "api/events?kinds=decision,alarm") as socket:
            assert json.loads(socket.recv(20)) == []
            listener.run(hub.memory.hear)
            events: list[dict[str, Any]] = []
            while {"decision", "alarm"} - {event["event"] for event in events}:
                events += json.loads(socket.recv(20))
        rows = got(url + "api/transmitters")["transmitters"]
        assert sum(row["frames"] for row in rows) == 120
        assert {row["verdict"] for row in rows} >= {"not the device"}
        alarm = got(url + "api/alarms")[0]
        with urlopen(url + f"api/alarms/{alarm['number']}/snippet") as answer:
            assert len(answer.read()) > 1000
        places = {d["device"]: (d["x"], d["y"]) for d in got(url + "api/prototypes")["devices"]}
        right = []
        for number in range(30):
            frame = got(url + f"api/frames/{number}")
            here = frame["place"]["x"], frame["place"]["y"]
            near = min(places, key=lambda name: float(np.hypot(*np.subtract(places[name], here))))
            right.append(near == frame["decision"]["like"])
        assert np.mean(right) > 0.6, "frames lie near the device that they are like"
        assert got(url + "api/status")["source"] == "ended"


@pytest.mark.usefixtures("toy")
def test_who_is_not_known_is_enrolled_while_listening_and_after_a_restart(
    trained: TrainedModel, tmp_path: Path
) -> None:
    run, state = tmp_path / "run", tmp_path / "state"
    small = remove(trained, "D3")
    small.save(run)
    small, ready, iq = load_model(run), threading.Event(), played([(2, 3)] * 80)  # D3 alone, whom nobody knows
    half = iq.shape[1] // 2
    steps = [
        lambda ring: ring.write(as_bytes(iq[:, :half])),
        lambda ring: ready.wait(60),
        lambda ring: ring.write(as_bytes(iq[:, half:])),
    ]
    listener = Listener(small, Script(steps), AIR, ListenPlan(addresses=ENROLLED))
    hub = Hub(listener, Memory(), "script", None, state, run)
    runner = threading.Thread(target=listener.run, args=(hub.memory.hear,))
    with a_client(hub) as client:
        runner.start()
        wait_until(lambda: listener.status().frames >= 39)
        [row] = client.get("/api/transmitters").json()["transmitters"]
        asked = {"transmitter": row["id"], "name": "new", "anyway": True}
        assert client.post("/api/enrol", headers=PAGE, json=asked).json() == {"device": "new", "model": "0001"}
        wait_until(lambda: listener.model.devices == ("D1", "D2", "new"))
        assert client.post("/api/enrol", headers=PAGE, json=asked).status_code == 409, "it is there already"
        ready.set()
        runner.join(30)
        newest_ones = client.get("/api/decisions?limit=30").json()
        assert np.mean([one["like"] == "new" for one in newest_ones]) > 0.8
    assert load_model(newest(state, run)).devices == ("D1", "D2", "new")
    trained.save(tmp_path / "other")
    assert newest(state, tmp_path / "other") == tmp_path / "other", "another run has grown nothing"
    assert newest(None, run) == run


def test_an_enrolment_that_is_kept_though_the_service_ends_is_in_the_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = threading.Event()

    def keep(*_: object) -> Path:
        begun.set()
        time.sleep(2 * server.CLOSE_S)
        (tmp_path / "kept").touch()
        return tmp_path / "0001"

    monkeypatch.setattr(server, "CLOSE_S", 0.3)
    monkeypatch.setattr(hub_module, "keep", keep)
    hub, at = a_hub(state=tmp_path, run_folder=tmp_path), bound("127.0.0.1", 0)
    for number in range(12):
        hub.memory.hear(a_decision(number, device=None))
    with serving(create_app(hub, Rules()), at):
        [row] = got(url_of(at) + "api/transmitters")["transmitters"]
        asked = json.dumps({"transmitter": row["id"], "name": "new"}).encode()
        headers = {**PAGE, "Content-Type": "application/json"}
        request = Request(url_of(at) + "api/enrol", asked, headers)

        def ask() -> None:
            with suppress(OSError, HTTPException):  # it is not answered
                urlopen(request, timeout=20).close()

        asking = threading.Thread(target=ask)
        asking.start()
        assert begun.wait(10)
    asking.join()
    assert (tmp_path / "kept").exists()
    assert [(one.action, one.asked["name"]) for one in Audit(tmp_path).newest(9)] == [("enrol", "new")]


def test_a_port_that_is_taken_is_named() -> None:
    at = bound("127.0.0.1", 0)
    with pytest.raises(ConfigError, match="another --port"):
        bound("127.0.0.1", at.getsockname()[1])
    at.close()


def test_who_could_be_reached_from_elsewhere_has_a_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    assert keys("127.0.0.1", False, None, None, 1, False) is None
    for host, needed, given in (("0.0.0.0", False, None), ("127.0.0.1", True, None), ("::1", False, file)):
        assert keys(host, needed, given, None, 1, False) is not None
    assert keys("127.0.0.1", False, None, file, 1, False) is not None


def test_only_a_terminal_is_given_a_link_that_opens_the_page() -> None:
    url, own = "http://192.0.2.7:8642/", Keys([Token(TOKEN)])
    assert link(url, None, True) == link(url, None, False) == url
    assert f"{url}?token={own.ticket} (this link is good once, within 10 minutes)" == link(url, own, True)
    kept = link(url, own, False)
    assert kept == f"{url} (log in there with the token)"


@contextmanager
def command(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`pisa serve` on a file that holds no frame, and the address that it prints."""
    (folder / "air.cf32").write_bytes(as_bytes(np.zeros((ANTENNAS, 50_000), dtype=np.complex64)))
    arguments = [f"file:{folder / 'air.cf32'}", "--run", str(folder / "run"), "--sample-rate", "20e6", "--port", "0"]
    program = [sys.executable, "-m", "pisa_capc", "serve", *arguments, "--follow", *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(program, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    try:
        said = ""
        while not (found := re.search(r"page: (\S+)", said)):
            line = process.stderr.readline()
            assert line, said
            said += line
        yield process, said[: found.end()]
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.mark.slow
def test_the_command_serves_a_page_until_it_is_told_to_end(trained: TrainedModel, tmp_path: Path) -> None:
    trained.save(tmp_path / "run")
    with command(tmp_path, "--state", str(tmp_path / "state")) as (process, said):
        url = said.split("page: ")[1]
        assert "token" not in said
        assert got(url + "api/about")["devices"] == list(trained.devices)
        assert got(url + "healthz") == {"said": "ok"}
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


@pytest.mark.parametrize(
    "option", [("--https",), ("--name", "radio.lan"), ("--proxy", "127.0.0.1")], ids=lambda o: o[0]
)
def test_what_says_that_a_proxy_is_in_front_makes_a_token_needed(
    option: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class AskedError(Exception):
        """Whether a token is needed has been asked."""

    def asked(host: str, needed: bool, *others: object) -> None:
        assert needed
        raise AskedError

    monkeypatch.setattr(command_module, "keys", asked)
    air = tmp_path / "air.cf32"
    air.write_bytes(b"")
    arguments = ["serve", f"file:{air}", "--run", str(tmp_path), "--sample-rate", "20e6", "--port", "0", *option]
    assert isinstance(CliRunner().invoke(app, arguments).exception, AskedError)


@pytest.mark.slow
def test_elsewhere_the_command_wants_a_token_and_leaves_no_link_in_a_log(trained: TrainedModel, tmp_path: Path) -> None:
    trained.save(tmp_path / "run")
    with command(tmp_path, "--host", "0.0.0.0") as (_, said):
        url = said.split("page: ")[1]
        [token] = re.findall(r"token: (\S+)", said)
        with pytest.raises(HTTPError, match="401"):
            got(url + "api/status")
        assert got(url + "api/status", Authorization=f"Bearer {token}")["source"]
        assert "?" not in url
