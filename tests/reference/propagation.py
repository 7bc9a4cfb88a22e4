"""A frame as a sum over rays, written down directly: slow and obvious."""

from __future__ import annotations

import numpy as np

from pisa_capc.data.geometry import ArrayGeometry
from pisa_capc.signal.simulation.channel import Rays


def multitone(frequency_hz: np.ndarray, coefficient: np.ndarray, time_s: np.ndarray) -> np.ndarray:
    """s(t) = Σ_k c_k exp(j2π f_k t): a signal that is known between its samples."""
    return np.exp(2j * np.pi * np.multiply.outer(time_s, frequency_hz)) @ coefficient


def received_frame(
    frequency_hz: np.ndarray,
    coefficient: np.ndarray,
    rays: Rays,
    geometry: ArrayGeometry,
    wavelength_m: float,
    position_m: np.ndarray,
    velocity_m_s: np.ndarray,
    start_s: float,
    time_s: np.ndarray,
) -> np.ndarray:
    """(A, T) y_a(t) = Σ_p α_p exp(jφ_p + j2π u_p·p_a + j2π d_p·(r + v t)/λ + j2π ν_p (t₀ + t)) s(t − τ_p)."""
    y = np.zeros((geometry.antennas, time_s.size), dtype=complex)
    for p in range(rays.amplitude.size):
        departure = np.array([np.cos(rays.departure_rad[p]), np.sin(rays.departure_rad[p])])
        arrival = np.array([np.cos(rays.arrival_rad[p]), np.sin(rays.arrival_rad[p])])
        walked_m = position_m @ departure + (velocity_m_s @ departure) * time_s
        turns = walked_m / wavelength_m + rays.doppler_hz[p] * (start_s + time_s)
        ray = rays.amplitude[p] * np.exp(1j * rays.phase_rad[p] + 2j * np.pi * turns)
        ray = ray * multitone(frequency_hz, coefficient, time_s - rays.delay_s[p])
        for a, position in enumerate(geometry.positions):
            y[a] += np.exp(2j * np.pi * (position[:2] @ arrival)) * ray
    return y
