"""How much one client may ask, in bounded memory."""

from __future__ import annotations

import time
from collections import OrderedDict

CLIENTS = 1024  # that are remembered


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

    def empty(self, client: str, now: float | None = None) -> bool:
        """Whether nothing is left; nothing is taken."""
        return not self.take(client, 0.0, now) or self._left[client][0] < 1.0
