"""What a model knows of its devices, with one more or one less.

The covariance within classes and the temperature were learnt from many frames in several places; a few
frames of one more device would make them worse, and they stay. Everything else is that of the devices there are.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import ModelError
from pisa_capc.decide.enrolment.row import Array, Row
from pisa_capc.model.gaussian import Device
from pisa_capc.model.inference import SourceStatistics
from pisa_capc.model.inference.statistics import BANK, VALIDATION, evenly

FOLDS = 5
NEEDED = (
    *("weight", "bias", "mean", "class_mean", "prior", "confusion", "covariance"),
    *("bank", "validation", "validation_logits", "validation_label"),
)


def checked(source: SourceStatistics) -> SourceStatistics:
    """The statistics with everything that is needed, whose bank is of; those of earlier versions lack some of it."""
    again = "an earlier version trained the model. Train it again."
    if missing := [name for name in NEEDED if getattr(source, name) is None]:
        raise ModelError(f"the model keeps no {missing[0]} of its source: {again}")
    if source.bank_label is not None:
        return source
    trained = np.flatnonzero(np.asarray(source.prior) > 0)
    if len(source.bank) != BANK * len(trained):  # type: ignore[arg-type]
        raise ModelError(f"the model does not say whose the embeddings are that it keeps: {again}")
    return replace(source, bank_label=np.repeat(trained, BANK))


def with_device(
    source: SourceStatistics, own: Array, row: Row, carrier_hz: Array | None = None, learnt: Device | None = None
) -> SourceStatistics:
    """The statistics with another device, given its embeddings `own` (n, D) and carrier offsets (n,).

    learnt: what the Gaussian back-end has of it, where the source has one.

    It counts as much as the others do in the mean. Its frames are reference and validation at once, as they are few;
    the validation logits are from rows that were made without the frame (`FOLDS` parts).
    """
    w, b = row(source, own)
    known = {name: np.asarray(value) for name, value in source.known().items()}
    classes, prior = len(known["weight"]), known["prior"].astype(np.float64)
    share = 1 / (1 + np.count_nonzero(prior))
    mean = own.mean(axis=0)
    bank, held = evenly(len(own), BANK), evenly(len(own), VALIDATION)
    column = known["validation"] @ w + b
    if learnt is not None:  # logits are log-likelihoods, which rows know but for what a frame has in all columns
        rows = known["validation"] @ known["weight"].T + known["bias"]
        column += known["validation_logits"].max(axis=1) - rows.max(axis=1)
    logits = _one_more(known["validation_logits"], column)
    own_logits = _one_more(own @ known["weight"].T + known["bias"], left_out_logits(source, own, row))[held]
    return _decided(
        replace(
            source,
            weight=_joined(known["weight"], w[None]),
            bias=_joined(known["bias"], np.array([b])),
            mean=_like(known["mean"], (1 - share) * known["mean"] + share * mean),
            class_mean=_joined(known["class_mean"], mean[None]),
            prior=_joined((1 - share) * prior, np.array([share])).astype(known["prior"].dtype),
            bank=_joined(known["bank"], own[bank]),
            bank_label=_joined(known["bank_label"], np.full(len(bank), classes)),
            validation=_joined(known["validation"], own[held]),
            validation_logits=_joined(logits, own_logits),
            validation_label=_joined(known["validation_label"], np.full(len(held), classes)),
            **_one_more_session(known, own, len(held)),
            **_one_more_carrier(known, carrier_hz, held),
            **({} if learnt is None else _one_more_gaussian(known, learnt)),
        ),
        _frames_of(source, np.append(np.arange(classes), -1)),
    )


def without_device(source: SourceStatistics, k: int) -> SourceStatistics:
    """The statistics without device number `k`; nothing that was measured of it is left but in what all share."""
    known = {name: np.asarray(value) for name, value in source.known().items()}
    prior = known["prior"].astype(np.float64)
    kept = np.delete(np.arange(len(prior)), k)
    bank, held = known["bank_label"] != k, known["validation_label"] != k
    number = np.cumsum(np.arange(len(prior)) != k) - 1  # of each device among those that are left
    return _decided(
        replace(
            source,
            weight=known["weight"][kept],
            bias=known["bias"][kept],
            mean=_like(known["mean"], (known["mean"] - prior[k] * known["class_mean"][k]) / (1 - prior[k])),
            class_mean=known["class_mean"][kept],
            prior=(prior[kept] / prior[kept].sum()).astype(known["prior"].dtype),
            bank=known["bank"][bank],
            bank_label=number[known["bank_label"][bank]],
            validation=known["validation"][held],
            validation_logits=known["validation_logits"][held][:, kept],
            validation_label=number[known["validation_label"][held]],
            **_sessions_left(known, k, number, held),
            **{name: known[name][kept] for name in ("device_mean", "device_error") if name in known},
        ),
        _frames_of(source, kept),
    )


def left_out_logits(source: SourceStatistics, own: Array, row: Row) -> Array:
    """(n,) the new device's logit of each of its frames, by a row made from the frames of the other parts."""
    part = np.arange(len(own)) % FOLDS
    logits = np.empty(len(own))
    for fold in range(FOLDS):
        w, b = row(source, own[part != fold])
        logits[part == fold] = own[part == fold] @ w + b
    return logits


def recognised(source: SourceStatistics) -> Array:
    """(C,) share of each device's validation frames that are given to it; NaN where there are none."""
    label = np.asarray(source.validation_label)
    right = np.asarray(source.validation_logits).argmax(axis=1) == label
    return np.array([right[label == k].mean() if (label == k).any() else np.nan for k in range(len(source.weight))])  # type: ignore[arg-type]


def _frames_of(source: SourceStatistics, devices: NDArray[np.int64]) -> Array:
    """(C',) validation frames of devices, by number; of a new one, −1, as many as the others have in the mean."""
    total = np.asarray(source.confusion, dtype=np.float64).sum(axis=0)
    return np.append(total, total[total > 0].mean())[devices]


def _decided(source: SourceStatistics, frames: Array) -> SourceStatistics:
    """With the confusion of the validation frames that are kept, each device counted as `frames` (C,) of its own."""
    label = np.asarray(source.validation_label)
    decided = np.asarray(source.validation_logits).argmax(axis=1)
    count = np.zeros((len(frames), len(frames)))
    np.add.at(count, (decided, label), 1.0)
    confusion = count / count.sum(axis=0).clip(1) * frames
    return replace(source, confusion=_like(source.confusion, confusion))


def _one_more_session(known: dict[str, NDArray], own: Array, held: int) -> dict[str, NDArray]:
    """Sessions with one more, of a new device in a place of its own; none where the model keeps none."""
    if "session_mean" not in known:
        return {}
    count, place = len(known["session_mean"]), known["session_place"]
    return {
        "session_mean": _joined(known["session_mean"], own.mean(axis=0)[None]),
        "session_label": _joined(known["session_label"], np.array([len(known["weight"])])),
        "session_place": _joined(place, np.array([place.max(initial=-1) + 1])),
        "session_frames": _joined(known["session_frames"], np.array([len(own)])),
        **({"session_capture": _joined(known["session_capture"], np.zeros(1))} if "session_capture" in known else {}),
        "validation_session": _joined(known["validation_session"], np.full(held, count)),
    }


def _one_more_carrier(
    known: dict[str, NDArray], carrier_hz: Array | None, held: NDArray[np.int64]
) -> dict[str, NDArray | None]:
    """Carrier offsets of sessions with those of a new device; none where one of them is not known."""
    if "session_carrier_hz" not in known:
        return {}
    if carrier_hz is None:
        return dict.fromkeys(("session_carrier_hz", "carrier_variance_hz2", "validation_carrier_hz"))
    return {
        "session_carrier_hz": _joined(known["session_carrier_hz"], carrier_hz.mean()[None]),
        "validation_carrier_hz": _joined(known["validation_carrier_hz"], carrier_hz[held]),
    }


def _one_more_gaussian(known: dict[str, NDArray], learnt: Device) -> dict[str, NDArray]:
    return {
        "device_mean": _joined(known["device_mean"], learnt.mean[None]),
        "device_error": _joined(known["device_error"], learnt.error[None]),
    }


def _sessions_left(
    known: dict[str, NDArray], k: int, number: NDArray[np.int64], held: NDArray[np.bool_]
) -> dict[str, NDArray]:
    """Sessions without those of device `k`; number: (C,) of each device among those that are left."""
    if "session_mean" not in known:
        return {}
    kept = known["session_label"] != k
    renumbered = np.append(np.cumsum(kept) - 1, -1)  # the last is of frames of no session
    others = {"session_capture": kept, "session_carrier_hz": kept, "validation_carrier_hz": held}
    return {
        "session_mean": known["session_mean"][kept],
        "session_label": number[known["session_label"][kept]],
        "session_place": known["session_place"][kept],
        "session_frames": known["session_frames"][kept],
        "validation_session": renumbered[known["validation_session"][held]],
        **{name: known[name][rows] for name, rows in others.items() if name in known},
    }


def _one_more(logits: NDArray, column: Array) -> NDArray:
    return np.column_stack([logits, column.astype(logits.dtype)])


def _joined(there: NDArray, more: NDArray) -> NDArray:
    return np.concatenate([there, more.astype(there.dtype)])


def _like(there: NDArray | None, values: NDArray) -> NDArray:
    return values.astype(np.asarray(there).dtype)
