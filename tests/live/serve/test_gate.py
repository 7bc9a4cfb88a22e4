"""Who is answered."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from types import SimpleNamespace

import pytest
from starlette.datastructures import Headers
from starlette.websockets import WebSocketDisconnect

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.live.serve import gate, keys
from pisa_capc.live.serve.connections import CLIENTS, Buckets
from pisa_capc.live.serve.gate import Rules
from pisa_capc.live.serve.keys import FEWEST_BITS, Keys, Token, bits, is_local, read_tokens
from tests.live.serve.fake import a_hub, an_alarm
from tests.live.serve.tools import EVENTS, HERE, PAGE, a_client, asked

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
    return Rules(keys=Keys([Token(TOKEN)], **changes))  # type: ignore[arg-type]


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
    assert client.post("/api/acknowledge", headers=headers).status_code == 403
    with pytest.raises(WebSocketDisconnect), client.websocket_connect(EVENTS, headers={"host": HERE, "origin": origin}):
        pass


def test_the_own_page_is_answered_and_no_other_site_is_ever_told_that_it_may_read() -> None:
    client = a_client()
    for scheme in ("http", "https"):
        answer = client.post("/api/acknowledge", headers={**PAGE, "origin": f"{scheme}://{HERE}"}, json={"numbers": []})
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
        ("POST", "/api/acknowledge"),
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


@pytest.mark.parametrize(("minutes", "status"), [(9, 200), (11, 401)])
def test_a_link_is_good_for_ten_minutes(minutes: int, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(keys, "time", SimpleNamespace(monotonic=lambda: now[0]), raising=False)
    rules = locked()
    assert rules.keys is not None
    client, now[0] = a_client(rules=rules), 60.0 * minutes
    assert client.get(f"/?token={rules.keys.ticket}").headers["location"] == "/"
    assert client.get("/api/status").status_code == status


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
    cookie = Keys([Token(TOKEN)]).set_cookie(Token(TOKEN)).split(";")[0]
    assert Keys([Token(TOKEN)]).shown(None, cookie) == (Token(TOKEN), True)
    assert Keys([Token(TOKEN + "x")]).shown(None, cookie) == (None, True)
    assert "Secure" in Keys([Token(TOKEN)], secure=True).set_cookie(Token(TOKEN))


@pytest.mark.parametrize("header", ["authorization", "cookie"])
def test_wrong_tokens_and_cookies_have_to_wait_and_right_ones_never(header: str) -> None:
    rules = locked()
    assert rules.keys is not None
    client = a_client(rules=rules)
    wrong = "Bearer guess" if header == "authorization" else "pisa=guess"
    answers = [client.get("/api/status", headers={header: wrong}).status_code for _ in range(15)]
    assert answers == [401] * 10 + [429] * 5
    assert client.post("/api/login", headers=PAGE, json={"token": "guess"}).status_code == 429
    assert client.get("/?token=guess").status_code == 429
    assert client.get("/api/status", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
    cookie = rules.keys.set_cookie(Token(TOKEN)).split(";")[0]
    assert client.get("/api/status", headers={"cookie": cookie}).status_code == 200
    assert client.get(f"/?token={rules.keys.ticket}").status_code == 303
    assert client.post("/api/login", headers=PAGE, json={"token": TOKEN}).status_code == 200


@pytest.mark.parametrize(
    "beside",
    ["[bad]=1; {}", "{}; pisa=other", "pisa=other; {}", "pisa=x; " * 999 + "{}", '"; {}', "a; =; {};;", "x=\x01; {}"],
)
def test_cookies_that_others_have_set_are_not_in_the_way_of_the_right_one(beside: str) -> None:
    cookie = Keys([Token(TOKEN)]).set_cookie(Token(TOKEN)).split(";")[0]
    assert a_client(rules=locked()).get("/api/status", headers={"cookie": beside.format(cookie)}).status_code == 200


def test_a_page_with_an_old_cookie_is_there_and_the_cookie_is_taken_away() -> None:
    client = a_client(rules=locked())
    client.cookies.set("pisa", "old", domain="127.0.0.1")
    for path in ["/", *["/static/main.js"] * 20]:
        assert client.get(path).status_code == 200
    assert "Max-Age=0" in client.get("/api/status").headers["set-cookie"]
    assert [client.get("/api/status").status_code for _ in range(15)] == [401] * 15, "without one there is no guess"
    assert client.post("/api/login", headers=PAGE, json={"token": TOKEN}).status_code == 200
    assert client.get("/api/status").status_code == 200


def test_strangers_who_ask_too_much_use_up_nothing_of_those_with_a_token() -> None:
    rules = locked()
    rules.strangers = Buckets(rate=0.0, burst=5.0)
    client = a_client(rules=rules)
    assert [client.get("/static/main.js").status_code for _ in range(7)] == [200] * 5 + [429] * 2
    for path in ("/static/main.js", "/api/status"):
        assert client.get(path, headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert client.get("/healthz").status_code == 200
    assert client.post("/api/login", headers=PAGE, json={"token": TOKEN}).status_code == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_a_browser_says_is_of_another_site_is_refused_but_links(site: str) -> None:
    client = a_client()
    for path in ("/api/status", "/", "/static/main.js", "/?token=x"):
        assert client.get(path, headers={"sec-fetch-site": site, "sec-fetch-mode": "no-cors"}).status_code == 403
        assert client.get(path, headers={"sec-fetch-site": "same-origin"}).status_code in (200, 303)
    assert client.get("/", headers={"sec-fetch-site": site, "sec-fetch-mode": "navigate"}).status_code == 200
    assert client.get("/api/status", headers={"sec-fetch-site": site, "sec-fetch-mode": "navigate"}).status_code == 403
    with pytest.raises(WebSocketDisconnect):
        client.websocket_connect(EVENTS, headers={"host": HERE, "sec-fetch-site": site}).__enter__()


def test_only_a_proxy_that_was_named_is_believed_whom_it_asks_for() -> None:
    def guesses(rules: Rules, forwarded: str) -> list[int]:
        headers = {"authorization": "Bearer guess", "x-forwarded-for": forwarded}
        return [a_client(rules=rules).get("/api/status", headers=headers).status_code for _ in range(11)]

    # Starlette's client has the address "testclient".
    known, unknown = locked(), locked()
    known.proxies = frozenset({"testclient", "10.0.0.1"})
    for forwarded in ("192.0.2.1", "6.6.6.6, 192.0.2.2", "192.0.2.3, 10.0.0.1", "2001:db8::1"):
        assert guesses(known, forwarded) == [401] * 10 + [429]
    assert guesses(known, "1.1.1.1, 192.0.2.2")[0] == 429, "what a client says itself comes first, and is not believed"
    assert guesses(known, "2001:db8::2")[0] == 429, "somebody has a whole network of these"
    assert guesses(unknown, "192.0.2.1")[-1] == 429
    assert guesses(unknown, "192.0.2.2")[0] == 429
    assert {
        known.address_of({"client": ("10.0.0.1", 1)}, Headers({"x-forwarded-for": text})) for text in ("", "x")
    } == {"10.0.0.1"}


def test_senders_with_ipv4_addresses_are_told_apart_however_a_proxy_writes_them() -> None:
    rules = locked()
    rules.proxies = frozenset({"testclient"})  # the address of Starlette's client

    def guesses(sender: str) -> list[int]:
        headers = {"authorization": "Bearer guess", "x-forwarded-for": sender}
        return [a_client(rules=rules).get("/api/status", headers=headers).status_code for _ in range(11)]

    assert guesses("::ffff:192.0.2.1") == [401] * 10 + [429]
    assert guesses("::ffff:198.51.100.2")[0] == 401, "another sender"
    assert guesses("192.0.2.1")[0] == 429, "the same sender"


@pytest.mark.parametrize(
    "header", [{"x-forwarded-for": "203.0.113.9"}, {"forwarded": "for=203.0.113.9"}, {"via": "1.1 proxy"}]
)
def test_without_a_token_no_proxy_is_answered(header: dict[str, str]) -> None:
    client = a_client()
    answer = client.get("/api/status", headers=header)
    assert answer.status_code == 403
    assert "--token-file" in answer.json()["detail"]
    assert client.put("/api/names", headers={**PAGE, **header}, json={}).status_code == 403
    with pytest.raises(WebSocketDisconnect), client.websocket_connect(EVENTS, headers={"host": HERE, **header}):
        pass
    right = {**header, "authorization": f"Bearer {TOKEN}"}
    assert a_client(rules=locked()).get("/api/status", headers=right).status_code == 200


def test_with_a_viewers_token_one_looks_and_changes_nothing() -> None:
    hub = a_hub()
    hub.memory.hear(an_alarm(1))
    keys = Keys([Token(TOKEN), Token(TOKEN[::-1], "visitor", operator=False)])
    client, headers = a_client(hub, Rules(keys=keys)), {**PAGE, "authorization": f"Bearer {TOKEN[::-1]}"}
    assert client.get("/api/alarms", headers=headers).status_code == 200
    assert client.get("/api/about", headers=headers).json()["operator"] is False
    asked = (
        ("POST", "/api/alarms/1/acknowledge"),
        ("POST", "/api/acknowledge"),
        ("PUT", "/api/names"),
        ("POST", "/api/enrol"),
        ("GET", "/api/audit"),
    )
    for method, path in asked:
        assert client.request(method, path, headers=headers).status_code == 403
    assert client.post("/api/login", headers=PAGE, json={"token": TOKEN[::-1]}).status_code == 200
    assert client.get("/api/about").json()["operator"] is False
    assert client.put("/api/names", headers=PAGE, json={}).status_code == 403, "the cookie is no more than the token"


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
    assert not buckets.take("a", now=1.0)
    assert buckets.take("a", now=2.0)
    for n in range(2 * CLIENTS):
        buckets.take(str(n), now=2.0)
    assert len(buckets._left) == CLIENTS


def test_long_bodies_are_refused_whatever_they_say_of_their_length() -> None:
    client = a_client()
    assert client.put("/api/names", headers=PAGE, content=b"x" * 20_000).status_code == 413
    assert client.put("/api/names", headers={**PAGE, "content-length": "9" * 30}, content=b"x").status_code == 413
    assert client.put("/api/names", headers=PAGE, content=iter([b"x" * 9000] * 3)).status_code == 413


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


def test_a_token_file_is_for_its_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    file.chmod(0o600)
    assert read_tokens(file) == [Token(TOKEN)]
    file.write_text(f"anna {TOKEN}\n\nben {TOKEN[::-1]}\n")
    assert [(one.holder, one.operator) for one in read_tokens(file, False)] == [("anna", False), ("ben", False)]
    file.chmod(0o640)
    with pytest.raises(DataError, match="chmod 600"):
        read_tokens(file)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))  # systemd's, with an access list
    assert len(read_tokens(file)) == 2
    monkeypatch.delenv("CREDENTIALS_DIRECTORY")
    file.chmod(0o600)
    for wrong in ("", "a name with spaces " + TOKEN, "ü" * 40, f"{'x' * 40} {TOKEN}", TOKEN + "\n" * 9000):
        file.write_text(wrong)
        with pytest.raises(DataError, match="token"):
            read_tokens(file)
    with pytest.raises(DataError, match="cannot be read"):
        read_tokens(tmp_path / "nothing")


@pytest.mark.parametrize(
    "token", ["x", "a" * 64, "0123456789" * 4, "deadbeef" * 8, "abcdefghijklmnopqrstuvwxyz", "password" * 4, "12" * 99]
)
def test_a_token_is_judged_by_what_it_takes_to_guess_it(token: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(token)
    file.chmod(0o600)
    with pytest.raises(DataError, match="can be guessed"):
        read_tokens(file)


def test_random_tokens_are_good_enough() -> None:
    rng = random.Random(5)
    assert all(bits(rng.randbytes(16).hex()) > FEWEST_BITS for _ in range(500))


def test_two_holders_have_two_names_and_two_tokens() -> None:
    for twice in ([Token(TOKEN), Token(TOKEN, "ben")], [Token(TOKEN), Token(TOKEN[::-1])]):
        with pytest.raises(ConfigError, match="the same"):
            Keys(twice)


def test_only_this_machine_is_local() -> None:
    assert all(map(is_local, ("127.0.0.1", "127.8.8.8", "::1", "localhost")))
    assert not any(map(is_local, ("0.0.0.0", "::", "192.168.1.2", "169.254.1.1")))
    with pytest.raises(ConfigError, match="IP address"):
        is_local("radio.lan")
