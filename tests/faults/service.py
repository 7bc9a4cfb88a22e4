"""Requests to `pisa serve` as bytes: parsed as its server parses them, and answered without a network."""

from __future__ import annotations

import asyncio
import json
from functools import cache
from typing import Any
from urllib.parse import unquote

import h11

from pisa_capc.core.errors import DataError
from pisa_capc.live.serve.connections import Buckets
from pisa_capc.live.serve.gate import Gate, Rules
from pisa_capc.live.serve.keys import Keys, Token
from tests.live.serve.fake import a_decision, a_hub, an_app

TOKEN = "f00dfeedcafe1234567890abcdef0123"


def _sent(method: str, target: str, body: Any = None, token: bool = True) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {target} HTTP/1.1", "Host: 127.0.0.1:8642", "X-Pisa: page", "Origin: http://127.0.0.1:8642"]
    lines += [f"Authorization: Bearer {TOKEN}"] if token else []
    lines += [f"Content-Length: {len(content)}", "Content-Type: application/json"] if content else []
    return "\r\n".join([*lines, "", ""]).encode() + content


REQUESTS = {
    "names": _sent("PUT", "/api/names", {"kind": "device", "key": "door-7", "name": "the door"}),
    "enrol": _sent("POST", "/api/enrol", {"transmitter": 1, "name": "kettle", "anyway": False}),
    "login": _sent("POST", "/api/login", {"token": TOKEN}, token=False),
    "decisions": _sent("GET", "/api/decisions?limit=5&before=7&transmitter=1"),
    "frame": _sent("GET", "/api/frames/3"),
}


@cache
def _app() -> Gate:
    much = Buckets(rate=1e12, burst=1e12)
    return an_app(rules=Rules(keys=Keys([Token(TOKEN)]), requests=much, strangers=much, failures=much))


def answer(content: bytes) -> tuple[int, bytes]:
    """Status and body; DataError where the request is refused, RuntimeError where the service failed."""
    scope, messages = _parsed(content)
    hub = a_hub()
    for number in range(12):
        decision = a_decision(number, at=1e9, device=None)
        hub.memory.hear(decision)
        hub.listener.keep(decision, number)  # type: ignore[attr-defined]
    app = _app()
    app.app.state.hub = hub  # type: ignore[attr-defined]
    said: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        said.append(message)

    asyncio.run(app(scope, receive, send))  # type: ignore[arg-type]
    status = said[0]["status"]
    if status >= 500:
        raise RuntimeError(f"status {status}")
    if status >= 400:
        raise DataError(f"status {status}")
    return status, b"".join(message.get("body", b"") for message in said)


def _parsed(content: bytes) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """As uvicorn's h11 protocol does it."""
    connection = h11.Connection(h11.SERVER, 16384)
    messages: list[dict[str, Any]] = []
    request: h11.Request | None = None
    try:
        connection.receive_data(content)
        while isinstance(event := connection.next_event(), h11.Request | h11.Data | h11.EndOfMessage):
            if isinstance(event, h11.Request):
                request = event
            else:
                body = bytes(event.data) if isinstance(event, h11.Data) else b""
                messages.append({"type": "http.request", "body": body, "more_body": isinstance(event, h11.Data)})
    except h11.RemoteProtocolError as error:
        raise DataError(f"no request ({error})") from error
    if request is None:
        raise DataError("no whole request")
    path, _, query = request.target.partition(b"?")
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": request.http_version.decode(),
        "method": request.method.decode(),
        "scheme": "http",
        "path": unquote(path.decode("ascii")),
        "raw_path": path,
        "query_string": query,
        "root_path": "",
        "headers": [(name.lower(), value) for name, value in request.headers],
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 8642),
    }, messages
