"""The nearest neighbours of every frame by cosine similarity, in linear memory."""

from __future__ import annotations

import torch
from torch import Tensor

from pisa_capc.decide.calibration.vectors import unit

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
