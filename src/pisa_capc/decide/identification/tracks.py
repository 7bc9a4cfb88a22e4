"""Frames of one sender, as far as addresses and carriers tell; those that are close in time, decided as one."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from pisa_capc.data.sources import groups

TOLERANCE_PPM = 1.0  # crystals of one batch differ by some 4 ppm; one of them drifts by 0.01 in a second


def tracks(
    address: Sequence[Hashable], cfo_hz: NDArray[np.float64], carrier_hz: float, tolerance_ppm: float = TOLERANCE_PPM
) -> NDArray[np.int64]:
    """(N,) number of the track of each frame, frames in time order.

    A frame continues the track of its address whose last carrier offset is nearest, where that is within the tolerance,
    and begins one otherwise: a device and another that has taken its address are two tracks. Frames whose address
    is None are told apart by their offset alone. cfo_hz: (N,) of the array.
    """
    tolerance_hz = tolerance_ppm * 1e-6 * carrier_hz
    last: dict[Hashable, dict[int, float]] = {}
    found = np.empty(len(address), dtype=np.int64)
    count = 0
    for i, (name, offset) in enumerate(zip(address, cfo_hz.tolist(), strict=True)):
        own = last.setdefault(name, {})
        near = min(own, key=lambda track: abs(own[track] - offset), default=None)
        if near is None or abs(own[near] - offset) > tolerance_hz:
            near, count = count, count + 1
        own[near] = offset
        found[i] = near
    return found


SMALLEST = 1e-12  # of a probability: one frame alone rules nobody out


def groups_in_time(
    address: Sequence[str | None], track: NDArray[np.int64], time_s: NDArray[np.float64], window_s: float
) -> NDArray[np.int64]:
    """(N,) number of the group of each frame: those of a track with an address, within `window_s` of the first of them.

    A frame that claims no address is alone: two senders may share a carrier offset.
    """
    found = np.empty(len(track), dtype=np.int64)
    current: dict[int, tuple[int, float]] = {}  # of each track: its group, and when that began
    count = 0
    for i, (name, own, time) in enumerate(zip(address, track.tolist(), time_s.tolist(), strict=True)):
        group, begun = current.get(own, (-1, -np.inf))
        if name is None or time - begun > window_s:
            group, count = count, count + 1
            current[own] = group, time
        found[i] = group
    return found


def decide_together(probability: NDArray[np.float64], group: NDArray[np.int64]) -> NDArray[np.float64]:
    """Probabilities (N, C), one for all frames of a group.

        π_G ∝ exp( n^(−1/2) Σ_{i ∈ G} log π_i )

    Were the n frames of a group independent, their logarithms would be summed; were they one frame repeated, averaged.
    They share a channel, so the truth is between, and n^(1/2) frames are counted. Which device is most probable does
    not depend on that, only how probable it is.
    """
    logarithm = np.log(np.maximum(probability, SMALLEST))
    out = np.empty_like(probability)
    for members in groups(group):
        score = logarithm[members].sum(axis=0) / np.sqrt(len(members))
        weight = np.exp(score - score.max())
        out[members] = weight / weight.sum()
    return out
