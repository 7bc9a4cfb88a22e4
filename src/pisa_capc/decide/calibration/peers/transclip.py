"""TransCLIP-style transduction: a Gaussian mixture of the frames, tied to the classifier and to neighbours; and StatA,
whose statistics stay anchored to the source.

TransCLIP: M. Zanella, B. Gérin and I. Ben Ayed. Boosting vision-language models with transduction. NeurIPS 2024.
StatA: M. Zanella, C. Fuchs, C. De Vleeschouwer and I. Ben Ayed. Realistic test-time adaptation of vision-language
models. CVPR 2025.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pisa_capc.decide.calibration.base import check_range, register_calibration
from pisa_capc.decide.calibration.peers.base import Peer, Transduced, class_anchors
from pisa_capc.decide.calibration.peers.graph import nearest_neighbours
from pisa_capc.decide.calibration.peers.pt_map import means_of
from pisa_capc.decide.calibration.vectors import softmax_rows, unit
from pisa_capc.model.inference.statistics import SourceStatistics

_SMALLEST_VARIANCE = 1e-6


@register_calibration("transclip")
@dataclass(frozen=True)
class TransCLIP(Peer):
    r"""Block-wise updates of assignments y, class means μ and one shared diagonal variance σ².

    .. math:: y_{ik} \propto \hat p_{ik} \exp(\log \mathcal{N}(z_i; \mu_k, \sigma^2) + \textstyle\sum_j w_{ij} y_{jk}),

    p̂ = softmax(ℓ), w_ij = max(cos, 0) for the `neighbours` nearest frames, z at unit length; then μ and σ² are the
    moments under y. The published method starts at text embeddings; here it starts at the moments under p̂. Needs no
    source statistics.
    """

    title = "TransCLIP"

    neighbours: int = 3  # that a frame should agree with
    rounds: int = 10  # of all updates
    assignment_steps: int = 5  # of y in a round

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, neighbours=(0, float("inf")), rounds=(1, float("inf")), assignment_steps=(1, float("inf")))

    def transduce(self, embedding: Tensor, logits: Tensor, source: SourceStatistics) -> Transduced:
        features, anchors = unit(embedding), self.anchors(embedding, logits, source)
        index, cosine = nearest_neighbours(embedding, self.neighbours)
        near = list(zip(index.T.contiguous(), cosine.clamp(min=0).T.unsqueeze(2).contiguous(), strict=True))
        log_p = torch.log_softmax(logits, dim=1)
        score, assigned = log_p, log_p.exp()
        squares, sums, mass = features.square().sum(dim=0), assigned.T @ features, assigned.sum(dim=0)
        means = self.means(sums, mass, anchors)
        for _ in range(self.rounds):
            variance = shared_variance(squares, sums, mass, means, len(features))
            evidence = log_p + log_likelihood(features, means, variance)
            for _ in range(self.assignment_steps):
                score = evidence
                for other, affinity in near:  # one after the other: a third of what indexing all at once takes
                    score = torch.addcmul(score, affinity, assigned.index_select(0, other))
                assigned = softmax_rows(score)
            sums, mass = assigned.T @ features, assigned.sum(dim=0)
            means = self.means(sums, mass, anchors)
        return Transduced(score, assigned, means)

    def anchors(self, embedding: Tensor, logits: Tensor, source: SourceStatistics) -> Tensor | None:
        """(C, D) of the source that the means are held to; none."""
        return None

    def means(self, sums: Tensor, mass: Tensor, anchors: Tensor | None) -> Tensor:
        """μ (C, D) of classes that were assigned frames with these sums (C, D), so many of each (C,)."""
        return means_of(sums, mass)


def shared_variance(squares: Tensor, sums: Tensor, mass: Tensor, means: Tensor, frames: int) -> Tensor:
    """σ² (D,) = Σ_ik y_ik (z_i − μ_k)² / n, expanded: squares (D,) = Σ_i z_i², sums (C, D) = Σ_i y_ik z_i."""
    spread = squares - 2 * (means * sums).sum(dim=0) + mass @ means.square()
    return (spread / frames).clamp(min=_SMALLEST_VARIANCE)


def log_likelihood(features: Tensor, means: Tensor, variance: Tensor) -> Tensor:
    """log N(z_i; μ_k, diag σ²) without what all classes share, (n, C)."""
    return features @ (means / variance).T - 0.5 * (means.square() / variance).sum(dim=1)


@register_calibration("stata")
@dataclass(frozen=True)
class StatA(TransCLIP):
    """μ_k = β_k · (mean of its frames) + (1 − β_k) · source, β_k = n_k / (n_k + α), n_k the frames assigned to k.

    A class that few frames claim keeps its source statistic, so absent classes do no harm. Needs `class_mean` (or else
    `weight`) as the source anchor; both are used at unit length.
    """

    title = "StatA"

    anchor: float = 1.0  # α

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, anchor=(0, float("inf")))

    def anchors(self, embedding: Tensor, logits: Tensor, source: SourceStatistics) -> Tensor:
        return unit(class_anchors(source, logits.shape[1], embedding, self.title))

    def means(self, sums: Tensor, mass: Tensor, anchors: Tensor | None) -> Tensor:
        assert anchors is not None
        trust = source_trust(mass, self.anchor).unsqueeze(1)
        return (1 - trust) * means_of(sums, mass) + trust * anchors


def source_trust(mass: Tensor, anchor: float) -> Tensor:
    """1 − β_k = α / (n_k + α), one for an infinite anchor."""
    return 1 / (1 + mass / anchor) if anchor > 0 else mass * 0.0
