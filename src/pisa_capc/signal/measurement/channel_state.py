"""The hardware in channel state: what is left of log H(k) where a place's part is taken off or allowed for.

A card reports H_a(k) = g_a e^{j(φ_a + s_a k)} C_a(k) D(k): gain, phase and timing slope of this packet and antenna,
the channel C of the place, and D, the filters of transmitter and receiver. In the logarithm they add. Gain, phase and
slope are taken off **each antenna by itself**: the phase between antennas says where a sender stands, not who it is.
What is left is averaged over the antennas by their power, so that a fade on one of them counts for little:

    v(k) = Σ_a |H_a(k)|² u_a(k) / Σ_a |H_a(k)|²,    u_a(k) = ln H_a(k) less its mean and the slope of its phase

Its noise has the variance s²/ḡ(k), ḡ the sum of |H_a|² over antennas, scaled to a mean of one over the subcarriers.
s² is measured: only noise is rough from one subcarrier to the next (`noise_level`). The channel is not noise: it is
the same in all frames of a place, and a different one in the next place. Before any place has been seen,

    Cov(ln C(k), ln C(l)) = 10 / (1 + j2π(f_k − f_l) 10 ns) / antennas

is what to expect of it, for a short exponential delay profile (`place_prior`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import DataError

DELAY_S = 10e-9  # of the exponential delay profile, r.m.s.
VARIANCE = 10.0  # of ln C, as if a place could do anything that such a profile allows
LEAST = 8  # subcarriers that hold something
FADE = 1e-3  # of the mean power: what fades deeper says nothing, and divides by nothing

Complex = NDArray[np.complexfloating[Any, Any]]
Real = NDArray[np.floating[Any]]


def level(csi: Complex, subcarriers: NDArray[np.int64]) -> Complex:
    """u_a(k) (N, A, K): log channel state without gain, phase and slope of its antenna.

    The slope is taken off twice: first as ∠Σ H*(k) H(k+g)/g over neighbours, so that the phase can be unwrapped, and
    then what is left of it by least squares.
    """
    k = subcarriers - subcarriers.mean()
    gaps = np.diff(k)
    gap = float(np.median(gaps))
    steps = (csi[..., 1:] * csi[..., :-1].conj())[..., gaps == gap]
    first = np.angle(steps.sum(-1, dtype=np.complex128)) / gap
    still = csi * np.exp(-1j * first[..., None] * k)
    still = still * np.exp(-1j * np.angle(still.sum(-1)))[..., None]
    power = np.abs(still) ** 2
    power = np.maximum(power, FADE * power.mean(-1, keepdims=True))  # a subcarrier at zero says nothing of the others
    log = np.log(power) / 2 + 1j * np.unwrap(np.angle(still), axis=-1)
    log -= log.mean(-1, keepdims=True)
    return np.asarray(log - 1j * (log.imag @ k / (k @ k))[..., None] * k)


@dataclass(frozen=True)
class ChannelState:
    """What N frames say of the hardware: value (N, K) v(k), power (N, K) ḡ(k)."""

    subcarriers: NDArray[np.int64]
    value: Complex
    power: Real

    def noise_level(self, capture: NDArray[np.int64]) -> float:
        """s², from second differences over neighbouring subcarriers of each frame less the mean of its capture (N,).

        |d(k−1) − 2d(k) + d(k+1)|² = s² (1/ḡ(k−1) + 4/ḡ(k) + 1/ḡ(k+1)) on average. Its median is taken, ln 2 of the
        mean of an exponential distribution, so that a few frames disturbed by a moving person do not count.
        """
        _, number, count = np.unique(capture, return_inverse=True, return_counts=True)
        many = count[number] > 2
        if not many.any():
            raise DataError("no capture has three frames or more: nothing tells noise from channel. Give more frames.")
        mean = np.zeros((len(count), self.value.shape[1]), dtype=complex)
        np.add.at(mean, number, self.value)
        off = (self.value - (mean / count[:, None])[number])[many] / np.sqrt(1 - 1 / count[number[many], None])
        gaps = np.diff(self.subcarriers)
        even = np.flatnonzero((gaps[1:] == gaps[:-1]) & (gaps[1:] == np.median(gaps))) + 1
        bend = off[:, even - 1] - 2 * off[:, even] + off[:, even + 1]
        inverse = 1 / self.power[many]
        share = np.abs(bend) ** 2 / (inverse[:, even - 1] + 4 * inverse[:, even] + inverse[:, even + 1])
        return float(np.median(share) / np.log(2))

    def features(self, noise_level: float) -> tuple[Real, Real]:
        """(N, 2K) real and imaginary parts of v, and (N, 2K) variances of their errors, half of s²/ḡ each."""
        variance = np.tile(noise_level / self.power / 2, (1, 2))
        return np.concatenate([self.value.real, self.value.imag], axis=1), variance


def place_prior(subcarriers: NDArray[np.int64], spacing_hz: float, antennas: int) -> Real:
    """(2K, 2K) what a place is expected to add to the features.

    In gain, phase and slope too: they are gone from each antenna, and come back where antennas are weighed.
    """
    k = subcarriers.astype(np.float64)
    apart_hz = (k[:, None] - k) * spacing_hz
    covariance = VARIANCE / (1 + 2j * np.pi * apart_hz * DELAY_S) / antennas / 2
    return np.block([[covariance.real, -covariance.imag], [covariance.imag, covariance.real]])


def channel_state(csi: Complex, subcarriers: NDArray[np.int64]) -> ChannelState:
    """The hardware in frames (N, A, K) of channel state as the card reports it; its subcarriers are numbered.

    Antennas that are silent, or not finite, in a frame count for nothing in it.
    """
    if csi.ndim != 3 or csi.shape[2] != len(subcarriers):
        raise DataError(
            f"channel state of shape {csi.shape}: expected (frames, antennas, {len(subcarriers)} subcarriers)."
        )
    if len(subcarriers) < LEAST:
        raise DataError(f"{len(subcarriers)} subcarriers: expected {LEAST} or more that hold something.")
    power = np.abs(csi) ** 2
    there = np.isfinite(power).all(-1) & (power.max(-1, initial=0) > 0)
    if not there.any(1).all():
        raise DataError(f"frame {int(np.flatnonzero(~there.any(1))[0])}: no antenna holds anything. Leave it out.")
    power = np.where(there[..., None], power, 0)
    power = np.maximum(power, FADE * power.mean(-1, keepdims=True))
    own = level(np.where(there[..., None], csi, 1), subcarriers)
    total = power.sum(1)
    value = (power * own).sum(1) / total
    return ChannelState(subcarriers, value, total / total.mean(1, keepdims=True))
