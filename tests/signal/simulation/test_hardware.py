"""Every impairment changes the physical quantity it is named after, by the amount of its formula."""

from __future__ import annotations

import numpy as np
import pytest

from pisa_capc.core.errors import ConfigError
from pisa_capc.signal.simulation import hardware
from pisa_capc.signal.simulation.hardware import Spread
from pisa_capc.signal.simulation.numerics import complex_normal
from pisa_capc.signal.waveforms.wifi import preamble

WIFI_OCCUPIED, LORA_OCCUPIED = 26 / 32, 1 / 8


def tone(cycles: int, samples: int = 256) -> np.ndarray:
    return np.exp(2j * np.pi * cycles * np.arange(samples) / samples)


@pytest.mark.parametrize(
    ("gain_db", "phase_deg", "rejection_db"), [(0.1, 0.5, 42.8), (0.5, 2.0, 29.5), (1.0, 3.0, 24.0)]
)
def test_iq_imbalance_gives_the_image_rejection_of_its_formula(
    gain_db: float, phase_deg: float, rejection_db: float
) -> None:
    spectrum = np.abs(np.fft.fft(hardware.iq_imbalance(tone(20), gain_db, phase_deg))) ** 2
    measured = 10 * np.log10(spectrum[20] / spectrum[-20])
    g, cosine = 10 ** (gain_db / 20), np.cos(np.deg2rad(phase_deg))
    formula = (1 + 2 * g * cosine + g * g) / (1 - 2 * g * cosine + g * g)  # |μ/ν|²
    assert measured == pytest.approx(10 * np.log10(formula), abs=1e-6)
    assert measured == pytest.approx(rejection_db, abs=0.05)


def test_iq_imbalance_changes_the_ratio_of_branch_powers() -> None:
    y = hardware.iq_imbalance(tone(20), 1.0, 0.0)
    assert 10 * np.log10(np.mean(y.imag**2) / np.mean(y.real**2)) == pytest.approx(1.0)


def test_lo_leakage_adds_a_tone_at_dc_of_the_given_power() -> None:
    y = hardware.dc_offset(tone(20), -40.0, 0.7)
    assert 20 * np.log10(abs(y.mean())) == pytest.approx(-40)
    assert np.angle(y.mean()) == pytest.approx(0.7)


def test_amplifier_follows_the_rapp_curve_and_saturates_at_the_back_off() -> None:
    drive = np.array([1e-3, 1.0, 1e3]) * 10 ** (7 / 20)  # far below, at, and far above the saturation amplitude
    gain = np.abs(hardware.power_amplifier(drive.astype(complex), 7.0, 3.0, 0.0)) / drive
    assert gain[0] == pytest.approx(1)
    assert gain[1] == pytest.approx(2 ** (-1 / 6))
    assert gain[2] * drive[2] == pytest.approx(10 ** (7 / 20), rel=1e-4)


def test_amplifier_turns_the_phase_by_half_its_am_pm_at_saturation() -> None:
    drive = np.array([1e-4, 1.0, 1e4]) * 10 ** (7 / 20) * np.exp(0.3j)
    turn = np.rad2deg(np.angle(hardware.power_amplifier(drive, 7.0, 3.0, 10.0) / drive))
    np.testing.assert_allclose(turn, [0, 5, 10], atol=1e-5)


def test_amplifier_commutes_with_phase_noise() -> None:
    rng = np.random.default_rng(0)
    x = preamble()
    turn = np.exp(1j * rng.normal(size=x.size))
    np.testing.assert_allclose(
        hardware.power_amplifier(x * turn, 7, 3, 10), hardware.power_amplifier(x, 7, 3, 10) * turn, atol=1e-12
    )


@pytest.mark.parametrize(("linewidth_hz", "std_deg"), [(10, 1.8), (100, 5.7), (1000, 18.0)])
def test_random_walk_phase_grows_with_time_as_the_linewidth_says(linewidth_hz: float, std_deg: float) -> None:
    normal = complex_normal(np.random.default_rng(0), (20_000, 320))
    phase = hardware.phase_noise_rad(normal, 0.0, linewidth_hz, 20e6)
    assert np.rad2deg(phase[:, -1].std()) == pytest.approx(std_deg, rel=0.02)
    assert phase[:, 79].var() / phase[:, -1].var() == pytest.approx(80 / 320, rel=0.05)


def test_white_phase_noise_has_its_rms_and_no_memory() -> None:
    normal = complex_normal(np.random.default_rng(0), (2_000, 320))
    phase = np.rad2deg(hardware.phase_noise_rad(normal, 0.5, 0.0, 20e6))
    assert phase.std() == pytest.approx(0.5, rel=0.01)
    assert abs(np.mean(phase[:, 1:] * phase[:, :-1])) / phase.var() < 0.01


@pytest.mark.parametrize(("samples", "drift_samples"), [(320, 0.0064), (8192, 0.164)])
def test_sampling_offset_drifts_by_its_ppm_times_the_length(samples: int, drift_samples: float) -> None:
    cycles_per_sample = 0.05
    x = np.exp(2j * np.pi * cycles_per_sample * np.arange(samples + 32))
    ahead = np.unwrap(np.angle(hardware.sampling_offset(x, 20.0, LORA_OCCUPIED) / x)) / (2 * np.pi * cycles_per_sample)
    inner = slice(32, samples)  # the interpolator needs neighbours on both sides
    np.testing.assert_allclose(ahead[inner], drift_samples * np.arange(samples + 32)[inner] / samples, rtol=0.01)


def test_transmitted_power_does_not_depend_on_the_device() -> None:
    for backoff_db in (3.0, 9.0):
        profile = hardware.DeviceProfile(5.0, (0.0,) * 4, 0.5, 1.0, -35.0, 0.1, backoff_db, 3.0, 10.0, 0.5, 50.0)
        y = hardware.transmit(preamble(), profile, WIFI_OCCUPIED)
        assert np.mean(np.abs(y) ** 2) == pytest.approx(1, rel=1e-5)


def test_spread_stays_inside_its_limits_and_has_its_mean() -> None:
    rng = np.random.default_rng(0)
    values = [Spread(1.0, 2.0, -1.0, 3.0).draw(rng) for _ in range(2000)]
    assert -1 <= min(values) < -0.9
    assert 2.9 < max(values) <= 3
    assert np.mean(values) == pytest.approx(1, abs=0.1)


def test_spread_with_its_mean_outside_the_limits_is_refused() -> None:
    with pytest.raises(ConfigError, match="low ≤ mean ≤ high"):
        Spread(5.0, 1.0, -1.0, 1.0)
