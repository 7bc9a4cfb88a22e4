"""One trained run in many deployments: embedded once, drawn and calibrated in each, scored by the evaluator."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.data.deployments import Deployment
from pisa_capc.data.protocol import DIRECT, Evaluator
from pisa_capc.decide.calibration import Calibrator, find_groups
from pisa_capc.model.inference import Embedding

DIGITS = 5  # of a score: a deployment has some ten thousand frames


def deploy(
    outputs: Embedding,
    evaluator: Evaluator,
    calibrations: Mapping[str, Calibrator],
    deployments: Sequence[Deployment],
    rng: np.random.Generator,
    unknown: Embedding | None = None,
) -> dict[str, float]:
    """Macro-F1 over the devices that are there, by stage, as paper@dirichlet-1.

    All deployments are drawn from one generator in their order, so that order is part of what is computed. Where the
    captures are as they are nothing is drawn; `Inference.scores` says more of these.

    unknown: frames of devices that the model does not know, for deployments that have some.
    """
    found: dict[str, float] = {}
    for deployment in deployments:
        if deployment.is_plain:
            continue
        if deployment.unknown and unknown is None:
            raise DataError(f"deployments.{deployment.name}: there are no frames of unknown devices.")
        chosen = {name: calibrations[name] for name in deployment.calibration or calibrations}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of captures with fewer frames than classes
            if deployment.scored == "all":
                scores = _drawn(outputs, evaluator, chosen, deployment, rng, unknown)
            else:
                scores = _second_half(outputs, evaluator, chosen, deployment)
        found |= {deployment.stage(name): round(value, DIGITS) for name, value in scores.items()}
    return found


def check_deployment(deployment: Deployment, calibrations: Mapping[str, Calibrator]) -> None:
    """Refuse to freeze what cannot be frozen."""
    for name in (deployment.calibration or calibrations) if deployment.frozen else ():
        if not calibrations[name].freezes:
            raise ConfigError(
                f"deployments.{deployment.name}: {name} cannot be frozen; expected ucapc or careful. "
                "Name those of them under `calibration`."
            )


def _drawn(
    outputs: Embedding,
    evaluator: Evaluator,
    calibrations: Mapping[str, Calibrator],
    deployment: Deployment,
    rng: np.random.Generator,
    unknown: Embedding | None,
) -> dict[str, float]:
    rows, strange, group = evaluator.draw_deployment(deployment, rng, None if unknown is None else unknown.capture)
    embedding, logits = outputs.embedding[rows], outputs.logits[rows]
    if unknown is not None:
        embedding = np.concatenate([embedding, unknown.embedding[strange]])
        logits = np.concatenate([logits, unknown.logits[strange]])
    if not deployment.identifiers:
        group = find_groups(embedding, logits)

    def score(decided: NDArray[np.int64]) -> float:
        return evaluator.macro_f1(rows, decided[: len(rows)])

    found = {DIRECT: score(logits.argmax(axis=1))}
    for name, calibration in calibrations.items():
        result = calibration.calibrate(embedding, logits, group, outputs.statistics)
        found[name] = score(np.asarray(result.prediction))
    return found


def _second_half(
    outputs: Embedding, evaluator: Evaluator, calibrations: Mapping[str, Calibrator], deployment: Deployment
) -> dict[str, float]:
    first = evaluator.first_half()
    rest = np.flatnonzero(~first)

    def part(rows: NDArray[np.bool_] | NDArray[np.int64]) -> tuple[NDArray, NDArray, NDArray]:
        return outputs.embedding[rows], outputs.logits[rows], outputs.capture[rows]

    found = {DIRECT: evaluator.macro_f1(rest, outputs.logits[rest].argmax(axis=1))}
    for name, calibration in calibrations.items():
        if deployment.frozen:
            fitted = calibration.fit(*part(first), outputs.statistics)
            decided = np.asarray(fitted.apply(*part(rest)).prediction)
        else:
            whole = calibration.calibrate(outputs.embedding, outputs.logits, outputs.capture, outputs.statistics)
            decided = np.asarray(whole.prediction)[rest]
        found[name] = evaluator.macro_f1(rest, decided)
    return found
