"""Who sends when: exchanges at random times, spoofed addresses, collisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pisa_capc.simulate.networks import Message, Network, Station


@dataclass(frozen=True)
class Spoof:
    """`device` sends with the address of `victim` from `first_sample` on."""

    device: str
    victim: str
    first_sample: int


@dataclass(frozen=True)
class Transmission:
    """One frame on the air.

    number: in order of time. start: the recording's sample that the frame's first falls on, or is nearest to;
    delay_samples: how much later it is, −½ … ½: no sender waits for the receiver's clock.
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


def plan_traffic(
    network: Network,
    rng: np.random.Generator,
    senders: Sequence[str],
    rates: Sequence[float],
    length: int,
    duty: float,
    collisions: float,
    spoofs: Sequence[Spoof],
) -> list[Transmission]:
    """Every frame of a recording of `length` samples; only whole ones.

    Silences are exponential, with a mean of (1 − duty)/duty times the exchange before, and no shorter than the network
    allows. Into a part `collisions` of the exchanges a second device sends: nobody answers either then.
    """
    placed: list[tuple[int, Message]] = []
    now, air = 0, network.pause_samples
    while duty > 0:
        now += max(network.pause_samples, int(rng.exponential(air * (1 - duty) / duty)))
        collided = rng.random() < collisions
        begun = now
        device = senders[int(rng.integers(len(senders)))]
        exchange = _exchange(network, rng, device, senders, rates, now, spoofs, not collided)
        if collided:
            exchange = exchange[:1]
        for message in exchange:
            now += message.wait_samples
            placed.append((now, message))
            now += message.samples
        if collided:
            start = begun + 1 + int(rng.integers(exchange[0].samples - 1))
            other = [name for name in senders if name != device]
            second = other[int(rng.integers(len(other)))]
            message = _exchange(network, rng, second, senders, rates, start, spoofs, False)[0]
            placed.append((start, message))
            now = max(now, start + message.samples)
        if now > length:
            break
        air = now - begun
    delays = rng.uniform(-0.5, 0.5, len(placed))
    whole = [(start, message, delay) for (start, message), delay in zip(placed, delays, strict=True)]
    ordered = sorted((item for item in whole if item[0] + item[1].samples <= length), key=lambda item: item[0])
    sent = [Transmission(i, start, float(delay), message) for i, (start, message, delay) in enumerate(ordered)]
    return with_collisions(sent)


def _exchange(
    network: Network,
    rng: np.random.Generator,
    device: str,
    senders: Sequence[str],
    rates: Sequence[float],
    now: int,
    spoofs: Sequence[Spoof],
    answered: bool,
) -> list[Message]:
    claimed = next((s.victim for s in spoofs if s.device == device and now >= s.first_sample), device)
    others = [name for name in senders if name not in (device, claimed)]
    return network.exchange(rng, Station(device, network.address(claimed)), others, rates, answered)


def with_collisions(sent: Sequence[Transmission]) -> list[Transmission]:
    """Transmissions in order of time, each marked if it begins before another has ended."""
    last, marked = None, [False] * len(sent)
    for i, one in enumerate(sent):
        if last is not None and one.start < sent[last].stop:
            marked[i] = marked[last] = True
        if last is None or one.stop > sent[last].stop:
            last = i
    return [replace(one, collides=mark) for one, mark in zip(sent, marked, strict=True)]
