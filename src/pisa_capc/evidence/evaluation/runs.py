"""Trained runs on disk: runs of one experiment, the frames that a run may be scored on, and later recordings of the
radios that it knows.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pisa_capc.core.config import differences
from pisa_capc.core.errors import DataError, ModelError
from pisa_capc.data.frames import Frames, UnlabelledFrames, check_labelled
from pisa_capc.data.protocol import Evaluator, Split, SplitRecipe, check_unseen
from pisa_capc.model.inference import TrainedModel, load_model
from pisa_capc.model.inference.model import runs_inside
from pisa_capc.model.runs import ModelRun

EXPERIMENT = (
    *("method", "variant", "settings", "encoder", "source", "target", "split", "dataset", "devices"),
    *("training", "precision", "code"),
)


def load_runs(folder: str | Path) -> list[tuple[Path, TrainedModel]]:
    """The run in `folder`, or, where it holds none itself, all the runs in its subfolders: seeds of one experiment."""
    folder = Path(folder)
    inside = runs_inside(folder)
    folders = [folder] if (folder / "model.json").is_file() or not inside else inside
    found = [(path, load_model(path)) for path in folders]
    first = _experiment(found[0][1].run)
    for path, trained in found[1:]:
        if different := differences(first, _experiment(trained.run)):
            name, one, other = different[0]
            raise ModelError(
                f"{folder}: holds runs of different experiments ({name}: {one!r} in {found[0][0].name}, "
                f"{other!r} in {path.name}); expected runs that differ in their seeds. Name one of them."
            )
    return found


def _experiment(run: ModelRun) -> dict[str, Any]:
    """What runs of one experiment share; of the changes since the training all but what is each run's own."""
    described = run.to_json()
    enrolled = [{k: v for k, v in change.items() if k != "sha256"} for change in run.changes]
    return {**{key: described[key] for key in EXPERIMENT}, "enrolled": enrolled}


def check_dataset(
    trained: TrainedModel,
    frames: Frames,
    fingerprint: str,
    run: Path,
    dataset: Path,
    environments: Sequence[str] = (),
) -> None:
    """Refuse a dataset that the run was not trained on: its split and its classes would be others.

    A model whose devices were changed since (`enrolment`) takes any that has frames of all of them; see `by_name`. But
    no environment whose frames it was shown.
    """
    trained.check_frames(frames)
    if changes := trained.run.changes:
        _check_devices(trained, frames, run, dataset)
        for change in changes:
            for shown in change.get("from", []):
                if shown.get("dataset") == fingerprint:
                    check_unseen(shown["environments"], environments)
        return
    if frames.devices != trained.devices:
        raise ModelError(
            f"{run}: trained to tell apart {_shortened(trained.devices)}; "
            f"{dataset} holds {_shortened(frames.devices)}. "
            "Use the dataset the run was trained on, or train a run on this one."
        )
    if trained.run.dataset and trained.run.dataset != fingerprint:
        raise ModelError(
            f"{run}: trained on the dataset with fingerprint {trained.run.dataset}; that of {dataset} is "
            f"{fingerprint}. Use the dataset the run was trained on, or train a run on this one."
        )


def _check_devices(trained: TrainedModel, frames: Frames, run: Path, dataset: Path) -> None:
    """Refuse a dataset without some of the model's devices; say which of the dataset's it does not know."""
    if absent := [name for name in trained.devices if name not in frames.devices]:
        raise ModelError(
            f"{run}: tells apart {_shortened(trained.devices)}; {dataset} has no frames of {', '.join(absent[:12])}, "
            "and scores are over all of them. Use a dataset that has, or remove them from the model."
        )
    if strangers := [name for name in frames.devices if name not in trained.devices]:
        warnings.warn(
            f"{dataset}: frames of {', '.join(strangers[:12])} are left out: the model does not know them.",
            stacklevel=3,
        )


def by_name(trained: TrainedModel, frames: Frames) -> Frames:
    """The frames of the devices that the model knows, numbered as it numbers them."""
    number = {name: i for i, name in enumerate(trained.devices)}
    known = np.array([number.get(name, -1) for name in frames.devices])[frames.device]
    chosen = frames.select(known >= 0)
    return replace(chosen, device=known[known >= 0], devices=trained.devices)


def split_for(trained: TrainedModel, recipe: SplitRecipe, frames: Frames) -> Split:
    """The split that a run is scored on; a model whose devices were changed has no source in these frames."""
    if trained.run.changes:
        return recipe.split_target(by_name(trained, frames))
    return recipe.split(frames)


def has_split_of(trained: TrainedModel, frames: Frames, fingerprint: str) -> bool:
    """Whether a run is scored on its own split of a dataset: the one that it was trained on, or, where its devices were
    changed since, any."""
    if trained.run.changes:
        return True
    return frames.devices == trained.devices and trained.run.dataset in ("", fingerprint)


def unseen_frames(trained: TrainedModel, frames: Frames, environments: Sequence[str]) -> UnlabelledFrames:
    """The frames of the environments; of the run's target, exactly the target part of its split."""
    chosen = frames.where(environment=environments)
    part = split_for(trained, trained.recipe, frames).target
    target = [i for i, name in enumerate(frames.environments) if name in trained.recipe.target]
    return chosen.select(~np.isin(chosen.environment, target) | np.isin(chosen.rows, part.rows)).unlabelled()


def _shortened(names: Sequence[str]) -> str:
    shown = ", ".join(names[:12])
    return f"{len(names)} devices ({shown}{', …' if len(names) > 12 else ''})"


@dataclass(frozen=True)
class Later:
    """Frames of another dataset, with the classes of a run.

    absent: devices of the run without frames. strangers: devices that the run does not know; unknown: their frames,
    which must be told from those of the target.
    """

    target: UnlabelledFrames
    evaluator: Evaluator
    absent: tuple[str, ...]
    strangers: tuple[str, ...]
    unknown: UnlabelledFrames | None = None


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
    strangers = tuple(sorted(here - set(known)))
    unknown = chosen.where(device=strangers).unlabelled() if strangers else None
    chosen = chosen.where(device=known)
    label = np.array([numbers.get(name, -1) for name in frames.devices])[chosen.device]
    named = replace(chosen, device=label, devices=trained.devices)
    absent = tuple(name for name in trained.devices if name not in here)
    return Later(named.unlabelled(), Evaluator(named, present=True), absent, strangers, unknown)


def doubts(trained: TrainedModel, frames: Frames) -> list[str]:
    """Why what a model decides about frames of another dataset may mean nothing, for people."""
    found = []
    if frames.geometry != trained.geometry:
        found.append("their array is another one than the model was trained with")
    with_cfo = frames.source.read_cfo_hz(frames.rows[:1]) is not None
    if with_cfo != trained.run.cfo:
        found.append(
            "they have frequency offsets, and the model was trained without"
            if with_cfo
            else "they have no frequency offsets, and the model was trained with some"
        )
    return found


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
