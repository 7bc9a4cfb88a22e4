"""T3A: test-time template adjuster.

Y. Iwasawa and Y. Matsuo. Test-time classifier adjustment module for model-agnostic domain generalization. NeurIPS 2021.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pisa_capc.decide.calibration.base import check_range, register_calibration, require
from pisa_capc.decide.calibration.peers.base import Peer, Transduced
from pisa_capc.decide.calibration.vectors import unit
from pisa_capc.model.inference.statistics import SourceStatistics


@register_calibration("t3a")
@dataclass(frozen=True)
class T3A(Peer):
    """Replaces the classifier's rows by means of confident embeddings.

    The supports of class k are the classifier's row ω_k and the frames decided as k, each at unit length; the
    `supports` of lowest entropy are kept (0 keeps all). With c_k the unit-length mean of what is kept, the score is
    z·c_k. All frames enter before any is decided, so the order of frames does not matter.

    Needs the classifier's rows (`weight`, and `bias` where it has one) to know the entropy of the rows themselves.
    """

    title = "T3A"

    supports: int = 100  # frames kept of a class; 0 keeps all

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, supports=(0, float("inf")))

    def transduce(self, embedding: Tensor, logits: Tensor, source: SourceStatistics) -> Transduced:
        classes = logits.shape[1]
        weight = require(source, "weight", (classes, embedding.shape[1]), embedding, self.title)
        bias = source.tensor("bias", (classes,), embedding)
        of_rows = weight @ weight.T + (0.0 if bias is None else bias)
        scores = torch.cat((of_rows, logits))
        label = scores.argmax(dim=1)
        entropy = torch.special.entr(torch.softmax(scores, dim=1)).sum(dim=1)
        templates = template_means(unit(torch.cat((weight, embedding))), label, entropy, classes, self.supports)
        score = embedding @ templates.T
        return Transduced(score, torch.softmax(score, dim=1), templates)


def template_means(supports: Tensor, label: Tensor, entropy: Tensor, classes: int, keep: int) -> Tensor:
    """c_k (C, D): unit-length mean of the `keep` supports of lowest entropy with label k (all for 0)."""
    certain = torch.argsort(entropy, stable=True)
    means = supports.new_zeros(classes, supports.shape[1])
    for k in range(classes):
        chosen = certain[label[certain] == k]
        means[k] = supports[chosen[:keep] if keep else chosen].sum(dim=0)
    return unit(means)
