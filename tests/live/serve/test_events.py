"""Events to whoever wants them, and nobody waits for who is slow."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from starlette.websockets import WebSocketDisconnect, WebSocketState

from pisa_capc.core.errors import DataError
from pisa_capc.data.store.seal import sealed
from pisa_capc.live.serve import clients as module
from pisa_capc.live.serve import keepsakes
from pisa_capc.live.serve.clients import Clients
from pisa_capc.live.serve.gate import Rules
from pisa_capc.live.serve.keepsakes import Keepsakes
from pisa_capc.live.serve.keys import Keys, Token
from pisa_capc.live.serve.memory import Memory
from tests.live.serve.fake import a_decision, a_hub, an_alarm
from tests.live.serve.tools import EVENTS, HERE, PAGE, a_client

HOST = {"host": HERE}


def test_events_come_as_they_are_heard() -> None:
    hub = a_hub()
    with a_client(hub) as client, client.websocket_connect(EVENTS, headers=HOST) as socket:
        assert socket.receive_json()[0]["event"] == "status"
        hub.memory.hear(a_decision(3))
        hub.memory.hear(an_alarm(1))
        found: list[dict[str, Any]] = []
        while not {"decision", "alarm", "transmitters"} <= {event["event"] for event in found}:
            found += socket.receive_json()
        assert next(event for event in found if event["event"] == "decision")["number"] == 3
        assert next(event for event in found if event["event"] == "alarm")["state"] == "open"


def test_what_was_heard_is_remembered_by_one_thread_whoever_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, take = set[int](), Memory.take
    monkeypatch.setattr(Memory, "take", lambda memory: threads.add(threading.get_ident()) or take(memory))
    with a_client(a_hub()) as client:
        for path in ("/api/status", "/api/about", "/healthz", "/metrics", "/api/transmitters"):
            assert client.get(path).status_code == 200
    assert len(threads) == 1


def test_only_what_is_asked_for_is_sent() -> None:
    hub = a_hub()
    with a_client(hub) as client, client.websocket_connect(f"{EVENTS}?kinds=alarm,nonsense", headers=HOST) as socket:
        assert socket.receive_json() == []
        hub.memory.hear(a_decision(3))
        hub.memory.hear(an_alarm(1))
        assert [event["event"] for event in socket.receive_json()] == ["alarm"]


def test_who_says_something_is_sent_away_in_words() -> None:
    with a_client() as client, client.websocket_connect(f"{EVENTS}?kinds=alarm", headers=HOST) as socket:
        socket.receive_json()
        socket.send_text("hello")
        with pytest.raises(WebSocketDisconnect) as gone:
            socket.receive_json()
        assert "nothing is expected" in gone.value.reason


class Slow:
    """A websocket whose other side reads nothing."""

    application_state = client_state = WebSocketState.CONNECTED

    def __init__(self) -> None:
        self.closed: tuple[int, str] | None = None

    async def accept(self) -> None: ...

    async def send_text(self, text: str) -> None:
        await asyncio.sleep(60)

    async def receive_text(self) -> str:
        await asyncio.sleep(60)
        return ""

    async def close(self, code: int, reason: str) -> None:
        self.closed = code, reason


def test_who_does_not_read_is_dropped_in_words_and_nobody_waits() -> None:
    async def tell() -> tuple[Slow, Clients, float]:
        clients, slow = Clients(), Slow()
        task = asyncio.create_task(clients.serve(slow, frozenset({"alarm"}), [], Token("")))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        began = time.perf_counter()
        for n in range(1000):
            clients.tell([{"event": "alarm", "number": n}])
        took = time.perf_counter() - began
        await asyncio.wait_for(task, 5)
        return slow, clients, took

    slow, clients, took = asyncio.run(tell())
    assert slow.closed is not None
    assert "too slow" in slow.closed[1]
    assert len(clients) == 0
    assert clients.dropped == 1
    assert took < 1.0


def test_there_are_never_too_many_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 2)
    with a_client() as client:
        sockets = [client.websocket_connect(EVENTS, headers=HOST) for _ in range(3)]
        with sockets[0] as first, sockets[1] as second, sockets[2] as third:
            assert first.receive_json()
            assert second.receive_json()
            with pytest.raises(WebSocketDisconnect) as gone:
                third.receive_json()
            assert "come back later" in gone.value.reason


def served(holders: str, monkeypatch: pytest.MonkeyPatch, most: int = 6) -> str:
    """Who is served in the end of those that come one after another; upper case are operators."""
    monkeypatch.setattr(module, "MOST", most)

    async def come() -> str:
        clients, tasks = Clients(), []
        for holder in holders:
            token = Token(holder, holder, operator=holder.isupper())
            tasks.append(asyncio.create_task(clients.serve(Slow(), frozenset({"alarm"}), [], token)))  # type: ignore[arg-type]
            await asyncio.sleep(0.001)
        found = "".join(client.token.holder for client in clients._all)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return found

    return asyncio.run(come())


@pytest.mark.parametrize(
    ("come", "stay"),
    [
        ("aaaaaaA", "aaaaaA"),  # an operator is not refused for a viewer
        ("abbbbbA", "abbbbA"),  # whoever of them has the most makes room
        ("AAAAAAa", "AAAAAA"),  # nor displaced by one
        ("AAAAAAB", "AAAAAB"),
        ("aaaaaab", "aaaaab"),  # one holder leaves room for another
        ("aaaaaaa", "aaaaaa"),
        ("aaaabbbb", "aaabbb"),
        ("aaabbba", "aaabbb"),  # and nobody takes turns
    ],
)
def test_nobody_who_has_a_token_takes_all_places(come: str, stay: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert served(come, monkeypatch) == stay


def test_who_makes_room_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 2)
    keys = Keys([Token("a" * 20), Token("b" * 20, "viewer", operator=False)])
    as_operator, as_viewer = ({**HOST, "authorization": f"Bearer {letter * 20}"} for letter in "ab")
    with a_client(rules=Rules(keys=keys)) as client:
        sockets = [client.websocket_connect(EVENTS, headers=one) for one in (as_viewer, as_viewer, as_operator)]
        with sockets[0] as first, sockets[1] as second, sockets[2] as third:
            assert third.receive_json()
            assert second.receive_json()
            with pytest.raises(WebSocketDisconnect) as gone:
                list(iter(first.receive_json, None))
            assert gone.value.code == module.FULL
            assert "come back later" in gone.value.reason


def test_hearing_takes_no_longer_with_clients_that_do_not_read() -> None:
    hub = a_hub()
    with a_client(hub) as client, client.websocket_connect(EVENTS, headers=HOST):
        decisions = [a_decision(n) for n in range(5000)]
        began = time.perf_counter()
        for decision in decisions:
            hub.memory.hear(decision)
        assert time.perf_counter() - began < 2.0  # 0.4 ms each would be far too much


def test_names_and_alarms_outlive_the_service(tmp_path: Path) -> None:
    hub = a_hub(state=tmp_path)
    with a_client(hub) as client:
        hub.memory.hear(an_alarm(4, text="look"))
        hub.memory.hear(a_decision(0))
        client.put("/api/names", headers=PAGE, json={"kind": "device", "key": "door-7", "name": "Cellar"})
        client.post("/api/alarms/4/acknowledge", headers=PAGE)
    with a_client(a_hub(state=tmp_path)) as client:
        assert client.get("/api/names").json()["device"] == {"door-7": "Cellar"}
        [alarm] = client.get("/api/alarms").json()
        assert (alarm["number"], alarm["text"], alarm["state"], alarm["by"]) == (4, "look", "acknowledged", "operator")
        assert 'pisa_alarms_total{kind="not its address"} 0' in client.get("/metrics").text, "those of this service"


def test_what_a_full_disk_did_not_take_is_written_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str) -> None:
        raise DataError(f"{path}: cannot be written (No space left on device).")

    notes = list[str]()
    hub = a_hub(state=tmp_path, note=notes.append)
    hub.keepsakes.name("device", "D01", "kettle")
    hub.changed = True
    with monkeypatch.context() as patch:
        patch.setattr("pisa_capc.live.serve.keepsakes.write_text_atomic", full)
        for _ in range(3):
            asyncio.run(hub.save())
    assert len(notes) == 1
    assert "page.json: cannot be written (No space" in notes[0]
    asyncio.run(hub.save())
    assert notes[1:] == [f"{tmp_path}: is written again."]
    assert a_hub(state=tmp_path).keepsakes.names["device"] == {"D01": "kettle"}


def test_a_state_of_the_version_before_is_read(tmp_path: Path) -> None:
    old = an_alarm(4).to_json()
    for name in ("state", "times", "updated_at", "by"):
        del old[name]
    content = {"schema": 1, "names": {"device": {}, "address": {}}, "alarms": [old, {**old, "number": 5}], "seen": [4]}
    (tmp_path / keepsakes.FILE).write_text(json.dumps(sealed(content)))
    states = {alarm.number: alarm.state for alarm in a_hub(state=tmp_path).memory.alarms.values()}
    assert states == {4: "acknowledged", 5: "open"}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"schema": 2}',
        '{"schema": 1, "names": {}, "alarms": [], "seen": []}',
        "[" * 100_000,
        '{"schema": 1, "names": {"device": {"a": "\\u0007"}, "address": {}}, "alarms": [], "seen": []}',
        '{"schema": 1, "names": {"device": {}, "address": {}}, "alarms": [{"kind": "x"}], "seen": []}',
    ],
)
def test_a_damaged_state_is_named(tmp_path: Path, content: str) -> None:
    whole = json.dumps(sealed(json.loads(content))) if content.startswith("{") else content
    (tmp_path / keepsakes.FILE).write_text(whole)
    with pytest.raises((DataError, keepsakes.ConfigError)) as error:
        a_hub(state=tmp_path)
    assert keepsakes.FILE in str(error.value) or "name" in str(error.value)


def test_there_are_never_too_many_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keepsakes, "MOST_NAMES", 2)
    own = Keepsakes()
    own.name("device", "a", "A")
    own.name("address", "b", "B")
    with pytest.raises(keepsakes.ConfigError, match="names already"):
        own.name("device", "c", "C")
    own.name("device", "a", "other")
    assert json.loads(json.dumps(own.to_json([])))["names"] == {"device": {"a": "other"}, "address": {"b": "B"}}
