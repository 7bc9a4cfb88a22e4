"""Who is answered."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from starlette.websockets import WebSocketDisconnect

from pisa_capc.errors import ConfigError, DataError
from pisa_capc.serve import gate
from pisa_capc.serve.gate import Rules
from pisa_capc.serve.keys import Keys, is_local, read_token
from pisa_capc.serve.limits import CLIENTS, Buckets
from tests.serve.tools import EVENTS, HERE, PAGE, a_client, asked

TOKEN = "a-token-that-nobody-guesses-0123"
DATA = (
    "/api/status",
    "/api/about",
    "/api/transmitters",
    "/api/alarms",
    "/metrics",
    "/api/openapi.json",
    "/api/frames/1",
    "/nothing",
)


def locked(**changes: object) -> Rules:
    return Rules(keys=Keys(TOKEN, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8642", "localhost:8642", "LOCALHOST", "[::1]:8642", "192.168.1.7:8642", "radio.lan", "Radio.lan.:80"],
)
def test_the_service_answers_to_addresses_and_its_own_names(host: str) -> None:
    assert a_client(rules=Rules(frozenset({"radio.lan"}))).get("/api/status", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example:8642",
        "",
        "a@127.0.0.1",
        "127.0.0.1/x",
        "[::1",
        "127.0.0.1:99999999",
        "radio.lan.evil",
        "127.0.0.1:8642, evil.example",
    ],
)
def test_a_name_of_somebody_else_that_leads_here_is_refused(host: str) -> None:
    client = a_client(rules=Rules(frozenset({"radio.lan"})))
    for path in ("/", "/api/status", "/healthz"):
        assert client.get(path, headers={"host": host}).status_code == 421
    with pytest.raises(WebSocketDisconnect), client.websocket_connect(EVENTS, headers={"host": host}):
        pass


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "http://127.0.0.1:9999",
        "null",
        "http://127.0.0.1:8642.evil.example",
        f"ftp://{HERE}",
        HERE,
        "",
    ],
)
def test_pages_of_others_are_not_answered(origin: str) -> None:
    client, headers = a_client(), {**PAGE, "origin": origin}
    assert client.get("/api/status", headers=headers).status_code == 403
    assert client.post("/api/alarms/acknowledge", headers=headers).status_code == 403
    with pytest.raises(WebSocketDisconnect), client.websocket_connect(EVENTS, headers={"host": HERE, "origin": origin}):
        pass


def test_the_own_page_is_answered_and_no_other_site_is_ever_told_that_it_may_read() -> None:
    client = a_client()
    for scheme in ("http", "https"):
        answer = client.post(
            "/api/alarms/acknowledge", headers={**PAGE, "origin": f"{scheme}://{HERE}"}, json={"numbers": []}
        )
        assert answer.status_code == 200
        assert "access-control-allow-origin" not in answer.headers
    assert (
        client.options(
            "/api/names", headers={"origin": "http://evil.example", "access-control-request-method": "PUT"}
        ).status_code
        == 403
    )
    with client.websocket_connect(EVENTS, headers={"host": HERE, "origin": f"http://{HERE}"}) as socket:
        assert socket.receive_json()[0]["event"] == "status"


def test_whatever_changes_something_needs_the_header_that_pages_of_others_cannot_send() -> None:
    client = a_client()
    for method, path in (
        ("POST", "/api/alarms/acknowledge"),
        ("PUT", "/api/names"),
        ("POST", "/api/login"),
        ("DELETE", "/api/names"),
    ):
        assert client.request(method, path).status_code == 403
    form = client.put(
        "/api/names",
        headers={**PAGE, "content-type": "text/plain"},
        content=b'{"kind": "device", "key": "x", "name": "y"}',
    )
    assert form.status_code in (404, 422)


def test_with_a_token_nothing_is_told_without_it() -> None:
    client = a_client(rules=locked())
    for path in DATA:
        assert client.get(path).status_code == 401
    assert client.put("/api/names", headers=PAGE, json={}).status_code == 401
    for path in ("/", "/static/main.js", "/healthz"):
        assert client.get(path).status_code == 200
    with pytest.raises(WebSocketDisconnect), client.websocket_connect(EVENTS, headers={"host": HERE}):
        pass


def test_the_token_opens_the_api_and_the_events() -> None:
    client = a_client(rules=locked())
    header = {"authorization": f"Bearer {TOKEN}"}
    assert client.get("/api/status", headers=header).status_code == 200
    with client.websocket_connect(EVENTS, headers={"host": HERE, **header}) as socket:
        assert socket.receive_json()[0]["event"] == "status"


@pytest.mark.parametrize(
    "given", ["Bearer", "Bearer ", f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN[:-1]}", "Bearer \xff"]
)
def test_what_is_not_the_token_opens_nothing(given: str) -> None:
    assert (
        a_client(rules=locked()).get("/api/status", headers={"authorization": given.encode("latin-1")}).status_code
        == 401
    )


def test_a_link_gives_a_cookie_once_and_leaves_the_address_bar() -> None:
    rules = locked(cookie="pisa-8642")
    assert rules.keys is not None
    link, client = f"/?token={rules.keys.ticket}", a_client(rules=rules)
    first = client.get(link)
    assert (first.status_code, first.headers["location"]) == (303, "/")
    cookie = first.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert "Secure" not in cookie
    assert TOKEN not in cookie
    assert client.get("/api/status").status_code == 200
    other = a_client(rules=rules)
    assert "set-cookie" not in other.get(link).headers
    assert other.get("/api/status").status_code == 401


def test_the_token_itself_is_no_ticket_and_guesses_do_not_spend_it() -> None:
    rules = locked()
    assert rules.keys is not None
    client = a_client(rules=rules)
    assert "set-cookie" not in client.get(f"/?token={TOKEN}").headers
    assert "set-cookie" in client.get(f"/?token={rules.keys.ticket}").headers


def test_the_token_can_be_typed_and_the_cookie_opens_the_events() -> None:
    client = a_client(rules=locked(secure=False))
    assert client.post("/api/login", headers=PAGE, json={"token": "wrong"}).status_code == 401
    assert client.post("/api/login", headers=PAGE, json={"token": TOKEN}).status_code == 200
    assert client.get("/api/status").status_code == 200
    cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
    with client.websocket_connect(EVENTS, headers={"host": HERE, "cookie": cookie}) as socket:
        assert socket.receive_json()[0]["event"] == "status"


@pytest.mark.parametrize("cookie", ["pisa=", "pisa=x", f"pisa={TOKEN}", "other=1", "=;;=", "pisa=\x01"])
def test_what_is_not_the_cookie_opens_nothing(cookie: str) -> None:
    assert a_client(rules=locked()).get("/api/status", headers={"cookie": cookie}).status_code == 401


def test_the_cookie_outlives_a_restart_with_the_same_token_and_no_other() -> None:
    cookie = Keys(TOKEN).set_cookie().split(";")[0]
    assert Keys(TOKEN).allow(None, cookie)
    assert not Keys(TOKEN + "x").allow(None, cookie)
    assert "Secure" in Keys(TOKEN, secure=True).set_cookie()


def test_who_guesses_tokens_has_to_wait() -> None:
    client = a_client(rules=locked())
    answers = [client.get("/api/status", headers={"authorization": f"Bearer guess {n}"}).status_code for n in range(15)]
    assert answers[0] == 401
    assert answers[-1] == 429
    assert client.post("/api/login", headers=PAGE, json={"token": TOKEN}).status_code == 429


def test_who_asks_too_much_has_to_wait() -> None:
    client = a_client(rules=Rules(requests=Buckets(rate=0.0, burst=5.0)))
    answers = [client.get("/api/status") for _ in range(7)]
    assert [answer.status_code for answer in answers] == [200] * 5 + [429] * 2
    assert answers[-1].headers["retry-after"]


def test_buckets_fill_again_and_remember_few_clients() -> None:
    buckets = Buckets(rate=2.0, burst=4.0)
    assert [buckets.take("a", now=0.0) for _ in range(5)] == [True] * 4 + [False]
    assert buckets.take("b", now=0.0)
    assert [buckets.take("a", now=1.0) for _ in range(3)] == [True, True, False]
    assert buckets.empty("a", now=1.0)
    assert not buckets.empty("a", now=2.0)
    for n in range(2 * CLIENTS):
        buckets.take(str(n), now=2.0)
    assert len(buckets._left) == CLIENTS


def test_long_bodies_are_refused_whatever_they_say_of_their_length() -> None:
    client = a_client()
    assert client.put("/api/names", headers=PAGE, content=b"x" * 5000).status_code == 413
    assert client.put("/api/names", headers={**PAGE, "content-length": "9" * 30}, content=b"x").status_code == 413
    assert client.put("/api/names", headers=PAGE, content=iter([b"x" * 3000] * 3)).status_code == 413


def test_a_body_that_does_not_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "BODY_S", 0.05)

    async def nothing() -> dict[str, object]:
        await asyncio.sleep(5)
        return {}

    headers = {"x_pisa": "1", "content_type": "application/json", "content_length": "9"}
    assert asked("/api/names", "PUT", nothing, **headers)[0] == 408


@pytest.mark.parametrize("path", ["/", "/static/main.js", "/api/status", "/nothing", "/api/frames/x"])
def test_every_answer_has_a_policy_without_inline_script(path: str) -> None:
    headers = a_client().get(path).headers
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == "'self'"
    assert policy["style-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert ("no-store" in headers["cache-control"]) == path.startswith("/api") or path == "/nothing"


def test_refusals_have_the_policy_too() -> None:
    for answer in (a_client().get("/", headers={"host": "evil.example"}), a_client(rules=locked()).get("/api/status")):
        assert "content-security-policy" in answer.headers
        assert answer.json()["detail"]


def test_a_token_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    file.chmod(0o600)
    assert read_token(file) == TOKEN
    file.chmod(0o640)
    with pytest.raises(DataError, match="chmod 600"):
        read_token(file)
    file.chmod(0o600)
    for short in ("", "short", "with spaces in it, which no header has", "ü" * 40):
        file.write_text(short)
        with pytest.raises(DataError, match="at least 24"):
            read_token(file)
    with pytest.raises(DataError, match="cannot be read"):
        read_token(tmp_path / "nothing")


def test_only_this_machine_is_local() -> None:
    assert all(map(is_local, ("127.0.0.1", "127.8.8.8", "::1", "localhost")))
    assert not any(map(is_local, ("0.0.0.0", "::", "192.168.1.2", "169.254.1.1")))
    with pytest.raises(ConfigError, match="IP address"):
        is_local("radio.lan")
