"""Requests to a service that is not there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.testclient import TestClient

from pisa_capc.live.serve.gate import Rules
from pisa_capc.live.serve.hub import Hub
from tests.live.serve.fake import an_app

HERE = "127.0.0.1:8642"
PAGE = {"X-Pisa": "test"}
EVENTS = f"ws://{HERE}/api/events"


def a_client(hub: Hub | None = None, rules: Rules | None = None) -> TestClient:
    return TestClient(an_app(hub, rules), base_url=f"http://{HERE}", follow_redirects=False)


Message = dict[str, Any]


async def _whole() -> Message:
    return {"type": "http.request", "body": b""}


def asked(
    path: str, method: str = "GET", receive: Callable[[], Awaitable[Message]] = _whole, **headers: str
) -> tuple[int, bytes]:
    """Status and body of an answer to a request as it is: a client would mend the path."""
    said: list[Message] = []

    async def send(message: Message) -> None:
        said.append(message)

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [
            (name.replace("_", "-").encode(), value.encode()) for name, value in {"host": HERE, **headers}.items()
        ],
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 8642),
        "scheme": "http",
        "http_version": "1.1",
    }
    asyncio.run(an_app()(scope, receive, send))  # type: ignore[arg-type]
    return said[0]["status"], b"".join(message.get("body", b"") for message in said)
