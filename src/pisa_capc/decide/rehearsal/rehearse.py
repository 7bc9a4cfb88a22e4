"""Rehearsals of the calibration levels: captures resampled from labelled frames, balanced or not, large or small."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.data.deployments import draw_capture, draw_shares
from pisa_capc.data.scores import macro_f1
from pisa_capc.decide.calibration.guard import LEVELS, Rehearsals
from pisa_capc.decide.calibration.safe import LEVEL_CALIBRATIONS, prices

# Class frequencies of a resampled capture: equal, drawn from Dirichlet distributions, or equal with classes missing.
KINDS: dict[str, dict[str, Any]] = {
    "balanced": {},
    "dirichlet-1": {"dirichlet": 1.0},
    "dirichlet-0.3": {"dirichlet": 0.3},
    "missing": {"missing": 0.3},
}
SIZES = (32, 128, 512)  # frames of a resampled capture
REPEATS = 3


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
    for kind, frequencies in enumerate(KINDS.values()):
        for key in np.unique(capture):
            own = np.flatnonzero(capture == key)
            for size in SIZES:
                for _ in range(REPEATS):
                    rows = draw_capture(label[own], size, draw_shares(classes, rng, **frequencies), rng)
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
    f1 = np.array([[macro_f1(truth[own], by[own], classes, present=True) for by in decided] for own in members])
    return Rehearsals(prices(results["full"]), f1 - f1[:, -1:], np.array(kinds))
