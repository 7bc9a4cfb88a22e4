"""Connections: how many there are, of whom, and how long each may keep one waiting.

uvicorn has no limit on the time for a request's header and none on connections, so the listening socket has them. A
connection is anonymous until a request with a right token came over it. If there is no room, anonymous ones are closed
first, then idle ones with a token, then viewers'; among these, the user with the most loses the oldest. Until then no
anonymous one is closed, for a right token may be on its way. No token has more than a share, so that others find room.
"""

from __future__ import annotations

import errno
import os
import resource
import socket
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any

from pisa_capc.core.errors import ConfigError
from pisa_capc.live.serve.keys import Token
from pisa_capc.live.serve.limits import sender_of

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
