"""Verification: how well scores tell true claims from false ones.

A trial is a frame and a device that it claims to be from; the claim is genuine or false. Its score is a log-likelihood
ratio s = ln p(frame | claim is true) − ln p(frame | claim is false); a claim is accepted where s
exceeds a threshold. The measures are those of speaker verification:

    miss(t)          = share of genuine claims with s ≤ t
    false accept(t)  = share of false claims with s > t
    EER              = miss = false accept, where the two meet
    Cllr             = ½ mean_genuine log₂(1 + e^{−s}) + ½ mean_false log₂(1 + e^{s})            [bits]
    minimum Cllr     = Cllr of the best non-decreasing map of s: what would be left if s were well calibrated

EER and minimum Cllr say how well the scores order the trials, Cllr also whether their size can be believed: perfect
ratios have 0 bits, ratios that say nothing (s = 0) have 1 bit, and misleading ones have more.

    Brümmer and du Preez, Application-independent evaluation of speaker detection, Computer Speech & Language 2006
    Martin et al., The DET curve in assessment of detection task performance, Eurospeech 1997
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pisa_capc.core.errors import DataError

MOST_TRIALS = 4_000_000  # of more, frames are taken evenly: an EER of 1 % is then known to about 0.01 %
LEAST = 1e-300  # a probability of zero has no logarithm

Real = NDArray[np.float64]


@dataclass(frozen=True)
class VerificationScores:
    """miss, false_accept: curves over the threshold, from accepting every claim to refusing all. Cllr is in bits."""

    miss: Real
    false_accept: Real
    cllr: float
    min_cllr: float

    @property
    def eer(self) -> float:
        return equal_error_rate(self.miss, self.false_accept)

    def to_json(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in ("eer", "cllr", "min_cllr")}


def verification_score(genuine: ArrayLike, false: ArrayLike) -> VerificationScores:
    """Of log-likelihood ratios (natural logarithm) of genuine (N,) and false (M,) claims.

    >>> verification_score([2.0, 3.0], [-3.0, -2.0]).eer
    0.0
    >>> verification_score([0.0], [0.0]).cllr
    1.0
    """
    real, spoofed = (np.asarray(values, dtype=np.float64) for values in (genuine, false))
    if real.ndim != 1 or spoofed.ndim != 1 or not len(real) or not len(spoofed):
        raise DataError(
            f"trials: expected scores of genuine (N,) and false (M,) claims, some of both, found {real.shape} and "
            f"{spoofed.shape}."
        )
    if np.isnan(real).any() or np.isnan(spoofed).any():
        raise DataError("trials: a score is NaN; expected log-likelihood ratios.")
    threshold, where = np.unique(np.concatenate([real, spoofed]), return_inverse=True)
    trials = np.stack([np.bincount(part, minlength=len(threshold)) for part in np.split(where, [len(real)])])
    below = np.concatenate([np.zeros((2, 1)), np.cumsum(trials, axis=1)], axis=1)
    miss, refused = below / below[:, -1:]
    return VerificationScores(miss, 1 - refused, cllr(real, spoofed), _least_cllr(*trials))


def cllr(genuine: Real, false: Real) -> float:
    """½ mean log₂(1 + e^{−s}) over genuine claims + ½ mean log₂(1 + e^{s}) over false ones, in bits."""
    bits = np.logaddexp(0, -genuine).mean() + np.logaddexp(0, false).mean()
    return float(bits / (2 * np.log(2)))


def _least_cllr(genuine: NDArray[np.int64], false: NDArray[np.int64]) -> float:
    """Minimum Cllr of trials counted by rising score, each (K,): by pooling adjacent violators.

    The best non-decreasing map gives a pool of g genuine and f false claims the ratio (g/N) / (f/M).
    """
    from scipy.optimize import isotonic_regression

    trials = genuine + false
    share = isotonic_regression(genuine / trials, weights=trials).x
    with np.errstate(divide="ignore"):
        ratio = np.log(share) - np.log1p(-share) - np.log(genuine.sum() / false.sum())
    bits = [np.logaddexp(0, side[n > 0]) @ (n[n > 0] / n.sum()) for n, side in ((genuine, -ratio), (false, ratio))]
    return float(sum(bits) / (2 * np.log(2)))


def equal_error_rate(miss: Real, false_accept: Real) -> float:
    """Where a rising curve of misses meets a falling one of false accepts, straight between neighbouring thresholds."""
    above = int(np.argmax(miss >= false_accept))
    if above == 0:
        return float(miss[0])
    gap = (false_accept - miss)[above - 1 : above + 1]
    return float(miss[above - 1] + (miss[above] - miss[above - 1]) * gap[0] / (gap[0] - gap[1]))


def claim_ratios(labels: NDArray[np.int64], probability: Real) -> tuple[Real, Real]:
    """Log-likelihood ratios of the genuine and the false claims of frames: every frame claims every device.

    s_nk = ln p_nk − ln 1/(C − 1) Σ_{j ≠ k} p_nj for class probabilities (N, C) under equal priors, by which they are
    likelihoods up to a factor. genuine: (N,), false: (N (C − 1),).
    """
    step = -(-probability.size // MOST_TRIALS)
    p, label = probability[::step], labels[::step]
    others = np.zeros_like(p)  # sums from both ends: a small number is never the difference of two large ones
    others[:, 1:] = np.cumsum(p, axis=1)[:, :-1]
    others[:, :-1] += np.cumsum(p[:, :0:-1], axis=1)[:, ::-1]
    ratio = np.log(np.maximum(p, LEAST)) - np.log(np.maximum(others / (p.shape[1] - 1), LEAST))
    own = np.arange(p.shape[1]) == label[:, None]
    return ratio[own], ratio[~own]


def claim_scores(labels: NDArray[np.int64], probability: Real) -> VerificationScores | None:
    """How well claims are verified by class probabilities (N, C); None without frames or with a single class."""
    if not len(labels) or probability.shape[1] < 2:
        return None
    return verification_score(*claim_ratios(labels, probability))


def det_curve(miss: Real, false_accept: Real, points: int = 512) -> dict[str, list[float]]:
    """A curve in at most so many points, for a file or a picture: those that are evenly apart along it."""
    along = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(miss)) + np.abs(np.diff(false_accept)))])
    kept = np.unique(np.searchsorted(along, np.linspace(0, along[-1], points)).clip(max=len(along) - 1))
    return {"miss": miss[kept].round(6).tolist(), "false_accept": false_accept[kept].round(6).tolist()}
