"""PT-MAP: power transform and maximum a posteriori by optimal transport.

Y. Hu, V. Gripon and S. Pateux. Leveraging the feature distribution in transfer-based few-shot learning. ICANN 2021.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pisa_capc.decide.calibration.base import check_range, register_calibration
from pisa_capc.decide.calibration.peers.base import Direct, Peer, Transduced
from pisa_capc.decide.calibration.sinkhorn import balanced_assignment
from pisa_capc.decide.calibration.vectors import unit
from pisa_capc.model.inference.statistics import SourceStatistics


@register_calibration("pt-map")
@dataclass(frozen=True)
class PTMAP(Peer):
    """Alternates a balanced transport to class centres and a step of the centres towards what they were given.

    Features become sign(z)|z|^β at unit length. Each round: M = B(−λ‖z − c‖²) with equal class mass, then
    c_k ← c_k + α (Σ_i M_ik z_i / Σ_i M_ik − c_k). The published method starts at labelled support means; here centres
    start at the softmax-weighted means of the frames. Needs no source statistics.
    """

    title = "PT-MAP"

    power: float = 0.5  # β
    sharpness: float = 10.0  # λ
    step: float = 0.2  # α
    rounds: int = 20  # of transport and step
    sinkhorn_iterations: int = 100  # of a transport

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, power=(1e-3, 10), sharpness=(1e-9, 1e9), step=(0, 1))
        check_range(self, rounds=(0, float("inf")), sinkhorn_iterations=(1, float("inf")))

    def without_balance(self) -> Direct:
        return Direct(group=self.group)

    def transduce(self, embedding: Tensor, logits: Tensor, source: SourceStatistics) -> Transduced:
        features = unit(embedding.sign() * embedding.abs().pow(self.power))
        centres = weighted_means(torch.softmax(logits, dim=1), features)
        for _ in range(self.rounds):
            plan = balanced_assignment(self._score(features, centres), self.sinkhorn_iterations)
            centres = centres + self.step * (weighted_means(plan, features) - centres)
        score = self._score(features, centres)
        return Transduced(score, balanced_assignment(score, self.sinkhorn_iterations))

    def _score(self, features: Tensor, centres: Tensor) -> Tensor:
        return -self.sharpness * torch.cdist(features, centres).square()


def weighted_means(weights: Tensor, features: Tensor) -> Tensor:
    """Σ_i w_ik z_i / Σ_i w_ik: weights (n, C), features (n, D) → (C, D)."""
    return means_of(weights.T @ features, weights.sum(dim=0))


def means_of(sums: Tensor, mass: Tensor) -> Tensor:
    """Sums (C, D) by their mass (C,); zero where there is none."""
    return sums / mass.clamp(min=torch.finfo(mass.dtype).tiny).unsqueeze(1)
