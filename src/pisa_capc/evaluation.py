"""Trained runs on frames: which frames a run may be scored on, and the scores of one run or of many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pisa_capc.calibration import UCAPC, Calibration, Calibrator, Safe, SourceStatistics
from pisa_capc.calibration.guard import Decision
from pisa_capc.config import differences
from pisa_capc.errors import ModelError
from pisa_capc.frames import Frames, UnlabelledFrames
from pisa_capc.progress import progress
from pisa_capc.protocol import Evaluator, split
from pisa_capc.scores import Scores, as_probability, mean_and_spread, pool
from pisa_capc.training import Embedding, TrainedModel, embed_many, load_model
from pisa_capc.training.checkpoint import runs_inside

EXPERIMENT = (
    *("method", "variant", "settings", "encoder", "source", "target", "dataset", "devices"),
    *("training", "precision", "code"),
)
METRICS = ("macro_f1", "accuracy", "macro_auroc")


@dataclass(frozen=True)
class RunScores:
    """The scores of one run on the target, by the stage of inference they are of."""

    name: str
    folder: Path
    stages: dict[str, Scores]

    def to_json(self) -> dict[str, Any]:
        scores = {stage: scores.to_json() for stage, scores in self.stages.items()}
        return {"run": self.name, "folder": str(self.folder), "stages": scores}


class Stage(NamedTuple):
    """Class probabilities (N, C) after a stage of inference, and what a guard decided for each capture, if one did."""

    name: str
    probability: NDArray[np.float64]
    guard: tuple[Decision, ...] | None = None


def usual_calibrations(runs: Sequence[tuple[Path, TrainedModel]]) -> dict[str, Calibrator]:
    """paper: U-CAPC as published; and where every run has a guard, because runs are compared by stage, safe."""
    guarded = all("guard" in trained.source for _, trained in runs)
    return {"paper": UCAPC(), "safe": Safe()} if guarded else {"paper": UCAPC()}


def inference_stages(scores: Embedding, calibrations: Mapping[str, Calibrator]) -> list[Stage]:
    """The stages of inference, in the order they are reported.

    direct: the source classifier's own; then one stage for each calibration, made on the frames that are scored.
    """
    source = SourceStatistics(**scores.source)
    stages = [Stage("direct", as_probability(scores.logits))]
    for name, calibration in calibrations.items():
        calibrated = calibration.calibrate(scores.embedding, scores.logits, scores.capture, source)
        stages.append(Stage(name, np.asarray(calibrated.probability, dtype=np.float64), calibrated.guard))
    return stages


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


def unseen_frames(trained: TrainedModel, frames: Frames, environments: Sequence[str]) -> UnlabelledFrames:
    """The frames of the environments; of the run's target, exactly the target part of its split."""
    about = trained.about
    chosen = frames.where(environment=environments)
    part = split(frames, about["source"], about["target"], about["split_seed"]).target
    target = [i for i, name in enumerate(frames.environments) if name in about["target"]]
    return chosen.select(~np.isin(chosen.environment, target) | np.isin(chosen.rows, part.rows)).unlabelled()


def evaluate(
    runs: Sequence[tuple[Path, TrainedModel]],
    frames: Frames,
    target: Sequence[str],
    device: str = "cpu",
    show: bool = True,
    missing: Sequence[int] = (),
) -> list[RunScores]:
    """Scores of runs of one experiment on the target environments, each on the target part of its own split.

    missing: antennas to leave out, as of `embed`.
    """
    chosen = usual_calibrations(runs)
    results = {
        i: RunScores(
            runs[i][1].name,
            runs[i][0],
            {stage.name: evaluator.score(stage.probability) for stage in inference_stages(scores, chosen)},
        )
        for i, scores, evaluator in embedded(runs, frames, target, device, show, missing)
    }
    return [results[i] for i in range(len(runs))]


@dataclass(frozen=True)
class Inference:
    """A run on the target part of its split, direct and calibrated: what a picture is made from.

    calibration: U-CAPC as published. safe: under the guard, where there is one.
    """

    folder: Path
    trained: TrainedModel
    outputs: Embedding
    calibration: Calibration
    evaluator: Evaluator = field(repr=False)
    safe: Calibration | None = None

    def scores(self) -> RunScores:
        outputs = {"direct": self.outputs.logits, "paper": self.calibration.probability}
        if self.safe is not None:
            outputs["safe"] = self.safe.probability
        found = {stage: self.evaluator.score(values) for stage, values in outputs.items()}
        return RunScores(self.trained.name, self.folder, found)


def infer(
    runs: Sequence[tuple[Path, TrainedModel]],
    frames: Frames,
    target: Sequence[str],
    device: str = "cpu",
    show: bool = True,
) -> list[Inference]:
    """As `evaluate`, with everything that was computed on the way."""
    found, chosen = {}, usual_calibrations(runs)
    for i, scores, evaluator in embedded(runs, frames, target, device, show):
        source = SourceStatistics(**scores.source)
        results = {
            name: calibration.calibrate(scores.embedding, scores.logits, scores.capture, source)
            for name, calibration in chosen.items()
        }
        found[i] = Inference(*runs[i], scores, results["paper"], evaluator, results.get("safe"))
    return [found[i] for i in range(len(runs))]


def embedded(
    runs: Sequence[tuple[Path, TrainedModel]],
    frames: Frames,
    target: Sequence[str],
    device: str,
    show: bool,
    missing: Sequence[int] = (),
) -> Iterator[tuple[int, Embedding, Evaluator]]:
    """The number of each run, split by split, its outputs on the target part of its split, and who marks them."""
    seeds = [trained.about["split_seed"] for _, trained in runs]
    parts = {seed: split(frames, runs[0][1].about["source"], target, seed) for seed in seeds}
    with progress("evaluate", sum(len(part.target) for part in parts.values()), show) as bar:
        for seed, part in parts.items():  # runs of one split are scored on the same frames, which are read once
            own = [i for i, other in enumerate(seeds) if other == seed]
            models = [runs[i][1] for i in own]
            outputs = embed_many(models, part.target, device, after_batch=bar.advance, missing=missing)
            yield from ((i, scores, part.evaluator) for i, scores in zip(own, outputs, strict=True))


def summary(results: Sequence[RunScores]) -> dict[str, dict[str, dict[str, float | None]]]:
    """Mean and spread over the runs of each metric of each stage."""
    found: dict[str, dict[str, dict[str, float | None]]] = {}
    for stage in results[0].stages:
        rows = {m: mean_and_spread([getattr(run.stages[stage], m) for run in results]) for m in METRICS}
        found[stage] = {m: {"mean": _number(mean), "std": _number(std)} for m, (mean, std) in rows.items()}
    return found


def pooled(results: Sequence[RunScores], stage: str) -> Scores:
    """The runs as one, for a picture; see `scores.pool`."""
    return pool([run.stages[stage] for run in results])


def _number(value: float | None) -> float | None:
    return None if value is None or np.isnan(value) else value


def _shortened(names: Sequence[str]) -> str:
    shown = ", ".join(names[:12])
    return f"{len(names)} devices ({shown}{', …' if len(names) > 12 else ''})"
