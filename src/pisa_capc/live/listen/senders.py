"""Who has been heard lately: frames of one sender, as far as addresses and carriers tell, in bounded memory."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pisa_capc.data.descriptors import WINDOW, newest_descriptor
from pisa_capc.decide.identification.tracks import TOLERANCE_PPM

MOST = 1024  # senders that are remembered; addresses are whatever somebody sends
CARRIERS = 16  # of an enrolled address
FRAMES = 16  # numbers of a sender's newest frames


@dataclass(eq=False)
class Sender:
    """One address, or none, at one carrier offset. trace: (n, A) of its newest frames."""

    number: int
    address: str | None
    trace: NDArray[np.float64]
    last_hz: float
    numbers: deque[int] = field(default_factory=lambda: deque(maxlen=FRAMES))

    def push(self, cfo_hz: NDArray[np.float64]) -> NDArray[np.float64]:
        """Its trace up to the next frame, of the antennas that this one has; cfo_hz: (A,), NaN of a dead antenna."""
        there = np.isfinite(cfo_hz)
        self.last_hz = middle(cfo_hz)
        self.trace = np.concatenate([self.trace, np.where(there, cfo_hz, self.last_hz)[None]])[-WINDOW:]
        return self.trace if there.all() else self.trace[:, there]


def middle(cfo_hz: NDArray[np.float64]) -> float:
    """The median of the antennas that are there; four numbers are sorted sooner than NumPy is called."""
    there = sorted(filter(math.isfinite, cfo_hz.tolist()))
    return (there[(len(there) - 1) // 2] + there[len(there) // 2]) / 2


def newest_descriptors(traces: Sequence[NDArray[np.float64]]) -> NDArray[np.float32]:
    """(N, 4) descriptors of the last frame of each trace (n, A), those of one shape at once."""
    out = np.empty((len(traces), 4), dtype=np.float32)
    for shape in {trace.shape for trace in traces}:
        alike = [i for i, trace in enumerate(traces) if trace.shape == shape]
        out[alike] = newest_descriptor(np.stack([traces[i] for i in alike]))
    return out


class Senders:
    """As `decide.identification.tracks`, frame by frame.

    Of unknown devices, the one that has been silent for longest is forgotten. They can never displace an enrolled
    address; under one of those a spoofer may send at any number of carriers, and those with fewest frames go.
    """

    def __init__(self, antennas: int, carrier_hz: float, enrolled: Callable[[str | None], bool]) -> None:
        self._antennas, self._tolerance_hz, self._enrolled = antennas, TOLERANCE_PPM * 1e-6 * carrier_hz, enrolled
        self._strangers: OrderedDict[str | None, list[Sender]] = OrderedDict()
        self._known: dict[str | None, list[Sender]] = {}
        self._count = self._met = 0

    def of(self, address: str | None, cfo_hz: NDArray[np.float64]) -> Sender:
        """The sender of a frame whose carrier offset is (A,), NaN for a dead antenna."""
        offset_hz, enrolled = middle(cfo_hz), self._enrolled(address)
        if enrolled:
            own = self._known.setdefault(address, [])
        else:
            own = self._strangers.setdefault(address, [])
            self._strangers.move_to_end(address)
        near = min(own, key=lambda sender: abs(sender.last_hz - offset_hz), default=None)
        if near is None or abs(near.last_hz - offset_hz) > self._tolerance_hz:
            near = Sender(self._met, address, np.empty((0, self._antennas)), offset_hz)
            self._count, self._met = self._count + (not enrolled), self._met + 1
        else:
            own.remove(near)
        own.append(near)  # the newest last
        if enrolled and len(own) > CARRIERS:
            own.remove(min(own[:-1], key=lambda sender: len(sender.numbers)))
        self._forget()
        return near

    def frames(self, address: str | None) -> tuple[int, ...]:
        """Numbers of the newest frames of an address, from any sender."""
        numbers = sorted(number for sender in self._of(address) for number in sender.numbers)
        return tuple(numbers[-2 * FRAMES :])

    def _of(self, address: str | None) -> list[Sender]:
        return self._known.get(address) or self._strangers.get(address) or []

    def _forget(self) -> None:
        while self._count > MOST:
            address, own = next(iter(self._strangers.items()))
            own.pop(0)
            self._count -= 1
            if not own:
                del self._strangers[address]
