"""Does the model hold for a frame: the chance that noise and an ordinary oscillator leave as much unexplained.

Three statistics; the smallest of their chances counts, three times (Bonferroni):

- misfit: what the flaws leave in the directions Z, over the noise beside them and what an ordinary walk of the phase
  adds (an F statistic, `Measurement`);
- phase: coefficients φ_k of j P_k(t) x, k = 2, 3, P_k Legendre's polynomials over the frame. A phase that walks with
  linewidth β has coefficients of a known covariance Σ(β). With C that of their error,

      φᵀ (C + Σ(β))⁻¹ φ ~ χ²,   β = `Waveform.linewidth_hz`;

- spectrum: what is left outside of [Q Z] is white, but for the same walk. Its largest line among n, each over its
  expectation and added up over A antennas, is Gamma(A) distributed: a narrow-band signal stands out.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import numpy as np
import torch
from numpy.polynomial import Legendre
from numpy.typing import NDArray
from scipy.special import gammaincc
from scipy.stats import chi2

from pisa_capc.core.errors import DataError
from pisa_capc.core.threads import in_threads
from pisa_capc.signal.measurement.estimator import BLOCK, OFFSET, STEPS, FlawEstimator
from pisa_capc.signal.waveforms import Waveform

ORDERS = (2, 3)  # a channel takes up order 0, the carrier offset order 1
LARGEST = 512  # samples of a frame up to which whole blocks are taken
LINES = 2  # of the spectrum for each sample
SUSPECTED = 0.01  # chance below which what is left is no accident
SEEN = 0.3  # of a line's energy that is outside of [Q Z], at least

Complex = NDArray[np.complexfloating[Any, Any]]
Real = NDArray[np.floating[Any]]


class ChanceOf(Protocol):
    """As `GoodnessOfFit.chance`."""

    def __call__(
        self, iq: Complex, mask: NDArray[np.bool_] | None = None, sender: NDArray[np.int64] | None = None
    ) -> Real: ...


def fit_test(estimator: FlawEstimator) -> ChanceOf:
    """The test of frames that an estimator measures; of those measured against an x of their own, the misfit alone."""
    if estimator.own_x:
        return lambda iq, mask=None, sender=None: estimator.measure(iq, mask, sender).suspicion
    return GoodnessOfFit(estimator.waveform, estimator.samples).chance


class GoodnessOfFit:
    """The test above, for frames that begin with a waveform; samples as of `FlawEstimator`."""

    def __init__(self, waveform: Waveform, samples: int | None = None) -> None:
        own = FlawEstimator(waveform, samples)
        if OFFSET in own.flaws:  # else a phase that turns is a channel, as in a single chirp
            with suppress(DataError):  # too few samples for as many shapes
                own = FlawEstimator(waveform, samples, beside={f"phase {order}": _turning(order) for order in ORDERS})
        self.estimator = own
        self._orders = [order for order in ORDERS if f"phase {order}" in own.flaws]
        step = 2 * np.pi * waveform.linewidth_hz / waveform.sample_rate_hz  # variance of the phase, sample to sample
        self._walk = step * walk(own.samples, self._orders)
        self._project = own.constants()["project"]
        lines = LINES * own.samples
        self._lines = torch.fft.fft(self._project.conj().T, n=lines) / own.samples**0.5  # (r + R, lines)
        free = 1 - self._lines.abs().square().sum(0)
        self._seen, self._free = free > SEEN, free[free > SEEN]
        x, n = torch.from_numpy(waveform.preamble()[: own.samples]).to(self._project.dtype), torch.arange(own.samples)
        apart = -(-own.samples // STEPS)
        walks = torch.where(n[:, None] >= n[::apart], x[:, None], 0)
        beyond = torch.fft.fft(walks, n=lines, dim=0) / own.samples**0.5 - self._lines.T @ (self._project.T @ walks)
        self._ordinary = apart * step * beyond.abs().square().sum(1)[self._seen]  # of a line, at a signal of unit power

    def chance(
        self, iq: Complex, mask: NDArray[np.bool_] | None = None, sender: NDArray[np.int64] | None = None
    ) -> Real:
        """(N,) of frames (N, A, T or more); NaN where one cannot be measured. mask, sender: as of `FlawEstimator`."""
        found = self.estimator.measure(iq, mask, sender)
        if not len(found):
            return np.empty(0)
        block = max(1, BLOCK * LARGEST // max(LARGEST, self.estimator.samples))
        rows = [np.arange(start, min(start + block, len(found))) for start in range(0, len(found), block)]
        turned, there = found.offset, np.isfinite(found.noise)
        power = np.where(there, 10 ** (found.snr_db / 10) * found.noise, 0)
        lines = np.concatenate(
            list(in_threads(lambda own: self._spectrum(iq[own], turned[own], there[own], power[own]), rows))
        )
        each = np.stack([found.suspicion, self._phase(found.value, found.covariance), lines])
        return np.asarray(np.where(found.measured, np.minimum(1, len(each) * each.min(axis=0)), np.nan))

    def _phase(self, value: Complex, covariance: Complex) -> Real:
        own = [self.estimator.flaws.index(f"phase {order}") for order in self._orders]
        if not own:
            return np.ones(len(value))
        phi, error = value[:, own].real, covariance[:, own][:, :, own].real / 2 + self._walk
        good = np.isfinite(phi).all(axis=1)
        chance = np.ones(len(phi))
        solved = np.linalg.solve(error[good], phi[good][..., None])[..., 0]
        chance[good] = chi2.sf((phi[good] * solved).sum(axis=1), len(own))
        return chance

    def _spectrum(self, iq: Complex, offset: Real, there: NDArray[np.bool_], signal: Real) -> Real:
        """The chance of the strongest line. signal: (n, A) power."""
        n = np.arange(self.estimator.samples)
        turn = np.exp(-2j * np.pi * np.where(np.isfinite(offset), offset, 0)[:, None, None] * n)
        y = torch.from_numpy(np.where(there[..., None], iq[..., : len(n)] * turn, 0).astype(np.complex64))
        inside = y @ self._project
        left = torch.fft.fft(y, n=LINES * len(n)) / len(n) ** 0.5 - inside @ self._lines
        energy = y.abs().square().sum(-1) - inside.abs().square().sum(-1)
        noise = (energy.clamp_min(1e-12) / (len(n) - inside.shape[-1]))[..., None] * self._free
        walked = torch.from_numpy(signal)[..., None] * self._ordinary
        power = left[..., self._seen].abs().square() / (noise + walked)
        antennas = torch.from_numpy(there.sum(axis=1)).clamp_min(1)[:, None]
        total = (power * torch.from_numpy(there)[..., None]).sum(1)
        # Of each antenna the noise is its own, the walk common to all: variance Σ_ab |cov|² with unit variances.
        part = torch.where(torch.from_numpy(there)[..., None], walked / (noise + walked), 0)
        variance = antennas + part.sum(1) ** 2 - part.square().sum(1)
        place = ((total - antennas) / variance.sqrt()).argmax(-1, keepdim=True)
        highest, spread = (each.gather(1, place)[:, 0].double().numpy() for each in (total, variance))
        count = antennas[:, 0].numpy()
        chance = gammaincc(count**2 / spread, highest * count / spread)
        return np.asarray(np.minimum(1, len(self._free) * chance))


def walk(samples: int, orders: list[int]) -> Real:
    """(K, K) covariance of the coefficients of a phase that walks by a variance of one a sample."""
    t = np.linspace(-1, 1, samples)
    every = np.stack([Legendre.basis(order)(t) for order in range(max(orders, default=0) + 1)], axis=1)
    fit = np.linalg.pinv(every)[orders]
    steps = np.cumsum(fit[:, ::-1], axis=1)[:, ::-1]  # what a step at a sample adds to each coefficient
    return np.asarray(steps @ steps.T)


def _turning(order: int) -> Callable[[Complex], Complex]:
    return lambda x: np.asarray(1j * Legendre.basis(order)(np.linspace(-1, 1, len(x))) * x)
