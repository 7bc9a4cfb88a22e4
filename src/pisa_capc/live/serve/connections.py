"""Connections: how many there are, of whom, how long each may keep one waiting, and how much each may ask.

uvicorn has no limit on the time for a request's header and none on connections, so the listening socket has them. A
connection is anonymous until a request with a right token came over it. If there is no room, anonymous ones are closed
first, then idle ones with a token, then viewers'; among these, the user with the most loses the oldest. Until then no
anonymous one is closed, for a right token may be on its way. No token has more than a share, so that others find room.
"""

from __future__ import annotations

import errno
import logging
import os
import resource
import socket
import time
from collections import Counter, OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from math import inf
from typing import Any

from pisa_capc.core.errors import ConfigError
from pisa_capc.live.serve.keys import Token

CLIENTS = 1024  # that are remembered
LINES, LINES_S = 10, 60.0  # of each place in the code: at once, and seconds to each further one


def sender_of(address: str) -> str:
    """What one sender is known by: its address, or for IPv6 its network, since each client has a whole one.

    >>> sender_of("192.0.2.7"), sender_of("::ffff:192.0.2.7"), sender_of("2001:db8::1:2:3:4")
    ('192.0.2.7', '192.0.2.7', '2001:db8::/64')
    """
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return "unknown"
    found = getattr(found, "ipv4_mapped", None) or found  # all of IPv4 would be one such network
    return str(found) if found.version == 4 or found.is_loopback else str(ip_network((found, 64), strict=False))


class Buckets:
    """A bucket of tokens for each client: `burst` at once, and `rate` a second from then on."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens, when

    def take(self, client: str, cost: float = 1.0, now: float | None = None) -> bool:
        """Whether there is enough left."""
        now = time.monotonic() if now is None else now
        left, then = self._left.pop(client, (self._burst, now))
        left = min(self._burst, left + self._rate * (now - then))
        enough = left >= cost
        self._left[client] = (left - cost if enough else left), now
        if len(self._left) > CLIENTS:
            self._left.popitem(last=False)
        return enough


class FewLines(logging.Filter):
    """Lets each place in the code write few lines of log, whatever clients do, and counts the rest."""

    def __init__(self) -> None:
        super().__init__()
        self._lines, self._left_out = Buckets(1 / LINES_S, LINES), Counter[str]()

    def filter(self, record: logging.LogRecord) -> bool:
        place = f"{record.pathname}:{record.lineno}"
        if not self._lines.take(place):
            self._left_out[place] += 1
            return False
        if others := self._left_out.pop(place, 0):
            record.msg, record.args = f"{record.getMessage()} ({others:,} lines like this were left out)", None
        return True


CONNECTIONS = 256
SHARE = 4  # a quarter of them is for each token
FEWEST = 32
FILES = 192  # descriptors that are left for files, and for what is accepted before what is closed has ended
WAITING, AT_ONCE = 1024, 4  # connections that wait, and that are accepted in one go: few, so that each is read
CLOSING = 64  # that may be on their way out
IDLE_S = 10.0  # until a request's header is there, TLS included
ANSWER_S = 60.0  # from there to the end of the answer
TRUSTED_ANSWER_S = 600.0  # the same of who has a token: downloads over slow lines

Peer = tuple[str, int]


@dataclass(eq=False)
class Connection:
    """until: when it is closed, by the monotonic clock. token: None as long as it is anonymous. busy: a request that
    came over it is not answered yet.
    """

    socket: socket.socket
    sender: str
    until: float
    token: Token | None = None
    busy: bool = False

    @property
    def whose(self) -> tuple[bool, str]:
        return (False, self.sender) if self.token is None else (True, self.token.holder)

    def close(self) -> None:
        """The server sees its end at once, whatever it is waiting for, and closes the descriptor."""
        self.until = -inf
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)


class LimitedSocket(socket.socket):
    """A listening socket; it belongs to the thread that answers. most: connections."""

    def __init__(self, listening: socket.socket, most: int = CONNECTIONS) -> None:
        super().__init__(fileno=listening.detach())
        self.most = most
        self._inside: dict[Peer, Connection] = {}

    def listen(self, backlog: int = 0) -> None:
        """asyncio says how many it accepts in one go; many more may wait, or a flood delays others by seconds."""
        super().listen(WAITING)

    def accept(self) -> tuple[socket.socket, Any]:
        accepted, address = super().accept()
        self._inside = {peer: one for peer, one in self._inside.items() if one.socket.fileno() >= 0}
        if not self._room():
            accepted.close()
            raise ConnectionAbortedError(errno.ECONNABORTED, "all connections are taken")  # asyncio goes on
        self._inside[address[:2]] = Connection(accepted, sender_of(address[0]), time.monotonic() + IDLE_S)
        return accepted, address

    def _room(self) -> bool:
        """Whether there is room for one more, which another may have to make."""
        if len(self._inside) >= self.most + CLOSING:
            return False
        staying = [one for one in self._inside.values() if one.until > -inf]
        if len(staying) < self.most:
            return True
        return _close_one(staying)

    def begun(self, peer: Peer) -> None:
        """A request has come in; behind a proxy, it may be of another client than the last."""
        if one := self._inside.get(peer):
            one.token, one.busy, one.until = None, True, time.monotonic() + ANSWER_S

    def trust(self, peer: Peer, token: Token, lasting: bool) -> None:
        """It has a right token. lasting: it is a websocket, which has pings of its own."""
        if one := self._inside.get(peer):
            others = [other for other in self._inside.values() if other.token == token and other.until > -inf]
            if len(others) >= self.most // SHARE:
                _close_one(others)
            one.token, one.until = token, inf if lasting else time.monotonic() + TRUSTED_ANSWER_S

    def ended(self, peer: Peer) -> None:
        """The request is answered."""
        if one := self._inside.get(peer):
            one.busy, one.until = False, time.monotonic() + IDLE_S

    async def sweep(self) -> None:
        """Close what has taken too long."""
        now = time.monotonic()
        for one in self._inside.values():
            if -inf < one.until < now:
                one.close()


def _close_one(among: Sequence[Connection]) -> bool:
    """Close the one that is missed least; whether there is one: a request that an operator waits for is kept."""
    strangers = [one for one in among if one.token is None]
    idle = [one for one in among if one.token and not one.busy]
    viewers = [one for one in among if one.token and not one.token.operator]
    candidates = strangers or idle or viewers
    if not candidates:
        return False
    count = Counter(one.whose for one in candidates)
    max(candidates, key=lambda one: count[one.whose]).close()  # the first of them is the oldest
    return True


def room() -> int:
    """Connections that this process can have, with descriptors left for its files."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return CONNECTIONS
    most = min(CONNECTIONS, limit - len(os.listdir("/dev/fd")) - FILES)
    if most < FEWEST:
        raise ConfigError(
            f"This process may open {limit:,} files, which leaves too few for connections; expected "
            f"{limit - most + FEWEST:,} at least: ulimit -n 1024, or LimitNOFILE=1024 in a unit of systemd."
        )
    return most
