"""The channel has the statistics of the field: J0 over time and space, K-factor, delay spread, exact filtering."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import j0

from pisa_capc.data.geometry import linear, square
from pisa_capc.signal.simulation import channel
from pisa_capc.signal.simulation.numerics import complex_normal, delay_kernel

WAVELENGTH_M = channel.SPEED_OF_LIGHT_M_S / 5.825e9


def isotropic_rays(rng: np.random.Generator, count: int, delay_spread_s: float = 50e-9) -> channel.Rays:
    """Rays from all around: one cluster per ray, as many clusters as rays."""
    clusters = channel.draw_clusters(rng, count, None, 0.0, 0.0)
    return channel.scattered_rays(rng, clusters, 1, delay_spread_s, 0.0)


def test_fading_over_time_follows_jakes() -> None:
    rng = np.random.default_rng(0)
    frames, interval_s = 5, 0.005
    correlation = np.zeros(frames, dtype=complex)
    for _ in range(400):
        rays = isotropic_rays(rng, 64)
        position, _ = channel.random_walk_m(rng, frames, interval_s, 1.0, 0.0)
        phasors = channel.ray_phasors(rays, position, np.zeros(frames), WAVELENGTH_M)
        # The expectation over the rays' independent phases, taken exactly: Σ α² e^{j(φ(t) − φ(0))}.
        correlation += (phasors * np.conj(phasors[0])) @ rays.amplitude**2 / 400
    doppler_hz = 1.0 / WAVELENGTH_M
    assert doppler_hz == pytest.approx(19.43, abs=0.01)
    np.testing.assert_allclose(correlation.real, j0(2 * np.pi * doppler_hz * interval_s * np.arange(frames)), atol=0.02)
    np.testing.assert_allclose(correlation.imag, 0, atol=0.02)


def test_correlation_over_the_array_follows_clarke() -> None:
    rng = np.random.default_rng(0)
    geometry = linear(3, 0.5)
    correlation = np.zeros(3, dtype=complex)
    for _ in range(300):
        rays = isotropic_rays(rng, 64)
        phases = channel.steering(geometry, rays.arrival_rad)
        correlation += rays.amplitude**2 @ (phases * np.conj(phases[:, :1])) / 300
    np.testing.assert_allclose(correlation.real, [1, -0.304, 0.220], atol=0.02)


def test_a_plane_wave_turns_by_the_path_difference_between_antennas() -> None:
    phase = np.angle(channel.steering(square(0.5), np.array([0.0])))[0]  # from +x: antennas at x = 0 and x = λ/2
    np.testing.assert_allclose(np.abs(phase), [0, np.pi, 0, np.pi], atol=1e-12)


@pytest.mark.parametrize("delay_spread_s", [15.6e-9, 33.4e-9, 50.2e-9])
def test_impulse_response_has_the_rms_delay_spread_asked_for(delay_spread_s: float) -> None:
    rng = np.random.default_rng(1)
    sample_rate_hz, half_width = 200e6, 8  # fine enough to see delays of a few nanoseconds
    power = np.zeros(1)
    for _ in range(300):
        clusters = channel.draw_clusters(rng, 2, None, 0.0, 3.0)
        rays = channel.scattered_rays(rng, clusters, 20, delay_spread_s, 25.0)
        basis = channel.tap_basis(rays, square(), sample_rate_hz, half_width, 0.8)
        phasors = channel.ray_phasors(rays, np.zeros((1, 2)), np.zeros(1), WAVELENGTH_M)
        taps = np.tensordot(phasors[0], basis, 1)
        single = np.sum(np.abs(taps) ** 2, axis=0)
        power = np.pad(power, (0, max(0, single.size - power.size)))
        power[: single.size] += single
    measured_s = channel.rms_delay_spread_s(np.sqrt(power), np.arange(power.size) / sample_rate_hz)
    assert measured_s == pytest.approx(delay_spread_s, rel=0.1)


@pytest.mark.parametrize("k_factor_db", [0.0, 6.0])
def test_envelope_over_a_walk_has_the_k_factor(k_factor_db: float) -> None:
    rng = np.random.default_rng(2)
    estimates = []
    for _ in range(40):
        rays = isotropic_rays(rng, 48)
        rays = channel.with_line_of_sight(rays, k_factor_db, 0.0, 0.0)
        position, _ = channel.random_walk_m(rng, 4000, 0.02, 1.0, 0.6)
        gain = channel.ray_phasors(rays, position, np.zeros(4000), WAVELENGTH_M) @ rays.amplitude
        # Moment estimator of K (Greenstein et al., IEEE Trans. Communications 47(2), 1999).
        power = np.abs(gain) ** 2
        ratio = np.sqrt(max(power.mean() ** 2 - power.var(), 0))
        estimates.append(ratio / (power.mean() - ratio))
    assert 10 * np.log10(np.median(estimates)) == pytest.approx(k_factor_db, abs=0.7)


def test_without_a_direct_path_the_envelope_is_rayleigh() -> None:
    rng = np.random.default_rng(3)
    contrast = []
    for _ in range(40):
        rays = isotropic_rays(rng, 48)
        position, _ = channel.random_walk_m(rng, 4000, 0.02, 1.0, 0.6)
        power = np.abs(channel.ray_phasors(rays, position, np.zeros(4000), WAVELENGTH_M) @ rays.amplitude) ** 2
        contrast.append(power.std() / power.mean())
    assert np.mean(contrast) == pytest.approx(1, abs=0.05)  # an exponential power


def test_a_static_channel_stays_and_walking_people_move_only_their_part_of_it() -> None:
    rng = np.random.default_rng(4)
    rays = isotropic_rays(rng, 400)
    rays = channel.moving_scatterers(rng, rays, 0.25, 0.33, WAVELENGTH_M, "clarke")
    moving = rays.doppler_hz != 0
    assert moving.mean() == pytest.approx(0.25, abs=0.06)
    assert np.abs(rays.doppler_hz).max() <= 2 * 0.33 / WAVELENGTH_M
    position, _ = channel.random_walk_m(rng, 3, 1.0, 0.0, 0.6)
    phasors = channel.ray_phasors(rays, position, np.arange(3.0), WAVELENGTH_M)
    np.testing.assert_allclose(phasors[2, ~moving], phasors[0, ~moving], atol=1e-6)
    assert np.abs(phasors[2, moving] - phasors[0, moving]).mean() > 0.5


@pytest.mark.parametrize("spectrum", channel.SPECTRA)
def test_what_people_move_is_correlated_over_time_as_their_spectrum_says(spectrum: str) -> None:
    rng = np.random.default_rng(7)
    speed_m_s = 1 / 3
    doppler_hz = speed_m_s / WAVELENGTH_M
    rays = channel.moving_scatterers(rng, isotropic_rays(rng, 40_000), 1.0, speed_m_s, WAVELENGTH_M, spectrum)
    time_s = np.linspace(0, 0.2, 9)
    found = np.exp(2j * np.pi * np.outer(time_s, rays.doppler_hz)) @ rays.amplitude**2
    if spectrum == "clarke":
        expected = j0(2 * np.pi * 2 * doppler_hz * time_s)
    else:  # the Fourier transform of the bell, between its edges
        f = np.linspace(-channel.BELL_EDGE, channel.BELL_EDGE, 20_001) * doppler_hz
        bell = 1 / (1 + 9 * (f / doppler_hz) ** 2)
        expected = np.cos(2 * np.pi * np.outer(time_s, f)) @ bell / bell.sum()
        np.testing.assert_allclose(expected, np.exp(-2 * np.pi * doppler_hz * time_s / 3), atol=0.05)
        assert np.mean(np.abs(rays.doppler_hz) < doppler_hz) == pytest.approx(np.arctan(3) / np.arctan(15), abs=0.01)
    np.testing.assert_allclose(found.real, expected, atol=0.02)
    np.testing.assert_allclose(found.imag, 0, atol=0.02)


def test_corridor_clusters_lie_along_its_axis() -> None:
    rng = np.random.default_rng(5)
    azimuth = np.concatenate([channel.draw_clusters(rng, 2, 30.0, 10.0, 3.0).azimuth_rad for _ in range(500)])
    off_axis_deg = np.rad2deg(np.angle(np.exp(2j * (azimuth - np.deg2rad(30))))) / 2
    assert off_axis_deg.std() == pytest.approx(10, rel=0.1)
    assert np.mean(np.cos(azimuth - np.deg2rad(30))) == pytest.approx(0, abs=0.1)  # both ends alike


def test_walk_keeps_its_speed_and_loses_its_heading() -> None:
    rng = np.random.default_rng(6)
    position, velocity = channel.random_walk_m(rng, 20_000, 0.01, 1.0, 0.6)
    np.testing.assert_allclose(np.linalg.norm(velocity, axis=1), 1.0)
    np.testing.assert_allclose(np.diff(position, axis=0), velocity[1:] * 0.01, atol=1e-9)
    # A heading with Wiener steps of variance 0.36 per second: E cos Δθ = exp(−0.18 Δt).
    after_1_s = np.mean(np.sum(velocity[100:] * velocity[:-100], axis=1))
    assert after_1_s == pytest.approx(np.exp(-0.18), abs=0.05)


@pytest.mark.parametrize(
    ("half_width", "occupied", "mean_db", "peak_db"),
    [(8, 26 / 32, -55, -41), (16, 26 / 32, -93, -76), (4, 0.125, -90, -87)],
)
def test_fractional_delay_is_exact_over_the_band_to_its_stated_error(
    half_width: int, occupied: float, mean_db: float, peak_db: float
) -> None:
    delay = np.linspace(0, 1, 21)
    length = 2 * half_width + 2
    kernel = delay_kernel(delay, half_width, length, occupied)
    omega = np.pi * np.linspace(-occupied, occupied, 401)
    response = kernel @ np.exp(-1j * omega * (np.arange(length) - half_width)[:, None])
    error = np.abs(response - np.exp(-1j * delay[:, None] * omega))
    assert 20 * np.log10(error.max()) < peak_db
    assert 10 * np.log10(np.mean(error**2)) < mean_db


def test_filtering_is_the_convolution_with_the_taps() -> None:
    rng = np.random.default_rng(7)
    x, taps = complex_normal(rng, (5, 40 + 6)), complex_normal(rng, (5, 3, 7))
    y = channel.filter_frames(x, taps)
    expected = [[np.convolve(x[f], taps[f, a])[6:46] for a in range(3)] for f in range(5)]
    np.testing.assert_allclose(y, expected, atol=1e-5)


def test_taps_that_move_within_a_frame_follow_the_doppler_shift() -> None:
    """A ray at 10 Hz turns by 29° over a LoRa frame; blocks with linear taps reproduce it to better than −70 dB."""
    from pisa_capc.signal.simulation.capture import BLOCK_RAD, propagate

    samples, turn_rad = 8192, 2 * np.pi * 10 * 8192e-6
    edges = np.exp(1j * np.linspace(0, turn_rad, int(np.ceil(turn_rad / BLOCK_RAD)) + 1)).astype(np.complex64)
    x = complex_normal(np.random.default_rng(8), (1, samples))
    y = propagate(x, edges[None, :, None, None])
    exact = x * np.exp(1j * turn_rad * (np.arange(samples) + 0.5) / samples)
    error = np.mean(np.abs(y[:, 0] - exact) ** 2) / np.mean(np.abs(exact) ** 2)
    assert 10 * np.log10(error) < -70
