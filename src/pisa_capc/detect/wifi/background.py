"""What is there between the frames: noise, and what is to be taken off first, such as carriers and DC."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from pisa_capc.detect.wifi.screen import BLOCK, block_products

PART = 16  # blocks that are looked at together
QUIET = 0.25  # of the parts, those that are background
COHERENT = 0.2  # of its power at lag 16, above which it is not left as it is; noise has 0.05
ORDER = 8  # taps of the filter: wide notches, of which a few carriers can have one each
LEARNT = 16  # parts that the filter is made from
DEAD = 1e-7  # of an antenna's power: with less left of it, it has no noise and hears nothing


def in_parts(values: NDArray[Any]) -> NDArray[Any]:
    """(A, parts) sums over the blocks of each part."""
    parts = values.shape[1] // PART
    return np.asarray(values[:, : parts * PART].reshape(len(values), parts, PART).sum(-1))


def quietest(powers: NDArray[np.float32]) -> NDArray[np.bool_]:
    """(A, parts) the quietest parts of each antenna; those of which a squelch has left nothing do not count."""
    sounding = powers > 0
    order = np.sort(np.where(sounding, powers, np.inf), axis=1)
    last = (QUIET * (sounding.sum(1) - 1).clip(0)).astype(int)
    return np.asarray(sounding & (powers <= np.take_along_axis(order, last[:, None], axis=1)))


def background(products: NDArray[np.complex64], powers: NDArray[np.float32]) -> tuple[NDArray[Any], ...]:
    """(A, parts) which parts are background, (A,) its power and its lag-16 coherence.

    The coherence is the parts' median: a carrier is in all of them, an L-STF in few.
    """
    c, p = np.abs(in_parts(products)), in_parts(powers[:, :-1])
    chosen = quietest(p)
    count = chosen.sum(1)
    each = np.sort(np.divide(c, p, out=np.full_like(p, np.inf), where=chosen), axis=1)
    median = np.take_along_axis(each, count[:, None] // 2, axis=1)[:, 0]
    power = p.sum(1, dtype=np.float64, where=chosen) / np.maximum(count, 1)
    return chosen, power, np.where(count > 0, median, 0)


def prediction_filter(samples: NDArray[np.complex64]) -> NDArray[np.complex64]:
    """(ORDER + 1,) 1, −a_1, … −a_p: what cannot be foretold of (parts, n) samples from the p before, by least squares.

    Its first tap is one: the first path of what passes through it keeps its place.
    """
    rows = sliding_window_view(samples, ORDER + 1, axis=1).reshape(-1, ORDER + 1)[:, ::-1].astype(np.complex128)
    moments = rows.conj().T @ rows
    moments += 1e-12 * np.trace(moments).real * np.eye(ORDER + 1)
    taps = np.linalg.solve(moments[1:, 1:], moments[1:, 0])
    return np.r_[1, -taps].astype(np.complex64)


def filtered(samples: NDArray[np.complex64], taps: NDArray[np.complex64]) -> NDArray[np.complex64]:
    """(n,) samples behind a short filter, tap by tap: four times as fast as a convolution by transforms."""
    out = samples * taps[0]
    for delay in range(1, len(taps)):
        out[delay:] += taps[delay] * samples[:-delay]
    return out


def without_background(
    iq: NDArray[np.complex64],
) -> tuple[NDArray[np.complex64], NDArray[np.complex64], NDArray[np.float32], NDArray[np.float64]]:
    """Samples with what was coherent between the frames taken off, their block products and powers, and the weights.

    Where nothing is coherent, which is the rule, the samples are as they were. weights: (A,) one over the noise.
    """
    products, powers = block_products(iq)
    chosen, before, coherence = background(products, powers)
    noise = before
    coloured = np.flatnonzero(coherence > COHERENT)
    if len(coloured):
        iq = iq.copy()
        for antenna in coloured:
            parts = iq[antenna, : chosen.shape[1] * PART * BLOCK].reshape(-1, PART * BLOCK)[chosen[antenna]]
            iq[antenna] = filtered(iq[antenna], prediction_filter(parts[:: -(-len(parts) // LEARNT)]))
        products, powers = block_products(iq)
        _, noise, _ = background(products, powers)
    return iq, products, powers, np.divide(1, noise, out=np.zeros_like(noise), where=noise > DEAD * before)
