"""Calibrations by which near frames agree: LAME, and label propagation over the nearest-neighbour graph.

LAME: M. Boudiaf, R. Mueller, I. Ben Ayed and L. Bertinetto. Parameter-free online test-time adaptation. CVPR 2022.
Label propagation: D. Zhou et al. Learning with local and global consistency. NeurIPS 2003. Graph and defaults:
V. Stojnić, Y. Kalantidis and G. Tolias. Label propagation for zero-shot classification with vision-language models
(ZLaP). CVPR 2024.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pisa_capc.decide.calibration.base import check_range, register_calibration
from pisa_capc.decide.calibration.peers.base import Peer, Transduced
from pisa_capc.decide.calibration.vectors import unit
from pisa_capc.model.inference.statistics import SourceStatistics

_ELEMENTS = 2**24


def nearest_neighbours(embedding: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Row numbers and cosines (n, k) of the k nearest other frames, k = min(count, n − 1).

    Similarities are made for some rows at a time, never as an n × n matrix. The search runs in float32: only frames
    whose cosines agree to seven digits could change places.
    """
    frames = len(embedding)
    count = min(count, frames - 1)
    directions = unit(embedding).float()
    index, cosine = [], []
    step = max(1, _ELEMENTS // frames)
    for start in range(0, frames, step):
        similarity = directions[start : start + step] @ directions.T
        own = torch.arange(len(similarity), device=embedding.device)
        similarity[own, start + own] = -torch.inf
        found = similarity.topk(count, dim=1)
        index.append(found.indices)
        cosine.append(found.values.to(embedding.dtype))
    return torch.cat(index), torch.cat(cosine)


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


@register_calibration("label-propagation")
@dataclass(frozen=True)
class LabelPropagation(Peer):
    r"""Spreads the classifier's probabilities over the graph.

    .. math:: F = (1-\alpha)(I - \alpha S)^{-1} Y, \qquad S = D^{-1/2}(A + A^\top)D^{-1/2},

    Y = softmax(ℓ), A_ij = max(cos, 0)^γ for the `neighbours` nearest frames. Solved by F ← αSF + (1 − α)Y, whose error
    shrinks by α a step. ZLaP places class texts in the graph; here the classifier's probabilities take their place.
    Needs no source statistics.
    """

    title = "label propagation"

    neighbours: int = 5  # of a frame in the graph
    power: float = 5.0  # γ
    spread: float = 0.3  # α

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, neighbours=(0, float("inf")), power=(0, float("inf")), spread=(0, 0.99))

    def transduce(self, embedding: Tensor, logits: Tensor, source: SourceStatistics) -> Transduced:
        start = torch.softmax(logits, dim=1)
        graph = normalised_graph(*nearest_neighbours(embedding, self.neighbours), self.power)
        spread, error = start, self.spread
        while error > 1e-12:
            spread = self.spread * torch.sparse.mm(graph, spread) + (1 - self.spread) * start
            error *= self.spread
        probability = spread / spread.sum(dim=1, keepdim=True)
        return Transduced(probability.clamp(min=torch.finfo(probability.dtype).tiny).log(), probability)


def normalised_graph(index: Tensor, cosine: Tensor, power: float) -> Tensor:
    """S (n, n), sparse, from neighbours (n, k): symmetric, with spectral radius at most one."""
    frames, count = index.shape
    rows = torch.arange(frames, device=index.device).repeat_interleave(count)
    columns, weight = index.reshape(-1), cosine.clamp(min=0).pow(power).reshape(-1)
    places = torch.stack((torch.cat((rows, columns)), torch.cat((columns, rows))))
    graph = _sparse(places, torch.cat((weight, weight)), frames).coalesce()
    degree = torch.sparse.sum(graph, dim=1).to_dense().clamp(min=torch.finfo(cosine.dtype).tiny)
    scale = degree.rsqrt()
    row, column = graph.indices()
    return _sparse(graph.indices(), graph.values() * scale[row] * scale[column], frames).coalesce()


def _sparse(places: Tensor, values: Tensor, size: int) -> Tensor:
    return torch.sparse_coo_tensor(places, values, (size, size), check_invariants=False)
