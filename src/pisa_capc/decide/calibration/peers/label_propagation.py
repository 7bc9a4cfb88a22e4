"""Label propagation over the nearest-neighbour graph of the target frames.

D. Zhou et al. Learning with local and global consistency. NeurIPS 2003. Graph and defaults: V. Stojnić, Y. Kalantidis
and G. Tolias. Label propagation for zero-shot classification with vision-language models (ZLaP). CVPR 2024.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pisa_capc.decide.calibration.base import check_range, register_calibration
from pisa_capc.decide.calibration.peers.base import Peer, Transduced
from pisa_capc.decide.calibration.peers.neighbours import nearest_neighbours
from pisa_capc.model.inference.statistics import SourceStatistics


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
