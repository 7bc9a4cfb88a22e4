"""What is there between the frames: noise, and what is to be taken off first, such as carriers and DC."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy.signal import oaconvolve

from pisa_capc.detect.wifi.screen import BLOCK, block_products

PART = 16  # blocks: the quieter half of such parts is the background
COHERENT = 0.1  # of the background's power at lag 16, above which it is not left as it is
ORDER = 8  # taps of the filter: wide notches, of which a few carriers can have one each
DEAD = 1e-7  # of an antenna's power: with less left of it, it has no noise and hears nothing


def quiet(powers: NDArray[np.float32]) -> NDArray[np.bool_]:
    """(A, parts) the quieter half of each antenna's parts; parts of which a squelch has left nothing do not count."""
    parts = powers[:, : powers.shape[1] // PART * PART].reshape(len(powers), -1, PART).sum(-1)
    sounding = np.where(parts > 0, parts, np.inf)
    middle = [np.median(row[row < np.inf]) if (row < np.inf).any() else 0.0 for row in sounding]
    return np.asarray(sounding <= np.array(middle)[:, None])


def level(powers: NDArray[np.float32], chosen: NDArray[np.bool_]) -> NDArray[np.float64]:
    """(A,) power of a block in the chosen parts."""
    blocks = np.repeat(chosen, PART, axis=1)
    used = powers[:, : blocks.shape[1]]
    return np.asarray((used * blocks).sum(1, dtype=np.float64) / np.maximum(blocks.sum(1), 1))


def prediction_filter(samples: NDArray[np.complex64]) -> NDArray[np.complex64]:
    """(ORDER + 1,) 1, −a_1, … −a_p: what cannot be foretold of (parts, n) samples from the p before, by least squares.

    Its first tap is one: the first path of what passes through it keeps its place.
    """
    rows = sliding_window_view(samples, ORDER + 1, axis=1).reshape(-1, ORDER + 1)[:, ::-1].astype(np.complex128)
    moments = rows.conj().T @ rows
    moments += 1e-12 * np.trace(moments).real * np.eye(ORDER + 1)
    taps = np.linalg.solve(moments[1:, 1:], moments[1:, 0])
    return np.r_[1, -taps].astype(np.complex64)


def without_background(
    iq: NDArray[np.complex64],
) -> tuple[NDArray[np.complex64], NDArray[np.complex64], NDArray[np.float32], NDArray[np.float64]]:
    """Samples with what was coherent between the frames taken off, their block products and powers, and the weights.

    Where nothing is coherent, which is the rule, the samples are as they were. weights: (A,) one over the noise.
    """
    products, powers = block_products(iq)
    chosen = quiet(powers)
    before = level(powers, chosen)
    blocks = np.repeat(chosen, PART, axis=1)
    together = np.abs((products[:, : blocks.shape[1]] * blocks[:, : products.shape[1]]).sum(1)) / blocks.sum(1).clip(1)
    coloured = np.flatnonzero(together > COHERENT * before)
    if len(coloured):
        iq = iq.copy()
        for antenna in coloured:
            parts = iq[antenna, : chosen.shape[1] * PART * BLOCK].reshape(-1, PART * BLOCK)[chosen[antenna]]
            iq[antenna] = oaconvolve(iq[antenna], prediction_filter(parts))[: iq.shape[1]]
        products, powers = block_products(iq)
        chosen = quiet(powers)
    noise = level(powers, chosen)
    alive = noise > DEAD * before
    return iq, products, powers, np.divide(1, noise, out=np.zeros_like(noise), where=alive)
