"""LAME: Laplacian adjusted maximum-likelihood estimation.

M. Boudiaf, R. Mueller, I. Ben Ayed and L. Bertinetto. Parameter-free online test-time adaptation. CVPR 2022.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pisa_capc.decide.calibration.base import check_range, register_calibration
from pisa_capc.decide.calibration.peers.base import Peer, Transduced
from pisa_capc.decide.calibration.peers.neighbours import nearest_neighbours
from pisa_capc.model.inference.statistics import SourceStatistics


@register_calibration("lame")
@dataclass(frozen=True)
class LAME(Peer):
    r"""Nearby frames should agree, and no frame should leave its softmax without reason.

    Minimises :math:`\sum_i \mathrm{KL}(y_i \| p_i) - \sum_{ij} w_{ij} y_i^\top y_j` by

    .. math:: y_i \leftarrow \mathrm{softmax}(\log p_i + \sum_j w_{ij} y_j),

    w_ij = 1 for the `neighbours` nearest frames. Needs no source statistics.
    """

    title = "LAME"

    neighbours: int = 5  # that a frame should agree with
    iterations: int = 100  # at most
    tolerance: float = 1e-6  # change at which it ends

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, neighbours=(0, float("inf")), iterations=(0, float("inf")), tolerance=(0, 1))

    def transduce(self, embedding: Tensor, logits: Tensor, source: SourceStatistics) -> Transduced:
        index, _ = nearest_neighbours(embedding, self.neighbours)
        log_p = torch.log_softmax(logits, dim=1)
        score, assigned = log_p, log_p.exp()
        for _ in range(self.iterations):
            score = log_p + assigned[index].sum(dim=1)
            updated = torch.softmax(score, dim=1)
            moved = (updated - assigned).abs().max()
            assigned = updated
            if moved <= self.tolerance:
                break
        return Transduced(score, assigned)
