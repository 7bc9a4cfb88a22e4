"""Streams with Wi-Fi frames at known places, for tests of what finds them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pisa_capc.signal.waveforms.wifi import ppdu, random_psdu

RATE_HZ = 20e6


def sent(rng: np.random.Generator, octets: int = 40) -> NDArray[np.complex128]:
    """(T,) a whole frame of unit power."""
    return ppdu(random_psdu(rng, 1, octets), rng.integers(1, 128, 1))[0]


@dataclass
class Air:
    """Noise of unit power on each antenna, to which frames are added."""

    antennas: int
    length: int
    seed: int = 0
    noise: float = 1.0

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        shape = (2, self.antennas, self.length)
        real, imaginary = self.noise * np.sqrt(0.5) * self.rng.standard_normal(shape)
        self.samples = real + 1j * imaginary

    def add(
        self,
        frame: NDArray[np.complex128],
        start: int,
        snr_db: float,
        cfo_hz: float | NDArray[np.float64] = 0.0,
        paths: tuple[tuple[int, float], ...] = ((0, 1.0),),
    ) -> None:
        """A frame behind paths (delay in samples, amplitude) with random phases; what lies outside is cut off."""
        spread = np.zeros((self.antennas, len(frame) + max(delay for delay, _ in paths)), dtype=complex)
        for delay, amplitude in paths:
            phase = np.exp(2j * np.pi * self.rng.random((self.antennas, 1)))
            spread[:, delay : delay + len(frame)] += amplitude * phase * frame
        turn = np.broadcast_to(np.asarray(cfo_hz, dtype=float), self.antennas)[:, None] / RATE_HZ
        received = 10 ** (snr_db / 20) * spread * np.exp(2j * np.pi * turn * np.arange(spread.shape[1]))
        first, last = max(start, 0), min(start + received.shape[1], self.length)
        self.samples[:, first:last] += received[:, first - start : last - start]

    @property
    def iq(self) -> NDArray[np.complex64]:
        """The stream at a receiver's scale."""
        return (0.01 * self.samples).astype(np.complex64)
