"""How much one sender may ask, and how much is written of it, in bounded memory."""

from __future__ import annotations

import logging
import time
from collections import Counter, OrderedDict
from ipaddress import ip_address, ip_network

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
