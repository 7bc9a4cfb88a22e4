"""Calibrations that take frames for the source's with other class frequencies: MLLS and BBSE.

MLLS (maximum likelihood label shift by expectation maximisation): M. Saerens, P. Latinne and C. Decaestecker. Adjusting
the outputs of a classifier to new a priori probabilities: a simple procedure. Neural Computation 14(1), 2002. Why to
calibrate first: A. Alexandari, A. Kundaje and A. Shrikumar. Maximum likelihood with bias-corrected calibration is
hard-to-beat at label shift adaptation. ICML 2020.
BBSE (black box shift estimation): Z. Lipton, Y.-X. Wang and A. Smola. Detecting and correcting for label shift with
black box predictors. ICML 2018.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pisa_capc.core.errors import DataError
from pisa_capc.decide.calibration.base import check_range, register_calibration, require
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


@register_calibration("bbse")
@dataclass(frozen=True)
class BBSE(Peer):
    """Estimates class weights w = π/π^s from how often each class is decided, and corrects the posteriors.

    With the source's joint confusion C_jk = P(decided j, class k) and the target's decision frequencies μ̂_j:
    w = C⁻¹ μ̂, clipped at zero (least squares where C has no inverse); p_ik ∝ p^s_ik w_k.

    Needs `confusion` (counts or frequencies); uses `temperature` for the posteriors where given.
    """

    title = "BBSE"

    def transduce(self, embedding: Tensor, logits: Tensor, source: SourceStatistics) -> Transduced:
        classes = logits.shape[1]
        confusion = require(source, "confusion", (classes, classes), logits, self.title)
        weights = label_shift_weights(confusion, logits.argmax(dim=1))
        score = source_posterior(logits, source) + weights.clamp(min=SMALLEST_PRIOR).log()
        return Transduced(score, torch.softmax(score, dim=1))


def label_shift_weights(confusion: Tensor, decision: Tensor) -> Tensor:
    """w (C,) from a confusion matrix [decided, class] and the decisions (n,) on the target."""
    total = confusion.sum()
    if total <= 0 or (confusion < 0).any():
        raise DataError("source_confusion holds no validation frames or negative counts; expected counts of frames.")
    decided = torch.bincount(decision, minlength=len(confusion)).to(confusion.dtype) / len(decision)
    return (torch.linalg.pinv(confusion / total) @ decided).clamp(min=0)
