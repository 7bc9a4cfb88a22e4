"""StatA-style transduction: TransCLIP whose statistics stay anchored to the source.

M. Zanella, C. Fuchs, C. De Vleeschouwer and I. Ben Ayed. Realistic test-time adaptation of vision-language models.
CVPR 2025.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from pisa_capc.decide.calibration.base import check_range, register_calibration
from pisa_capc.decide.calibration.peers.base import class_anchors
from pisa_capc.decide.calibration.peers.pt_map import means_of
from pisa_capc.decide.calibration.peers.transclip import TransCLIP
from pisa_capc.decide.calibration.vectors import unit
from pisa_capc.model.inference.statistics import SourceStatistics


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
