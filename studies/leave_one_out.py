"""Leave one source environment out and train on the others: what happens there can be checked, for its labels are
the source's own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pisa_capc.data.frames import Frames
from pisa_capc.data.protocol import capture_environment, leave_one_out, split
from pisa_capc.data.sources import groups
from pisa_capc.model.runs import Run
from pisa_capc.model.training.bank import union

FRAMES = 256  # of each environment, device and capture, evenly spread: rehearsals need no more


def runs_leaving_one_out(run: Run, least_environments: int = 1) -> dict[str, Run]:
    """For each source environment the run that trains on the others and has it as its target.

    Seeds are those of `run`. Where fewer environments than `least_environments` would be left to train on, their
    captures stand in for environments; there are no such runs where that is not enough either, and none of an
    environment whose devices were recorded there alone.
    """
    source = union([run.split.train, run.split.validation])
    names = [source.environments[i] for i in sorted(set(source.environment.tolist()))]
    found = {}
    for name, (others, target) in leave_one_out({n: [n] for n in names}).items() if len(names) > 1 else ():
        here, there = source.where(environment=target), source.where(environment=others)
        known = source.select(np.isin(source.device, np.intersect1d(here.device, there.device)))
        if len(others) < least_environments:
            known, domains = captures_as_environments(known)
            others, target = leave_one_out({n: domains.get(n, []) for n in names})[name]
        if len(known) and len(others) >= least_environments:
            recipe = run.split.recipe
            parts = split(known, others, target, run.split_seed, recipe.validation, 0, recipe.held_out)
            found[name] = Run(parts, run.seed)
    return found


def captures_as_environments(frames: Frames) -> tuple[Frames, dict[str, list[str]]]:
    """The frames with every capture as an environment of its own, as E2.L1, and the names of each environment's."""
    pairs, index = np.unique(np.stack([frames.environment, frames.capture]), axis=1, return_inverse=True)
    domains: dict[str, list[str]] = {}
    for e, c in pairs.T.tolist():
        name = capture_environment(frames.environments[e], frames.captures[c])
        domains.setdefault(frames.environments[e], []).append(name)
    names = tuple(name for own in domains.values() for name in own)  # in the order of the pairs
    return replace(frames, environment=index.ravel(), environments=names), domains


def evenly(frames: Frames, most: int = FRAMES) -> np.ndarray:
    """Rows of up to `most` frames of each environment, device and capture, spread over the capture."""
    _, kind = np.unique(np.stack([frames.environment, frames.device, frames.capture]), axis=1, return_inverse=True)
    rows = [own[np.linspace(0, len(own) - 1, min(most, len(own))).round().astype(int)] for own in groups(kind.ravel())]
    return np.sort(np.concatenate(rows))
