"""Frames that one sender sent within a short time, decided as one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pisa_capc.data.sources import groups

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
