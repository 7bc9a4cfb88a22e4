"""The one way from a trained run to its scores: split → embed → stages → scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.brief import brief
from pisa_capc.core.progress import progress
from pisa_capc.data.frames import Frames, UnlabelledFrames
from pisa_capc.data.protocol import CAREFUL, DIRECT, PAPER, Evaluator
from pisa_capc.data.scores import Scores, as_probability, mean_and_spread, pool
from pisa_capc.data.trials import VerificationScores
from pisa_capc.decide.calibration import UCAPC, Calibration, Calibrator, Careful
from pisa_capc.decide.calibration.careful import warn_of
from pisa_capc.evidence.evaluation.runs import Later, split_for
from pisa_capc.evidence.evaluation.strangers import UnknownDeviceScores, score_strangers
from pisa_capc.model.inference import Embedding, TrainedModel, embed, embed_many

# What is said of every stage, by the name that people read. The last three are of claims: see `data.trials`.
METRICS: Mapping[str, str] = MappingProxyType(
    {
        "macro_f1": "Macro-F1",
        "accuracy": "accuracy (rank-1)",
        "balanced_accuracy": "balanced accuracy",
        "macro_auroc": "Macro-AUROC",
        "eer": "EER of claims",
        "cllr": "Cllr of claims (bits)",
        "min_cllr": "minimum Cllr (bits)",
    }
)


@dataclass(frozen=True)
class Inference:
    """A run on the target part of a split, direct and after each calibration.

    stages: the calibrations that were made, by name, in the order they are reported; direct inference comes before.
    """

    trained: TrainedModel
    outputs: Embedding
    stages: dict[str, Calibration]
    evaluator: Evaluator = field(repr=False)
    folder: Path = Path()
    strangers: UnknownDeviceScores | None = None

    __repr__ = brief

    def probability(self, stage: str) -> NDArray[np.float64]:
        """(N, C) class probabilities after a stage."""
        if stage == DIRECT:
            return as_probability(self.outputs.logits)
        return np.asarray(self.stages[stage].probability, dtype=np.float64)

    def scores(self) -> dict[str, Scores]:
        """Scores by stage, direct first."""
        return {stage: self.evaluator.score(self.probability(stage)) for stage in (DIRECT, *self.stages)}

    def claims(self) -> dict[str, VerificationScores]:
        """Curves of claims by stage; none where there is a single device."""
        found = {stage: self.evaluator.claims(self.probability(stage)) for stage in (DIRECT, *self.stages)}
        return {stage: curve for stage, curve in found.items() if curve is not None}


class Marked(Protocol):
    """Frames to decide on, and the evaluator: a split, or later recordings."""

    @property
    def target(self) -> UnlabelledFrames: ...

    @property
    def evaluator(self) -> Evaluator: ...


def infer(
    models: Sequence[TrainedModel],
    splits: Sequence[Marked],
    calibrations: Mapping[str, Calibrator],
    device: str = "cpu",
    batch: int | None = None,
    after_batch: Callable[[int], None] = lambda frames: None,
    missing: Sequence[int] = (),
) -> Iterator[tuple[int, Inference]]:
    """Each model, by its number, on the target part of its split; one split after the other.

    Runs of one split, the very same object, are computed together: their frames are read once. missing: as of `embed`.
    """
    for part in {id(part): part for part in splits}.values():
        own = [i for i, other in enumerate(splits) if other is part]
        outputs = embed_many([models[i] for i in own], part.target, device, batch, after_batch, missing)
        for i, scores in zip(own, outputs, strict=True):
            stages = {
                name: calibration.calibrate(scores.embedding, scores.logits, scores.capture, scores.statistics)
                for name, calibration in calibrations.items()
            }
            yield i, Inference(models[i], scores, stages, part.evaluator)


# What `pisa evaluate`, reports and figures show beside direct inference: the published and the usual calibration.
COMPARED: Mapping[str, Calibrator] = MappingProxyType({PAPER: UCAPC(), CAREFUL: Careful()})


def infer_runs(
    runs: Sequence[tuple[Path, TrainedModel]],
    frames: Frames,
    target: Sequence[str],
    device: str = "cpu",
    show: bool = True,
    missing: Sequence[int] = (),
    later: Later | None = None,
) -> list[Inference]:
    """Runs of one experiment on the target environments, each on the target part of its own split.

    later: frames of another dataset, on which all of them are tried instead.
    """
    models = [trained for _, trained in runs]
    splits: list[Marked] = [later] * len(runs) if later is not None else []
    if later is None:
        recipes = [replace(trained.recipe, target=tuple(target)) for trained in models]
        parts = {recipe: split_for(models[0], recipe, frames) for recipe in recipes}
        splits = [parts[recipe] for recipe in recipes]
    found: dict[int, Inference] = {}
    different = {id(part): len(part.target) for part in splits}
    with progress("evaluate", sum(different.values()), show) as bar:
        for i, one in infer(models, splits, COMPARED, device, after_batch=bar.advance, missing=missing):
            strangers = None
            if later is not None and later.unknown is not None:
                unknown = embed(models[i], later.unknown, device, missing=missing)
                strangers = score_strangers(one.outputs, unknown, one.evaluator)
            found[i] = replace(one, folder=runs[i][0], strangers=strangers)
    warn_of(_uneven([one.stages[CAREFUL] for one in found.values()]))
    return [found[i] for i in range(len(runs))]


def _uneven(careful: Sequence[Calibration]) -> dict[str | int, float]:
    """Captures in which a run sees devices send unevenly, which the stage of U-CAPC as published does not look at."""
    judged = (pair for one in careful for pair in zip(one.captures, one.judged or (), strict=False))
    return {capture.capture: of.evenness for capture, of in judged if not Careful().believed(of.evenness)}


@dataclass(frozen=True)
class RunScores:
    """The scores of one run on the target, and the curves of claims, by the stage of inference they are of."""

    name: str
    folder: Path
    stages: dict[str, Scores]
    claims: dict[str, VerificationScores] = field(default_factory=dict)
    strangers: UnknownDeviceScores | None = None

    def to_json(self) -> dict[str, Any]:
        scores = {stage: scores.to_json() for stage, scores in self.stages.items()}
        strangers = {} if self.strangers is None else {"strangers": self.strangers.to_json()}
        return {"run": self.name, "folder": str(self.folder), "stages": scores, **strangers}


def evaluate(
    runs: Sequence[tuple[Path, TrainedModel]],
    frames: Frames,
    target: Sequence[str],
    device: str = "cpu",
    show: bool = True,
    missing: Sequence[int] = (),
    later: Later | None = None,
) -> list[RunScores]:
    """Scores of runs of one experiment on the target environments; see `infer_runs`."""
    return [
        RunScores(one.trained.name, one.folder, one.scores(), one.claims(), one.strangers)
        for one in infer_runs(runs, frames, target, device, show, missing, later)
    ]


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
