"""From the antennas to the stored frame: frequency, phase, noise, levels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pisa_capc.signal.simulation.phasor import complex_normal, phasor


def rotation(
    frequency_hz: NDArray[np.float64], phase_rad: NDArray[np.float64], samples: int, sample_rate_hz: float
) -> NDArray[np.complex64]:
    """(…, T) exp(j2π f n/fs + jφ) for frequencies and phases (…).

    e^{jω(mB + k)} = e^{jωmB} e^{jωk}: two short tables instead of T exponentials.
    """
    block = 1 << (max(samples - 1, 1).bit_length() + 1) // 2
    omega = 2 * np.pi * frequency_hz[..., None] / sample_rate_hz
    fine = phasor(omega * np.arange(block))
    coarse = phasor(omega * block * np.arange(-(-samples // block)) + phase_rad[..., None])
    table = coarse[..., :, None] * fine[..., None, :]
    return table.reshape(*frequency_hz.shape, -1)[..., :samples]


def add_noise(rng: np.random.Generator, y: NDArray[np.complex64], snr_db: float) -> NDArray[np.complex64]:
    """y + n with E|n|² = 10^(−SNR/10): SNR against a mean received power of one, so a fade lowers it."""
    noise = complex_normal(rng, y.shape, std=10 ** (-snr_db / 20))
    noise += y
    return noise


def level(y: NDArray[np.complex64], equalise_antennas: bool) -> NDArray[np.complex64]:
    """Unit mean power per frame; with `equalise_antennas` unit power on each antenna, which implies it."""
    parts = y.view(np.float32)
    power = np.einsum("fat,fat->fa", parts, parts) / np.float32(y.shape[-1])
    if not equalise_antennas:
        power = power.mean(axis=1, keepdims=True)
    parts *= (1 / np.sqrt(power))[:, :, None]
    return y
