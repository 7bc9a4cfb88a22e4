"""Every request passes here first: is it meant for this service, may it be answered, and what goes with an answer.

Host      IP addresses, localhost and names that were given; so a name of somebody else's that leads here (DNS
          rebinding) is refused
Origin    that of this service, where a browser says one; so pages of others neither change anything nor hear events
X-Pisa    must be there where something is changed: pages of others cannot send it
token     where there is one, for everything but the page's own code, and whether the service is alive
amount    requests a second of each client, failed tokens, bytes of a body, seconds until it is there
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pisa_capc.serve.keys import Keys
from pisa_capc.serve.limits import Buckets

PAGE_HEADER = "x-pisa"
OPEN = ("/", "/healthz", "/api/login")  # without a token, and what lies under:
OPEN_UNDER = "/static/"
HEAVY = ("/api/frames/", "/api/alarms/", "/api/annotations", "/api/transmitters", "/api/enrol")
HEAVY_COST = 5.0
BODY, BODY_S = 4096, 10.0
SAFE = ("GET", "HEAD")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
ALWAYS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class Refused(Exception):
    """Why a request is not answered."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass
class Rules:
    """names: hosts that the service is known by, besides addresses and localhost. keys: None where none are needed."""

    names: frozenset[str] = frozenset()
    keys: Keys | None = None
    requests: Buckets = field(default_factory=lambda: Buckets(rate=50.0, burst=300.0))
    failures: Buckets = field(default_factory=lambda: Buckets(rate=0.2, burst=10.0))

    def check(self, scope: Scope, headers: Headers) -> None:
        """Refuse what is not meant for this service, or too much."""
        client = client_of(scope)
        path = scope["path"]
        if not self.requests.take(client, HEAVY_COST if path.startswith(HEAVY) else 1.0):
            raise Refused(429, "Too many requests; wait a moment.")
        host = one_of(headers.getlist("host"))
        if not self._known(host):
            raise Refused(421, "This service is not known by that name. Give it with --name.")
        origin = headers.getlist("origin")
        if origin and not same_host(one_of(origin), host):
            raise Refused(403, "A page of another site asks; only the page of this service may.")
        if scope["type"] == "http" and scope["method"] not in SAFE and PAGE_HEADER not in headers:
            raise Refused(403, f"Expected the header {PAGE_HEADER}: whatever changes something needs it.")
        if self.keys is not None and path not in OPEN and not path.startswith(OPEN_UNDER):
            self._check_token(self.keys, client, headers)

    def _known(self, host: str) -> bool:
        name = host_name(host)
        return name is not None and (name == "localhost" or name in self.names or is_address(name))

    def _check_token(self, keys: Keys, client: str, headers: Headers) -> None:
        if self.failures.empty(client):
            raise Refused(429, "Too many wrong tokens; wait a minute.")
        if not keys.allow(headers.get("authorization"), headers.get("cookie")):
            if "authorization" in headers:
                self.failures.take(client)
            raise Refused(401, "Expected the token of this service.")


def client_of(scope: Scope) -> str:
    return str((scope.get("client") or ("unknown",))[0])


def one_of(values: Iterable[str]) -> str:
    """The value of a header that is there once; nothing where it is not."""
    values = list(values)
    return values[0] if len(values) == 1 else ""


def host_name(host: str) -> str | None:
    """The name in a Host header, without the port; None where it is none.

    >>> host_name("[::1]:8642"), host_name("LOCALHOST:8642"), host_name("a/b@c")
    ('::1', 'localhost', None)
    """
    try:
        parts = urlsplit(f"//{host}")
        name, _ = parts.hostname, parts.port
    except ValueError:
        return None
    return name.rstrip(".").lower() if name and parts.netloc == host and "@" not in host else None


def is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def same_host(origin: str, host: str) -> bool:
    """Whether an Origin is that of the Host that is asked; a proxy may speak TLS, so http and https are alike."""
    scheme, found, rest = origin.partition("://")
    return bool(rest) and found == "://" and scheme in ("http", "https") and rest.lower() == host.lower()


class Gate:
    """The outermost part of the service."""

    def __init__(self, app: ASGIApp, rules: Rules) -> None:
        self.app, self.rules = app, rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            self.rules.check(scope, headers)
            if scope["type"] == "http":
                receive = await short(receive, scope["method"], headers)
                send = dressed(send, scope["path"])
            await self.app(scope, receive, send)
        except Refused as why:
            await refuse(scope, send, why)


async def short(receive: Receive, method: str, headers: Headers) -> Receive:
    """The same with the body taken in, if it is short and comes soon. What only asks has none that anybody reads."""
    if method in SAFE:
        return receive
    said = headers.get("content-length", "0")
    if not said.isdecimal() or int(said) > BODY:
        raise Refused(413, f"Expected at most {BODY:,} bytes.")
    try:
        body: Message | None = {"type": "http.request", "body": await asyncio.wait_for(_taken(receive), BODY_S)}
    except TimeoutError:
        raise Refused(408, "The request did not come to its end.") from None

    async def once() -> Message:
        nonlocal body
        found, body = body, None
        return await receive() if found is None else found

    return once


async def _taken(receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
        if len(body) > BODY:
            raise Refused(413, f"Expected at most {BODY:,} bytes.")
    return body


def dressed(send: Send, path: str) -> Send:
    """Answers with the headers that go with each of them. What was heard is not kept by anybody on the way."""

    async def give(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.update(ALWAYS)
            headers["cache-control"] = "no-cache" if path.startswith(OPEN_UNDER) or path == "/" else "no-store"
        await send(message)

    return give


async def refuse(scope: Scope, send: Send, why: Refused) -> None:
    """Say in words why there is no answer; to a websocket, by a status."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": str(why)})
        return
    body = json.dumps({"detail": str(why)}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if why.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if why.status == 429:
        headers.append((b"retry-after", b"5"))
    give = dressed(send, scope["path"])
    await give({"type": "http.response.start", "status": why.status, "headers": headers})
    await give({"type": "http.response.body", "body": body})
