"""Where an L-STF may be: products of samples 16 apart, over all antennas, in steps of 16 samples."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter1d

BLOCK = 16  # samples: the L-STF's period, so that a block and the next one are equal in it
WINDOW = 8  # blocks: as many as lie whole in the 160 samples of an L-STF wherever it begins, with one to compare with
BAND = 52 / 64  # of its samples, those of an OFDM signal that are independent
CHANCE = 1e-4  # with which a window that holds no L-STF passes
APART = 10  # windows: two L-STF that begin closer together are taken for one
BEFORE = 12  # windows: where what was there before an L-STF is looked at


def coherence_threshold(chance: float = CHANCE) -> float:
    """The squared coherence that a window without an L-STF exceeds with that chance.

    Of L independent pairs of complex Gaussian samples, the squared sample coherence |Σ y* z|²/(Σ|y|² Σ|z|²) exceeds t
    with probability (1 − t)^(L−1). L is that of one antenna, WINDOW · BLOCK · BAND: antennas add pairs of noise, but
    what they hear of another signal is the same.
    """
    pairs = WINDOW * BLOCK * BAND
    return float(1 - chance ** (1 / (pairs - 1)))


def block_products(iq: NDArray[np.complex64]) -> tuple[NDArray[np.complex64], NDArray[np.float32]]:
    """(A, B) c_b = Σ y*[n] y[n + 16] and (A, B + 1) p_b = Σ |y[n]|² over the 16 samples of block b, of (A, 16 (B + 1)).

    The lag is the block's length: c_b is the inner product of a block and the next one.
    """
    blocks = iq.reshape(len(iq), -1, BLOCK)
    parts = iq.view(np.float32).reshape(len(iq), -1, 2 * BLOCK)
    return np.vecdot(blocks[:, :-1], blocks[:, 1:]), np.vecdot(parts, parts)


def over_window(values: NDArray[Any]) -> NDArray[Any]:
    """Sums of WINDOW neighbours, by sums of two, four, eight; a running sum would carry one bad sample to the end."""
    for shift in (1, 2, 4):
        values = values[:-shift] + values[shift:]
    return values


def candidates(
    products: NDArray[np.complex64], powers: NDArray[np.float32], weights: NDArray[np.float64]
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Blocks where an L-STF may begin, and the angle of the lag-16 correlation there.

    ρ_w² = |C_w|²/(P_w P_{w+1}) with C_w, P_w summed over the antennas (`weights`: one over their noise) and the blocks
    of window w. Coherent power must be new there: a carrier is coherent, but it was so before. Of the windows that
    pass, those with the most coherent power within APART: it is greatest where all of the window is L-STF, while ρ is
    close to one from where the first sample has come in.
    """
    weights = weights.astype(np.float32)  # as the products are
    coherent = over_window(weights @ products)
    power = over_window(weights @ powers)
    strength = np.abs(coherent)
    with np.errstate(divide="ignore", invalid="ignore"):
        squared = strength**2 / (power[:-1] * power[1:])
    threshold = coherence_threshold()
    before = np.maximum(np.arange(len(squared)) - BEFORE, 0)
    new = (strength > 2 * strength[before]) | ~(squared[before] > threshold / 2)
    passed = (squared > threshold) & new
    strength = np.where(passed, strength, 0)
    best = np.flatnonzero(passed & (strength == maximum_filter1d(strength, 2 * APART + 1, mode="constant")))
    return best, np.angle(coherent[best])
