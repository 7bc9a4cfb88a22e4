"""Who sends when: exchanges at random times, spoofed addresses, collisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pisa_capc.signal.simulation.networks import Message, Network, Station


@dataclass(frozen=True)
class Spoof:
    """`device` sends with the address of `victim` from `first_sample` on."""

    device: str
    victim: str
    first_sample: int


@dataclass(frozen=True)
class Transmission:
    """One frame on the air.

    number: in order of time. start: the recording's sample that is nearest to the frame's first; delay_samples: how
    much later the frame begins, −½ … ½, since no sender waits for the receiver's clock.
    collides: whether another frame is on the air at the same time.
    """

    number: int
    start: int
    delay_samples: float
    message: Message
    collides: bool = False

    @property
    def stop(self) -> int:
        return self.start + self.message.samples


@dataclass(frozen=True, eq=False)
class Traffic:
    """What devices of one network send in a recording. rates: of data. rng: of everything that is drawn."""

    network: Network
    senders: Sequence[str]
    rates: Sequence[float]
    spoofs: Sequence[Spoof]
    rng: np.random.Generator

    def plan(self, length: int, duty: float, collisions: float) -> list[Transmission]:
        """Every frame of a recording of `length` samples; only whole ones.

        Silences are exponential, with a mean of (1 − duty)/duty times the exchange before, and no shorter than the
        network allows. Into a part `collisions` of the exchanges a second device sends.
        """
        if duty == 0:
            return []
        placed: list[tuple[int, Message]] = []
        now, air = 0, self.network.pause_samples
        while now <= length:
            now += max(self.network.pause_samples, int(self.rng.exponential(air * (1 - duty) / duty)))
            exchange = self._collision(now) if self.rng.random() < collisions else self._exchange(now)
            placed += exchange
            end = max(start + message.samples for start, message in exchange)
            now, air = end, end - now
        whole = sorted((one for one in placed if one[0] + one[1].samples <= length), key=lambda one: one[0])
        delays = self.rng.uniform(-0.5, 0.5, len(whole)).tolist()
        return with_collisions([Transmission(i, start, delays[i], message) for i, (start, message) in enumerate(whole)])

    def _exchange(self, now: int) -> list[tuple[int, Message]]:
        """What one device and who answers it say from now on, each message with its first sample."""
        placed = []
        for message in self._messages(self._one_of(self.senders), now, answered=True):
            now += message.wait_samples
            placed.append((now, message))
            now += message.samples
        return placed

    def _collision(self, now: int) -> list[tuple[int, Message]]:
        """A frame, and another that begins while it lasts; neither is answered."""
        device = self._one_of(self.senders)
        first = self._messages(device, now, answered=False)[0]
        start = now + int(self.rng.integers(1, first.samples))
        other = self._one_of([name for name in self.senders if name != device])
        return [(now, first), (start, self._messages(other, start, answered=False)[0])]

    def _messages(self, device: str, now: int, answered: bool) -> list[Message]:
        claimed = next((s.victim for s in self.spoofs if s.device == device and now >= s.first_sample), device)
        others = [name for name in self.senders if name not in (device, claimed)]
        sender = Station(device, self.network.address(claimed))
        return self.network.exchange(self.rng, sender, others, self.rates, answered)

    def _one_of(self, names: Sequence[str]) -> str:
        return names[int(self.rng.integers(len(names)))]


def with_collisions(sent: Sequence[Transmission]) -> list[Transmission]:
    """Transmissions in order of time, each marked if it overlaps another."""
    marked = [False] * len(sent)
    last = 0  # of those before, the one that ends last
    for i in range(1, len(sent)):
        if sent[i].start < sent[last].stop:
            marked[i] = marked[last] = True
        if sent[i].stop > sent[last].stop:
            last = i
    return [replace(one, collides=mark) for one, mark in zip(sent, marked, strict=True)]
