"""What is there between the frames: noise, and what is to be taken off first, such as carriers and DC."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter1d

from pisa_capc.signal.detection.wifi.chunk import Chunk, Plain
from pisa_capc.signal.detection.wifi.screen import BLOCK

QUIET = 0.25  # of the parts, those that are background
COHERENT = 0.2  # of its power at lag 16, above which it is not left as it is; noise has 0.05
ORDER = 8  # taps of the filter: wide notches, of which a few carriers can have one each
LEARNT = 16  # parts that tell this, and that the filter is made from
DEAD = 1e-7  # of an antenna's power: with less left of it, it has no noise and hears nothing
LOUD = 3.8  # standard deviations of a part's noise above the quietest quarter, which is 1.3 below the mean, but
FAINTEST = 0.16  # at most so much more power: what a preamble that is good enough adds to a part that it fills
AROUND = 2  # parts around one that is loud


@dataclass(frozen=True)
class Powers:
    """How loud the parts of a chunk are.

    noise: (A,) power of the quietest. level: (parts,) mean over the antennas, each in units of its noise, in units of
    the quietest again. deviation: of the level in noise.
    """

    noise: NDArray[np.float64]
    level: NDArray[np.float64]
    deviation: float

    @classmethod
    def of(cls, chunk: Chunk) -> Powers:
        powers = chunk.powers()
        noise = quiet_power(powers)
        live = noise > 0
        level = np.asarray(np.divide(1, noise, out=np.zeros_like(noise), where=live) @ powers, dtype=np.float64)
        if live.any():
            level /= quiet_power(level[None])
        return cls(noise, level, float(1 / np.sqrt(max(live.sum(), 1) * chunk.judged)))

    def loud(self) -> NDArray[np.bool_]:
        """(parts,) those that differ from the noise, and those next to them, where a preamble may begin.

        A preamble must explain a fifth of the power, and explains a twentieth of noise's: it adds 0.19 of that. The
        shortest frame fills at least 0.94 of some part. What is fainter than the noise is not like it either: a gain
        was changed.
        """
        most = 1 + min(LOUD * self.deviation, FAINTEST)
        unlike = ~((self.level < most) & (self.level > 1 / most))
        return np.asarray(maximum_filter1d(unlike, 2 * AROUND + 1))

    def quiet(self) -> NDArray[np.intp]:
        """Some of the quietest parts."""
        order = np.argsort(self.level)
        order = order[self.level[order] > 0]
        few = order[: math.ceil(QUIET * len(order))]
        return few[:: -(-len(few) // LEARNT) or 1]


def quiet_power(powers: NDArray[np.floating]) -> NDArray[np.float64]:
    """(A,) mean of the quietest of (A, parts); those that a squelch has silenced do not count."""
    order = np.sort(np.where(powers > 0, powers, np.inf), axis=1)
    count = np.ceil(QUIET * np.isfinite(order).sum(1)).astype(int)
    total = np.cumsum(order, axis=1, dtype=np.float64)[np.arange(len(order)), count - 1]
    return np.divide(total, count, out=np.zeros_like(total), where=count > 0)


def coherence(parts: NDArray[np.complex64]) -> NDArray[np.float64]:
    """(A,) |Σ y*[n] y[n + 16]| / Σ |y[n]|² of (A, parts, PART) samples.

    Their median: a carrier is in all of them, an L-STF in few.
    """
    early, late = parts[..., :-BLOCK], parts[..., BLOCK:]
    power = np.vecdot(early, early).real
    each = np.divide(np.abs(np.vecdot(early, late)), power, out=np.zeros_like(power), where=power > 0)
    return np.asarray(np.sort(each)[:, each.shape[1] // 2])


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


def without_background(chunk: Chunk) -> tuple[Chunk, NDArray[np.float64], NDArray[np.bool_]]:
    """Samples with what was coherent between the frames taken off, the weights (A,), one over the noise, and which
    parts are loud.

    Where nothing is coherent, which is the rule, the samples are as they were.
    """
    before = powers = Powers.of(chunk)
    chosen = powers.quiet()
    if len(chosen):
        quiet = chunk.parts(chosen)
        coloured = np.flatnonzero(coherence(quiet) > COHERENT)
        if len(coloured):
            chunk = without_carriers(chunk, quiet, coloured)
            powers = Powers.of(chunk)
    living = powers.noise > DEAD * before.noise
    weights = np.divide(1, powers.noise, out=np.zeros_like(powers.noise), where=living)
    return chunk, weights, powers.loud()


def without_carriers(chunk: Chunk, quiet: NDArray[np.complex64], coloured: NDArray[np.intp]) -> Plain:
    """Some antennas behind filters that foretell their quiet parts (A, K, PART)."""
    iq = chunk.whole()
    for antenna in coloured:
        iq[antenna] = filtered(iq[antenna], prediction_filter(quiet[antenna]))
    return Plain(iq)
