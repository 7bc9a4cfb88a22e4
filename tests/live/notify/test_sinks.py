"""What a sink sends, and what it says of servers that refuse, vanish or are none."""

from __future__ import annotations

import json
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from pisa_capc.core.errors import ConfigError, DataError, MissingExtraError
from pisa_capc.live.notify import Notifier, base, open_sink, plain
from pisa_capc.live.notify.base import shown, urls_of
from pisa_capc.live.notify.mqtt import topic_part
from tests.live.listen.tools import wait_until
from tests.live.notify.broker import Broker
from tests.live.serve.fake import DEVICES, an_alarm


class Posted(BaseHTTPRequestHandler):
    got: list[tuple[dict[str, str], bytes]]
    answer = 200

    def do_POST(self) -> None:
        type(self).got.append((dict(self.headers), self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(type(self).answer)
        if type(self).answer == 302:
            self.send_header("Location", "http://127.0.0.1:9/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def web() -> Iterator[tuple[str, type[Posted]]]:
    handler = type("Handler", (Posted,), {"got": []})
    server = HTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"127.0.0.1:{server.server_port}/hook?key=k", handler
    server.shutdown()
    server.server_close()


def test_a_webhook_gets_the_alarm_as_json(web: tuple[str, type[Posted]]) -> None:
    place, handler = web
    open_sink(f"http://me:p%40ss@{place}").send(an_alarm(3))
    [(headers, body)] = handler.got
    assert json.loads(body) == an_alarm(3, at=json.loads(body)["at"]).to_json()
    assert headers["Authorization"] == "Basic bWU6cEBzcw=="
    assert headers["Content-Type"] == "application/json"


@pytest.mark.parametrize(("answer", "said"), [(500, "500"), (403, "403"), (302, "302")])
def test_a_webhook_that_refuses_or_leads_elsewhere_has_not_delivered(
    web: tuple[str, type[Posted]], answer: int, said: str
) -> None:
    place, handler = web
    handler.answer = answer
    with pytest.raises(DataError, match=said):
        open_sink(f"http://{place}").send(an_alarm())
    assert len(handler.got) == 1


def test_a_webhook_without_a_server_has_not_delivered() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(DataError, match="refused"):
            open_sink(f"http://127.0.0.1:{taken.getsockname()[1]}/").send(an_alarm())


def test_a_command_gets_the_alarm_on_its_standard_input_and_no_shell_sees_it(tmp_path: Path) -> None:
    out, script = tmp_path / "it's $(touch bad); here", tmp_path / "keep.py"
    script.write_text("import pathlib, sys\npathlib.Path(sys.argv[1]).write_text(sys.stdin.read())\n")
    open_sink(f"exec:{sys.executable} {script} '{str(out).replace(chr(39), chr(39) + chr(92) + chr(39) * 2)}'").send(
        an_alarm(text="`reboot`; $(reboot)")
    )
    assert json.loads(out.read_text())["text"] == "`reboot`; $(reboot)"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_command_that_fails_or_hangs_has_not_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="exit code 3"):
        open_sink(f"exec:{sys.executable} -c 'raise SystemExit(3)'").send(an_alarm())
    monkeypatch.setattr(plain, "TIMEOUT_S", 0.3)
    began = time.monotonic()
    with pytest.raises(DataError, match=r"did not end within 0\.3 s"):
        open_sink("exec:sh -c 'sleep 60 & sleep 60'").send(an_alarm())
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("exec:", "no such command"),
        ("exec:no-such-program-here", "no such command"),
        ("exec:echo 'open", "Quote words as a shell does"),
        ("mqtt:", "has no host"),
        ("mqtt://broker:port", "is no URL"),
        ("https://", "has no host"),
        ("nothing", "exec:COMMAND"),
    ],
)
def test_a_url_that_is_none_is_refused_at_once(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        open_sink(url)


def test_other_urls_need_apprise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'pisa-capc\[notify\]'"):
        open_sink("mailto://me:secret@example.org")


def test_apprise_gets_a_title_and_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = list[tuple[str, str, str]]()

    class Apprise:
        works = True

        def add(self, url: str) -> bool:
            return url.startswith("slack:")

        def notify(self, body: str, title: str, kind: str, body_format: str) -> bool:
            assert body_format == "text"
            sent.append((title, body, kind))
            return self.works

    fake = ModuleType("apprise")
    fake.Apprise = Apprise  # type: ignore[attr-defined]
    fake.NotifyType = SimpleNamespace(WARNING="warning", SUCCESS="success", INFO="info")  # type: ignore[attr-defined]
    fake.NotifyFormat = SimpleNamespace(TEXT="text")  # type: ignore[attr-defined]
    fake.__spec__ = SimpleNamespace()  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "apprise", fake)
    sink = open_sink("slack://token")
    sink.send(an_alarm(text="text"))
    sink.send(an_alarm(text="text", state="resolved"))
    assert sent == [
        ("pisa: not its address (open)", "text", "warning"),
        ("pisa: not its address (resolved)", "text", "success"),
    ]
    Apprise.works = False
    with pytest.raises(DataError, match="could not deliver"):
        sink.send(an_alarm())
    with pytest.raises(ConfigError, match="Apprise does not take this URL"):
        open_sink("odd://x")


def test_mqtt_publishes_under_topics_like_those_of_rtl_433() -> None:
    broker, notes = Broker(user="me:p@ss"), list[str]()
    notifier = Notifier([open_sink(f"mqtt://me:p%40ss@127.0.0.1:{broker.port}/pisa/roof")], notes.append)
    notifier.hear(an_alarm(1))
    notifier.hear(an_alarm(2, kind="unknown device", device=None))
    wait_until(lambda: notifier.deliveries[0].delivered == 2)
    notifier.close()
    wait_until(lambda: broker.ended_well)
    topics = [(topic, kept) for topic, _, kept in broker.messages]
    device = f"pisa/roof/devices/{topic_part(DEVICES[0])}/not-its-address"
    assert topics == [
        ("pisa/roof/availability", True),
        ("pisa/roof/events", False),
        (device, True),
        ("pisa/roof/events", False),
        ("pisa/roof/availability", True),
    ]
    assert json.loads(broker.messages[2][1])["number"] == 1
    assert (broker.messages[0][1], broker.messages[-1][1]) == (b"online", b"offline")
    assert broker.will == ("pisa/roof/availability", b"offline")
    assert not notes


def test_a_wrong_password_is_said_and_not_shown() -> None:
    broker, notes = Broker(user="me:right"), list[str]()
    notifier = Notifier([open_sink(f"mqtt://me:wrong@127.0.0.1:{broker.port}")], notes.append)
    wait_until(lambda: bool(notes))
    assert "wrong user name or password" in notes[0]
    assert not re.search("me:|wrong@", notes[0])
    notifier.close()


def test_a_broker_that_closes_connections_gets_every_alarm() -> None:
    broker = Broker(drop_after=3)
    sink = open_sink(f"mqtt://127.0.0.1:{broker.port}")
    for number in range(6):
        sink.send(an_alarm(number))
    got = {json.loads(content)["number"] for topic, content, _ in broker.messages if topic.endswith("/events")}
    assert got == set(range(6))
    assert broker.connections > 1


def test_what_is_no_broker_is_told_from_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(DataError, match="no MQTT broker"):
            open_sink(f"mqtt://127.0.0.1:{server.getsockname()[1]}").send(an_alarm())


def test_a_connection_is_kept_alive() -> None:
    broker = Broker()
    sink = open_sink(f"mqtt://127.0.0.1:{broker.port}")
    for _ in range(3):
        sink.idle()
    assert (broker.pings, broker.connections) == (3, 1)
    sink.close()


def test_names_in_topics_mean_nothing_to_mqtt() -> None:
    assert topic_part("a/b+c#d\x00") == "a_b_c_d_"
    assert topic_part("") == "_"
    assert len(topic_part("x" * 1000)) == 128


def test_urls_of_a_file_keep_passwords_off_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "urls"
    path.write_text("# to whom\nmqtt://me:secret@broker\n\nexec:true\n")
    assert urls_of([f"@{path}", "https://x"]) == ["mqtt://me:secret@broker", "exec:true", "https://x"]
    with pytest.raises(ConfigError, match="a URL per line"):
        urls_of(["@/no/such/file"])
    path.write_bytes(b"x" * 70000)
    with pytest.raises(ConfigError, match="more than"):
        urls_of([f"@{path}"])


@pytest.mark.parametrize(
    "url", ["mqtt://me:secret@h/p", "https://h/secret?secret", "slack://secret/secret", "exec:x secret"]
)
def test_a_name_shows_no_secret(url: str) -> None:
    assert "secret" not in shown(url)
