"""On-off keyed messages of simulated sensors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

RATE_HZ = 250e3
SHORT_S, LONG_S, PULSE_S = 2e-3, 4e-3, 0.6e-3


def message(
    rng: np.random.Generator,
    offset_hz: float = 12e3,
    chirp_hz: float = 150.0,
    pulse_s: float = PULSE_S,
    clock: float = 1.0,
    snr_db: float = 15.0,
    bits: int = 40,
) -> NDArray[np.complex64]:
    """(T,) pulses whose distance says a bit, each with the phase that its oscillator starts at; silence around them."""
    gaps = np.where(rng.integers(0, 2, bits), LONG_S, SHORT_S) * clock
    starts = 5e-3 + np.concatenate([[0], np.cumsum(gaps)])
    t = np.arange(int((starts[-1] + 5e-3 + bits * 2 * clock * (LONG_S - SHORT_S) / 2) * RATE_HZ)) / RATE_HZ
    x = (rng.normal(size=(len(t), 2)) @ [1, 1j]) * np.sqrt(0.5 / 10 ** (snr_db / 10))
    for start in starts:
        inside = (t >= start) & (t < start + pulse_s)
        u = (t[inside] - start) / pulse_s - 0.5
        x[inside] += np.exp(2j * np.pi * (rng.random() + pulse_s * (offset_hz * u + chirp_hz * u**2 / 2)))
    return x.astype(np.complex64)


def messages(count: int, seed: int, samples: int = 36_000, **settings: float) -> NDArray[np.complex64]:
    """(count, 1, samples)"""
    rng = np.random.default_rng(seed)
    frames = [message(rng, **settings)[:samples] for _ in range(count)]  # type: ignore[arg-type]
    return np.stack([np.pad(x, (0, samples - len(x))) for x in frames])[:, None]
