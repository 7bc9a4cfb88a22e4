"""Direct inference: the source classifier as it is, the baseline of every comparison."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pisa_capc.decide.calibration.base import register_calibration
from pisa_capc.decide.calibration.peers.base import Peer, Transduced
from pisa_capc.model.inference.statistics import SourceStatistics


@register_calibration("direct")
@dataclass(frozen=True)
class Direct(Peer):
    """p = softmax(ℓ). Needs no source statistics."""

    title = "direct"

    def transduce(self, embedding: Tensor, logits: Tensor, source: SourceStatistics) -> Transduced:
        return Transduced(logits, torch.softmax(logits, dim=1))
