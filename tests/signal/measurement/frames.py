"""Frames of transmitters whose flaws are known, behind random channels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.signal.measurement import FLAWS
from pisa_capc.signal.waveforms import WAVEFORMS

Complex = NDArray[np.complexfloating[Any, Any]]


def sent_with(waveform: str, flaws: Mapping[str, complex]) -> Complex:
    """x + Σ θ_j b_j(x)."""
    x = WAVEFORMS[waveform].preamble()
    return np.asarray(x + sum(value * FLAWS[name].of(x) for name, value in flaws.items()))


def white(rng: np.random.Generator, *shape: int) -> Complex:
    """Complex noise of unit power."""
    return np.asarray(rng.normal(size=(*shape, 2)) @ [1, 1j]) / np.sqrt(2)


def received(
    sent: Complex, frames: int, rng: np.random.Generator, snr_db: float = np.inf, echo: float = 0.56, samples: int = 320
) -> Complex:
    """(frames, 4, samples) behind three taps of its own for each frame and antenna, of unit power before the noise."""
    channel = white(rng, frames, 4, 3) * echo ** np.arange(3)
    y = np.zeros((frames, 4, samples), dtype=complex)
    for delay in range(3):
        y += channel[:, :, delay, None] * np.pad(sent, (delay, 0))[:samples]
    y /= np.sqrt(np.mean(np.abs(y) ** 2, axis=(1, 2), keepdims=True))
    return np.asarray(y + 10 ** (-snr_db / 20) * white(rng, *y.shape))
