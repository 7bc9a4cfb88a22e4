"""Later recordings of the radios that a run knows: another dataset, scored by the names of its devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pisa_capc.core.errors import DataError
from pisa_capc.data.frames import Frames, UnlabelledFrames, check_labelled
from pisa_capc.data.protocol import Evaluator
from pisa_capc.model.inference import TrainedModel


@dataclass(frozen=True)
class Later:
    """Frames of another dataset, with the classes of a run.

    absent: devices of the run of which there is no frame. strangers: devices that the run does not know, left out.
    """

    target: UnlabelledFrames
    evaluator: Evaluator
    absent: tuple[str, ...]
    strangers: tuple[str, ...]


def later_frames(trained: TrainedModel, frames: Frames, environments: Sequence[str]) -> Later:
    """The frames of the environments whose devices the run knows by name; scores are over those that are there."""
    check_labelled(frames)
    trained.check_frames(frames)
    chosen = frames.where(environment=environments)
    here = {frames.devices[i] for i in np.unique(chosen.device).tolist()}
    known = [name for name in trained.devices if name in here]
    if not known:
        raise DataError(
            f"none of the devices in {', '.join(environments)} is one that the run knows: {_listed(sorted(here))} "
            f"there, {_listed(trained.devices)} in the run. Name devices alike in both, as with --pattern."
        )
    numbers = {name: i for i, name in enumerate(trained.devices)}
    chosen = chosen.where(device=known)
    label = np.array([numbers.get(name, -1) for name in frames.devices])[chosen.device]
    named = replace(chosen, device=label, devices=trained.devices)
    absent = tuple(name for name in trained.devices if name not in here)
    return Later(named.unlabelled(), Evaluator(named, present=True), absent, tuple(sorted(here - set(known))))


def doubts(trained: TrainedModel, frames: Frames) -> list[str]:
    """Why what a model decides about frames of another dataset may mean nothing, for people."""
    found = []
    if frames.geometry != trained.geometry:
        found.append("their array is another one than the model was trained with")
    with_cfo = frames.source.read_cfo_hz(frames.rows[:1]) is not None
    if with_cfo != trained.about.get("cfo", True):
        found.append(
            "they have frequency offsets, and the model was trained without"
            if with_cfo
            else "they have no frequency offsets, and the model was trained with some"
        )
    return found


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
