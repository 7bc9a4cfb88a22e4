"""How a transmitter shifts its frequency: modulation index, drift and pulse shape, fitted beside the flaws.

Of a signal whose envelope is constant, x = exp(jφ), and whose phase says the bits, small errors of the modulator are

    x exp(jε φ) ≈ x + ε jφ x                     the modulation index is h (1 + ε)
    x exp(jπ ḟ T² (u² − 1/12)) ≈ x + jπ ḟ T² (u² − 1/12) x        the carrier drifts by ḟ; u = n/T − ½
    x exp(j(δ/2) φ″) ≈ x + (δ/2) jφ″ x           pulses of frequency are wider: their variance grows by δ samples²

so each θ is real. A line in φ is a carrier offset, and is taken off first. They change with temperature and supply; so
they are shown and do not say who sent a frame.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.data.frames import UnlabelledFrames
from pisa_capc.signal.measurement.estimator import FlawEstimator
from pisa_capc.signal.waveforms import Waveform

AT_ONCE = 4096  # frames
BESIDE: Sequence[str] = ("image", "leakage", "offset")  # flaws of a constant envelope
UNITS = (("modulation index", "%"), ("drift", "Hz/ms"), ("pulse variance", "ns²"))  # of SHAPES, beyond nominal

Real = NDArray[np.floating[Any]]
Complex = NDArray[np.complexfloating[Any, Any]]


def _phase(x: Complex) -> NDArray[np.float64]:
    """(T,) of the signal, without its mean slope."""
    n = np.arange(len(x)) - (len(x) - 1) / 2
    phase = np.unwrap(np.angle(x))
    phase = phase - phase.mean()
    return np.asarray(phase - n * (n @ phase) / (n @ n))


def index(x: Complex) -> Complex:
    """jφ x: the modulation index, or the frequency deviation, is larger by a part θ."""
    return 1j * _phase(x) * x


def drift(x: Complex) -> Complex:
    """j(u² − 1/12) x: θ = π ḟ T²."""
    return 1j * ((np.arange(len(x)) / len(x) - 0.5) ** 2 - 1 / 12) * x


def pulse(x: Complex) -> Complex:
    """jφ″ x: θ = δ/2."""
    return 1j * np.gradient(np.gradient(_phase(x))) * x


SHAPES: Mapping[str, Callable[[Complex], Complex]] = MappingProxyType({"index": index, "drift": drift, "pulse": pulse})


def measure_modulation(waveform: Waveform, frames: UnlabelledFrames) -> tuple[Real, Real]:
    """(N, 3) in `UNITS`, and the standard deviations of the errors; NaN of frames that could not be measured."""
    estimator = FlawEstimator(waveform, frames.samples, BESIDE, beside=SHAPES)
    found = [estimator.measure(part.iq) for part in frames.batches(AT_ONCE)]
    every = found[0].joined(found[1:])
    own = [every.flaws.index(name) for name in SHAPES]
    duration_s = (estimator.samples + estimator.taps[0]) / waveform.sample_rate_hz  # of x, which filters read ahead
    sample_ns = 1e9 / waveform.sample_rate_hz
    unit = np.array([100.0, 1e-3 / (np.pi * duration_s**2), 2 * sample_ns**2])
    std = np.sqrt(np.diagonal(every.covariance, axis1=1, axis2=2).real[:, own] / 2) * unit
    good = every.measured[:, None]
    return np.where(good, every.value[:, own].real * unit, np.nan), np.where(good, std, np.nan)
