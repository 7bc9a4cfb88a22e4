"""Who may ask: whoever has the token, or the cookie that a page got for it."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from pathlib import Path

from pisa_capc.errors import ConfigError, DataError

SHORTEST = 24  # characters of a token that somebody chose
COOKIE_DAYS = 30


class Keys:
    """A token; a ticket, which is good once for a page; and the cookie that a page gets for either.

    The cookie is made from the token, so it outlives the service as far as the token does, and ends with it.
    """

    def __init__(self, token: str, cookie: str = "pisa", secure: bool = False) -> None:
        self._token, self.cookie, self.secure = token, cookie, secure
        self.ticket: str | None = secrets.token_urlsafe(24)
        self._value = hmac.new(token.encode(), b"pisa serve: cookie", hashlib.sha256).hexdigest()

    def is_token(self, given: str) -> bool:
        return _same(given, self._token)

    def spend(self, ticket: str) -> bool:
        """Whether this is the ticket; it is good once."""
        if self.ticket is None or not _same(ticket, self.ticket):
            return False
        self.ticket = None
        return True

    def allow(self, authorization: str | None, cookies: str | None) -> bool:
        """Whether these headers may have answers."""
        scheme, _, given = (authorization or "").partition(" ")
        if scheme.lower() == "bearer" and self.is_token(given.strip()):
            return True
        try:
            found = SimpleCookie(cookies or "").get(self.cookie)
        except CookieError:
            return False
        return found is not None and _same(found.value, self._value)

    def set_cookie(self) -> str:
        """The header that gives a page its cookie: no script can read it, and no other site's page makes it sent."""
        secure = "; Secure" if self.secure else ""
        return f"{self.cookie}={self._value}; Path=/; Max-Age={86400 * COOKIE_DAYS}; HttpOnly; SameSite=Strict{secure}"


def _same(given: str, expected: str) -> bool:
    """In a time that says nothing about either, their lengths included."""
    one, other = (hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in (given, expected))
    return hmac.compare_digest(one, other)


def read_token(path: Path) -> str:
    """The token in a file that only its owner may read."""
    try:
        with path.open("rb") as file:
            mode, content = os.fstat(file.fileno()).st_mode, file.read(4096)
    except OSError as error:
        raise DataError(f"--token-file {path}: cannot be read ({error.strerror}).") from error
    if stat.S_IMODE(mode) & 0o077:
        raise DataError(f"--token-file {path}: others may read or write it: chmod 600 {path}")
    token = content.decode("ascii", "replace").strip()
    if len(token) < SHORTEST or not token.isprintable() or not token.isascii() or " " in token:
        raise DataError(
            f"--token-file {path}: expected one line of at least {SHORTEST} characters without spaces, as from: "
            "openssl rand -hex 32"
        )
    return token


def is_local(host: str) -> bool:
    """Whether what is bound to this address can be reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        raise ConfigError(f"--host {host!r}: expected an IP address, as 127.0.0.1, 0.0.0.0 or ::1.") from None
