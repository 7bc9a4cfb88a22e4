"""The receiver: carrier frequency offset as recorded and as it remains in the I/Q, noise, levels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pisa_capc.signal.simulation.hardware import DeviceProfile, Spread
from pisa_capc.signal.simulation.numerics import complex_normal, phasor


@dataclass(frozen=True)
class FrequencySpread:
    """How frequency moves with place and time. Units are in the names; the scene files give sources.

    environment_ppm: shift of a device's crystal by the temperature of an environment.
    capture_ppm: shift from one capture to the next. drift_ppm_per_s: slope within a capture.
    jitter_hz: a capture's standard deviation of the per-frame, per-antenna estimate.
    residual_fraction: part of the nominal CFO that correction leaves in the I/Q.
    residual_jitter_hz: a capture's standard deviation of the residual from frame to frame.
    """

    environment_ppm: Spread
    capture_ppm: Spread
    drift_ppm_per_s: Spread
    jitter_hz: Spread
    residual_fraction: float
    residual_jitter_hz: Spread


def oscillator_cfo_hz(
    profile: DeviceProfile,
    spread: FrequencySpread,
    carrier_hz: float,
    frame_time_s: NDArray[np.float64],
    environment_rng: np.random.Generator,
    capture_rng: np.random.Generator,
) -> NDArray[np.float64]:
    """(F, A) f = f_c (ε_device + ε_antenna + ε_environment + ε_capture + ε̇ t): the true offset, not an estimate.

    `environment_rng` belongs to a device in an environment, `capture_rng` to one capture.
    """
    fixed_ppm = profile.cfo_ppm + spread.environment_ppm.draw(environment_rng) + spread.capture_ppm.draw(capture_rng)
    slope_ppm_per_s = spread.drift_ppm_per_s.draw(capture_rng)
    ppm = fixed_ppm + np.array(profile.antenna_cfo_ppm) + slope_ppm_per_s * frame_time_s[:, None]
    return carrier_hz * 1e-6 * ppm


def nominal_cfo_hz(
    profile: DeviceProfile,
    spread: FrequencySpread,
    carrier_hz: float,
    frame_time_s: NDArray[np.float64],
    environment_rng: np.random.Generator,
    capture_rng: np.random.Generator,
    jitter_rng: np.random.Generator | None = None,
) -> NDArray[np.float64]:
    """(F, A) what a receiver notes of each frame: f + jitter, f as in `oscillator_cfo_hz`.

    `jitter_rng`: of the place, where the size of the jitter is its own; by default it is the capture's.
    """
    offset_hz = oscillator_cfo_hz(profile, spread, carrier_hz, frame_time_s, environment_rng, capture_rng)
    jitter_std_hz = spread.jitter_hz.draw(capture_rng if jitter_rng is None else jitter_rng)
    return offset_hz + jitter_std_hz * capture_rng.standard_normal(offset_hz.shape)


def residual_cfo_hz(
    nominal_hz: NDArray[np.float64],
    spread: FrequencySpread,
    rng: np.random.Generator,
    jitter_rng: np.random.Generator | None = None,
) -> NDArray[np.float64]:
    """(F, A) what is left in the I/Q: ρ f + jitter; the jitter of a frame is common to its antennas (one LO).

    `jitter_rng`: as in `nominal_cfo_hz`.
    """
    std_hz = spread.residual_jitter_hz.draw(rng if jitter_rng is None else jitter_rng)
    return spread.residual_fraction * nominal_hz + std_hz * rng.standard_normal((len(nominal_hz), 1))


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
