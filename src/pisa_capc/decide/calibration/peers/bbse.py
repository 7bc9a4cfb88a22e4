"""BBSE: black box shift estimation.

Z. Lipton, Y.-X. Wang and A. Smola. Detecting and correcting for label shift with black box predictors. ICML 2018.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pisa_capc.core.errors import DataError
from pisa_capc.decide.calibration.base import register_calibration, require
from pisa_capc.decide.calibration.peers.base import Peer, Transduced
from pisa_capc.model.inference.statistics import SMALLEST_PRIOR, SourceStatistics, source_posterior


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
