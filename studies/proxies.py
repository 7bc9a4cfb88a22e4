"""Proxies: devices of the source that nobody enrols. Do they help to tell strangers?

    python -m studies.proxies --embeddings work/embeddings --out results/studies/strangers-proxies.json

Reads what `studies.embeddings` wrote of 40 devices. What a score makes of the proxies is chosen on the source alone:
of the 15 devices that a model was trained on five play the proxies, each five in turn, the next five, which it never
heard, the strangers, and E2 and E3 in turn are left out of the statistics and play the new place. Proxies that were not
trained on are tried there too: four of the next five, the fifth being the stranger. Then, once, in the environment that
was never seen: models of 20 devices of which 15 are enrolled and five are proxies, beside models of the same 15, with
the same strangers and as many frames of each.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from pisa_capc.calibration.openset import UnknownScore
from pisa_capc.calibration.openset.crowd import CrowdDistance
from pisa_capc.calibration.openset.scores import ScoreFunction, Seen
from pisa_capc.calibration.openset.session import Distances, SessionDistance
from pisa_capc.inference.statistics import SourceStatistics, evenly
from pisa_capc.store.files import write_text_atomic
from studies.strangers import ENROLLED, SHARES, STRANGERS, Meeting, Model, Rows, kinds_of, mean, measured, on_target

PROXIES = 5
FRAMES = 48  # of a device in a capture, of all models alike
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
    """Li and Porter, ICASSP 1988: as impostors are seen by each session. Of log distances, which are nearer to normal."""
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

    enrolled: int = ENROLLED
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


def scores(enrolled: int, weights: Sequence[float] = WEIGHTS) -> dict[str, UnknownScore]:
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
            for weight in weights
        },
    }


def thinned(model: Model) -> Model:
    """As many frames of each device in each capture as of any other model's."""
    rows = np.concatenate([own[evenly(len(own), FRAMES)] for own in model.sessions(np.arange(len(model.device)))])
    every = {name: getattr(model, name)[rows] for name in ("z", "logits", "cfo_hz", "device", "where", "frame")}
    return replace(model, **every)


def arranged(model: Model, proxies: Sequence[int]) -> Model:
    """The model with the numbers of the proxies after those of the devices that stay enrolled.

    Proxies that were not trained on have logits of zero, which are not looked at.
    """
    trained = range(model.enrolled)
    order = [*(k for k in trained if k not in proxies), *proxies]
    enrolled, rest = len(order) - len(proxies), [k for k in range(int(model.device.max()) + 1) if k not in order]
    logits = torch.nn.functional.pad(model.logits, (0, max(order) + 1 - model.enrolled))[:, order]
    number = np.argsort([*order, *rest])
    return replace(model, device=number[model.device], logits=logits, enrolled=enrolled)


def known_of(model: Model, train: Rows, held: Rows) -> SourceStatistics:
    """What a model would keep of frames `train`, and of those among `held` whose devices are enrolled."""
    found = model.statistics(train, held[model.device[held] < model.enrolled])
    return replace(found, validation_logits=np.asarray(found.validation_logits)[:, : model.enrolled])


def on_source(model: Model, proxies: Sequence[int], use: bool, halves: bool = False) -> Iterator[Meeting]:
    """Source environments in turn play the new place, the devices after the proxies the strangers.

    use: whether proxies leave sessions behind. halves: whether thresholds are asked for, which need frames of their
    own.
    """
    one = arranged(model, proxies)
    first = one.enrolled + len(proxies)
    for place in one.home:
        train = one.rows([e for e in one.home if e != place], 0, first if use else one.enrolled)
        source = known_of(one, train[::2], train[1::2]) if halves else known_of(one, train, train)
        yield Meeting(one, source, one.rows([place], 0, one.enrolled), one.rows([place], first, STRANGERS))


def trained(models: Sequence[Model], use: bool, halves: bool = False) -> list[Meeting]:
    """Each five of the devices that were trained on are proxies in turn."""
    fives = [range(first, first + PROXIES) for first in range(0, ENROLLED, PROXIES)]
    return [meeting for model in models for five in fives for meeting in on_source(model, five, use, halves)]


def heard(models: Sequence[Model], use: bool) -> list[Meeting]:
    """Proxies that were not trained on: of the next five devices one is the stranger in turn, the others are proxies."""
    more = range(ENROLLED, STRANGERS)
    fours = [[p for p in more if p != k] for k in more]
    return [meeting for model in models for four in fours for meeting in on_source(model, four, use)]


def target(model: Model, use: bool) -> Meeting:
    """The environment that was not seen; the devices a model was trained on after those enrolled are proxies."""
    one = arranged(model, range(ENROLLED, model.enrolled))
    away = [e for e in range(len(one.environments)) if e not in one.home]
    held = one.rows(one.home, 0, model.enrolled if use else ENROLLED)
    last = int(one.device.max()) + 1
    source = known_of(one, held[::2], held[1::2])
    return Meeting(one, source, one.rows(away, 0, ENROLLED), one.rows(away, STRANGERS, last))


def chosen(selection: Sequence[Mapping[str, Any]]) -> str:
    """What has the highest AUROC on the source, mean of waveforms, of frames and senders, with proxies and without."""

    def area(name: str) -> float:
        found = [own[part][name] for own in selection for part in ("with", "without")]
        return float(np.mean([of[kind]["auroc"] for of in found for kind in of]))

    return max(selection[0]["without"], key=area)


def choice(models: Sequence[Model]) -> dict[str, Any]:
    """One waveform's scores on the source: with proxies, without them, and with some that were only heard."""
    enrolled = ENROLLED - PROXIES
    every = scores(enrolled)
    alike = {name: score for name, score in every.items() if name.split(", ")[-1] == "all"}
    use, none = trained(models, use=True), trained(models, use=False)
    return {
        "with": {name: measured(use, score) for name, score in every.items()},
        "without": {name: measured(none, score) for name, score in alike.items()},
        "heard": {words: measured(heard(models, of), Beside()) for words, of in (("with", True), ("without", False))},
    }


def rows_of(name: str, enrolled: int) -> dict[str, UnknownScore]:
    """`session` and `crowd`, as they are and in the way that was chosen."""
    best = scores(enrolled)[name]
    assert isinstance(best, Beside)  # what needs no proxies is
    settings = {"enrolled": enrolled, "way": best.way, "weight": best.weight}
    return {
        "session": Beside(enrolled=enrolled),
        "crowd": CrowdBeside(enrolled=enrolled),
        "session, cohort": Beside(**settings),
        "crowd, cohort": CrowdBeside(**settings),
    }


def thresholds(models: Sequence[Model], name: str) -> dict[str, Any]:
    """What thresholds of one source environment do in the other, with proxies and without."""
    found: dict[str, Any] = {}
    for words, use in (("with", True), ("without", False)):
        meetings = trained(models, use, halves=True)
        found[words] = {
            row: {kind: mean([one.at(score, n, SHARES[-1]) for one in meetings]) for kind, n in kinds_of(score).items()}
            for row, score in rows_of(name, ENROLLED - PROXIES).items()
        }
    return found


def unseen(smaller: Sequence[Model], larger: Sequence[Model], name: str) -> dict[str, Any]:
    """In the environment that nobody saw: models without proxies, with some that are forgotten, and that are kept."""
    meetings = {
        "never trained on": [target(model, use=False) for model in smaller],
        "taken out": [target(model, use=False) for model in larger],
        "kept": [target(model, use=True) for model in larger],
    }
    return {
        words: {row: on_target(own, score) for row, score in rows_of(name, ENROLLED).items()}
        for words, own in meetings.items()
    }


def models_of(folder: Path, waveform: str, devices: int) -> list[Model]:
    paths = sorted(folder.glob(f"{waveform}-40-{devices}-pisa-equalised-transformer-*.npz"))
    return [thinned(Model.read(path)) for path in paths]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--embeddings", type=Path, default=Path("work/embeddings"))
    parser.add_argument("--out", type=Path, default=Path("results/studies/strangers-proxies.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    smaller, larger = (
        {name: models_of(options.embeddings, name, devices) for name in ("wifi", "lora")}
        for devices in (ENROLLED, ENROLLED + PROXIES)
    )
    source = {name: choice(models) for name, models in smaller.items()}
    best = chosen(list(source.values()))
    print(best)
    waveforms = {
        name: {
            "models": [model.seed for model in (*smaller[name], *larger[name])],
            "source": found,
            "thresholds": thresholds(smaller[name], best),
            "target": unseen(smaller[name], larger[name], best),
        }
        for name, found in source.items()
    }
    record = {"study": "strangers-proxies", "proxies": PROXIES, "chosen": best, "waveforms": waveforms}
    write_text_atomic(options.out, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
