"""Where to draw the line between known and unknown, and what can be promised about it.

A frame is taken as known where its unknown score is at most the threshold. Both promises rest on frames of the same
kind as those to come; each function says which. Neither uses a frame of the target.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pisa_capc.core.errors import ConfigError, DataError


def conformal_threshold(score: ArrayLike, label: ArrayLike, alpha: float, classes: Sequence[int]) -> float:
    """The threshold that rejects at most a share `alpha` of the frames of every known device.

    Label-conditional conformal prediction (Vovk, Gammerman and Shafer, Algorithmic Learning in a Random World, 2005):
    with the scores of n_k held-out frames of class k, t_k is the ⌊α(n_k + 1)⌋-th largest, and t = max_k t_k. A frame
    is rejected only where it would be whichever known device sent it, so P(u > t | device k) ≤ α for every k, on
    average over held-out frames.

    Assumes that held-out frames and new frames of a device are exchangeable. **A new environment breaks this**: the
    share of known frames that is rejected there can be anything, and is usually larger.
    """
    values, truth = np.asarray(score, dtype=np.float64), np.asarray(label)
    if not 0 < alpha < 1:
        raise ConfigError(f"alpha is {alpha}; expected a share of false rejections between 0 and 1.")
    if values.ndim != 1 or values.shape != truth.shape:
        raise DataError(f"score {values.shape} and label {truth.shape}: expected two vectors of one length.")
    threshold = -math.inf
    for k in classes:
        own = np.sort(values[truth == k])
        rejected = math.floor(alpha * (len(own) + 1))
        if rejected < 1:
            raise DataError(
                f"class {k} has {len(own)} validation frames; alpha = {alpha:g} needs at least "
                f"{math.ceil(1 / alpha) - 1} of each class. Use more validation frames or a larger alpha."
            )
        threshold = max(threshold, float(own[len(own) - rejected]))
    return threshold


@dataclass(frozen=True)
class FalseAcceptance:
    """A threshold that accepts `accepted` of `frames` proxy unknowns, and the upper bound on that share in general."""

    threshold: float
    accepted: int
    frames: int
    bound: float


def false_accept_threshold(score: ArrayLike, share: float = 0.05, confidence: float = 0.95) -> FalseAcceptance:
    """The largest threshold that accepts at most `share` of unknown frames, with the given confidence.

    `score` (n,) are of proxy unknowns: devices that the model was not trained on (leave some out on the source). The
    Clopper–Pearson upper bound of j accepted among n is the `confidence` quantile of Beta(j + 1, n − j); j is the
    largest for which it is at most `share`. As j is fixed before any score is seen, and F(u_(j+1)) has just this
    distribution, the bound holds although the threshold is read off the same frames (Wilks, 1941).

    Assumes that unknown frames to come are drawn as the proxies were. Frames of few devices say little about the next
    device, however many they are; and a new environment breaks it as well.
    """
    from scipy.special import betaincinv  # takes longer to import than everything else a rejection needs

    values = np.sort(np.asarray(score, dtype=np.float64))
    for name, value in (("share", share), ("confidence", confidence)):
        if not 0 < value < 1:
            raise ConfigError(f"{name} is {value}; expected a number between 0 and 1.")
    if values.ndim != 1 or np.isnan(values).any():
        raise DataError(f"scores of proxy unknowns {values.shape}: expected a vector without NaN.")
    n = len(values)
    bounds = betaincinv(np.arange(n) + 1, n - np.arange(n), confidence)
    allowed = int(np.searchsorted(bounds, share, side="right")) - 1  # j
    if allowed < 0:
        needed = math.ceil(math.log1p(-confidence) / math.log1p(-share))
        raise DataError(
            f"{n} frames of proxy unknowns cannot show a false-accept share of {share:g} with confidence "
            f"{confidence:g}; expected at least {needed}. Leave more devices out, or ask for less."
        )
    threshold = float(np.nextafter(values[allowed], -math.inf))  # ties with u_(j+1) are rejected together
    return FalseAcceptance(threshold, int((values <= threshold).sum()), n, float(bounds[allowed]))
