"""Every request passes here first: is it meant for this service, may it be answered, and what goes with an answer.

Host      IP addresses, localhost and names that were given; so a foreign name that leads here (DNS rebinding)
          is refused
Origin    that of this service, where a browser says one, and Sec-Fetch-Site says no other; so pages of others neither
          change anything nor hear events
X-Pisa    must be there where something is changed: pages of others cannot send it
token     where there is one, for everything but the page's own code, and whether the service is alive; where there
          is none, proxies are refused: they ask for others
amount    requests a second of each sender, those with a right token apart, so no client is refused because of others;
          wrong tokens, bytes of a body, seconds until it is there
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pisa_capc.live.serve.connections import Buckets, LimitedSocket, sender_of
from pisa_capc.live.serve.keys import Keys, Token

PAGE_HEADER = "x-pisa"
PAGE, ALIVE, LOGIN = "/", "/healthz", "/api/login"
OPEN = (PAGE, ALIVE, LOGIN)  # without a token, however often: a right one may come with it; and what lies under:
OPEN_UNDER = "/static/"
OWN_SITE = ("same-origin", "none")  # of Sec-Fetch-Site; none: somebody typed it
ANYBODY = Token("")  # where no token is needed
BY_PROXIES = ("x-forwarded-for", "forwarded", "via")  # headers
HEAVY = ("/api/frames/", "/api/alarms/", "/api/annotations", "/api/transmitters", "/api/enrol")
HEAVY_COST = 5.0
BODY, BODY_S = 16_384, 10.0
CHANGING = ("POST", "PUT", "PATCH", "DELETE")  # all other methods that are answered only ask
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


class Refused(HTTPException):
    """Why a request is not answered."""

    def __init__(self, status: int, text: str, **headers: str) -> None:
        also = {401: {"www-authenticate": "Bearer"}, 429: {"retry-after": "5"}}
        super().__init__(status, text, also.get(status, {}) | headers)


@dataclass
class Rules:
    """names: hosts that the service is known by, besides addresses and localhost. keys: None where none are needed.
    proxies: addresses of those that are believed whom they ask for.

    requests: of clients with a token. strangers: of those without. failures: wrong tokens and cookies.
    """

    names: frozenset[str] = frozenset()
    keys: Keys | None = None
    proxies: frozenset[str] = frozenset()
    requests: Buckets = field(default_factory=lambda: Buckets(rate=50.0, burst=300.0))
    strangers: Buckets = field(default_factory=lambda: Buckets(rate=20.0, burst=200.0))
    failures: Buckets = field(default_factory=lambda: Buckets(rate=0.2, burst=10.0))

    def check(self, scope: Scope, headers: Headers, address: str) -> Token | None:
        """The token that came from an address; refuse what is not meant for this service, or too much."""
        path = scope["path"]
        changing = scope.get("method") in CHANGING and path not in (PAGE, ALIVE)  # these two have no such method
        host = one_of(headers.getlist("host"))
        if not self._known(host):
            raise Refused(421, "This service is not known by that name. Give it with --name.")
        origin = headers.getlist("origin")
        if (origin and not same_host(one_of(origin), host)) or _of_another_site(scope, headers):
            raise Refused(403, "A page of another site asks; only the page of this service may.")
        if changing and PAGE_HEADER not in headers:
            raise Refused(403, f"Expected the header {PAGE_HEADER}: whatever changes something needs it.")
        if self.keys is None and any(name in headers for name in BY_PROXIES):
            raise Refused(
                403,
                "A proxy asks, and whom for is not known: without a token only this machine is answered. "
                "Begin `pisa serve` with --https, --name or --proxy, which need a token, or with --token-file.",
            )
        token = ANYBODY if self.keys is None else self._token(self.keys, path, headers, address)
        if token is not None and not self.requests.take(f"{token.holder} {address}", cost(path)):
            raise Refused(429, "Too many requests; wait a moment.")
        if changing and token is not None and not token.operator and path != LOGIN:
            raise Refused(403, "This token is for looking; it changes nothing.")
        return token

    def _token(self, keys: Keys, path: str, headers: Headers, address: str) -> Token | None:
        """The right token first: nothing that others do, from the same address too, is in its way."""
        token, shown = keys.shown(headers.get("authorization"), headers.get("cookie"))
        if token is not None or path in OPEN:
            return token
        if not self.strangers.take(sender_of(address)):
            raise Refused(429, "Too many requests; wait a moment.")
        if path.startswith(OPEN_UNDER):
            return None
        if shown:
            self.failed(address)
            raise Refused(401, "Expected the token of this service; this is another.", **{"set-cookie": keys.no_cookie})
        raise Refused(401, "Expected the token of this service.")

    def failed(self, address: str) -> None:
        """Count a wrong token or cookie; after some there is no other answer to wrong ones of this sender."""
        if not self.failures.take(sender_of(address)):
            cookie = {} if self.keys is None else {"set-cookie": self.keys.no_cookie}
            raise Refused(429, "Too many wrong tokens; wait a minute.", **cookie)

    def address_of(self, scope: Scope, headers: Headers) -> str:
        """Who asks; of a proxy that is known, whom it asks for."""
        address = str((scope.get("client") or ("unknown",))[0])
        if address not in self.proxies:
            return address
        on_the_way = [one.strip() for one in ",".join(headers.getlist("x-forwarded-for")).split(",")]
        last = next((one for one in reversed(on_the_way) if one not in self.proxies), "")
        return last if is_address(last) else address

    def _known(self, host: str) -> bool:
        name = host_name(host)
        return name is not None and (name == "localhost" or name in self.names or is_address(name))


def _of_another_site(scope: Scope, headers: Headers) -> bool:
    """Whether a browser says that a page of others asks; a link to the page itself may be anywhere."""
    link = scope["path"] == PAGE and headers.get("sec-fetch-mode") == "navigate"
    return not link and headers.get("sec-fetch-site", OWN_SITE[0]) not in OWN_SITE


def cost(path: str) -> float:
    return HEAVY_COST if path.startswith(HEAVY) else 1.0


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
        self.listening: LimitedSocket | None = None  # that requests come through

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        headers, peer = Headers(scope=scope), scope.get("client")
        if self.listening and peer:
            self.listening.begun(peer)
        try:
            scope["address"] = self.rules.address_of(scope, headers)
            scope["token"] = token = self.rules.check(scope, headers, scope["address"])
            if token and self.listening and peer:
                self.listening.trust(peer, token, lasting=scope["type"] == "websocket")
            if scope["type"] == "http":
                receive = await short(receive, scope["method"], headers)
                send = dressed(send, scope["path"])
            await self.app(scope, receive, send)
        except Refused as why:
            await refuse(scope, receive, send, why)
        finally:
            if self.listening and peer:
                self.listening.ended(peer)


async def short(receive: Receive, method: str, headers: Headers) -> Receive:
    """The same with the body taken in, if it is short and comes soon. What only asks has none that anybody reads."""
    if method not in CHANGING:
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
            headers["cache-control"] = "no-cache" if path.startswith(OPEN_UNDER) or path == PAGE else "no-store"
        await send(message)

    return give


async def refuse(scope: Scope, receive: Receive, send: Send, why: Refused) -> None:
    """Say in words why there is no answer; to a websocket, by a status."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": why.detail})
        return
    answer = JSONResponse({"detail": why.detail}, why.status_code, why.headers)
    await answer(scope, receive, dressed(send, scope["path"]))
