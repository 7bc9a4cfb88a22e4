"""The flaws of one transmitter: what identifies it, the same in every environment and capture.

A direct-conversion transmitter: DAC clock → I/Q modulator (gain and phase imbalance, LO leakage) → LO with phase
noise → power amplifier. The amplifier acts on |x| alone, so PA(x e^{jφ}) = PA(x) e^{jφ}: phase noise may be applied
after it, and everything before it is one fixed waveform per device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import ConfigError
from pisa_capc.signal.simulation.numerics import Kernel, delay_kernel, resample

Complex = NDArray[np.complexfloating[Any, Any]]


@dataclass(frozen=True)
class Spread:
    """A normal distribution cut to [low, high]: how a quantity varies over devices, places or captures."""

    mean: float  # before it is cut
    std: float  # before it is cut
    low: float  # smallest value
    high: float  # largest value

    def __post_init__(self) -> None:
        if not (self.std >= 0 and self.low <= self.mean <= self.high):
            raise ConfigError(f"spread: expected std ≥ 0 and low ≤ mean ≤ high, found {self}.")

    def draw(self, rng: np.random.Generator) -> float:
        """One value; draws outside the limits are drawn again."""
        while True:
            value = rng.normal(self.mean, self.std)
            if self.low <= value <= self.high:
                return float(value)


@dataclass(frozen=True)
class HardwareSpread:
    """How the transmitters of one model differ. Units are in the names; the scene files give sources."""

    cfo_ppm: Spread  # offset of the crystal, of carrier and sampling clock alike
    antenna_cfo_ppm: Spread  # what a receive channel adds
    iq_gain_db: Spread  # gain imbalance of the modulator
    iq_phase_deg: Spread  # phase imbalance of the modulator
    dc_offset_db: Spread  # LO leakage against the signal
    pa_backoff_db: Spread  # of the amplifier, from saturation
    pa_smoothness: Spread  # p of the Rapp model
    pa_am_pm_deg: Spread  # AM/PM conversion
    white_phase_deg: Spread  # white phase noise, r.m.s.
    linewidth_hz: Spread  # of the LO: a Wiener walk of phase


@dataclass(frozen=True)
class DeviceProfile:
    """One transmitter. `cfo_ppm` is also its sampling offset: one crystal feeds the LO and the DAC."""

    cfo_ppm: float
    antenna_cfo_ppm: tuple[float, ...]
    iq_gain_db: float
    iq_phase_deg: float
    dc_offset_db: float
    dc_phase_rad: float
    pa_backoff_db: float
    pa_smoothness: float
    pa_am_pm_deg: float
    white_phase_deg: float
    linewidth_hz: float


def draw_profile(spread: HardwareSpread, antennas: int, rng: np.random.Generator) -> DeviceProfile:
    """Sample one device of the population."""
    return DeviceProfile(
        cfo_ppm=spread.cfo_ppm.draw(rng),
        antenna_cfo_ppm=tuple(spread.antenna_cfo_ppm.draw(rng) for _ in range(antennas)),
        iq_gain_db=spread.iq_gain_db.draw(rng),
        iq_phase_deg=spread.iq_phase_deg.draw(rng),
        dc_offset_db=spread.dc_offset_db.draw(rng),
        dc_phase_rad=float(rng.uniform(-np.pi, np.pi)),
        pa_backoff_db=spread.pa_backoff_db.draw(rng),
        pa_smoothness=spread.pa_smoothness.draw(rng),
        pa_am_pm_deg=spread.pa_am_pm_deg.draw(rng),
        white_phase_deg=spread.white_phase_deg.draw(rng),
        linewidth_hz=spread.linewidth_hz.draw(rng),
    )


def sampling_offset(x: Complex, offset_ppm: float, occupied: float, kernel: Kernel = delay_kernel) -> Complex:
    """Sampling frequency offset: y[n] = x(n (1 + ε)), ε = offset · 10⁻⁶. A fast clock ends the waveform early.

    occupied: part of the Nyquist band that the signal uses, see `numerics.delay_kernel`.
    """
    return resample(x, 1 + offset_ppm * 1e-6, occupied, kernel=kernel)


def iq_imbalance(x: Complex, gain_db: float, phase_deg: float) -> Complex:
    """I/Q imbalance of the modulator: y = μ x + ν x*, μ = (1 + g e^{jφ})/2, ν = (1 − g e^{jφ})/2, g = 10^(gain/20).

    I stays as it is, the Q branch is scaled by g and turned by φ (Valkama, Renfors & Koivunen, IEEE Trans. Signal
    Processing 49(10), 2001).
    """
    branch = 10 ** (gain_db / 20) * np.exp(1j * np.deg2rad(phase_deg))
    return (1 + branch) / 2 * x + (1 - branch) / 2 * np.conj(x)


def dc_offset(x: Complex, level_db: float, phase_rad: float) -> Complex:
    """LO leakage: y = x + 10^(level/20) e^{jθ}, level relative to a signal of unit mean power."""
    return x + 10 ** (level_db / 20) * np.exp(1j * phase_rad)


def power_amplifier(x: Complex, backoff_db: float, smoothness: float, am_pm_deg: float) -> Complex:
    """Solid-state power amplifier: y = x (1 + ρ^{2p})^{−1/(2p)} exp(jΦ ρ²/(1 + ρ²)), ρ = |x|/V, V = 10^(backoff/20).

    AM/AM of Rapp (1991) with smoothness p; AM/PM of the form of Saleh (IEEE Trans. Communications 29(11), 1981), Φ/2
    at the saturation amplitude V. Back-off is that of the saturated power over the mean power of the input, one.
    """
    rho2 = (x.real**2 + x.imag**2) / 10 ** (backoff_db / 10)
    am_am = (1 + rho2**smoothness) ** (-1 / (2 * smoothness))
    return x * am_am * np.exp(1j * np.deg2rad(am_pm_deg) * rho2 / (1 + rho2))


def phase_noise_rad(
    normal: NDArray[np.complex64], white_phase_deg: float, linewidth_hz: float, sample_rate_hz: float
) -> NDArray[np.float32]:
    """(F, T) oscillator phase φ[n] = σ_w w[n] + Σ_{m ≤ n} σ_v v[m], σ_v² = 2πβ/fs: white floor and random walk.

    normal: (F, T) complex Gaussian of unit variance; √2 times its parts are w and v. β is the full 3 dB linewidth of
    the Lorentzian line (Demir, Mehrotra & Roychowdhury, IEEE Trans. Circuits and Systems I 47(5), 2000).
    """
    white_std = np.float32(np.sqrt(2) * np.deg2rad(white_phase_deg))
    step_std = np.float32(np.sqrt(2 * 2 * np.pi * linewidth_hz / sample_rate_hz))
    phase = np.cumsum(normal.imag, axis=-1, dtype=np.float32)
    phase *= step_std
    phase += white_std * normal.real
    return phase


def transmit(
    base: Complex, profile: DeviceProfile, occupied: float, kernel: Kernel = delay_kernel
) -> NDArray[np.complex64]:
    """(…, T) what leaves the amplifier for a base waveform, without CFO and phase noise.

    Power control holds the mean output at one, so compression changes the shape of a frame and not its SNR.
    """
    x = sampling_offset(base, profile.cfo_ppm, occupied, kernel)
    x = iq_imbalance(x, profile.iq_gain_db, profile.iq_phase_deg)
    x = dc_offset(x, profile.dc_offset_db, profile.dc_phase_rad)
    x = power_amplifier(x, profile.pa_backoff_db, profile.pa_smoothness, profile.pa_am_pm_deg)
    power = np.mean(x.real**2 + x.imag**2, axis=-1, keepdims=True)
    return (x / np.sqrt(power)).astype(np.complex64)
