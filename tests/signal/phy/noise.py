"""A whole frame as a receiver has it: later by a part of a sample, turned by an offset, in noise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def at_receiver(
    x: NDArray[np.complex128],
    rng: np.random.Generator,
    snr_db: float,
    offset: float = 0.0,
    late: float = 0.0,
    antennas: int = 2,
) -> NDArray[np.complex64]:
    """(A, T) with noise of unit power on each antenna; offset in cycles a sample, late in samples."""
    edge = 32
    spectrum = np.fft.fft(np.pad(x, edge))
    frequency = np.fft.fftfreq(len(spectrum))
    moved = np.fft.ifft(spectrum * np.exp(-2j * np.pi * frequency * late))[edge:-edge]
    turned = moved * np.exp(2j * np.pi * offset * np.arange(len(x)))
    power = np.mean(np.abs(x) ** 2)
    phases = np.exp(2j * np.pi * rng.uniform(size=(antennas, 1)))
    noise = rng.normal(size=(antennas, len(x), 2)) @ [1, 1j] / np.sqrt(2)
    return (10 ** (snr_db / 20) / np.sqrt(power) * turned * phases + noise).astype(np.complex64)
