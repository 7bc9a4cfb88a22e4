"""Receiver and frequency: noise, levels, rotation, and CFO that an estimator finds at the spread theory gives."""

from __future__ import annotations

import numpy as np
import pytest

from pisa_capc.signal.simulation.hardware import DeviceProfile, Spread
from pisa_capc.signal.simulation.numerics import complex_normal, phasor
from pisa_capc.signal.simulation.receiver import (
    FrequencySpread,
    add_noise,
    level,
    nominal_cfo_hz,
    residual_cfo_hz,
    rotation,
)
from pisa_capc.signal.waveforms.wifi import preamble

SAMPLE_RATE_HZ = 20e6


def fixed(value: float) -> Spread:
    return Spread(value, 0.0, value, value)


def test_noise_is_circular_gaussian_of_the_given_power() -> None:
    z = complex_normal(np.random.default_rng(0), (400_000,), std=3.0)
    assert np.mean(np.abs(z) ** 2) == pytest.approx(9, rel=0.01)
    assert np.mean(np.abs(z) ** 4) / np.mean(np.abs(z) ** 2) ** 2 == pytest.approx(2, rel=0.02)
    assert abs(np.mean(z**2)) < 0.1
    for part in (z.real, z.imag):  # the tails too: P(|x| > 3σ) = 0.0027
        assert np.mean(np.abs(part) > 3 * 3 / np.sqrt(2)) == pytest.approx(0.0027, rel=0.15)


def test_noise_does_not_depend_on_how_the_stream_is_cut() -> None:
    whole = complex_normal(np.random.default_rng(1), (70_000,))
    rng = np.random.default_rng(1)
    pieces = [complex_normal(rng, (n,)) for n in (1, 40_000, 29_999)]
    assert np.concatenate(pieces).tobytes() == whole.tobytes()


def test_phasor_of_a_large_angle_keeps_its_digits() -> None:
    turns = 1e6
    np.testing.assert_allclose(phasor(np.array([2 * np.pi * turns + 0.25])), np.exp(0.25j), atol=1e-6)


@pytest.mark.parametrize("snr_db", [0.0, 20.0])
def test_snr_is_the_one_asked_for(snr_db: float) -> None:
    y = np.broadcast_to(preamble(), (200, 4, 320)).astype(np.complex64)
    noise = add_noise(np.random.default_rng(2), y, snr_db) - y
    assert -10 * np.log10(np.mean(np.abs(noise) ** 2)) == pytest.approx(snr_db, abs=0.05)


def test_levels_are_one_per_frame_and_per_antenna_where_equalised() -> None:
    y = complex_normal(np.random.default_rng(3), (6, 4, 320)) * np.array([1, 2, 3, 4], dtype=np.float32)[:, None]
    power = np.mean(np.abs(level(y.copy(), equalise_antennas=False)) ** 2, axis=2)
    np.testing.assert_allclose(power.mean(axis=1), 1, rtol=1e-5)
    assert power[:, 3].mean() / power[:, 0].mean() == pytest.approx(16, rel=0.1)
    power = np.mean(np.abs(level(y, equalise_antennas=True)) ** 2, axis=2)
    np.testing.assert_allclose(power, 1, rtol=1e-5)


@pytest.mark.parametrize("samples", [1, 320, 333, 8192])
def test_rotation_is_the_complex_exponential(samples: int) -> None:
    frequency, phase = np.array([[1234.5, -80.0]]), np.array([[0.3, 3.0]])
    expected = np.exp(1j * (2 * np.pi * frequency[..., None] * np.arange(samples) / SAMPLE_RATE_HZ + phase[..., None]))
    np.testing.assert_allclose(rotation(frequency, phase, samples, SAMPLE_RATE_HZ), expected, atol=2e-6)


@pytest.mark.parametrize(
    ("lag", "field", "snr_db", "std_hz"),
    [
        (16, slice(0, 160), 10, 2105),
        (16, slice(0, 160), 20, 568),
        (64, slice(192, 320), 20, 625),
        (64, slice(160, 320), 20, 416),
    ],
)
def test_an_estimator_finds_the_rotation_at_the_spread_of_theory(
    lag: int, field: slice, snr_db: float, std_hz: float
) -> None:
    frames, offset_hz = 4000, np.full(4000, 12_345.0)
    y = preamble().astype(np.complex64) * rotation(offset_hz, np.zeros(frames), 320, SAMPLE_RATE_HZ)
    y = add_noise(np.random.default_rng(4), y, snr_db)[:, field]
    angle = np.angle(np.sum(np.conj(y[:, :-lag]) * y[:, lag:], axis=1))
    estimate_hz = SAMPLE_RATE_HZ / (2 * np.pi * lag) * angle
    assert estimate_hz.mean() == pytest.approx(12_345, abs=4 * std_hz / np.sqrt(frames))
    assert estimate_hz.std() == pytest.approx(std_hz, rel=0.06)


def spread(**values: float) -> FrequencySpread:
    chosen = {
        "environment_ppm": 0.0, "capture_ppm": 0.0, "drift_ppm_per_s": 0.0, "jitter_hz": 0.0, "residual_jitter_hz": 0.0
    } | values  # fmt: skip
    return FrequencySpread(residual_fraction=0.01, **{name: fixed(value) for name, value in chosen.items()})


def trace(**values: float) -> np.ndarray:
    profile = DeviceProfile(2.0, (0.0, 0.01, -0.01, 0.02), 0, 0, -60, 0, 7, 3, 0, 0, 0)
    rng = np.random.default_rng(5)
    return nominal_cfo_hz(profile, spread(**values), 5.825e9, np.arange(1000) * 0.005, rng, rng)


def test_nominal_cfo_is_the_sum_of_its_parts() -> None:
    per_ppm = 5825.0
    np.testing.assert_allclose(trace()[0], per_ppm * np.array([2.0, 2.01, 1.99, 2.02]))
    np.testing.assert_allclose(trace(environment_ppm=0.5, capture_ppm=-0.25) - trace(), per_ppm * 0.25)
    np.testing.assert_allclose((trace(drift_ppm_per_s=0.1) - trace())[-1], per_ppm * 0.1 * 999 * 0.005)
    jitter = trace(jitter_hz=200.0) - trace()
    assert jitter.std() == pytest.approx(200, rel=0.05)
    assert abs(np.corrcoef(jitter[:, 0], jitter[:, 1])[0, 1]) < 0.1


def test_one_percent_of_the_nominal_cfo_and_a_common_jitter_remain() -> None:
    nominal = trace(jitter_hz=200.0)
    np.testing.assert_allclose(residual_cfo_hz(nominal, spread(), np.random.default_rng(6)), 0.01 * nominal)
    jitter = residual_cfo_hz(nominal, spread(residual_jitter_hz=150.0), np.random.default_rng(6)) - 0.01 * nominal
    np.testing.assert_allclose(jitter, jitter[:, :1].repeat(4, axis=1), atol=1e-9)
    assert jitter.std() == pytest.approx(150, rel=0.1)
