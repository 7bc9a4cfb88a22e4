"""Measurements as Gaussians: frame n of device k, heard in place c, is

    x_n = μ_k + u_kc + e_n + r_n,    u_kc ~ N(0, P),  e_n ~ N(0, S),  r_n ~ N(0, R_n)

R_n is the error of this very frame's measurement, from its own error bars (`Measurement.features`); zero for what has
none, as the embeddings of a network. S is what else differs from frame to frame, P from place to place; both are shared
by all devices. u is common to all frames of a sender in a place: more of them do not average it out. In the words of
speaker verification this is a two-covariance PLDA whose frames have known errors of their own.

Of each device its mean is known with an error of its own too, N(m_k, V_k): three frames are enough to enrol a device,
and its V_k accounts for how little they tell. Devices are independent: to add or remove one changes no other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, logsumexp

from pisa_capc.core.errors import ConfigError, DataError, unknown_name
from pisa_capc.model.gaussian.algebra import full, gaussians, information, inverse_of

AGEING = 0.1  # of what the devices differ by: how far hardware may move between two updates

Real = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Observations:
    """value: (N, d) measurements. own: (N, d, d) R_n, (N, d) its diagonal if that is all, None if it is zero.

    frame: (d, d) S, the rest of the error.
    """

    value: Real
    own: Real | None
    frame: Real

    def __len__(self) -> int:
        return len(self.value)

    def select(self, which: Any) -> Observations:
        """The frames where a mask is true, or those at the given positions."""
        return Observations(self.value[which], None if self.own is None else self.own[which], self.frame)

    def pooled(self, sender: NDArray[np.int64]) -> Observations:
        """One row for each number in `sender` (N,), 0 … G − 1: all its frames, each by how certain it is.

        Λ = Σ (S + R_n)⁻¹ and Λ⁻¹ Σ (S + R_n)⁻¹ x_n. What its frames have in common, u, is not in this error.
        """
        senders = int(sender.max(initial=-1)) + 1
        if not np.array_equal(np.unique(sender), np.arange(senders)):
            raise DataError(f"senders: expected all numbers from 0 to {senders - 1}; number them without gaps.")
        if senders == len(sender) and self.own is not None:  # nothing to sum, which costs most where it is one frame
            order = np.argsort(sender)
            return Observations(self.value[order], self.frame + full(self.own[order]), np.zeros_like(self.frame))
        total, whole = information(self.value, self.own, self.frame, sender, senders)
        error = inverse_of(total)
        return Observations(np.einsum("nij,nj->ni", error, whole), error, np.zeros_like(self.frame))


@dataclass(frozen=True)
class Device:
    """mean: (d,) m_k. error: (d, d) V_k. frames, places: that it was learnt from."""

    mean: Real
    error: Real
    frames: int
    places: int


@dataclass(frozen=True)
class GaussianBackend:
    """devices: by name. frame: (d, d) S. place: (d, d) P."""

    devices: dict[str, Device]
    frame: Real
    place: Real

    def evidence(self, value: Real, error: Real | None = None) -> Observations:
        """Measurements (N, d) with their errors, see `Observations.own`."""
        if value.ndim != 2 or value.shape[1] != len(self.frame):
            raise DataError(
                f"measurements of shape {value.shape}: expected (frames, {len(self.frame)}), as the devices have."
            )
        return Observations(np.asarray(value, dtype=np.float64), error, self.frame)

    def log_likelihood(self, evidence: Observations) -> Real:
        """(N, K) ln N(x_n; m_k, V_k + P + error_n): logits of the devices, all as likely beforehand."""
        return self._each(evidence)[1]

    def distance(self, evidence: Observations) -> Real:
        """(N, K) squared Mahalanobis distances: χ² of d degrees of freedom from the device that sent it."""
        return self._each(evidence)[0]

    def p_value(self, evidence: Observations) -> Real:
        """(N,) the largest chance with which a known device is as far from its mean: small for an unknown device.

        Of a known device's own frames at most a part α has a p-value below α.
        """
        return np.asarray(chdtrc(len(self.frame), self.distance(evidence).min(axis=1)))

    def ratio(self, evidence: Observations, claimed: NDArray[np.int64]) -> Real:
        """(N,) log-likelihood ratio of a claimed identity (N,) against any other device, known or not.

        ln p(x | claimed) − ln ½ (mean_{k ≠ claimed} p(x | k) + p(x | an unknown device)).
        """
        own = self.log_likelihood(evidence)
        rows = np.arange(len(own))
        if len(claimed) != len(own) or (len(own) and not 0 <= claimed.min() <= claimed.max() < own.shape[1]):
            raise DataError(f"claims: expected {len(own)} numbers of devices, 0 to {own.shape[1] - 1}.")
        said = own[rows, claimed]
        others = own.copy()
        others[rows, claimed] = -np.inf
        stranger = self.log_stranger(evidence)
        if own.shape[1] > 1:
            stranger = np.logaddexp(stranger, logsumexp(others, axis=1) - np.log(own.shape[1] - 1)) - np.log(2)
        return np.asarray(said - stranger)

    def log_stranger(self, evidence: Observations) -> Real:
        """(N,) ln N(x_n; μ_0, B + P + error_n), a device that is drawn as the known ones were."""
        middle, spread = self.population
        return self._gaussians(evidence, middle[None], spread[None])[1][:, 0]

    def strangeness(self, evidence: Observations) -> Real:
        """(N,) ln p(x | an unknown device) − ln 1/K Σ_k p(x | k): above 0 where an unknown device explains x better."""
        known, unknown = self.log_all(evidence)
        return np.asarray(unknown - np.logaddexp.reduce(known, axis=1) + np.log(known.shape[1]))

    def log_all(self, evidence: Observations) -> tuple[Real, Real]:
        """`log_likelihood` (N, K) and `log_stranger` (N,) at once."""
        (means, errors), (middle, spread) = self._stacked, self.population
        everyone = np.append(means, middle[None], axis=0), np.append(errors, spread[None], axis=0)
        found = self._gaussians(evidence, *everyone)[1]
        return found[:, :-1], found[:, -1]

    def drawn(self, count: int, random: np.random.Generator, error: Real | None = None) -> Observations:
        """Frames of the known devices in places drawn as the source's were, each with one of the errors (E, d, d)."""
        devices, size = list(self.devices.values()), len(self.frame)
        device = random.integers(len(devices), size=count)
        own = np.zeros((1, size, size)) if error is None else np.asarray(error, dtype=np.float64)
        own = own[random.integers(len(own), size=count)]
        spread = np.stack([one.error for one in devices])[device] + self.place + self.frame + own
        off = np.einsum("nij,nj->ni", np.linalg.cholesky(spread), random.standard_normal((count, size)))
        return self.evidence(np.stack([one.mean for one in devices])[device] + off, own)

    @cached_property
    def population(self) -> tuple[Real, Real]:
        """μ_0 (d,) and B (d, d): the devices as a sample. Few devices tell variances better than what goes together."""
        means = np.stack([device.mean for device in self.devices.values()])
        count, size = means.shape
        if count < 2:
            raise ConfigError("a single device tells nothing of others; expected two or more to weigh a claim against.")
        spread = np.cov(means.T).reshape(size, size)
        spread = (count * spread + size * np.diag(np.diag(spread))) / (count + size)
        return means.mean(axis=0), spread * (1 + 1 / count)

    def enrol(self, name: str, evidence: Observations, place: Iterable[Any]) -> GaussianBackend:
        """The same with another device, from its frames and the name of the place of each; three are enough."""
        if name in self.devices:
            raise ConfigError(f"device {name!r} is enrolled already. Remove it first, or use another name.")
        return replace(self, devices=self.devices | {name: self.learn(evidence, place)})

    def remove(self, name: str) -> GaussianBackend:
        """The same without a device."""
        if name not in self.devices:
            raise ConfigError(unknown_name("device", name, self.devices))
        return replace(self, devices={own: device for own, device in self.devices.items() if own != name})

    def learn(self, evidence: Observations, place: Iterable[Any]) -> Device:
        """m_k and V_k of a device: V_k = (Σ_c T_c)⁻¹, m_k = V_k Σ_c T_c x̄_c, T_c = (P + error of x̄_c)⁻¹."""
        _, number = np.unique(np.asarray(list(place)), return_inverse=True)
        if not len(evidence) or len(number) != len(evidence):
            raise DataError(
                f"{len(evidence)} frames with {len(number)} places: expected one or more, with a place each."
            )
        pooled = evidence.pooled(number.astype(np.int64))
        assert pooled.own is not None, "pooling gives each place an error"
        weight = inverse_of(self.place + pooled.own)
        error = inverse_of(weight.sum(axis=0))
        return Device(error @ np.einsum("cij,cj->i", weight, pooled.value), error, len(evidence), len(pooled))

    def updated(self, name: str, evidence: Observations, place: Iterable[Any]) -> Device:
        """A known device with newer frames, whose mean m̄ has the error V̄ (`learn`); what is older is forgotten.

        A device may have moved since, by Q: V⁻ = V + Q, m' = m + V⁻ (V⁻ + V̄)⁻¹ (m̄ − m), V' = (V⁻⁻¹ + V̄⁻¹)⁻¹. So the
        weight of frames decays exponentially with the updates after them. The step is shortened to one error bar in
        the mean over the d numbers: (m' − m)ᵀ (V⁻)⁻¹ (m' − m) ≤ d.
        """
        new = self.learn(evidence, place)
        old, expected = self.devices[name], self.after_ageing(name)
        step = expected @ np.linalg.solve(expected + new.error, new.mean - old.mean)
        far = float(step @ np.linalg.solve(expected, step)) / len(step)
        error = inverse_of(inverse_of(expected) + inverse_of(new.error))
        mean = old.mean + step / max(1.0, np.sqrt(far))
        return Device(mean, error, old.frames + new.frames, old.places + new.places)

    def after_ageing(self, name: str) -> Real:
        """(d, d) V⁻ of a device at its next update: Q is the square of `AGEING` times the covariance of the devices."""
        if name not in self.devices:
            raise ConfigError(unknown_name("device", name, self.devices))
        return np.asarray(self.devices[name].error + AGEING**2 * self.population[1])

    def _each(self, evidence: Observations) -> tuple[Real, Real]:
        """(N, K) distances and log-likelihoods."""
        if not self.devices:
            raise ConfigError("no device is known; enrol one first.")
        return self._gaussians(evidence, *self._stacked)

    @cached_property
    def _stacked(self) -> tuple[Real, Real]:
        """(K, d) means and (K, d, d) errors of the devices."""
        devices = self.devices.values()
        return np.stack([device.mean for device in devices]), np.stack([device.error for device in devices])

    def _gaussians(self, evidence: Observations, mean: Real, spread: Real) -> tuple[Real, Real]:
        return gaussians(evidence.value, evidence.own, mean, spread + self.place + evidence.frame)
