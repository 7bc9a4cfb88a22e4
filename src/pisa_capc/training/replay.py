"""Rehearsals of a deployment on the source alone: leave one source environment out, train on the others.

What a calibration does on the environment that was left out can be checked, because its labels are the source's own.
That is how the guard (`pisa_capc.calibration.guard`) learns what a calibration that helps looks like.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from pisa_capc.calibration.guard import Guard, Rehearsals
from pisa_capc.calibration.rehearsal import rehearse
from pisa_capc.frames import Frames
from pisa_capc.protocol import split
from pisa_capc.sources import groups
from pisa_capc.training.bank import union
from pisa_capc.training.checkpoint import TrainedModel, method_of
from pisa_capc.training.embed import embed
from pisa_capc.training.runs import Run

FRAMES = 256  # of each environment, device and capture, evenly spread: rehearsals need no more


def replay_runs(run: Run, least_environments: int = 1, validation: float = 0.2) -> dict[str, Run]:
    """For each source environment the run that trains on the others and has it as its target.

    Seeds are those of `run`. Where fewer environments than `least_environments` would be left to train on, their
    captures stand in for environments; there are no replays where that is not enough either, and none of an environment
    whose devices were recorded there alone. validation: as of `protocol.split`.
    """
    source = union([run.split.train, run.split.validation])
    names = [source.environments[i] for i in sorted(set(source.environment.tolist()))]
    replays = {}
    for name in names if len(names) > 1 else ():
        others = [other for other in names if other != name]
        here, there = source.where(environment=[name]), source.where(environment=others)
        known = source.select(np.isin(source.device, np.intersect1d(here.device, there.device)))
        target = [name]
        if len(others) < least_environments:
            known, finer = _captures_as_environments(known)
            target, others = finer.get(name, []), [capture for other in others for capture in finer.get(other, [])]
        if len(known) and len(others) >= least_environments:
            parts = split(known, others, target, run.split_seed, validation, few_shot=0)
            replays[name] = Run(parts, run.split_seed, run.seed)
    return replays


def _captures_as_environments(frames: Frames) -> tuple[Frames, dict[str, list[str]]]:
    """The frames with every capture as an environment of its own, as E2.L1, and the names of each environment's."""
    pairs, index = np.unique(np.stack([frames.environment, frames.capture]), axis=1, return_inverse=True)
    named = [(frames.environments[e], f"{frames.environments[e]}.{frames.captures[c]}") for e, c in pairs.T.tolist()]
    finer: dict[str, list[str]] = {}
    for environment, capture in named:
        finer.setdefault(environment, []).append(capture)
    return replace(frames, environment=index.ravel(), environments=tuple(name for _, name in named)), finer


def learn_guard(
    run: Run, trained: TrainedModel, train: Callable[[str, Run], TrainedModel], device: torch.device
) -> Guard | None:
    """The guard of a model, from rehearsals on its source alone; None where nothing can be rehearsed.

    Rehearsed are a model like it in each source environment that was left out (`train` makes it), which is far from
    what it has seen, and the model itself on its validation frames, which is near. A deployment is somewhere between.
    """
    replays = replay_runs(run, method_of(trained.about).least_environments)
    if not replays:
        return None
    source = union([run.split.train, run.split.validation])
    parts = []
    for name, replay in replays.items():
        held_out = source.select(np.isin(source.rows, replay.split.target.rows))
        parts.append(_rehearsed(train(name, replay), held_out, run.seed, device))
    parts.append(_rehearsed(trained, run.split.validation, run.seed, device))
    return Guard.learn(Rehearsals.join(parts))


def _rehearsed(trained: TrainedModel, frames: Frames, seed: int, device: torch.device) -> Rehearsals:
    chosen = frames.select(evenly(frames))
    scores = embed(trained, chosen.unlabelled(), device)
    return rehearse(scores.embedding, scores.logits, chosen.device, scores.capture, seed)


def evenly(frames: Frames, most: int = FRAMES) -> np.ndarray:
    """Rows of up to `most` frames of each environment, device and capture, spread over the capture."""
    _, kind = np.unique(np.stack([frames.environment, frames.device, frames.capture]), axis=1, return_inverse=True)
    rows = [own[np.linspace(0, len(own) - 1, min(most, len(own))).round().astype(int)] for own in groups(kind.ravel())]
    return np.sort(np.concatenate(rows))
