"""Band-limited interpolation: what happens between the samples."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike, NDArray

LONG_SAMPLES = 2**14  # worked on at once; longer signals in pieces, for memory
TABLE_STEPS = 256  # delays of half a sample to either side in a table of kernels

Kernel = Callable[[NDArray[np.float64], int, int, float], NDArray[np.float64]]


def delay_kernel(delay_samples: ArrayLike, half_width: int, length: int, occupied: float) -> NDArray[np.float64]:
    """(…, length) taps of a fractional delay: k[l] = sinc(x) exp(β(√(1 − (x/W)²) − 1)), x = l − W − delay.

    Filtering with them delays by `delay_samples` + W. `occupied` is the part of the Nyquist band the signal uses; what
    it leaves free sets β = 2.8 W (1 − occupied), and with it the error. Over the 52 subcarriers of Wi-Fi (0.81): −56 dB
    on average and −42 dB at the outermost for W = 8, −94 and −76 dB for W = 16; for LoRa at 1 MS/s (0.125): −88 dB for
    W = 4. The window is the cheap near-optimal one of Barnett, Magland & af Klinteberg (SIAM J. Scientific Computing
    41(5), 2019).
    """
    x = np.arange(length) - half_width - np.asarray(delay_samples, dtype=np.float64)[..., None]
    beta = 2.8 * half_width * (1 - occupied)
    inside = 1 - (x / half_width) ** 2
    window = np.exp(beta * (np.sqrt(np.maximum(inside, 0)) - 1))
    return np.where(inside > 0, np.sinc(x) * window, 0.0)


def tabulated_kernel(
    delay_samples: NDArray[np.float64], half_width: int, length: int, occupied: float
) -> NDArray[np.float64]:
    """As `delay_kernel` for delays of −½ … ½, many times faster: linear between kernels h = 1/256 apart.

    A kernel's second derivative is at most π²/3 + 2.8/W, so the error of a tap is at most h²/8 of that, 7·10⁻⁶.
    """
    table = _kernels(half_width, length, occupied)
    place = (delay_samples + 0.5) * TABLE_STEPS
    node = np.clip(place.astype(np.int64), 0, TABLE_STEPS - 1)
    weight = (place - node)[..., None]
    return table[node] * (1 - weight) + table[node + 1] * weight


@cache
def _kernels(half_width: int, length: int, occupied: float) -> NDArray[np.float64]:
    return delay_kernel(np.linspace(-0.5, 0.5, TABLE_STEPS + 1), half_width, length, occupied)


def resample(
    x: NDArray[np.complexfloating[Any, Any]],
    ratio: float,
    occupied: float,
    half_width: int = 16,
    kernel: Kernel = delay_kernel,
) -> NDArray[np.complex128]:
    """y[n] = x(n · ratio) on the last axis, for ratios close to one; the signal is zero outside its samples."""
    n = x.shape[-1]
    position = np.arange(n) * ratio
    whole = np.rint(position).astype(np.int64)
    after = half_width + max(0, int(whole[-1]) - n + 1)
    padded = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(half_width, after)])
    windows = sliding_window_view(padded, 2 * half_width + 1, axis=-1)
    y = np.empty(x.shape, dtype=np.complex128)
    for start in range(0, n, LONG_SAMPLES):
        part = slice(start, start + LONG_SAMPLES)
        taps = kernel(position[part] - whole[part], half_width, 2 * half_width + 1, occupied)
        np.einsum("...nl,nl->...n", windows[..., whole[part], :], taps, out=y[..., part])
    return y
