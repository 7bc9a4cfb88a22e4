"""Which frames are of one sender, as far as addresses and carriers tell."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

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
