"""What a calibration may know about the source: small statistics and a few embeddings, never source frames.

One type from training, which measures them, to the model's file, the scores' file and the calibration.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pisa_capc.core.brief import brief
from pisa_capc.core.errors import DataError
from pisa_capc.model.gaussian import Device, GaussianBackend

Array: TypeAlias = "np.ndarray | Tensor"

PREFIX = "source_"
SMALLEST_PRIOR = 1e-12
BANK = 50  # training embeddings of each class
VALIDATION = 100  # validation frames of each class; enough for thresholds at alpha ≥ 0.01


@dataclass(frozen=True)
class SourceStatistics:
    """Statistics of the labelled source domain; every one is optional, each method says which it needs.

    In files each has the prefix `source_`, for instance `source_weight`.
    """

    weight: np.ndarray | None = None  # (C, D) rows of the linear classifier
    bias: np.ndarray | None = None  # (C,) its bias
    mean: np.ndarray | None = None  # (D,) mean embedding
    class_mean: np.ndarray | None = None  # (C, D) mean embedding of each class
    prior: np.ndarray | None = None  # (C,) class frequencies
    confusion: np.ndarray | None = None  # (C, C) validation frames decided as [row] that are of class [column]
    temperature: np.ndarray | None = None  # () divides the logits; fitted on validation frames
    covariance: np.ndarray | None = None  # (D, D) of the embeddings within their classes
    bank: np.ndarray | None = None  # (B, D) embeddings of some training frames of each class
    bank_label: np.ndarray | None = None  # (B,) their classes
    validation: np.ndarray | None = None  # (V, D) embeddings of some validation frames of each class
    validation_logits: np.ndarray | None = None  # (V, C) their logits
    validation_label: np.ndarray | None = None  # (V,) their classes
    session_mean: np.ndarray | None = None  # (S, D) mean embedding of each class in each capture of each place
    session_label: np.ndarray | None = None  # (S,) their classes
    session_place: np.ndarray | None = None  # (S,) numbers of their environments
    session_capture: np.ndarray | None = None  # (S,) numbers of their captures
    session_frames: np.ndarray | None = None  # (S,) how many training frames they have
    session_covariance: np.ndarray | None = None  # (D, D) of the embeddings within their sessions
    validation_session: np.ndarray | None = None  # (V,) the session of each frame of `validation`
    session_carrier_hz: np.ndarray | None = None  # (S,) mean carrier offset of each session
    carrier_variance_hz2: np.ndarray | None = None  # () of the carrier offsets within their sessions
    validation_carrier_hz: np.ndarray | None = None  # (V,) carrier offset of each frame of `validation`
    unlike_limit: np.ndarray | None = None  # () of the session score, from which a frame resembles no device
    device_mean: np.ndarray | None = None  # (C, D) m_k of the Gaussian back-end; NaN of classes that were not trained
    device_error: np.ndarray | None = None  # (C, D, D) V_k
    frame_spread: np.ndarray | None = None  # (D, D) S
    place_spread: np.ndarray | None = None  # (D, D) P
    frame_error: np.ndarray | None = None  # (E, D, D) R_n of some training frames, spread over all

    __repr__ = brief

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], prefix: str = PREFIX) -> SourceStatistics:
        """The statistics among named arrays, by their prefix; other names are ignored."""
        return cls(**{f.name: np.asarray(arrays[prefix + f.name]) for f in fields(cls) if prefix + f.name in arrays})

    @classmethod
    def from_source(
        cls,
        embedding: NDArray[np.floating],
        logits: NDArray[np.floating],
        labels: NDArray[np.integer],
        capture: NDArray[Any] | Sequence[Any] | None = None,
    ) -> SourceStatistics:
        """What `careful` and rejections need, from labelled source frames of any frozen classifier.

        embedding (N, D), logits (N, C), labels (N,) from 0 to C − 1, capture (N,) of each frame's recording. Best are
        frames that the classifier was not trained on. Every fifth frame of a class is held out for thresholds. The
        classifier's rows are those of the linear map from embedding to logits that fits best.

        >>> source = SourceStatistics.from_source(embedding, logits, labels, capture)      # doctest: +SKIP
        >>> Careful().calibrate(new_embedding, new_logits, new_capture, source)            # doctest: +SKIP
        """
        z, scores, y = np.asarray(embedding, float), np.asarray(logits, float), np.asarray(labels)
        if z.ndim != 2 or scores.ndim != 2 or y.shape != (len(z),) or len(z) != len(scores):
            raise DataError(
                f"embedding {z.shape}, logits {scores.shape} and labels {y.shape} disagree; "
                "expected (N, D), (N, C) and (N,)."
            )
        classes = scores.shape[1]
        if y.dtype.kind not in "iu" or not np.isin(y, np.arange(classes)).all():
            raise DataError(
                f"labels: expected whole numbers from 0 to {classes - 1}, as logits have {classes} columns."
            )
        if not (np.isfinite(z).all() and np.isfinite(scores).all()):
            raise DataError(
                "embedding or logits hold NaN or infinity; every value must be finite. Remove these frames."
            )
        by_logits, by_embedding = ((part.argmax(axis=1) == y).mean() for part in (scores, z))
        if by_embedding > by_logits and y.max() < z.shape[1] < classes:
            warnings.warn(
                f"embedding and logits look exchanged: the largest of embedding is the label in {by_embedding:.0%} of "
                f"the frames, that of logits in {by_logits:.0%}.",
                stacklevel=2,
            )
        order = np.lexsort((np.arange(len(y)), y))
        held = np.zeros(len(y), dtype=bool)
        held[order[np.arange(len(y)) % 5 == 4]] = True
        where = None
        if capture is not None:
            number = np.unique(np.asarray(capture).astype(str), return_inverse=True)[1].reshape(-1)
            where = np.column_stack([np.zeros_like(number), number])
        rows, *_ = np.linalg.lstsq(np.column_stack([z, np.ones(len(z))]), scores, rcond=None)
        parts = (None, None) if where is None else (where[~held], where[held])
        found = openset_statistics(z[~held], y[~held], z[held], scores[held], y[held], *parts)
        pair = scores[held].argmax(axis=1) * classes + y[held]
        measured = {name: value.numpy() for name, value in found.items()}
        measured |= {"weight": rows[:-1].T, "bias": rows[-1], "mean": z.mean(axis=0)}
        return cls(
            **measured, confusion=np.bincount(pair, minlength=classes**2).reshape(classes, classes).astype(float)
        )

    def known(self) -> dict[str, np.ndarray]:
        """The known statistics by name."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def backend(self) -> GaussianBackend:
        """The Gaussian back-end of the devices that were trained, by their numbers."""
        parts = self.device_mean, self.device_error, self.frame_spread, self.place_spread
        mean, error, frame, place = (None if part is None else np.asarray(part, dtype=np.float64) for part in parts)
        if mean is None or error is None or frame is None or place is None:
            raise DataError(
                f"the Gaussian back-end, {PREFIX}device_mean and what belongs to it, is not with these scores. Train "
                "with --method closed-form, or choose another score, as session."
            )
        classes, size = mean.shape if mean.ndim == 2 else (-1, -1)
        if error.shape != (classes, size, size) or not frame.shape == place.shape == (size, size):
            raise DataError(
                f"{PREFIX}device_mean {mean.shape}, {PREFIX}device_error {error.shape}, {PREFIX}frame_spread "
                f"{frame.shape} and {PREFIX}place_spread {place.shape}: expected (C, D), (C, D, D), (D, D) and (D, D)."
            )
        there = np.flatnonzero(np.isfinite(mean).all(axis=1))
        return GaussianBackend({str(k): Device(mean[k], error[k], 0, 0) for k in there}, frame, place)

    def tensor(self, name: str, shape: tuple[int, ...], like: Tensor) -> Tensor | None:
        """A statistic as float64 beside `like`, checked for its shape; none where it is not known."""
        value = getattr(self, name)
        if value is None:
            return None
        if np.asarray(value).dtype.kind not in "biuf":
            raise DataError(f"{PREFIX}{name} holds {np.asarray(value).dtype}; expected numbers.")
        values = torch.as_tensor(np.asarray(value, dtype=np.float64), device=like.device)
        if shape == () and values.numel() == 1:
            values = values.reshape(())  # states of streams of earlier versions keep a number as a row of one
        if tuple(values.shape) != shape:
            raise DataError(f"{PREFIX}{name} has shape {tuple(values.shape)}; expected {shape} to fit the scores.")
        if not torch.isfinite(values).all():
            raise DataError(f"{PREFIX}{name} holds NaN or infinity; every value must be finite.")
        return values


def source_posterior(logits: Tensor, source: SourceStatistics) -> Tensor:
    """log p^s (n, C): the log-softmax of the logits at the source's temperature."""
    temperature = source.tensor("temperature", (), logits)
    if temperature is not None and not temperature > 0:
        raise DataError(f"{PREFIX}temperature is {float(temperature):g}; expected a positive number.")
    return torch.log_softmax(logits if temperature is None else logits / temperature, dim=1)


def source_prior(logits: Tensor, source: SourceStatistics) -> Tensor:
    """π^s (C,), equal frequencies where it is not known."""
    classes = logits.shape[1]
    prior = source.tensor("prior", (classes,), logits)
    prior = logits.new_ones(classes) if prior is None else prior.clamp(min=SMALLEST_PRIOR)
    return prior / prior.sum()


def openset_statistics(
    embedding: Array,
    label: Array,
    validation: Array,
    validation_logits: Array,
    validation_label: Array,
    where: Array | None = None,
    validation_where: Array | None = None,
    carrier_hz: Array | None = None,
    validation_carrier_hz: Array | None = None,
) -> dict[str, Tensor]:
    """Statistics of training frames (N, D) and validation frames (V, D) with logits (V, C), named as in files.

    class_mean (C, D), prior (C,); covariance (D, D) within classes, Σ_i (z_i − μ_{y_i})(z_i − μ_{y_i})ᵀ / N; bank and
    bank_label, at most 50 training embeddings of each class; validation, validation_logits and validation_label, at
    most 100 frames of each class. Frames are taken evenly over each class in the given order, so every place and time
    is among them. Where environments and captures of the frames are given by their numbers (`where` (N, 2),
    `validation_where` (V, 2)), also those of `session_statistics`; where their carrier offsets are given too
    (`carrier_hz` (N,), `validation_carrier_hz` (V,)), those of `carrier_statistics`.
    """
    z, y = torch.as_tensor(embedding).double(), torch.as_tensor(label).long()
    held, logits, truth = (torch.as_tensor(a) for a in (validation, validation_logits, validation_label))
    classes = logits.shape[1]
    count = torch.bincount(y, minlength=classes)
    total = torch.zeros(classes, z.shape[1], dtype=z.dtype).index_add_(0, y, z)
    means = total / count.clamp_min(1)[:, None]
    within = z - means[y]
    banked, some = _evenly(y, BANK), _evenly(truth, VALIDATION)
    sessions = {}
    if where is not None and validation_where is not None:
        held_where = torch.as_tensor(validation_where)[some]
        sessions = session_statistics(z, y, torch.as_tensor(where), truth[some], held_where)
        if carrier_hz is not None and validation_carrier_hz is not None:
            sessions |= carrier_statistics(torch.as_tensor(carrier_hz), y, torch.as_tensor(where))
            sessions["validation_carrier_hz"] = torch.as_tensor(validation_carrier_hz)[some].double()
    return {
        "class_mean": means.float(),
        "prior": (count / count.sum()).float(),
        "covariance": (within.T @ within / len(z)).float(),
        "bank": z[banked].float(),
        "bank_label": y[banked],
        "validation": held[some].float(),
        "validation_logits": logits[some].float(),
        "validation_label": truth[some].long(),
        **sessions,
    }


def session_statistics(
    embedding: Tensor, label: Tensor, where: Tensor, validation_label: Tensor, validation_where: Tensor
) -> dict[str, Tensor]:
    """What a session is like: the training frames (N, D) of one class in one capture of one environment.

    session_mean m_s (S, D); session_label, session_place, session_capture and session_frames (S,); session_covariance
    (D, D) within sessions, Σ_i (z_i − m_{s_i})(z_i − m_{s_i})ᵀ / (N − S); validation_session (V,), −1 for frames of
    none.
    """
    z = embedding.double()
    others = torch.column_stack((validation_label, validation_where)).long()
    session, index, count = _sessions(label, where)
    means = torch.zeros(len(session), z.shape[1], dtype=z.dtype).index_add_(0, index, z) / count[:, None]
    within = z - means[index]
    _, code = torch.unique(torch.cat([session, others]), dim=0, return_inverse=True)
    number = torch.full((len(code),), -1).scatter_(0, code[: len(session)], torch.arange(len(session)))
    return {
        "session_mean": means.float(),
        "session_label": session[:, 0],
        "session_place": session[:, 1],
        "session_capture": session[:, 2],
        "session_frames": count,
        "session_covariance": (within.T @ within / max(1, len(z) - len(session))).float(),
        "validation_session": number[code[len(session) :]],
    }


def carrier_statistics(carrier_hz: Tensor, label: Tensor, where: Tensor) -> dict[str, Tensor]:
    """session_carrier_hz c_s (S,) of the sessions of `session_statistics`; carrier_variance_hz2 (),
    Σ_i (c_i − c_{s_i})² / (N − S)."""
    session, index, count = _sessions(label, where)
    c = carrier_hz.double()
    means = torch.zeros(len(session), dtype=c.dtype).index_add_(0, index, c) / count
    variance = (c - means[index]).square().sum() / max(1, len(c) - len(session))
    return {"session_carrier_hz": means, "carrier_variance_hz2": variance}


def _sessions(label: Tensor, where: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(S, 3) class, environment and capture of each session; (N,) that of each frame; (S,) how many frames it has."""
    kinds = torch.column_stack((label, where)).long()
    found: tuple[Tensor, Tensor, Tensor] = torch.unique(kinds, dim=0, return_inverse=True, return_counts=True)
    return found


def _evenly(label: Tensor, most: int) -> Tensor:
    """Positions of at most `most` frames of each class, evenly over the frames of that class."""
    y = label.numpy()
    classes = [np.flatnonzero(y == k) for k in np.unique(y)]
    return torch.from_numpy(np.concatenate([own[evenly(len(own), most)] for own in classes]))


def evenly(frames: int, most: int) -> NDArray[np.int64]:
    """Positions of at most `most` frames, evenly spread over all."""
    count = min(most, frames)
    return np.arange(count) * frames // count
