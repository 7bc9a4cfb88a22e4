"""Rehearsals of a deployment on the source alone, from which the guard of `studies.safe` learns: calibrations of
captures resampled from labelled frames, balanced or not, large or small, show which price is too high."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pisa_capc.data.deployments import draw_capture, draw_shares
from pisa_capc.data.frames import Frames
from pisa_capc.data.scores import macro_f1
from pisa_capc.model.inference import TrainedModel, embed
from pisa_capc.model.inference.model import method_of
from pisa_capc.model.runs import Run
from pisa_capc.model.training.bank import union
from studies.leave_one_out import evenly, runs_leaving_one_out
from studies.safe import LEVEL_CALIBRATIONS, LEVELS, Guard, prices

TOLERATED_LOSS = 0.002  # of Macro-F1, in the mean over the rehearsals of one kind in one environment
PENALTY = 5.0  # what a loss beyond that weighs against a mean gain
CANDIDATES = 24  # thresholds that are tried: quantiles of the prices in rehearsal
# Class frequencies of a resampled capture: equal, drawn from Dirichlet distributions, or equal with classes missing.
KINDS: dict[str, dict[str, Any]] = {
    "balanced": {},
    "dirichlet-1": {"dirichlet": 1.0},
    "dirichlet-0.3": {"dirichlet": 0.3},
    "missing": {"missing": 0.3},
}
SIZES = (32, 128, 512)  # frames of a resampled capture
REPEATS = 3


def learn_guard(
    run: Run, trained: TrainedModel, train: Callable[[str, Run], TrainedModel], device: torch.device
) -> Guard | None:
    """The guard of a model, from rehearsals on its source alone; None where nothing can be rehearsed.

    Rehearsed are a model like it in each source environment that was left out (`train` makes it), which is far from
    what it has seen, and the model itself on its validation frames, which is near. A deployment is somewhere between.
    """
    without = runs_leaving_one_out(run, method_of(trained.run).least_environments)
    if not without:
        return None
    source = union([run.split.train, run.split.validation])
    parts = []
    for name, left_out in without.items():
        held_out = source.select(np.isin(source.rows, left_out.split.target.rows))
        parts.append(_rehearsed(train(name, left_out), held_out, run.seed, device))
    parts.append(_rehearsed(trained, run.split.validation, run.seed, device))
    return learn_thresholds(Rehearsals.join(parts))


def _rehearsed(trained: TrainedModel, frames: Frames, seed: int, device: torch.device) -> Rehearsals:
    chosen = frames.select(evenly(frames))
    scores = embed(trained, chosen.unlabelled(), device)
    return rehearse(scores.embedding, scores.logits, chosen.device, scores.capture, seed)


@dataclass(frozen=True)
class Rehearsals:
    """Calibrations of captures whose labels are known. One row per rehearsal.

    price (N,), gain (N, 4) of Macro-F1 over direct inference by level, kind (N,) number of the environment and kind of
    resampling that the rehearsal belongs to.
    """

    price: NDArray[np.float64]
    gain: NDArray[np.float64]
    kind: NDArray[np.int64]

    @staticmethod
    def join(parts: Sequence[Rehearsals]) -> Rehearsals:
        """All rehearsals; kinds of different parts stay different."""
        shifts = np.cumsum([0, *(int(part.kind.max()) + 1 for part in parts[:-1])])
        return Rehearsals(
            np.concatenate([part.price for part in parts]),
            np.concatenate([part.gain for part in parts]),
            np.concatenate([part.kind + shift for part, shift in zip(parts, shifts, strict=True)]),
        )


def learn_thresholds(rehearsals: Rehearsals) -> Guard:
    """The thresholds with the highest mean gain over the kinds of rehearsal, losses of a kind counted dearly.

    What a kind loses beyond what is tolerated counts `PENALTY` times against the mean gain. Where thresholds are
    equally good the more cautious are taken. A price above all that were rehearsed is never trusted.
    """
    price, gain = rehearsals.price, rehearsals.gain
    cuts = np.concatenate([[-np.inf], np.unique(np.quantile(price, np.linspace(0, 1, CANDIDATES)))])
    # sums[c, l, k]: gain at level l of the rehearsals of kind k whose price is at most cuts[c].
    below = price[None] <= cuts[:, None]
    member = np.eye(rehearsals.kind.max() + 1)[rehearsals.kind]
    member = member[:, member.any(axis=0)]  # a kind that could not be drawn has no say
    sums = np.einsum("cn,nl,nk->clk", below, gain, member) / member.sum(0)
    best, chosen = -np.inf, (-np.inf, -np.inf, -np.inf)
    for i in range(len(cuts)):
        for j in range(i, len(cuts)):
            middle = sums[i, 0] + sums[j, 1] - sums[i, 1]
            means = middle + sums[j:, 2] - sums[j, 2]  # one row per third cut; beyond it the gain is zero
            lost = np.maximum(0.0, -TOLERATED_LOSS - means).sum(axis=1)
            values = means.mean(axis=1) - PENALTY * lost
            m = int(np.argmax(values))
            if values[m] > best + 1e-9:
                best, chosen = values[m], (cuts[i], cuts[j], cuts[j + m])
    return Guard(tuple(float(cut) for cut in chosen))


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
