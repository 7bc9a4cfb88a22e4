"""Scores of strangers that look at other devices too: a cohort, as speaker verification has it.

u is the least of (n, S) numbers that are made of the squared distances of what is seen to the sessions of all devices
that left some; only those of enrolled devices count in the end. `studies.proxies` compares them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from pisa_capc.decide.calibration.openset import UnknownScore
from pisa_capc.decide.calibration.openset.crowd import CrowdDistance
from pisa_capc.decide.calibration.openset.scores import ScoreFunction, Seen
from pisa_capc.decide.calibration.openset.session import Distances, SessionDistance
from pisa_capc.model.inference.statistics import SourceStatistics

COHORTS = ("proxies", "enrolled", "all")
WEIGHTS = (0.05, 0.1, 0.2)  # β that were compared
REFUSED = 1e6  # added to what is nearer to a proxy than to anybody else: more than any distance


class Far(NamedTuple):
    """Squared distances to sessions.

    to (n, S): of what is seen. between (S, S): of their means, as far as single frames tell them. label (S,); own (S,),
    which are of devices that are enrolled; cohort (S,), which others are compared with.
    """

    to: Tensor
    between: Tensor
    label: Tensor
    own: Tensor
    cohort: Tensor

    @property
    def impostors(self) -> Tensor:
        """(S, S) how far the cohort's sessions are from each one; NaN where they are of its own device."""
        same = self.label[:, None] == self.label
        return self.between.masked_fill(same | ~self.cohort[:, None], torch.nan)


Way: TypeAlias = Callable[[Far, float], Tensor]  # (n, S), whose least is the score


def as_it_is(far: Far, weight: float) -> Tensor:
    return far.to


def refused_by_proxies(far: Far, weight: float) -> Tensor:
    """What is nearest to a proxy is strange."""
    nearer = far.to[:, ~far.own].amin(dim=1) < far.to[:, far.own].amin(dim=1)
    return far.to + REFUSED * nearer[:, None]


def less_nearest_proxy(far: Far, weight: float) -> Tensor:
    """A likelihood ratio, at β = 1."""
    return far.to - weight * far.to[:, ~far.own].amin(dim=1, keepdim=True)


def by_own_moves(far: Far, weight: float) -> Tensor:
    """Each device has a scale of its own: how far its sessions are from each other, beside what all have."""
    same = (far.label[:, None] == far.label).fill_diagonal_(False)
    moves = far.between.masked_fill(~same, torch.nan).nanmean(dim=0)
    return far.to / (moves + moves.mean())


def z_norm(far: Far, weight: float) -> Tensor:
    """Li and Porter, ICASSP 1988: as each session sees impostors. Of log distances, which are nearer to normal."""
    seen = far.impostors.log()
    return (far.to.log() - seen.nanmean(dim=0)) / (seen - seen.nanmean(dim=0)).square().nanmean(dim=0).sqrt()


def t_norm(far: Far, weight: float) -> Tensor:
    """Auckenthaler et al., Digital Signal Processing 2000: as the frame sees the cohort."""
    seen = far.to[:, far.cohort].log()
    return (far.to.log() - seen.mean(dim=1, keepdim=True)) / seen.std(dim=1, keepdim=True)


def s_norm(far: Far, weight: float) -> Tensor:
    """Kenny, Odyssey 2010: the mean of both."""
    return (z_norm(far, weight) + t_norm(far, weight)) / 2


def less_impostors(far: Far, weight: float) -> Tensor:
    """z-norm without its division: a session that is far from others' may be missed by more."""
    return far.to - weight * far.impostors.nanmean(dim=0)


def less_cohort(far: Far, weight: float) -> Tensor:
    """t-norm without its division: a frame that is far from all may be so from its own device."""
    return far.to - weight * far.to[:, far.cohort].mean(dim=1, keepdim=True)


@dataclass(frozen=True)
class Beside(SessionDistance):
    """`session` of the devices that are enrolled, the first, beside others of whom there are sessions.

    Axes and covariances are those of all sessions.
    """

    enrolled: int = 15
    way: Way = as_it_is
    cohort: str = "all"
    weight: float = 0.0  # β

    def distances(self, source: SourceStatistics, like: Tensor) -> Distances:
        squared = super().distances(source, like)
        means, label = (torch.as_tensor(np.asarray(a)) for a in (source.session_mean, source.session_label))
        own = label < self.enrolled
        cohort = dict(zip(COHORTS, (~own, own, torch.ones_like(own)), strict=True))[self.cohort]
        between = squared(Seen(means.double(), means[:, :0], torch.ones(len(means), dtype=torch.float64)))
        return lambda seen: self.way(Far(squared(seen), between, label, own, cohort), self.weight).masked_fill(
            ~own, torch.inf
        )


@dataclass(frozen=True)
class CrowdBeside(Beside, CrowdDistance):
    """`crowd` in the same way."""


@dataclass(frozen=True)
class NoneOfThem(UnknownScore):
    """1 − the probability of the most probable device that is enrolled, among all that were trained on."""

    def fit(self, source: SourceStatistics, classes: int, like: Tensor) -> ScoreFunction:
        return lambda seen: 1 - torch.softmax(seen.logits, dim=1)[:, :classes].amax(dim=1)


def scores(enrolled: int) -> dict[str, UnknownScore]:
    """Everything that was made of proxies, by what it is called."""
    ways: dict[str, Way] = {"z-norm": z_norm, "t-norm": t_norm, "s-norm": s_norm}
    means: dict[str, Way] = {"less impostors": less_impostors, "less cohort": less_cohort}
    return {
        "as it is, all": Beside(enrolled=enrolled),
        "refused by proxies": Beside(enrolled=enrolled, way=refused_by_proxies),
        "less a quarter of the nearest proxy": Beside(enrolled=enrolled, way=less_nearest_proxy, weight=0.25),
        "none of them probable": NoneOfThem(),
        "by own moves, all": Beside(enrolled=enrolled, way=by_own_moves),
        **{f"{name}, {c}": Beside(enrolled=enrolled, way=w, cohort=c) for name, w in ways.items() for c in COHORTS},
        **{
            f"{weight:g} {name}, {c}": Beside(enrolled=enrolled, way=w, cohort=c, weight=weight)
            for name, w in means.items()
            for c in COHORTS
            for weight in WEIGHTS
        },
    }
