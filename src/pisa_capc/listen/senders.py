"""Who has been heard lately: frames of one sender, as far as addresses and carriers tell, in bounded memory."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pisa_capc.descriptors import WINDOW
from pisa_capc.identify.tracks import TOLERANCE_PPM

MOST = 1024  # senders that are remembered; addresses are whatever somebody sends
FRAMES = 16  # numbers of a sender's newest frames
TOGETHER = 96  # frames of one sender that may be looked at together, each with its window


@dataclass(eq=False)
class Sender:
    """One address, or none, at one carrier offset. trace: (n, A) of its newest frames."""

    number: int
    address: str | None
    trace: NDArray[np.float64]
    last_hz: float
    numbers: deque[int] = field(default_factory=lambda: deque(maxlen=FRAMES))

    def push(self, cfo_hz: NDArray[np.float64], middle_hz: float) -> None:
        self.trace = np.concatenate([self.trace, cfo_hz[None]])[-WINDOW - TOGETHER :]
        self.last_hz = middle_hz


class Senders:
    """As `identify.tracks`, frame by frame; who has been silent for longest is forgotten."""

    def __init__(self, antennas: int, carrier_hz: float) -> None:
        self._antennas, self._tolerance_hz = antennas, TOLERANCE_PPM * 1e-6 * carrier_hz
        self._by_address: OrderedDict[str | None, list[Sender]] = OrderedDict()
        self._count = self._met = 0

    def of(self, address: str | None, cfo_hz: NDArray[np.float64]) -> Sender:
        """The sender of the next frame, whose carrier offset (A,) joins its trace; NaN: of a dead antenna."""
        middle = float(np.nanmedian(cfo_hz))
        known = np.where(np.isfinite(cfo_hz), cfo_hz, middle)
        own = self._by_address.setdefault(address, [])
        self._by_address.move_to_end(address)
        near = min(own, key=lambda sender: abs(sender.last_hz - middle), default=None)
        if near is None or abs(near.last_hz - middle) > self._tolerance_hz:
            near = Sender(self._met, address, np.empty((0, self._antennas)), middle)
            self._count, self._met = self._count + 1, self._met + 1
        else:
            own.remove(near)
        own.append(near)  # the newest last
        near.push(known, middle)
        self._forget()
        return near

    def _forget(self) -> None:
        while self._count > MOST:
            address, own = next(iter(self._by_address.items()))
            own.pop(0)
            self._count -= 1
            if not own:
                del self._by_address[address]
