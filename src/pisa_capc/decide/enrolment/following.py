"""Newer frames of a device that is enrolled: its fingerprint follows them, by bounded steps.

Hardware ages, and an attacker wants the model to follow another transmitter. So the frames must be of one sender; its
mean must be as near to the device's as that of a second recording after some ageing (`SAME`, by the error bars of
both); a step is one error bar at most (`GaussianBackend.updated`); and all steps since the enrolment together are
bounded: δᵀ B⁻¹ δ ≤ `FARTHEST`², B the covariance of the devices. Two devices are √(2 d) apart in that unit, 3.5 of six
numbers. What drifts how fast, and what an attacker reaches, is measured in studies/threats/drift.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from scipy.stats import chi2

from pisa_capc.core.errors import ConfigError, DataError, ModelError, unknown_name
from pisa_capc.data.frames import UnlabelledFrames
from pisa_capc.decide.enrolment.alike import SAME
from pisa_capc.decide.enrolment.change import changed_model, check_one_sender, observed_of
from pisa_capc.decide.enrolment.row import Array, within_ridge
from pisa_capc.decide.enrolment.statistics import checked, with_device, without_device
from pisa_capc.model.gaussian import Device, GaussianBackend, Observations
from pisa_capc.model.inference import TrainedModel, embed

FARTHEST = 1.0  # standard deviations of the devices, for all steps together


def update(
    trained: TrainedModel,
    name: str,
    frames: UnlabelledFrames,
    *,
    origin: Sequence[Mapping[str, Any]] = (),
    anyway: bool = False,
    device: str | torch.device = "auto",
    after_batch: Callable[[int], None] = lambda frames: None,
) -> TrainedModel:
    """The model with newer frames of its device `name`; a model without error bars is refused.

    The device becomes the last one, and its reference frames are the new ones.

    Args:
        origin: where the frames are from; kept in the model's description, with the step.
        anyway: also where the frames are farther from the device than a second recording would be.
    """
    if name not in trained.devices:
        raise ConfigError(unknown_name("device", name, trained.devices))
    if trained.statistics.device_mean is None:
        raise ModelError(
            f"{name}: this model has no error bars, which say how far a device may move. Remove the device and enrol "
            "it again from the new frames."
        )
    trained.check_frames(frames)
    k, source = trained.devices.index(name), checked(trained.statistics)
    backend, scores = source.backend(), embed(trained, frames, device, after_batch=after_batch)
    observed, measured = observed_of(backend, source, scores)
    inside = check_one_sender(name, observed, anyway)
    rows, before = np.flatnonzero(measured)[inside], np.asarray(source.device_mean)[k]
    place = frames.capture_key[rows]
    learnt = moved(backend, str(k), observed.select(inside), place, _steps(trained, name), name, anyway)
    own, carrier_hz = scores.embedding[rows].astype(np.float64), scores.cfo_hz
    carrier_hz = None if carrier_hz is None else carrier_hz[rows]
    statistics = with_device(without_device(source, k), own, within_ridge, carrier_hz, learnt)
    kept = np.append(np.delete(np.arange(len(trained.devices)), k), k)
    step = (learnt.mean - before).tolist()
    change = {"updated": name, "frames": len(frames), "from": [dict(part) for part in origin], "step": step}
    return changed_model(trained, tuple(trained.devices[i] for i in kept), kept, statistics, change)


def moved(
    backend: GaussianBackend,
    number: str,
    observed: Observations,
    place: Iterable[Any],
    before: Array,
    name: str,
    anyway: bool = False,
) -> Device:
    """Device `number` of the back-end after these frames, which claim to be its own.

    place: of each frame, as of `GaussianBackend.learn`. before: (D,) all its steps so far. name: what messages call it.
    """
    old, new = backend.devices[number], backend.learn(observed, place)
    off = new.mean - old.mean
    chance = float(chi2.sf(off @ np.linalg.solve(backend.after_ageing(number) + new.error, off), len(off)))
    if chance < SAME and not anyway:
        raise DataError(
            f"{name}: these frames are farther from it than a second recording would be, even of hardware that has "
            f"aged: a chance of {chance:.2g}; expected {SAME:g} or more. If it is {name} all the same, repaired for "
            "example, update it with --anyway (in Python: anyway=True)."
        )
    learnt = backend.updated(number, observed, place)
    total, (_, spread) = before + learnt.mean - old.mean, backend.population
    if (far := float(np.sqrt(total @ np.linalg.solve(spread, total)))) > FARTHEST:
        raise DataError(
            f"{name}: with this step it has moved {far:.2f} standard deviations of the devices since it was enrolled; "
            f"expected at most {FARTHEST:g}, so that no series of updates leads to another device. Remove it and enrol "
            "it again from frames whose sender you have checked."
        )
    return learnt


def _steps(trained: TrainedModel, name: str) -> Array:
    """(D,) how far updates have moved a device since it was enrolled."""
    total = np.zeros(np.asarray(trained.statistics.device_mean).shape[1])
    for change in trained.run.changes:
        if change.get("enrolled") == name:
            total = np.zeros_like(total)
        if change.get("updated") == name:
            total = total + np.array(change["step"], dtype=np.float64)
    return total
