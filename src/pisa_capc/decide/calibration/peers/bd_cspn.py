"""BD-CSPN: bias diminishing, cosine similarity based prototypes.

J. Liu, L. Song and Y. Qin. Prototype rectification for few-shot learning. ECCV 2020.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pisa_capc.decide.calibration.base import check_range, register_calibration
from pisa_capc.decide.calibration.peers.base import Peer, Transduced, class_anchors
from pisa_capc.decide.calibration.vectors import unit
from pisa_capc.model.inference.statistics import SourceStatistics


@register_calibration("bd-cspn")
@dataclass(frozen=True)
class BDCSPN(Peer):
    """Moves the target onto the source, then lets confident frames correct the prototypes.

    Frames are shifted by ξ = mean(source) − mean(target). Each is given to the nearest source prototype P_k by cosine;
    the new prototype is the mean of P_k and its frames x, weighted by exp(ε cos(x, P_k)). The score is ε cos(x, P'_k).

    Needs `class_mean` (or else `weight`) for P_k, and `mean` for ξ; without `mean` the mean of the P_k, weighted by
    `prior` where given, stands in.
    """

    title = "BD-CSPN"

    sharpness: float = 10.0  # ε

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, sharpness=(1e-9, 1e9))

    def transduce(self, embedding: Tensor, logits: Tensor, source: SourceStatistics) -> Transduced:
        classes = logits.shape[1]
        anchors = class_anchors(source, classes, embedding, self.title)
        mean = source.tensor("mean", (embedding.shape[1],), embedding)
        if mean is None:
            prior = source.tensor("prior", (classes,), embedding)
            mean = anchors.mean(dim=0) if prior is None else prior / prior.sum() @ anchors
        shifted, basic = unit(embedding + domain_shift(embedding, mean)), unit(anchors)
        cosine = shifted @ basic.T
        own = torch.nn.functional.one_hot(cosine.argmax(dim=1), classes)
        # P_k is its own frame with cosine one, hence the weight one after scaling all weights by exp(−ε).
        weight = own * (self.sharpness * (cosine - 1)).exp()
        rectified = unit((basic + weight.T @ shifted) / (1 + weight.sum(dim=0)).unsqueeze(1))
        score = self.sharpness * shifted @ rectified.T
        return Transduced(score, torch.softmax(score, dim=1))


def domain_shift(embedding: Tensor, source_mean: Tensor) -> Tensor:
    """ξ = mean(source) − mean(target), (D,)."""
    return source_mean - embedding.mean(dim=0)
