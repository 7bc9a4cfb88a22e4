"""Proxies: devices of the source that nobody enrols. Do they help to tell strangers?

    python -m studies.proxies --embeddings work/embeddings --out results/studies/strangers-proxies.json

Reads what `studies.embeddings` wrote of 40 devices. What a score makes of the proxies is chosen on the source alone:
of the 15 devices that a model was trained on five play the proxies, each five in turn, the next five, which it never
heard, the strangers, and E2 and E3 in turn are left out of the statistics and play the new place. Proxies that were not
trained on are tried there too: four of the next five, the fifth being the stranger. Then, once, in the environment that
was never seen: models of 20 devices of which 15 are enrolled and five are proxies, beside models of the same 15, with
the same strangers, all the others, and as many frames of each. Where there are models of 30 devices, the same with 20
enrolled and ten proxies.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.report import begin

from pisa_capc.data.store.files import write_text_atomic
from pisa_capc.decide.calibration.openset import UnknownScore
from pisa_capc.decide.enrolment.statistics import without_device
from pisa_capc.model.inference.statistics import SourceStatistics, evenly
from studies.cohorts import Beside, CrowdBeside, scores
from studies.embeddings import kept_in
from studies.strangers import (
    CURVE,
    ENROLLED,
    STRANGERS,
    Meeting,
    Model,
    Rows,
    measured,
    on_target,
)

PROXIES = 5
PLANS = ((ENROLLED, STRANGERS), (STRANGERS, 30))  # in the end: devices that are enrolled, and that are trained on
FRAMES = 48  # of a device in a capture, of all models alike


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


def on_source(model: Model, proxies: Sequence[int], use: bool) -> Iterator[Meeting]:
    """Source environments in turn play the new place, the devices after the proxies the strangers.

    use: whether proxies leave sessions behind.
    """
    one = arranged(model, proxies)
    first = one.enrolled + len(proxies)
    for place in one.home:
        train = one.rows([e for e in one.home if e != place], 0, first if use else one.enrolled)
        yield Meeting(
            one, known_of(one, train, train), one.rows([place], 0, one.enrolled), one.rows([place], first, STRANGERS)
        )


def trained(models: Sequence[Model], use: bool) -> list[Meeting]:
    """Each five of the devices that were trained on are proxies in turn."""
    fives = [range(first, first + PROXIES) for first in range(0, ENROLLED, PROXIES)]
    return [meeting for model in models for five in fives for meeting in on_source(model, five, use)]


def heard(models: Sequence[Model], use: bool) -> list[Meeting]:
    """Proxies that were not trained on: of the next five devices one in turn is the stranger, and four are proxies."""
    more = range(ENROLLED, STRANGERS)
    fours = [[p for p in more if p != k] for k in more]
    return [meeting for model in models for four in fours for meeting in on_source(model, four, use)]


def target(model: Model, enrolled: int, strangers: int, kept: bool = False) -> Meeting:
    """The environment that was not seen: the first devices are enrolled, and others that were trained on are proxies.

    Their sessions are kept, or they are taken out as models take devices out.
    """
    one = arranged(model, range(enrolled, model.enrolled))
    away = [e for e in range(len(one.environments)) if e not in one.home]
    held = one.rows(one.home, 0, model.enrolled)
    last = int(one.device.max()) + 1
    source = (known_of if kept else left_of)(one, held[::2], held[1::2])
    return Meeting(one, source, one.rows(away, 0, enrolled), one.rows(away, strangers, last))


def left_of(model: Model, train: Rows, held: Rows) -> SourceStatistics:
    """What a model would keep of frames `train` and `held` once its proxies are taken out."""
    source = model.statistics(train, held)
    for proxy in reversed(range(model.enrolled, model.logits.shape[1])):
        source = without_device(source, proxy)
    return source


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
        "heard": {
            words: measured(heard(models, of), Beside(enrolled=ENROLLED))
            for words, of in (("with", True), ("without", False))
        },
    }


def compared(name: str, enrolled: int) -> dict[str, UnknownScore]:
    """`session` and `crowd`, as they are and in the way that was chosen."""
    best = scores(enrolled)[name]
    assert isinstance(best, Beside)  # as all are that need no proxies
    return {
        "session": Beside(enrolled=enrolled),
        "crowd": CrowdBeside(enrolled=enrolled),
        "session, cohort": best,
        "crowd, cohort": CrowdBeside(enrolled=enrolled, way=best.way, weight=best.weight),
    }


def unseen(folder: Path, waveform: str, name: str, enrolled: int, trained_on: int) -> dict[str, Any]:
    """Where nobody was: models without proxies, with proxies that are taken out again, and whose sessions stay."""
    smaller, larger = (models_of(folder, waveform, devices) for devices in (enrolled, trained_on))
    meetings = {
        "never trained on": [target(model, enrolled, trained_on) for model in smaller],
        "taken out": [target(model, enrolled, trained_on) for model in larger],
        "kept": [target(model, enrolled, trained_on, kept=True) for model in larger],
    }
    return {
        "models": [model.seed for model in (*smaller, *larger)],
        "enrolled": enrolled,
        "proxies": trained_on - enrolled,
        "scores": {
            words: {row: on_target(own, score) for row, score in compared(name, enrolled).items()}
            for words, own in meetings.items()
        },
    }


def pattern(waveform: str, devices: int) -> str:
    return f"{waveform}-40-{devices}-pisa-equalised-transformer-*.npz"


def models_of(folder: Path, waveform: str, devices: int) -> list[Model]:
    return [thinned(Model.read(path)) for path in kept_in(folder, pattern(waveform, devices))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--embeddings", type=Path, default=Path("work/embeddings"))
    parser.add_argument("--out", type=Path, default=Path("results/studies/strangers-proxies.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    folder = options.embeddings
    smaller = {name: models_of(folder, name, ENROLLED) for name in ("wifi", "lora")}
    source = {name: choice(models) for name, models in smaller.items()}
    best = chosen(list(source.values()))
    waveforms = {
        name: {
            "source": found,
            "target": [unseen(folder, name, best, *plan) for plan in PLANS if any(folder.glob(pattern(name, plan[1])))],
        }
        for name, found in source.items()
    }
    about = {"study": "strangers-proxies", "frames": FRAMES, "curve": CURVE.round(5).tolist()}
    record = {**about, "chosen": best, "waveforms": waveforms}
    write_text_atomic(options.out, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    begin(main)
