"""Trained runs on disk: runs of one experiment, and the frames that a run may be scored on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pisa_capc.config import differences
from pisa_capc.errors import ModelError
from pisa_capc.frames import Frames, UnlabelledFrames
from pisa_capc.inference import TrainedModel, load_model
from pisa_capc.inference.model import runs_inside

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
    first = found[0][1].about
    for path, trained in found[1:]:
        if different := differences(_experiment(first), _experiment(trained.about)):
            name, one, other = different[0]
            raise ModelError(
                f"{folder}: holds runs of different experiments ({name}: {one!r} in {found[0][0].name}, "
                f"{other!r} in {path.name}); expected runs that differ in their seeds. Name one of them."
            )
    return found


def _experiment(about: Mapping[str, Any]) -> dict[str, Any]:
    """What runs of one experiment share, of a `model.json`."""
    return {key: about[key] for key in EXPERIMENT}


def check_dataset(trained: TrainedModel, frames: Frames, fingerprint: str, run: Path, dataset: Path) -> None:
    """Refuse a dataset that the run was not trained on: its split and its classes would be others."""
    trained.check_frames(frames)
    if frames.devices != trained.devices:
        raise ModelError(
            f"{run}: trained to tell apart {_shortened(trained.devices)}; "
            f"{dataset} holds {_shortened(frames.devices)}. "
            "Use the dataset the run was trained on, or train a run on this one."
        )
    if trained.about["dataset"] and trained.about["dataset"] != fingerprint:
        raise ModelError(
            f"{run}: trained on the dataset with fingerprint {trained.about['dataset']}; that of {dataset} is "
            f"{fingerprint}. Use the dataset the run was trained on, or train a run on this one."
        )


def is_trained_on(trained: TrainedModel, frames: Frames, fingerprint: str) -> bool:
    """Whether a dataset is the one that the run was trained on."""
    return frames.devices == trained.devices and trained.about["dataset"] in ("", fingerprint)


def unseen_frames(trained: TrainedModel, frames: Frames, environments: Sequence[str]) -> UnlabelledFrames:
    """The frames of the environments; of the run's target, exactly the target part of its split."""
    chosen = frames.where(environment=environments)
    part = trained.recipe.split(frames).target
    target = [i for i, name in enumerate(frames.environments) if name in trained.recipe.target]
    return chosen.select(~np.isin(chosen.environment, target) | np.isin(chosen.rows, part.rows)).unlabelled()


def _shortened(names: Sequence[str]) -> str:
    shown = ", ".join(names[:12])
    return f"{len(names)} devices ({shown}{', …' if len(names) > 12 else ''})"
