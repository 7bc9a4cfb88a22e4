"""A trained model with a device added or removed: an ordinary model."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pisa_capc.core import revisions
from pisa_capc.core.errors import ConfigError, DataError, ModelError, unknown_name
from pisa_capc.data.frames import UnlabelledFrames
from pisa_capc.data.store.dataset import UNLABELLED, CaptureSpec
from pisa_capc.decide.calibration.openset.gaussian import observations
from pisa_capc.decide.calibration.openset.scores import single
from pisa_capc.decide.enrolment.alike import MIXED, OUTSIDE, measured_like, outsiders, sounds_like
from pisa_capc.decide.enrolment.mixed import ONE, second_sender
from pisa_capc.decide.enrolment.row import Row, within_ridge
from pisa_capc.decide.enrolment.statistics import checked, with_device, without_device
from pisa_capc.model.gaussian import GaussianBackend, Observations
from pisa_capc.model.inference import Embedding, SourceStatistics, TrainedModel, embed
from pisa_capc.model.inference.model import method_of
from pisa_capc.model.inference.tensors import digest
from pisa_capc.model.methods.closed_form import ClosedForm, FlawsInClosedForm
from pisa_capc.signal.measurement.fit import SUSPECTED
from pisa_capc.signal.measurement.senders import check_waveform

FEWEST = 10  # frames: fewer say too little about the next ones, and ranks among them nothing
FEWEST_MEASURED = 3  # of the closed form, whose error bars say how little a few frames tell
SAME_PLACE = 1e-3  # wavelengths between antennas that are taken to be where the model has them
NAMED = 6  # frames that a message lists
ALONE = (
    "Record the device alone, or choose its frames by address. If all are its own, enrol it with --anyway (in Python: "
    "anyway=True)."
)
ENOUGH = 19  # for a conformal threshold at the usual share of false rejections


def enrol(
    trained: TrainedModel,
    name: str,
    frames: UnlabelledFrames,
    *,
    origin: Sequence[Mapping[str, Any]] = (),
    anyway: bool = False,
    row: Row = within_ridge,
    device: str | torch.device = "auto",
    after_batch: Callable[[int], None] = lambda frames: None,
) -> TrainedModel:
    """The model with one more device, called `name`, that sent `frames`. Nothing is trained, the others' rows stay.

    Args:
        origin: where the frames are from; kept in the model's description.
        anyway: also where the frames sound like a device that is there (`alike`).
        row: what makes the classifier's row.

    >>> larger = enrol(load_model("run"), "D11", frames)        # doctest: +SKIP
    >>> larger.save("run-11")                                   # doctest: +SKIP
    """
    _check_name(trained, name)
    trained.check_frames(frames)
    if not np.allclose(frames.geometry.distances(), trained.geometry.distances(), atol=SAME_PLACE):
        raise ModelError(
            f"{name}: the antennas of these frames stand otherwise than those that the model was trained with. Give "
            "frames of the same array."
        )
    fewest = FEWEST_MEASURED if isinstance(trained.model, ClosedForm) else FEWEST
    if len(frames) < fewest:
        raise DataError(
            f"{name}: {len(frames)} frames; expected at least {fewest} to know the device by. Record it for longer."
        )
    if len(frames) < ENOUGH and trained.statistics.frame_error is None:
        warnings.warn(
            f"{name}: {len(frames)} frames are too few to reject others at --alpha 0.05, which takes {ENOUGH}. Enrol "
            "it from more, or identify with a larger --alpha or --reject none.",
            stacklevel=2,
        )
    if isinstance(trained.model, FlawsInClosedForm):
        check_waveform(frames, trained.model.estimator, named=anyway)
    source = checked(trained.statistics)
    scores = embed(trained, frames, device, after_batch=after_batch, fit=True)
    if scores.fit is not None and (off := float(np.mean(scores.fit < SUSPECTED))) > 0.5:
        warnings.warn(
            f"{name}: {off:.0%} of its frames do not fit the waveform. If its own filter is the cause, it is known by "
            "that too; if the receiver clips or something interferes, it will not be recognised elsewhere.",
            stacklevel=2,
        )
    own, carrier_hz = scores.embedding.astype(np.float64), scores.cfo_hz
    learnt = None
    if source.device_mean is None:
        _check_not_mixed(name, second_sender(source, own, frames.capture_key), anyway)
        like = sounds_like(source, own)
        how = f"their mean rank among its own is {like.p:.2f} (its own have 0.50)"
    else:
        backend = source.backend()
        observed, measured = observed_of(backend, source, scores)
        inside = check_one_sender(name, observed, anyway)
        observed, place = observed.select(inside), frames.capture_key[measured][inside]
        rows = np.delete(np.arange(len(own)), np.flatnonzero(measured)[~inside])
        own, carrier_hz = own[rows], None if carrier_hz is None else carrier_hz[rows]
        learnt = backend.learn(observed, place)
        like = measured_like(backend, observed, learnt)
        how = f"its second recording would be as far from its first with a chance of {like.p:.2f}"
    if like.alike and not anyway:
        raise DataError(
            f"{name}: these frames sound like {trained.devices[like.device]}, which is enrolled: {like.share:.0%} of "
            f"them are given to it, and {how}. If it is another device all the same, enrol it with --anyway (in "
            "Python: anyway=True)."
        )
    kept = np.arange(len(trained.devices))
    change = {"enrolled": name, "frames": len(frames), "from": [dict(part) for part in origin]}
    statistics = with_device(source, own, row, carrier_hz, learnt)
    return changed_model(trained, (*trained.devices, name), kept, statistics, change)


def observed_of(
    backend: GaussianBackend, source: SourceStatistics, scores: Embedding
) -> tuple[Observations, NDArray[np.bool_]]:
    """The frames that could be measured, and which of all they are."""
    error = None if scores.error is None else torch.from_numpy(scores.error)
    value, logits = torch.from_numpy(scores.embedding.astype(np.float64)), torch.from_numpy(scores.logits)
    return observations(backend, source, single(value, logits, error=error))


def remove(trained: TrainedModel, name: str) -> TrainedModel:
    """The model without the device `name`, trained or enrolled: its frames now count as unknown."""
    if name not in trained.devices:
        raise ConfigError(unknown_name("device", name, trained.devices))
    if len(trained.devices) < 3:
        raise ConfigError(f"{name}: the model has {len(trained.devices)} devices; expected two at least to be left.")
    k = trained.devices.index(name)
    kept = np.delete(np.arange(len(trained.devices)), k)
    left = tuple(trained.devices[i] for i in kept)
    return changed_model(trained, left, kept, without_device(checked(trained.statistics), k), {"removed": name})


def _check_name(trained: TrainedModel, name: str) -> None:
    CaptureSpec("E", name, "C", 1)  # refuses what no device of a dataset can be called
    if name == UNLABELLED:
        raise ConfigError(f"{name}: is the name for frames of unknown origin. Choose another.")
    if name in trained.devices:
        raise ConfigError(f"{name}: is a device of this model already. Choose another name, or remove it first.")


def changed_model(
    trained: TrainedModel,
    devices: tuple[str, ...],
    kept: NDArray[np.int64],
    statistics: SourceStatistics,
    change: Mapping[str, Any],
) -> TrainedModel:
    """The model of `devices`, the `kept` ones among them, with the classifier in the statistics.

    Its description says of every change what it was, and the digest of the weights that it was made to.
    """
    before = trained.model.state_dict()
    made = {**change, "version": revisions.PACKAGE, "sha256": digest({f"model.{k}": v for k, v in before.items()})}
    run = replace(trained.run, devices=devices, changes=(*trained.run.changes, made))
    model = method_of(run, trained.reference).build(1)
    state = {name: _resized(before[name].cpu(), value.shape, kept) for name, value in model.state_dict().items()}
    state["classifier.weight"] = torch.from_numpy(np.asarray(statistics.weight)).unsqueeze(0)
    state["classifier.bias"] = torch.from_numpy(np.asarray(statistics.bias)).reshape(state["classifier.bias"].shape)
    if isinstance(trained.model, ClosedForm):  # networks know devices by the classifier's rows alone
        state |= trained.model.with_devices(*map(np.asarray, (statistics.device_mean, statistics.device_error)))
    model.load_state_dict(state)
    return replace(trained, model=model.eval(), run=run, statistics=statistics)


def check_one_sender(name: str, observed: Observations, anyway: bool) -> NDArray[np.bool_]:
    """Which frames (N,) to learn a device from: those inside the error bars of the others, or all where it is forced.

    Too many outside are refused: then two senders are among them. A few are reported and left out.
    """
    if not len(observed):
        raise DataError(f"{name}: none of these frames could be measured. Record the device again.")
    outside = outsiders(observed)
    if anyway or not outside.any():
        return np.ones(len(outside), dtype=bool)
    found = _not_of_the_others(name, outside)
    if outside.sum() > max(1, MIXED * len(outside)):
        raise DataError(f"{found}; of one sender {OUTSIDE:.1%} would be so far off. {ALONE}")
    warnings.warn(f"{found} and are left out; of one sender {OUTSIDE:.1%} would be so far off.", stacklevel=3)
    return ~outside


def _check_not_mixed(name: str, second: NDArray[np.bool_], anyway: bool) -> None:
    """The same by embeddings without error bars, which show a second sender only where many frames are its."""
    if second.any() and not anyway:
        raise DataError(
            f"{_not_of_the_others(name, second)}; their embeddings part as those of one sender do in {1 - ONE:.0%} of "
            f"cases. {ALONE}"
        )


def _not_of_the_others(name: str, some: NDArray[np.bool_]) -> str:
    numbers = ", ".join(str(i) for i in np.flatnonzero(some)[:NAMED].tolist()) + ", …" * int(some.sum() > NAMED)
    return f"{name}: {some.sum()} of {len(some)} frames are not of the sender of the others (numbers {numbers})"


def _resized(value: Tensor, shape: torch.Size, kept: NDArray[np.int64]) -> Tensor:
    """A parameter for another number of devices; a new one has zeros, which only matters to parts used in training."""
    for axis, size in enumerate(shape):
        if value.shape[axis] != size:
            value = value.index_select(axis, torch.from_numpy(kept))
            missing = size - len(kept)
            value = torch.cat([value, value.new_zeros(*value.shape[:axis], missing, *value.shape[axis + 1 :])], axis)
    return value
