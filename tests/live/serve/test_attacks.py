"""What strangers do to the page over real connections; who has a token notices nothing of it."""

from __future__ import annotations

import json
import logging
import os
import re
import resource
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from math import inf
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import uvicorn
from websockets.sync.client import connect

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.live.serve import connections
from pisa_capc.live.serve.connections import Connection, LimitedSocket
from pisa_capc.live.serve.gate import Rules
from pisa_capc.live.serve.hub import Hub
from pisa_capc.live.serve.keys import Keys, Token
from pisa_capc.live.serve.server import Tls, bound, serving, url_of
from pisa_capc.model.inference import TrainedModel
from tests.live.listen.tools import wait_until
from tests.live.serve.fake import an_app
from tests.live.serve.test_gate import TOKEN
from tests.live.serve.test_server import command

VIEWER = TOKEN[::-1]
BEARER = {"Authorization": f"Bearer {TOKEN}"}
SLOW = b"GET /api/status HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@pytest.fixture(scope="module", autouse=True)
def enough_descriptors() -> Iterator[None]:
    """For the attackers, who are in this process too."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(before[1], 8192), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture(autouse=True)
def seconds_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the server does every second it does at each of its ticks, ten times as often."""
    own = uvicorn.Server.on_tick
    monkeypatch.setattr(uvicorn.Server, "on_tick", lambda server, tick: own(server, 10 * tick))


def locked(**changes: Any) -> Rules:
    return Rules(keys=Keys([Token(TOKEN)]), **changes)


@contextmanager
def service(hub: Hub | None = None, rules: Rules | None = None) -> Iterator[tuple[LimitedSocket, str]]:
    at = bound("127.0.0.1", 0)
    with serving(an_app(hub, rules or locked()), at):
        yield at, url_of(at)


@contextmanager
def connected(port: int, number: int, say: bytes = b"", sender: str = "127.0.0.1") -> Iterator[list[socket.socket]]:
    """From one address, or any of 127.0.0.0/8."""
    with ExitStack() as stack:
        found = []
        for _ in range(number):
            one = stack.enter_context(socket.socket())
            one.bind((sender, 0))
            one.connect(("127.0.0.1", port))
            if say:
                with suppress(OSError):  # it may be closed already
                    one.send(say)
            found.append(one)
        yield found


def still_open(found: list[socket.socket]) -> int:
    def ended(one: socket.socket) -> bool:
        try:
            return one.recv(4096, socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    return sum(not ended(one) for one in found)


def answer(url: str, path: str = "", timeout: float = 5, **headers: str) -> int:
    try:
        with urlopen(Request(url + path, headers=headers), timeout=timeout) as found:
            found.read()
            return int(found.status)
    except HTTPError as error:
        error.read()
        return error.code


def inside(at: LimitedSocket) -> list[int]:
    """Descriptors of the connections that the service holds."""
    return [one.socket.fileno() for one in list(at._inside.values()) if one.socket.fileno() >= 0]


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("say", [b"", SLOW, b"\x16\x03\x01"], ids=["silent", "slow header", "not HTTP"])
def test_many_connections_of_one_sender_leave_room_for_others_and_for_files(say: bytes) -> None:
    with service() as (at, url):
        before = descriptors()
        with connected(at.getsockname()[1], 1100, say) as found:
            wait_until(lambda: descriptors() - before - len(found) <= connections.CONNECTIONS + 4)
            assert answer(url, "healthz") == 200
            assert answer(url, "api/status", **BEARER) == 200
            wait_until(lambda: still_open(found) <= connections.CONNECTIONS)


def test_many_connections_of_many_senders_leave_room_for_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS", 64)
    with service() as (at, url), ExitStack() as stack:
        before = descriptors()
        found = []
        for k in range(10):
            found += stack.enter_context(connected(at.getsockname()[1], 20, SLOW, f"127.0.1.{k}"))
        wait_until(lambda: descriptors() - before - len(found) <= 64 + 4)
        for _ in range(5):
            assert answer(url, "healthz") == 200
            assert answer(url, "api/status", **BEARER) == 200


def test_where_there_is_room_nobody_is_closed_for_others_of_the_same_address() -> None:
    right = f"Authorization: Bearer {TOKEN}\r\n\r\n".encode()
    with (
        service() as (at, _),
        connected(at.getsockname()[1], 1) as [late],
        connected(at.getsockname()[1], 200) as found,
    ):
        wait_until(lambda: len(inside(at)) == 1 + len(found))
        late.send(SLOW + right)
        assert late.recv(4096).startswith(b"HTTP/1.1 200")
        assert still_open(found) == len(found)


def test_where_there_is_none_the_sender_with_the_most_gives_its_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS", 32)
    with service() as (at, url), ExitStack() as stack:
        port = at.getsockname()[1]
        few = stack.enter_context(connected(port, 8, sender="127.0.0.2"))
        many = stack.enter_context(connected(port, 24, sender="127.0.0.3"))
        new = stack.enter_context(connected(port, 4, sender="127.0.0.4"))
        wait_until(lambda: still_open(many) == 20)
        assert [still_open([one]) for one in many] == [0] * 4 + [1] * 20
        assert (still_open(few), still_open(new)) == (8, 4)
        assert answer(url, "healthz") == 200


def test_who_has_a_token_keeps_the_connection_whatever_others_do() -> None:
    with service() as (at, url):
        port = at.getsockname()[1]
        with connect(url.replace("http", "ws") + "api/events?kinds=status", additional_headers=BEARER) as socket_:
            for _ in range(3):
                with connected(port, 100, SLOW):
                    assert json.loads(socket_.recv(5))[0]["event"] == "status"


def test_where_all_have_a_token_a_new_one_has_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS", 2)
    monkeypatch.setattr(connections, "FEWEST", 1)
    with service() as (_, url):  # what operators wait for is not closed for their share, which is nothing here
        events = url.replace("http", "ws") + "api/events"
        with (
            connect(events, additional_headers=BEARER),
            connect(events, additional_headers=BEARER),
            pytest.raises(OSError, match=r"reset|closed"),
        ):
            answer(url, "healthz")
        wait_until(lambda: _is_answered(url))


def test_who_holds_the_token_of_a_viewer_keeps_no_operator_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS", 32)
    rules = Rules(keys=Keys([Token(TOKEN), Token(VIEWER, "viewer", operator=False)]))
    say = f"GET /api/names HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {VIEWER}\r\n\r\n".encode()
    with service(rules=rules) as (at, url), connected(at.getsockname()[1], 1) as [early]:
        with connected(at.getsockname()[1], 40, say) as found:
            wait_until(lambda: still_open(found) == 8)
            assert [still_open([one]) for one in found[-8:]] == [1] * 8, "the oldest are closed"
            early.send(SLOW + f"Authorization: Bearer {TOKEN}\r\n\r\n".encode())
            assert early.recv(4096).startswith(b"HTTP/1.1 200")
        with ExitStack() as stack:
            viewer = {"Authorization": f"Bearer {VIEWER}"}
            events = url.replace("http", "ws") + "api/events"
            for _ in range(12):
                stack.enter_context(connect(events, additional_headers=viewer, close_timeout=0.1))
            with connect(events, additional_headers=BEARER) as mine:
                assert json.loads(mine.recv(5))[0]["event"] == "status"
                wait_until(lambda: len(inside(at)) <= 10)


def test_where_all_places_are_of_those_with_a_token_who_asks_nothing_makes_room() -> None:
    here = [socket.socketpair() for _ in range(8)]
    places = [Connection(one, "127.0.0.1", time.monotonic() + 60) for one, _ in here]
    anna, ben, visitor = Token("a", "anna"), Token("b", "ben"), Token("v", "visitor", operator=False)
    for place, token, busy in zip(
        places,
        (anna, anna, ben, ben, ben, visitor, visitor, None),
        (True, False, False, False, True, True, True, False),
        strict=True,
    ):
        place.token, place.busy = token, busy
    order = []
    while connections._close_one([one for one in places if one.until > -inf]):
        order += [n for n, one in enumerate(places) if one.until == -inf and n not in order]
    assert order == [7, 2, 1, 3, 5, 6], "a stranger's, idle ones of who has most, viewers'; no busy operator's"
    for pair in here:
        for one in pair:
            one.close()


def _is_answered(url: str) -> bool:
    with suppress(OSError):
        return answer(url, "healthz") == 200
    return False


@pytest.mark.parametrize("say", [b"", SLOW, b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" + SLOW])
def test_who_says_nothing_or_drips_a_header_is_closed_in_time(say: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "IDLE_S", 0.5)
    with service() as (at, _), connected(at.getsockname()[1], 5, say) as found:
        began = time.monotonic()
        while still_open(found):
            assert time.monotonic() - began < 5
            for one in found:
                with suppress(OSError):
                    one.send(b"x: y\r\n" if say else b"")
            time.sleep(0.1)
        assert time.monotonic() - began > 0.4


def test_who_does_not_read_an_answer_is_closed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "IDLE_S", 0.5)
    monkeypatch.setattr(connections, "ANSWER_S", 0.5)
    many = b"GET /static/style.css HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 150
    with service() as (at, _), socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.connect(("127.0.0.1", at.getsockname()[1]))
        one.send(many)
        wait_until(lambda: len(inside(at)) == 1)
        wait_until(lambda: len(inside(at)) == 0, 5)


def test_an_hour_of_wrong_requests_is_few_lines_of_log(capfd: pytest.CaptureFixture[str]) -> None:
    with service() as (at, url):
        for _ in range(10):
            with connected(at.getsockname()[1], 30, b"nonsense\r\n\r\n") as found:
                wait_until(lambda found=found: still_open(found) == 0)  # type: ignore[misc]
        upgrade = {"Upgrade": "nonsense", "Connection": "Upgrade"}
        assert {answer(url, "healthz", **upgrade) for _ in range(50)} == {200}
    said = capfd.readouterr().err
    assert said.count("Invalid HTTP request") == connections.LINES
    assert len(said) < 5000


def test_lines_that_are_left_out_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(connections.time, "monotonic", lambda: now[0])
    few, one = connections.FewLines(), logging.LogRecord("x", logging.ERROR, "file.py", 7, "%s failed", ("it",), None)
    other = logging.LogRecord("x", logging.ERROR, "file.py", 8, "another", (), None)
    assert [few.filter(one) for _ in range(30)] == [True] * connections.LINES + [False] * (30 - connections.LINES)
    assert few.filter(other)
    now[0] = connections.LINES_S + 1
    assert few.filter(one)
    assert one.getMessage() == f"it failed ({30 - connections.LINES} lines like this were left out)"


def test_a_process_that_has_too_few_descriptors_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (connections.FILES + 40, 4096))
    with pytest.raises(ConfigError, match="LimitNOFILE"):
        connections.room()


def test_wrong_tokens_cost_no_other_sender_and_no_right_one() -> None:
    with service() as (at, url):

        def status(sender: str, token: str) -> bytes:
            asked = f"Authorization: Bearer {token}\r\nConnection: close\r\n\r\n".encode()
            with connected(at.getsockname()[1], 1, SLOW + asked, sender) as [one]:
                return one.recv(4096).split(b" ")[1]

        assert [status("127.0.0.2", "guess") for _ in range(11)] == [b"401"] * 10 + [b"429"]
        assert status("127.0.0.2", TOKEN) == b"200"
        assert status("127.0.0.3", "guess") == b"401"
        assert answer(url, "api/status", **BEARER) == 200


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    folder = tmp_path_factory.mktemp("tls")
    made = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(folder / "key"), "-out", str(folder / "crt")]
    try:
        subprocess.run([*made.split(), *names], check=True, capture_output=True)
    except OSError:
        pytest.skip("no openssl")
    return Tls(folder / "crt", folder / "key")


def test_the_page_and_its_events_over_tls(tls: Tls, monkeypatch: pytest.MonkeyPatch) -> None:
    context = ssl.create_default_context(cafile=str(tls.certificate))
    at = bound("127.0.0.1", 0)
    url, port = url_of(at, tls), at.getsockname()[1]
    with serving(an_app(rules=locked()), at, tls):
        with urlopen(Request(url + "api/status", headers=BEARER), context=context) as found:
            assert found.status == 200
        with connect(url.replace("https", "wss") + "api/events", ssl=context, additional_headers=BEARER) as events:
            assert json.loads(events.recv(5))[0]["event"] == "status"
        monkeypatch.setattr(connections, "IDLE_S", 0.5)
        with connected(port, 5) as silent, connected(port, 5, SLOW) as plain:
            wait_until(lambda: still_open(silent + plain) == 0)


def test_a_certificate_without_its_key_is_named(tls: Tls, tmp_path: Path) -> None:
    assert tls.key is not None
    (tmp_path / "other").write_text("no key")
    for certificate, key in (
        (tls.certificate, None),
        (tls.key, tls.certificate),
        (tls.certificate, tmp_path / "other"),
    ):
        with pytest.raises(DataError, match="--key"):
            Tls(certificate, key)
    with pytest.raises(DataError, match="cannot be read"):
        Tls(tmp_path / "nothing")
    secret = tmp_path / "secret"
    subprocess.run(
        ["openssl", "pkey", "-in", str(tls.key), "-aes256", "-passout", "pass:x", "-out", str(secret)], check=True
    )
    with pytest.raises(DataError, match="no password"):
        Tls(tls.certificate, secret)


@pytest.mark.slow
def test_who_connects_without_end_from_the_same_address_keeps_nobody_out() -> None:
    with service() as (at, url):
        over = threading.Event()

        def connect_without_end() -> None:
            while not over.is_set():
                with suppress(OSError), connected(at.getsockname()[1], 40):
                    pass

        senders = [threading.Thread(target=connect_without_end) for _ in range(2)]
        for sender in senders:
            sender.start()
        under_attack(url, 5, lambda: None)
        over.set()
        for sender in senders:
            sender.join()


def under_attack(url: str, seconds: float, step: Callable[[], None]) -> list[float]:
    """Seconds that /healthz and the right token took to be answered, while `step` goes on."""
    took, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        step()
        for path, headers in (("healthz", dict[str, str]()), ("api/status", BEARER)):
            began = time.monotonic()
            assert answer(url, path, 10, **headers) == 200
            took.append(time.monotonic() - began)
        time.sleep(0.2)
    return took


def drip(found: list[socket.socket]) -> None:
    for one in found:
        with suppress(OSError):
            one.send(b"x: y\r\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "say"), [(1100, b""), (1100, SLOW), (127, SLOW)], ids=["silent", "slow", "127 slow"]
)
def test_the_command_goes_on_under_attack_and_says_little(
    trained: TrainedModel, tmp_path: Path, number: int, say: bytes
) -> None:
    trained.save(tmp_path / "run")
    token, state = tmp_path / "token", tmp_path / "state"
    token.write_text(TOKEN)
    token.chmod(0o600)
    options = ("--token-file", str(token), "--state", str(state), "--save-every", "1")
    with command(tmp_path, *options) as (process, said):
        url = re.sub(r"\?.*", "", said.split("page: ")[1])
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (1024, 1024))
        port = int(url.rsplit(":", 1)[1].strip("/"))
        wait_until(lambda: (state / "listen.json").exists())
        with connected(port, number, say) as found:
            saved = (state / "listen.json").stat().st_mtime_ns
            assert max(under_attack(url, 20, lambda: drip(found) if say else None)) < 2
            assert len(os.listdir(f"/proc/{process.pid}/fd")) < 512
            assert (state / "listen.json").stat().st_mtime_ns > saved
        process.terminate()
        assert process.stderr is not None
        assert len(process.stderr.read()) < 20_000
        assert process.wait(30) == 0
