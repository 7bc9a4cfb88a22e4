"""Access: a token, or the cookie that a page got for it."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
import time
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from itertools import pairwise
from math import log2
from pathlib import Path

from pisa_capc.core.errors import ConfigError, DataError

FEWEST_BITS = 80.0  # as `bits` judges a token; of those of 128 bits, all that were tried have more
MOST_BYTES = 8192  # of a file of tokens
LONGEST_HOLDER = 32
COOKIE_DAYS = 30
TICKET_S = 600.0  # from the start of the service, in which a model may have to be read


@dataclass(frozen=True)
class Token:
    """holder: whose it is. operator: whether more may be done with it than look."""

    value: str = field(repr=False)
    holder: str = "operator"
    operator: bool = True

    @property
    def cookie(self) -> str:
        """It outlives the service as far as the token does, and ends with it."""
        return hmac.new(self.value.encode(), b"pisa serve: cookie", hashlib.sha256).hexdigest()


class Keys:
    """Tokens; a ticket, which is good once and soon for a page of the first of them; and the cookies that pages get."""

    def __init__(self, tokens: Sequence[Token], cookie: str = "pisa", secure: bool = False) -> None:
        self._tokens, self.cookie, self.secure = tuple(tokens), cookie, secure
        for what, found in (("names", [one.holder for one in tokens]), ("tokens", [one.value for one in tokens])):
            if len(set(found)) < len(found):
                raise ConfigError(f"Two {what} of tokens are the same. Give each holder their own.")
        self._by_cookie = {_digest(one.cookie): one for one in tokens}
        self.ticket: str | None = secrets.token_urlsafe(24)
        self._until = time.monotonic() + TICKET_S

    def token(self, given: str) -> Token | None:
        """The token that this is; in a time that says nothing about any."""
        return next(iter([one for one in self._tokens if _same(given, one.value)]), None)

    def spend(self, ticket: str) -> Token | None:
        """The first token, if this is the ticket; it is good once, and not for long: who reads it later is another."""
        if time.monotonic() > self._until:
            self.ticket = None
        if self.ticket is None or not _same(ticket, self.ticket):
            return None
        self.ticket = None
        return self._tokens[0]

    def shown(self, authorization: str | None, cookies: str | None) -> tuple[Token | None, bool]:
        """The token that these headers show, and whether they show anything."""
        scheme, _, given = (authorization or "").partition(" ")
        if scheme.lower() == "bearer" and (found := self.token(given.strip())):
            return found, True
        values = self._cookies(cookies or "")
        # Each is hashed once: a header has room for two thousand, and a digest's way to its place tells nothing of it.
        right = [one for value in values if (one := self._by_cookie.get(_digest(value)))]
        return next(iter(right), None), bool(values) or authorization is not None

    def _cookies(self, cookies: str) -> list[str]:
        """Ours, whatever others of this host have set beside it, under its name too."""
        pairs = [pair.partition("=") for pair in cookies.split(";")]
        return [value.strip() for name, _, value in pairs if name.strip() == self.cookie]

    def set_cookie(self, token: Token) -> str:
        """The header that gives a page its cookie: no script can read it, and no other site's page makes it sent."""
        secure = "; Secure" if self.secure else ""
        age = 86400 * COOKIE_DAYS
        return f"{self.cookie}={token.cookie}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict{secure}"

    @property
    def no_cookie(self) -> str:
        """The header that takes it away: a page that goes on showing an old one would be counted as guessing."""
        return f"{self.cookie}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict"


def _same(given: str, expected: str) -> bool:
    """In a time that says nothing about either, their lengths included."""
    return hmac.compare_digest(_digest(given), _digest(expected))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def read_tokens(path: Path, operator: bool = True) -> list[Token]:
    """The tokens in a file that only its owner may read: a line each, with the name of its holder before it or not.

    systemd's credentials are their service's alone, by an access list that shows as a permission of their group.
    """
    try:
        with path.open("rb") as file:
            mode, content = os.fstat(file.fileno()).st_mode, file.read(MOST_BYTES + 1)
    except OSError as error:
        raise DataError(f"{path}: the file of tokens cannot be read ({error.strerror}).") from error
    credential = str(path.parent) == os.environ.get("CREDENTIALS_DIRECTORY")
    if stat.S_IMODE(mode) & 0o077 and not credential:
        raise DataError(f"{path}: others may read or write these tokens: chmod 600 {path}")
    text = content.decode("ascii", "replace")
    lines = [line.split() for line in text.splitlines() if line.strip()]
    if not lines or len(content) > MOST_BYTES or any(len(line) > 2 for line in lines):
        raise DataError(f"{path}: expected lines of a token, or of a name and a token, {MOST_BYTES:,} bytes at most.")
    usual = "operator" if operator else "viewer"
    tokens = [Token(line[-1], line[0] if len(line) == 2 else usual, operator) for line in lines]
    for number, token in enumerate(tokens, 1):
        where = f"{path}, token {number}"
        if not (token.value + token.holder).isprintable() or not text.isascii():
            raise DataError(f"{where}: expected printable ASCII, as from: openssl rand -hex 32")
        if len(token.holder) > LONGEST_HOLDER:
            raise DataError(f"{where}: the name of its holder has more than {LONGEST_HOLDER} characters.")
        if bits(token.value) < FEWEST_BITS:
            raise DataError(f"{where}: it can be guessed. Expected a random one, as from: openssl rand -hex 32")
    return tokens


def bits(token: str) -> float:
    """The entropy of a token as its characters tell it: those that do not repeat, in an order that is no sequence.

    >>> [round(bits(text)) for text in ("a" * 64, "0123456789" * 4, "deadbeef" * 8, "abcdefghijklmnopqrstuvwxyz")]
    [0, 6, 28, 0]
    """
    steps = [ord(later) - ord(sooner) for sooner, later in pairwise(token)]
    fresh = len(zlib.compress(token.encode(), 9, wbits=-15))  # what repeats is a short reference
    return min(len(token), fresh) * min(_entropy(token), _entropy(steps))


def _entropy(symbols: Sequence[object]) -> float:
    """In bits, of one symbol."""
    total = len(symbols)
    return sum(n / total * log2(total / n) for n in Counter(symbols).values())


def is_local(host: str) -> bool:
    """Whether what is bound to this address can be reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        raise ConfigError(f"--host {host!r}: expected an IP address, as 127.0.0.1, 0.0.0.0 or ::1.") from None


def addresses(proxies: Sequence[str]) -> frozenset[str]:
    """Addresses of proxies, as connections name them."""
    try:
        return frozenset(str(ip_address(one)) for one in proxies)
    except ValueError as error:
        raise ConfigError(f"--proxy: expected an IP address, as 127.0.0.1 ({error}).") from None
