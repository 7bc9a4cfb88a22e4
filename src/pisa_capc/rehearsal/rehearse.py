"""Rehearsals of the calibration levels: captures resampled from labelled frames, balanced or not, large or small."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pisa_capc.calibration.guard import LEVELS, Rehearsals
from pisa_capc.calibration.safe import LEVEL_CALIBRATIONS, prices
from pisa_capc.scores import macro_f1_of_present

# Class frequencies of a resampled capture: equal, drawn from Dirichlet distributions, or equal with classes missing.
BALANCED, MISSING = "balanced", "missing"
KINDS = (BALANCED, "dirichlet-1", "dirichlet-0.3", MISSING)
SIZES = (32, 128, 512)  # frames of a resampled capture
REPEATS = 3
MISSING_SHARE = 0.3  # of the classes


def draw_shares(kind: str, classes: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Class frequencies (C,) of one capture of a kind."""
    shares = np.full(classes, 1.0 / classes)
    if kind.startswith("dirichlet-"):
        return rng.dirichlet(np.full(classes, float(kind.removeprefix("dirichlet-"))))
    if kind == MISSING:
        shares[rng.choice(classes, max(1, round(MISSING_SHARE * classes)), replace=False)] = 0.0
    return shares / shares.sum()


def draw_capture(
    label: NDArray[np.int64], size: int, shares: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Rows of a capture with about `size` frames and these class frequencies, none twice.

    A class that has too few frames gives all it has.
    """
    equal = np.ptp(shares) < 1e-12
    counts = np.full(len(shares), -(-size // len(shares))) if equal else rng.multinomial(size, shares)
    rows = []
    for k, count in enumerate(counts.tolist()):
        own = np.flatnonzero(label == k)
        rows.append(rng.choice(own, min(count, len(own)), replace=False))
    return np.concatenate(rows)


def rehearse(
    embedding: NDArray[np.floating],
    logits: NDArray[np.floating],
    label: NDArray[np.int64],
    capture: NDArray[np.str_] | NDArray[np.int64],
    seed: int,
) -> Rehearsals:
    """Calibrate captures resampled from labelled frames of one environment at every level of the guard."""
    rng = np.random.default_rng(seed)
    classes = logits.shape[1]
    drawn: list[NDArray[np.int64]] = []
    kinds: list[int] = []
    for kind, name in enumerate(KINDS):
        for key in np.unique(capture):
            own = np.flatnonzero(capture == key)
            for size in SIZES:
                for _ in range(REPEATS):
                    rows = draw_capture(label[own], size, draw_shares(name, classes, rng), rng)
                    if len(rows):
                        drawn.append(own[rows])
                        kinds.append(kind)
    rows = np.concatenate(drawn)
    group = np.repeat(np.arange(len(drawn)), [len(part) for part in drawn])
    results = {
        level: replace(calibration, group="capture").calibrate(embedding[rows], logits[rows], group)
        for level, calibration in LEVEL_CALIBRATIONS.items()
    }
    truth = label[rows]
    decided = [np.asarray(results[level].prediction) for level in LEVELS]
    members = np.split(np.arange(len(rows)), np.cumsum([len(part) for part in drawn])[:-1])
    f1 = np.array([[macro_f1_of_present(truth[own], by[own], classes) for by in decided] for own in members])
    return Rehearsals(prices(results["full"]), f1 - f1[:, -1:], np.array(kinds))
