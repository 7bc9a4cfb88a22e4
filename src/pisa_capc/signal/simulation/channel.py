"""Multipath propagation to the receive array, as a sum of rays.

    h_a(t, τ) = Σ_p α_p exp(jφ_p + j2π u_p·p_a + j2π d_p·r(t)/λ + j2π ν_p t) δ(τ − τ_p)

u_p is the direction of arrival at the array (antenna positions p_a in wavelengths), d_p the direction of departure,
r(t) the path the transmitter walks and ν_p the Doppler shift of a moving scatterer. With directions all around this
is Clarke's model: the correlation over time is J0(2π f_D Δt), over space J0(2π d/λ).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from pisa_capc.data.geometry import ArrayGeometry
from pisa_capc.signal.simulation.numerics import delay_kernel, phasor

SPEED_OF_LIGHT_M_S = 299_792_458.0
BELL_EDGE = 5.0  # of the bell spectrum, in f_d; beyond it lie 4 % of the power, and an unlimited one has no variance
LONGEST_DELAY_SPREADS = 6.0  # rays later than this many delay spreads (−26 dB in an exponential profile) arrive then
WINDOW_SAMPLES = 2**16  # complex samples of the filter's working copy, half a megabyte
LONG_SAMPLES = 2**14  # frames that are longer are filtered in pieces, for the same reason


@dataclass(frozen=True)
class Clusters:
    """Where the reflectors around a transmitter position are; shared by all devices that are put there.

    onset: (C,) first arrival of each cluster, in delay spreads. azimuth_rad: (C,) mean direction of arrival.
    gain: (C,) amplitude of each cluster. los_azimuth_rad: direction of the transmitter itself.
    """

    onset: NDArray[np.float64]
    azimuth_rad: NDArray[np.float64]
    gain: NDArray[np.float64]
    los_azimuth_rad: float


@dataclass(frozen=True)
class Rays:
    """P rays: amplitudes whose squares sum to one, delays, directions, phases and own Doppler shifts."""

    amplitude: NDArray[np.float64]
    delay_s: NDArray[np.float64]
    arrival_rad: NDArray[np.float64]
    departure_rad: NDArray[np.float64]
    phase_rad: NDArray[np.float64]
    doppler_hz: NDArray[np.float64]


def draw_clusters(
    rng: np.random.Generator, clusters: int, axis_deg: float | None, axis_spread_deg: float, cluster_std_db: float
) -> Clusters:
    """Reflectors of one position: all around, or (a corridor) towards both ends of an axis.

    Onsets follow an exponential law (Saleh & Valenzuela, IEEE JSAC 5(2), 1987) and cluster powers a log-normal one, as
    in the IEEE 802.15.3a model.
    """
    if axis_deg is None:
        azimuth = rng.uniform(-np.pi, np.pi, clusters + 1)
    else:
        end = rng.integers(0, 2, clusters + 1) * np.pi
        azimuth = np.deg2rad(axis_deg) + end + np.deg2rad(axis_spread_deg) * rng.standard_normal(clusters + 1)
    onset = np.concatenate([[0.0], rng.exponential(1.0, clusters - 1)])
    gain = 10 ** (cluster_std_db * rng.standard_normal(clusters) / 20)
    return Clusters(onset, azimuth[1:], gain, float(azimuth[0]))


def scattered_rays(
    rng: np.random.Generator, clusters: Clusters, rays_per_cluster: int, delay_spread_s: float, angle_spread_deg: float
) -> Rays:
    """Rays of all clusters; the profile has exactly the given rms delay spread.

    Arrivals within a cluster are exponential in delay and, as in the TGn channel models, Laplacian in angle
    (IEEE 802.11-03/940r4). Equal powers within a cluster keep the sum close to a Gaussian process.
    """
    count = (len(clusters.onset), rays_per_cluster)
    delay = np.minimum(clusters.onset[:, None] + rng.exponential(1.0, count), LONGEST_DELAY_SPREADS)
    angle = clusters.azimuth_rad[:, None] + rng.laplace(0, np.deg2rad(angle_spread_deg) / np.sqrt(2), count)
    amplitude = np.broadcast_to(clusters.gain[:, None], count).ravel()
    amplitude = amplitude / np.linalg.norm(amplitude)
    delay = delay.ravel() - delay.min()
    delay = delay * delay_spread_s / rms_delay_spread_s(amplitude, delay)
    n = delay.size
    return Rays(
        amplitude,
        delay,
        angle.ravel(),
        rng.uniform(-np.pi, np.pi, n),
        rng.uniform(-np.pi, np.pi, n),
        np.zeros(n),
    )


def rms_delay_spread_s(amplitude: NDArray[np.float64], delay_s: NDArray[np.float64]) -> float:
    """√(Σ p τ² − (Σ p τ)²) with p = α²/Σ α²."""
    power = amplitude**2 / np.sum(amplitude**2)
    mean = power @ delay_s
    return float(np.sqrt(power @ (delay_s - mean) ** 2))


def moving_scatterers(
    rng: np.random.Generator, rays: Rays, fraction: float, speed_m_s: float, wavelength_m: float, spectrum: str
) -> Rays:
    """Let a fraction of the rays bounce off people that move; `spectrum` is how their shifts are distributed."""
    moving = rng.random(rays.delay_s.size) < fraction
    shift = SPECTRA[spectrum](rng, moving.size) * speed_m_s / wavelength_m
    return replace(rays, doppler_hz=np.where(moving, shift, 0.0))


def clarke_shifts(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """ν λ/v = 2 cos θ, θ uniform: bodies that all walk at v, and a reflection doubles it. R(Δt) = J0(4π Δt v/λ)."""
    return 2 * np.cos(rng.uniform(-np.pi, np.pi, count))


def bell_shifts(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """ν λ/v with density ∝ 1/(1 + 9 (ν/f_d)²), f_d = v/λ, up to 5 f_d: the bell that was measured in rooms with people.

    Most of a body hardly moves and little of it moves fast, so the spectrum peaks at zero and has long flanks, a tenth
    at f_d (IEEE 802.11-03/940r4, 4.7.1). R(Δt) is close to exp(−2π f_d |Δt|/3): one half after 0.33/f_d, 51 ms at
    5.825 GHz with the v of 1.2 km/h given there.
    """
    edge = np.arctan(3 * BELL_EDGE)
    return np.tan(rng.uniform(-edge, edge, count)) / 3


SPECTRA = {"clarke": clarke_shifts, "bell": bell_shifts}


def with_line_of_sight(rays: Rays, k_factor_db: float, arrival_rad: float, departure_rad: float) -> Rays:
    """Rician channel: a direct ray of power K/(K+1) at delay zero before scattered rays of power 1/(K+1)."""
    k = 10 ** (k_factor_db / 10)
    return Rays(
        np.concatenate([[np.sqrt(k / (k + 1))], rays.amplitude / np.sqrt(k + 1)]),
        np.concatenate([[0.0], rays.delay_s]),
        np.concatenate([[arrival_rad], rays.arrival_rad]),
        np.concatenate([[departure_rad], rays.departure_rad]),
        np.concatenate([[0.0], rays.phase_rad]),
        np.concatenate([[0.0], rays.doppler_hz]),
    )


def steering(geometry: ArrayGeometry, azimuth_rad: NDArray[np.float64]) -> NDArray[np.complex128]:
    """(P, A) phases of plane waves over the array: exp(j2π (x cos θ + y sin θ)), positions in wavelengths."""
    direction = np.stack([np.cos(azimuth_rad), np.sin(azimuth_rad)], axis=-1)
    return np.exp(2j * np.pi * direction @ geometry.positions[:, :2].T)


def random_walk_m(
    rng: np.random.Generator, frames: int, interval_s: float, speed_m_s: float, turning_rad_per_sqrt_s: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(F, 2) positions and (F, 2) velocities of a walk at constant speed whose heading is a Wiener process."""
    turns = turning_rad_per_sqrt_s * np.sqrt(interval_s) * rng.standard_normal(frames)
    heading = rng.uniform(-np.pi, np.pi) + np.cumsum(turns)
    velocity = speed_m_s * np.stack([np.cos(heading), np.sin(heading)], axis=-1)
    position = np.cumsum(velocity, axis=0) * interval_s
    return position, velocity


def ray_phasors(
    rays: Rays, position_m: NDArray[np.float64], time_s: NDArray[np.float64], wavelength_m: float
) -> NDArray[np.complex64]:
    """(…, P) factors exp(jφ_p + j2π d_p·r(t)/λ + j2π ν_p t) for positions (…, 2) at times (…)."""
    direction = np.stack([np.cos(rays.departure_rad), np.sin(rays.departure_rad)])
    turns = position_m @ direction / wavelength_m + time_s[..., None] * rays.doppler_hz
    return phasor(2 * np.pi * turns + rays.phase_rad)


def tap_basis(
    rays: Rays, geometry: ArrayGeometry, sample_rate_hz: float, half_width: int, occupied: float
) -> NDArray[np.complex64]:
    """(P, A, L) band-limited taps of each ray at each antenna; `ray_phasors @ tap_basis` is the impulse response.

    Taps are delayed by `half_width` samples, to hold the part of the kernels before the first arrival; `occupied` as
    in `numerics.delay_kernel`.
    """
    delay = rays.delay_s * sample_rate_hz
    kernel = delay_kernel(delay, half_width, 2 * half_width + 1 + int(np.ceil(delay.max())), occupied)
    gain = rays.amplitude[:, None] * steering(geometry, rays.arrival_rad)
    return (gain[:, :, None] * kernel[:, None, :]).astype(np.complex64)


def filter_frames(x: NDArray[np.complex64], taps: NDArray[np.complex64]) -> NDArray[np.complex64]:
    """(F, A, T): y_a[n] = Σ_l h_a[l] x[n − l] of frames (F, T + L − 1), whose first L − 1 samples are history."""
    frames, antennas, length = taps.shape
    windows = sliding_window_view(x, x.shape[-1] - length + 1, axis=-1)[:, ::-1]
    y = np.empty((frames, antennas, windows.shape[-1]), dtype=np.complex64)
    # One small matrix product per frame. The copy turns overlapping windows into a matrix that BLAS accepts; a few
    # frames at a time keep it in the cache.
    step = max(1, WINDOW_SAMPLES // windows[0].size)
    for start in range(0, frames, step):
        chunk = slice(start, start + step)
        for first in range(0, windows.shape[-1], LONG_SAMPLES):
            part = slice(first, first + LONG_SAMPLES)
            np.matmul(taps[chunk], np.ascontiguousarray(windows[chunk, :, part]), out=y[chunk, :, part])
    return y


def filter_varying(
    x: NDArray[np.complex64], start: NDArray[np.complex64], stop: NDArray[np.complex64]
) -> NDArray[np.complex64]:
    """As `filter_frames`, with taps that go linearly from `start` to `stop` over the T samples."""
    antennas = start.shape[1]
    y = filter_frames(x, np.concatenate([start, stop - start], axis=1))
    samples = y.shape[-1]
    slope = y[:, antennas:]
    slope *= ((np.arange(samples) + 0.5) / samples).astype(np.float32)
    slope += y[:, :antennas]
    return slope
