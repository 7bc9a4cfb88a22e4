"""The guard of a trained model: learnt by rehearsing its calibration where the source's labels say what helped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pisa_capc.core.progress import console
from pisa_capc.core.threads import cpu_threads
from pisa_capc.data.frames import Frames
from pisa_capc.decide.calibration.guard import Guard, Rehearsals
from pisa_capc.decide.rehearsal.leave_one_out import evenly, runs_leaving_one_out
from pisa_capc.decide.rehearsal.rehearse import rehearse
from pisa_capc.model.inference import TrainedModel, embed
from pisa_capc.model.inference.devices import choose_device
from pisa_capc.model.inference.model import method_of
from pisa_capc.model.methods import METHODS
from pisa_capc.model.methods.recommend import PUBLISHED
from pisa_capc.model.training.bank import union
from pisa_capc.model.training.fitting import checked_runs, fit
from pisa_capc.model.training.keep import run_folders
from pisa_capc.model.training.runs import Run

FOLDER = "left-out"  # of the models that leave an environment out, beside the model that they rehearse for


def fit_with_guard(
    runs: Run | Sequence[Run],
    *,
    out: str | Path | None = None,
    device: str = "auto",
    show: bool = True,
    tensorboard: str | Path | None = None,
    **how: Any,
) -> list[TrainedModel]:
    """As `model.training.fit`, whose arguments it takes; the models also know when a calibration may be trusted.

    That is learnt by rehearsals with models that leave one source environment out. They are trained like the first run
    and serve all of them. Where the method cannot train without one, nothing is learnt.
    """
    runs = checked_runs(runs)
    least = METHODS[how.get("method", PUBLISHED)].least_environments
    frames = {name: len(own.split.train) for name, own in runs_leaving_one_out(runs[0], least).items()}
    to_come = sum(frames.values())
    models = fit(runs, out=out, device=device, show=show, tensorboard=tensorboard, more_frames=to_come, **how)
    if all(model.has_guard for model in models):
        return models
    if show and frames:
        console.print("For the guard, the same without each source environment in turn:", highlight=False)

    threads = models[0].about.get("threads")

    def train(name: str, left_out: Run) -> TrainedModel:
        beside = None if out is None else Path(out) / FOLDER / name
        names = list(frames)
        later = sum(frames[other] for other in names[names.index(name) + 1 :])
        return fit(left_out, out=beside, device=device, show=show, more_frames=later, **how | {"threads": threads})[0]

    with cpu_threads(threads):
        guard = learn_guard(runs[0], models[0], train, choose_device(device))
    if guard is None:
        return models
    guarded = [model.with_guard(guard.thresholds) for model in models]
    for model, folder in zip(guarded, run_folders(out, runs), strict=True):
        if folder is not None:
            model.save(folder)
    return guarded


def learn_guard(
    run: Run, trained: TrainedModel, train: Callable[[str, Run], TrainedModel], device: torch.device
) -> Guard | None:
    """The guard of a model, from rehearsals on its source alone; None where nothing can be rehearsed.

    Rehearsed are a model like it in each source environment that was left out (`train` makes it), which is far from
    what it has seen, and the model itself on its validation frames, which is near. A deployment is somewhere between.
    """
    without = runs_leaving_one_out(run, method_of(trained.about).least_environments)
    if not without:
        return None
    source = union([run.split.train, run.split.validation])
    parts = []
    for name, left_out in without.items():
        held_out = source.select(np.isin(source.rows, left_out.split.target.rows))
        parts.append(_rehearsed(train(name, left_out), held_out, run.seed, device))
    parts.append(_rehearsed(trained, run.split.validation, run.seed, device))
    return Guard.learn(Rehearsals.join(parts))


def _rehearsed(trained: TrainedModel, frames: Frames, seed: int, device: torch.device) -> Rehearsals:
    chosen = frames.select(evenly(frames))
    scores = embed(trained, chosen.unlabelled(), device)
    return rehearse(scores.embedding, scores.logits, chosen.device, scores.capture, seed)
