"""Phases of channel state: what the receiver's own clocks put into them, taken off."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def sanitise(csi: NDArray[np.complexfloating[Any, Any]], subcarriers: NDArray[np.int64]) -> NDArray[np.complex64]:
    """H'_a(k) = H_a(k) e^{−j(ŝk + φ̂)}: frames (n, A, K) without timing slope and common phase.

    A frame that is cut δ seconds early or late turns subcarrier k by 2πkΔfδ, and its oscillators' phase turns all of
    them alike; both are new with every packet and the same on all antennas, which share a clock. So one line is fitted
    to a frame: ŝ is the mean over antennas of the least-squares slopes of the phase over k, φ̂ what is then the mean
    phase of the first antenna. Differences between antennas, which the direction of arrival is in, stay.

    The phase is unwrapped after a first estimate of the slope, ∠Σ H_a(k+g) H_a*(k) / g over neighbours with the usual
    gap g, is off it: a late frame would otherwise turn by more than π from one subcarrier to the next but three.
    """
    k = subcarriers.astype(np.float64)
    gaps = np.diff(k)
    gap = float(np.median(gaps))
    steps = (csi[..., 1:] * csi[..., :-1].conj())[..., gaps == gap]
    first = np.angle(steps.sum((-2, -1), dtype=np.complex128)) / gap
    phase = np.unwrap(np.angle(csi * _turn(first, k)), axis=-1)  # (n, A, K)
    centred = k - k.mean()
    rest = (phase @ centred).mean(-1) / (centred @ centred)
    common = phase[:, 0].mean(-1) - rest * k.mean()
    return np.asarray(csi * _turn(first + rest, k) * np.exp(-1j * common)[:, None, None], dtype=np.complex64)


def _turn(slope: NDArray[np.float64], k: NDArray[np.float64]) -> NDArray[np.complex128]:
    return np.exp(-1j * slope[:, None, None] * k)
