"""What a calibration may know about the source: small statistics and a few embeddings, never source frames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from pisa_capc.errors import DataError

PREFIX = "source_"
SMALLEST_PRIOR = 1e-12


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
    validation: np.ndarray | None = None  # (V, D) embeddings of some validation frames of each class
    validation_logits: np.ndarray | None = None  # (V, C) their logits
    validation_label: np.ndarray | None = None  # (V,) their classes
    guard: np.ndarray | None = None  # (3,) thresholds of the guard; see `guard.Guard`

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> SourceStatistics:
        """The statistics among named arrays, by their prefix; other names are ignored."""
        return cls(**{f.name: arrays[PREFIX + f.name] for f in fields(cls) if PREFIX + f.name in arrays})

    def tensor(self, name: str, shape: tuple[int, ...], like: Tensor) -> Tensor | None:
        """A statistic as float64 beside `like`, checked for its shape; none where it is not known."""
        value = getattr(self, name)
        if value is None:
            return None
        if np.asarray(value).dtype.kind not in "biuf":
            raise DataError(f"{PREFIX}{name} holds {np.asarray(value).dtype}; expected numbers.")
        values = torch.as_tensor(np.asarray(value, dtype=np.float64), device=like.device)
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
