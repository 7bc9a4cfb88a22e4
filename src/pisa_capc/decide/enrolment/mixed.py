r"""Whether frames that are to be one new device's are of two senders, for models without error bars.

Embeddings are seen along the directions in which devices differ, in units of what differs within a session, and there
along the first principal axis of the frames, t. A cut of the sorted t into a share of at least `MIXED` and the rest has

    ρ = max over cuts  Σ_i n_i (t̄_i − t̄)² / Σ_i Σ_{n in i} (t_n − t̄_i)²,

between over within, which has no scale: a device that the model was not trained on spreads wider than the others. One
sender's frames have some ρ too. The limit is what `ONE` of as many frames of one trained device stay below: validation
frames that the model decides rightly, without the means of their sessions. Frames of several recordings are looked at
recording by recording, as a device in two places parts too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.randomness import generator
from pisa_capc.decide.enrolment.alike import MIXED
from pisa_capc.decide.enrolment.row import FLOOR, Array, mean_variance
from pisa_capc.model.inference import SourceStatistics

ONE = 0.99  # of one sender's frames that are not refused
FEWEST, MOST = 10, 20  # frames of a recording that are looked at, and of a trained device that the limit is from
DRAWS = 30  # of every trained device


def second_sender(source: SourceStatistics, own: Array, recording: NDArray[Any]) -> NDArray[np.bool_]:
    """Which frames, embeddings (N, D) of these recordings (N,), are the fewer of two senders'; none where there is one.

    None too where the source does not say what sessions its frames are of, as of earlier versions.
    """
    found = np.zeros(len(own), dtype=bool)
    if source.session_covariance is None or source.validation_session is None:
        return found
    x = own @ _directions(source)
    for one in np.unique(recording):
        rows = np.flatnonzero(recording == one)
        if len(rows) < FEWEST:
            continue
        ratio, fewer = best_cut(x[rows])
        if ratio > _limit(source, min(len(rows), MOST)):
            found[rows] = fewer
    return found


def best_cut(x: Array) -> tuple[float, NDArray[np.bool_]]:
    """ρ of frames (n, d), and which of them are the smaller part."""
    count, least = len(x), max(2, int(np.ceil(MIXED * len(x))))
    centred = x - x.mean(axis=0)
    t = centred @ np.linalg.svd(centred, full_matrices=False)[2][0]
    order = np.argsort(t)
    below = np.arange(least, count - least + 1)  # frames below each cut
    sums = np.cumsum(t[order])[below - 1]
    between = sums**2 * count / (below * (count - below))  # as the mean of all is zero
    ratio = between / np.maximum(t @ t - between, np.finfo(float).tiny)
    best = int(ratio.argmax())
    part = np.zeros(count, dtype=bool)
    part[order[: below[best]]] = True
    return float(ratio[best]), part if 2 * below[best] <= count else ~part


def _directions(source: SourceStatistics) -> Array:
    """(D, C − 1) of the embedding, along which frames of one session have variance one and devices differ."""
    within = np.asarray(source.session_covariance, dtype=np.float64)
    white = np.linalg.inv(np.linalg.cholesky(within + FLOOR * mean_variance(within))).T
    means = np.asarray(source.class_mean, dtype=np.float64)[np.asarray(source.prior) > 0]
    return np.asarray(white @ np.linalg.svd((means - means.mean(axis=0)) @ white, full_matrices=False)[2][:-1].T)


def _limit(source: SourceStatistics, count: int) -> float:
    """ρ that `ONE` of so many frames of one trained device stay below."""
    random = generator(0, "enrolment", "second sender", str(count))
    ratios = [best_cut(x[random.permutation(len(x))[:count]])[0] for x in _of_one_device(source) for _ in range(DRAWS)]
    return float(np.quantile(ratios, ONE)) if ratios else np.inf


def _of_one_device(source: SourceStatistics) -> Iterator[Array]:
    """The validation frames of every device that are decided rightly, each without the mean of its session."""
    label, session = np.asarray(source.validation_label), np.asarray(source.validation_session)
    right = (np.asarray(source.validation_logits).argmax(axis=1) == label) & (session >= 0)
    mean = np.asarray(source.session_mean, dtype=np.float64)
    off = (np.asarray(source.validation, dtype=np.float64) - mean[session]) @ _directions(source)
    for k in np.unique(label[right]):
        if (own := right & (label == k)).sum() >= FEWEST:
            yield off[own]
