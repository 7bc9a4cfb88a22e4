"""MLLS: maximum likelihood label shift by expectation maximisation.

M. Saerens, P. Latinne and C. Decaestecker. Adjusting the outputs of a classifier to new a priori probabilities: a
simple procedure. Neural Computation 14(1), 2002. Why to calibrate first: A. Alexandari, A. Kundaje and A. Shrikumar.
Maximum likelihood with bias-corrected calibration is hard-to-beat at label shift adaptation. ICML 2020.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pisa_capc.decide.calibration.base import check_range, register_calibration
from pisa_capc.decide.calibration.peers.base import Peer, Transduced
from pisa_capc.model.inference.statistics import SMALLEST_PRIOR, SourceStatistics, source_posterior, source_prior


@register_calibration("mlls")
@dataclass(frozen=True)
class MLLS(Peer):
    """Estimates the target's class frequencies π and corrects the posteriors for them.

    p_ik ∝ p^s_ik π_k / π^s_k, π ← mean_i p_i, from π = π^s until π moves less than `tolerance`.

    Uses `temperature` (without it the posteriors are taken as calibrated) and `prior` (without it equal frequencies).
    """

    title = "MLLS"

    iterations: int = 100  # at most
    tolerance: float = 1e-6  # change of π at which it ends

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, iterations=(0, float("inf")), tolerance=(0, 1))

    def transduce(self, embedding: Tensor, logits: Tensor, source: SourceStatistics) -> Transduced:
        log_p = source_posterior(logits, source)
        log_prior = source_prior(logits, source).log()
        target = log_prior.exp()
        score = log_p
        for _ in range(self.iterations):
            score = log_p + target.clamp(min=SMALLEST_PRIOR).log() - log_prior
            updated = torch.softmax(score, dim=1).mean(dim=0)
            moved = (updated - target).abs().max()
            target = updated
            if moved <= self.tolerance:
                break
        return Transduced(score, torch.softmax(score, dim=1))
