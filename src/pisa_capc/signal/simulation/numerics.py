"""Inner loops of the simulation: what happens between the samples, unit phasors and complex Gaussian noise."""

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


BLOCK = 2**15  # samples drawn at once; intermediate arrays then stay in a core's cache, which halves the time


def phasor(angle_rad: NDArray[np.float32] | NDArray[np.float64]) -> NDArray[np.complex64]:
    """e^{jθ}. Whole turns of double-precision angles are dropped before the rounding to single."""
    if angle_rad.dtype == np.float64:
        angle_rad = angle_rad - 2 * np.pi * np.rint(angle_rad / (2 * np.pi))  # many times faster than remainder
    angle = angle_rad.astype(np.float32, copy=False)
    out = np.empty(angle.shape, dtype=np.complex64)
    np.cos(angle, out=out.real)
    np.sin(angle, out=out.imag)
    return out


def complex_normal(rng: np.random.Generator, shape: tuple[int, ...], std: float = 1.0) -> NDArray[np.complex64]:
    """Circular complex Gaussian noise with E|z|² = std² (Box & Muller, 1958): z = std √(−ln u) e^{jθ}.

    One 64-bit draw makes one sample: 24 bits for u in (0, 1], 32 for θ in [−π, π), so |z|² reaches 24 ln 2 = 16.6 std².
    Each sample uses exactly one draw, so the stream does not depend on how it is cut into pieces. The vectorised
    logarithm, sine and cosine make this more than twice as fast as the ziggurat method.
    """
    out = np.empty(shape, dtype=np.complex64)
    flat = out.reshape(-1)
    for start in range(0, flat.size, BLOCK):
        part = flat[start : start + BLOCK]
        words = rng.integers(0, 2**64, part.size, dtype=np.uint64)
        angle = _low_half(words)
        angle *= np.float32(np.pi * 2.0**-31)
        words >>= np.uint64(40)
        radius = _low_half(words)
        radius += 1
        radius *= 2**-24
        np.log(radius, out=radius)
        radius *= -(std**2)
        np.sqrt(radius, out=radius)
        np.multiply(radius, np.cos(angle), out=part.real)
        np.multiply(radius, np.sin(angle, out=angle), out=part.imag)
    return out


def _low_half(words: NDArray[np.uint64]) -> NDArray[np.float32]:
    """The low 32 bits of each word as a signed integer, in single precision."""
    return words.astype("<u8", copy=False).view("<i4")[::2].astype(np.float32)
