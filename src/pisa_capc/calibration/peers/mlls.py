"""MLLS: maximum likelihood label shift by expectation maximisation.

M. Saerens, P. Latinne and C. Decaestecker. Adjusting the outputs of a classifier to new a priori probabilities: a
simple procedure. Neural Computation 14(1), 2002. Why to calibrate first: A. Alexandari, A. Kundaje and A. Shrikumar.
Maximum likelihood with bias-corrected calibration is hard-to-beat at label shift adaptation. ICML 2020.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pisa_capc.calibration.peers.base import Peer, Transduced, check_range
from pisa_capc.calibration.source import SourceStatistics

SMALLEST_PRIOR = 1e-12


@dataclass(frozen=True)
class MLLS(Peer):
    """Estimates the target's class frequencies π and corrects the posteriors for them.

    p_ik ∝ p^s_ik π_k / π^s_k, π ← mean_i p_i, from π = π^s until π moves less than `tolerance`.

    Uses `temperature` (without it the posteriors are taken as calibrated) and `prior` (without it equal frequencies).
    """

    iterations: int = 100
    tolerance: float = 1e-6

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


def source_posterior(logits: Tensor, source: SourceStatistics) -> Tensor:
    """log p^s (n, C): the log-softmax of the logits at the source's temperature."""
    temperature = source.tensor("temperature", (), logits)
    return torch.log_softmax(logits if temperature is None else logits / temperature, dim=1)


def source_prior(logits: Tensor, source: SourceStatistics) -> Tensor:
    """π^s (C,), equal frequencies where it is not known."""
    classes = logits.shape[1]
    prior = source.tensor("prior", (classes,), logits)
    prior = logits.new_ones(classes) if prior is None else prior.clamp(min=SMALLEST_PRIOR)
    return prior / prior.sum()
