"""Linear discriminant analysis: another head in the place of the trained one, and the space that it decides in.

R. A. Fisher. The use of multiple measurements in taxonomic problems. Annals of Eugenics 7(2), 1936.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from pisa_capc.decide.calibration.base import register_calibration, require
from pisa_capc.decide.calibration.peers.base import Peer, Transduced
from pisa_capc.model.inference.statistics import SourceStatistics

SHRINKAGE = 0.1  # of the within-class covariance towards a multiple of the identity
SMALLEST = 1e-12


class Space(NamedTuple):
    """The LDA space of the source. project (D, d): whitening within classes, then the axes on which classes differ."""

    project: Tensor
    means: Tensor  # (C, d)
    distance: float  # of two class means, on average

    @classmethod
    def of(cls, source: SourceStatistics, classes: int, like: Tensor, user: str) -> Space:
        size = like.shape[1]
        means = require(source, "class_mean", (classes, size), like, user)
        within = require(source, "covariance", (size, size), like, user)
        level = within.diagonal().mean().clamp_min(SMALLEST)
        shrunk = (1 - SHRINKAGE) * within + SHRINKAGE * level * torch.eye(size, dtype=like.dtype, device=like.device)
        whiten = torch.linalg.inv(torch.linalg.cholesky(shrunk)).T  # (D, D): zᵀ whiten has unit covariance
        white = means @ whiten
        axes = torch.linalg.svd(white - white.mean(dim=0), full_matrices=False).Vh[: max(1, classes - 1)].T
        own = white @ axes
        return cls(whiten @ axes, own, float(torch.pdist(own).mean()) if classes > 1 else 1.0)


@register_calibration("lda")
@dataclass(frozen=True)
class LDA(Peer):
    """The nearest class mean in the LDA space: score −‖u − m_k‖² / 2. Every frame is decided by itself.

    Needs `class_mean` and `covariance`.
    """

    title = "LDA head"

    def transduce(self, embedding: Tensor, logits: Tensor, source: SourceStatistics) -> Transduced:
        space = Space.of(source, logits.shape[1], embedding, self.title)
        score = -torch.cdist(embedding @ space.project, space.means).square() / 2
        return Transduced(score, torch.softmax(score, dim=1))
