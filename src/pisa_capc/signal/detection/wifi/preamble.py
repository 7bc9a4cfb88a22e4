"""The whole preamble: where it begins, how far its frequency is off on each antenna, how well it fits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.fft import fft, ifft
from scipy.special import gammainccinv, gammaincinv

from pisa_capc.signal.detection.wifi.screen import BLOCK
from pisa_capc.signal.waveforms.delays import delayed_copies
from pisa_capc.signal.waveforms.wifi import PREAMBLE_SAMPLES, preamble

SEARCH = 80  # samples around the place the screen gives, which is less sure where a squelch has cut the L-STF
TAPS = 16  # of the channel: its guard interval
EARLY = 2  # of them before the first path: what the band's edges spread of it
NEAR = 12  # samples before the strongest path in which an earlier one is looked for
CHANCE = 1e-4  # with which noise is taken for a path
FAINT = 0.1  # of the strongest path's power, what an earlier one must have
LEAST_SPREAD = 0.2  # of the L-STF's tones, those that must be there: a carrier is one of them behind a narrow channel
SILENT_DB = -30.0  # the least signal-to-noise ratio that is told, and that of an antenna that hears nothing
STEP_HZ = (8e3, 2e3)  # at which the fit is tried on either side, one round each
LEAST_QUALITY = 0.2  # of a preamble
PARTS = 4  # of the preamble, which must all fit where less than half of it does:
LEAST_PART = 0.1  # the HT fields of a frame look like the end of an L-STF and the beginning of an L-LTF

_LTF = slice(160, 320)
_TONES = np.r_[-6:0, 1:7]  # of the L-STF, in steps of four carriers
_FFT = 512
EXCERPT = 2 * SEARCH + PREAMBLE_SAMPLES  # samples in which a preamble is looked for


@dataclass(frozen=True)
class PreambleFit:
    """Preambles as they were found: K of them, A antennas.

    start: (K,) first samples in their excerpts. cfo_hz, snr_db: (K, A). quality: (K,) share of the energy that the
    preamble explains. least: (K,) the same of the part that fits worst. spread: (K,) part of the L-STF's tones that its
    energy is in.
    """

    start: NDArray[np.intp]
    cfo_hz: NDArray[np.float64]
    snr_db: NDArray[np.float64]
    quality: NDArray[np.float64]
    least: NDArray[np.float64]
    spread: NDArray[np.float64]

    @property
    def good(self) -> NDArray[np.bool_]:
        fits = (self.quality > LEAST_QUALITY) & ((self.least > LEAST_PART) | (self.quality > 0.5))
        return np.asarray(fits & (self.spread > LEAST_SPREAD))


@cache
def _long_spectrum() -> NDArray[np.complex64]:
    return np.asarray(fft(preamble()[_LTF], _FFT).conj().astype(np.complex64))


@cache
def basis() -> NDArray[np.complex128]:
    """(320, TAPS) orthonormal columns that span the preamble behind every channel of TAPS samples."""
    return np.linalg.qr(delayed_copies(preamble(), PREAMBLE_SAMPLES, EARLY, TAPS - 1 - EARLY).T)[0]


@cache
def _basis() -> NDArray[np.complex64]:
    return basis().astype(np.complex64)


@cache
def _limits(antennas: int) -> tuple[float, float]:
    """Of noise in `first_path`: its median, and what it exceeds with the chance of CHANCE."""
    return float(gammaincinv(antennas, 0.5)), float(gammainccinv(antennas, CHANCE))


@cache
def _trial(step: float) -> NDArray[np.complex64]:
    """(320, 3 TAPS) the basis at a frequency lower by `step` radians a sample, as it is, and higher."""
    turn = np.exp(1j * step * np.arange(PREAMBLE_SAMPLES))[:, None]
    return np.concatenate([basis() * t for t in (turn.conj(), 1, turn)], axis=1).conj().astype(np.complex64)


def turned(iq: NDArray[np.complex64], radians: NDArray[np.float64]) -> NDArray[np.complex64]:
    """(…, T) with the frequency lowered by radians a sample, of each or of all antennas; T is a multiple of 16.

    e^{−jω(16 m + n)} = e^{−j16ωm} e^{−jωn}: sixteen and T/16 exponentials, not T.
    """
    each = -1j * radians.reshape(*radians.shape, *[1] * (iq.ndim - radians.ndim))
    within = np.exp(each * np.arange(BLOCK)).astype(np.complex64)
    across = np.exp(each * np.arange(0, iq.shape[-1], BLOCK)).astype(np.complex64)
    return np.asarray(iq * (across[..., None] * within[..., None, :]).reshape(*each.shape[:-1], -1))


def energy(values: NDArray[np.complex64]) -> NDArray[np.float32]:
    """Σ |y|² along the last axis."""
    return np.asarray(np.vecdot(values, values).real)


def first_path(iq: NDArray[np.complex64], weights: NDArray[np.float64]) -> NDArray[np.intp]:
    """(K,) first preamble sample in (K, A, T) samples at about zero frequency offset, one for all antennas.

    g[n] = Σ_a w_a |Σ_m x*[m] y_a[n + m]|² with the L-LTF x. Of the samples before its peak, the first that has a tenth
    of it and stands out of the noise, whose g is Gamma-distributed with one degree for each antenna.
    """
    long = ifft(fft(iq, _FFT) * _long_spectrum())[..., _LTF.start : _LTF.start + 2 * SEARCH]
    paths = (weights[..., None] * (long.real**2 + long.imag**2)).sum(1)
    limits = [_limits(max(antennas, 1)) for antennas in np.count_nonzero(weights, axis=1).tolist()]
    median, most = np.array(limits).T[..., None]
    noise = np.sort(paths, axis=1)[:, SEARCH - 1 : SEARCH + 1].mean(1, keepdims=True) / median
    peak = paths.argmax(1)
    place = np.arange(paths.shape[1])
    early = (place >= peak[:, None] - NEAR) & (place <= peak[:, None])
    strong = paths >= FAINT * paths.max(1, keepdims=True) + noise * most
    strong |= place == peak[:, None]
    return np.asarray((early & strong).argmax(1))


def from_long(still: NDArray[np.complex64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """(K, A) radians a sample from the L-LTF: ∠Σ y*[n] y[n + 64] / 64, of each antenna or of the whole array.

    Of the two, the one at which the preamble explains more of what the antenna has received: the array's is better
    where the antenna hears little, its own where antennas have oscillators of their own.
    """
    products = np.vecdot(still[..., 176:256], still[..., 240:320])
    array = np.broadcast_to((weights * products).sum(1)[:, None], products.shape)
    own, common = both = np.angle(np.stack([products, array])) / 64.0
    of_own, of_common = explained_energy(turned(np.broadcast_to(still, (2, *still.shape)), both))
    return np.where(of_own > of_common, own, common).astype(np.float64)


def explained_energy(still: NDArray[np.complex64]) -> NDArray[np.float32]:
    """(…) ‖Qᴴ y‖² of (…, 320) samples, what the preamble explains behind its best channel."""
    return energy(still @ _basis().conj())


def finer(still: NDArray[np.complex64], step: float) -> NDArray[np.float64]:
    """(K, A) radians a sample that (K, A, 320) samples are still off: the peak of a parabola through J at 0, ±step.

    J(ω) = ‖Qᴴ (e^{−jωn} y)‖² is the energy that the preamble explains behind its best channel; its peak is the maximum
    likelihood estimate of the frequency where the channel is not known.
    """
    tried = np.abs((still @ _trial(step)).reshape(*still.shape[:2], 3, TAPS)) ** 2
    low, middle, high = np.moveaxis(tried.sum(-1, dtype=np.float64), -1, 0)
    curvature = np.minimum(low - 2 * middle + high, -np.finfo(np.float32).tiny)
    return np.asarray(np.clip(step * (low - high) / (2 * curvature), -2 * step, 2 * step))


def snr_db(still: NDArray[np.complex64]) -> NDArray[np.float64]:
    """(K, A) from (K, A, 320) preambles at rest: noise is what the L-LTF's repetition differs by."""
    first, again = still[..., 176:256], still[..., 240:320]
    noise = energy(again - first).astype(np.float64) / (2 * first.shape[-1])
    power = energy(still).astype(np.float64) / still.shape[-1]
    ratio = np.divide(power - noise, noise, out=np.zeros_like(noise), where=noise > 0)
    return np.asarray(10 * np.log10(np.maximum(ratio, 10 ** (SILENT_DB / 10))))


def tone_spread(still: NDArray[np.complex64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """(K,) (Σ p_k)²/(12 Σ p_k²) of the powers of the L-STF's twelve tones: 1 if they are equal, 1/12 for a carrier."""
    nine_periods = still[..., BLOCK : 10 * BLOCK].reshape(*still.shape[:-1], 9, BLOCK).sum(-2)
    tones = (weights[..., None] * np.abs(fft(nine_periods)[..., _TONES]) ** 2).sum(1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(tones.sum(1) ** 2 / (12 * (tones**2).sum(1)))


def explained(still: NDArray[np.complex64], weights: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """(K,) share of the energy of (K, A, 320) samples that the preamble explains, and that of the worst of its parts.

    Of a part it is the squared coherence |Σ ŷ* y|²/(Σ|ŷ|² Σ|y|²) with the fit ŷ = Q Qᴴ y.
    """
    q = _basis()
    fitted = still @ q.conj() @ q.T
    parts = (*still.shape[:2], PARTS, -1)
    y, model = still.reshape(parts), fitted.reshape(parts)
    energy, modelled, common = (
        np.einsum("ka,kap->kp", weights, np.vecdot(u, v).real) for u, v in ((y, y), (model, model), (model, y))
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        share = modelled.sum(1) / energy.sum(1)
        worst = (np.maximum(common, 0) ** 2 / (modelled * energy)).min(1)
    return share, worst


def fit(
    excerpt: NDArray[np.complex64],
    raw: NDArray[np.complex64],
    angles: NDArray[np.float64],
    weights: NDArray[np.float64],
    sample_rate_hz: float,
) -> PreambleFit:
    """Preambles in (K, A, EXCERPT) samples, with their lag-16 angles (K,) and the antennas' weights (K, A).

    raw: the same samples with the background, which the signal-to-noise ratio is against. The array's lag-16 frequency
    tells which of its turns each antenna's lag-64 frequency is in; two rounds of `finer` then take it to the bound. An
    antenna that hears nothing is given the array's.

    Each frame has products of its own: on some processors BLAS rounds a row by how many others there are, and a frame
    would depend on those that it is fitted with.
    """
    array = angles.astype(np.float64) / BLOCK
    start = first_path(turned(excerpt, array), weights)
    received = _from(excerpt, start)
    radians = array[:, None] + from_long(turned(received, array), weights)
    for step in STEP_HZ:
        radians += finer(turned(received, radians), 2 * np.pi * step / sample_rate_hz)
    deaf = weights == 0
    mean = (radians * weights).sum(1) / np.maximum(weights.sum(1), np.finfo(float).tiny)
    radians = np.where(deaf, mean[:, None], radians)
    still = turned(received, radians)
    quality, least = explained(still, weights)
    noisy = still if raw is excerpt else turned(_from(raw, start), radians)
    snr = np.where(deaf, SILENT_DB, snr_db(noisy))
    return PreambleFit(start, radians * sample_rate_hz / (2 * np.pi), snr, quality, least, tone_spread(still, weights))


def _from(excerpt: NDArray[np.complex64], start: NDArray[np.intp]) -> NDArray[np.complex64]:
    """(K, A, 320) samples of each from its `start` on."""
    return np.stack([one[:, at : at + PREAMBLE_SAMPLES] for one, at in zip(excerpt, start, strict=True)])
