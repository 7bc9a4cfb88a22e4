r"""Unknown devices, relative to how far known devices move between places; n frames of a sender as one.

A session are the frames of one device in one capture of one place. Around the mean m_s of its session a frame is spread
by W, and the sessions of a device are spread around its mean by S (the two-covariance model of speaker recognition:
Brümmer and de Villiers, Odyssey 2010). The mean z̄ of n frames that a known device sends in a new session is then off
each it was heard in by λS + W/n, λ = 2 where new places are as far off as known ones are from each other, and

    u = min_s (z̄ − m_s)ᵀ (λS + W/n)⁻¹ (z̄ − m_s)

along the C − 1 axes on which the means of the C classes differ, once they are whitened by λS + W/n. Noise goes with n,
being elsewhere does not, and being another device neither. Where the model is right u has one distribution for every n,
so that one threshold serves frames and senders alike.

The threshold is the conformal one for validation frames that are scored without the sessions of their own place: what a
known device is like where it was never heard. It is of all devices together; α is not promised to each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pisa_capc.core.errors import DataError
from pisa_capc.decide.calibration.base import check_range, require
from pisa_capc.decide.calibration.openset.scores import (
    ScoreFunction,
    ScoreLimit,
    Seen,
    UnknownScore,
    blocks,
    register_rejection,
    require_rows,
    single,
    validation_frames,
)
from pisa_capc.decide.calibration.openset.thresholds import conformal_threshold
from pisa_capc.model.inference.statistics import SourceStatistics

SHRINKAGE = 0.1  # of W towards a multiple of the identity
FLOOR = 0.003  # the same of λS + W/n, which is singular where sessions are few and frames many
SMALLEST = 1e-12
USER = "session"

Distances: TypeAlias = Callable[[Seen], Tensor]


class Sessions(NamedTuple):
    """Sessions of the source. means (S, D), label and place (S,); spread W and moves S, both (D, D)."""

    means: Tensor
    label: Tensor
    place: Tensor
    spread: Tensor
    moves: Tensor

    @classmethod
    def of(cls, source: SourceStatistics, like: Tensor) -> Sessions:
        size = like.shape[1]
        if source.session_mean is None or not np.size(source.session_mean):
            raise DataError(
                "session needs source_session_mean, what devices are like in each place and capture, which is not with "
                "these scores: an earlier version trained the model. Train the model again, or choose another score, "
                "as knn."
            )
        means = require_rows(source, "session_mean", size, like, USER)
        label, place, frames = (
            require(source, f"session_{name}", (len(means),), like, USER) for name in ("label", "place", "frames")
        )
        spread = shrunk(require(source, "session_covariance", (size, size), like, USER), SHRINKAGE)
        return cls(means, label, place, spread, between_sessions(means, label, frames, spread))

    def project(self, frames: float, moved: float) -> Tensor:
        """(D, C − 1) onto the axes on which classes differ, whitened by λS + W/n."""
        within = shrunk(moved * self.moves + self.spread / frames, FLOOR)
        whiten = torch.linalg.inv(torch.linalg.cholesky(within)).T
        white = class_means(self.means, self.label)[0] @ whiten
        axes = torch.linalg.svd(white - white.mean(dim=0), full_matrices=False).Vh[: max(1, len(white) - 1)]
        return whiten @ axes.T


def between_sessions(means: Tensor, label: Tensor, frames: Tensor, spread: Tensor) -> Tensor:
    """S (D, D): the spread of the means (S, D) of sessions around their class's, less the noise that means have."""
    centres, index = class_means(means, label)
    off = means - centres[index]
    scatter = off.T @ off / max(1, len(means) - len(centres))
    return positive(scatter - spread * (1 / frames.clamp_min(1)).mean())


def class_means(means: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """(C', D) mean of the sessions of each class that has some, and (S,) the place of each session's among them."""
    kinds, index, count = torch.unique(label, return_inverse=True, return_counts=True)
    total = torch.zeros(len(kinds), means.shape[1], dtype=means.dtype, device=means.device)
    return total.index_add_(0, index, means) / count[:, None], index


def positive(matrix: Tensor) -> Tensor:
    """The nearest symmetric matrix without negative variances."""
    variance, axes = torch.linalg.eigh((matrix + matrix.T) / 2)
    return (axes * variance.clamp_min(0)) @ axes.T


def shrunk(covariance: Tensor, share: float) -> Tensor:
    """(1 − a) Σ + a tr(Σ)/D I, symmetric."""
    level = covariance.diagonal().mean().clamp_min(SMALLEST)
    eye = torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
    return (1 - share) * (covariance + covariance.T) / 2 + share * level * eye


@register_rejection("session")
@dataclass(frozen=True)
class SessionDistance(UnknownScore):
    """u = min_s (z̄ − m_s)ᵀ (λS + W/n)⁻¹ (z̄ − m_s), as the module has it.

    Needs `session_mean`, `session_label`, `session_place`, `session_frames` and `session_covariance`; for the threshold
    `validation`, `validation_logits`, `validation_label` and `validation_session`.
    """

    moved: float = 3.0  # λ; chosen on source environments: studies/strangers.py

    def __post_init__(self) -> None:
        check_range(self, moved=(0.0, 1e6))

    def distances(self, source: SourceStatistics, like: Tensor) -> Distances:
        """Squared distances (N, S) of what is seen to every session."""
        sessions = Sessions.of(source, like)
        projections: dict[float, tuple[Tensor, Tensor]] = {}

        def of_means(embedding: Tensor, n: float) -> Tensor:
            if n not in projections:
                project = sessions.project(n, self.moved)
                projections[n] = project, sessions.means @ project
            project, centres = projections[n]
            return torch.cdist(embedding @ project, centres).square()

        def squared(seen: Seen) -> Tensor:
            counts = set(seen.frames.tolist())
            if len(counts) == 1:
                return of_means(seen.embedding, counts.pop())
            found = seen.embedding.new_empty(len(seen.embedding), len(sessions.means))
            for n in counts:
                rows = seen.frames == n
                found[rows] = of_means(seen.embedding[rows], n)
            return found

        return squared

    def fit(self, source: SourceStatistics, classes: int, like: Tensor) -> ScoreFunction:
        squared = self.distances(source, like)
        return lambda seen: squared(seen).amin(dim=1)

    def limit(self, source: SourceStatistics, classes: int, like: Tensor, alpha: float) -> ScoreLimit:
        """The conformal threshold at `alpha` of frames in a place where no device was heard before.

        With one place captures stand in for places; with one capture it is that of the place itself, and nothing is
        promised elsewhere.
        """
        score = self.without_own_place(source, classes, like)
        return ScoreLimit(conformal_threshold(score, np.zeros(len(score)), alpha, [0]), score)

    def held_out(self, source: SourceStatistics, seen: Seen, session: Tensor) -> Seen:
        """What is to be scored of validation frames of these sessions (V,)."""
        return seen

    def without_own_place(self, source: SourceStatistics, classes: int, like: Tensor) -> NDArray[np.float64]:
        """(V,) scores of validation frames without the sessions of their own place, where their device has others."""
        sessions = Sessions.of(source, like)
        features, logits, label = validation_frames(source, classes, like)
        own = require(source, "validation_session", (len(features),), like, USER).long()
        if len(own) and not -1 <= int(own.min()) <= int(own.max()) < len(sessions.means):
            raise DataError(
                f"source_validation_session names session {int(own.max())} of {len(sessions.means)}; expected their "
                "numbers from 0 on, or -1 for none."
            )
        place = sessions.place
        if len(torch.unique(place)) == 1:
            place = torch.arange(len(place), device=place.device)
        squared = self.distances(source, like)
        kind = torch.as_tensor(label, device=like.device)
        carriers = None
        if self.needs_carrier:
            carriers = require(source, "validation_carrier_hz", (len(features),), like, USER)
        seen = self.held_out(source, single(features, logits, carriers), own)

        def nearest(rows: slice) -> Tensor:
            here = (place[own[rows].clamp_min(0), None] == place) & (own[rows] >= 0)[:, None]
            others = ((kind[rows, None] == sessions.label) & ~here).any(dim=1, keepdim=True)
            return squared(seen.select(rows)).masked_fill(here & others, torch.inf).amin(dim=1)

        found: NDArray[np.float64] = torch.cat([nearest(rows) for rows in blocks(len(features))]).cpu().numpy()
        return found
