"""Vectors at length one, and rows that sum to one.

Streams take frames one by one and stay in NumPy: torch costs more than the work itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def unit(vectors: Tensor, out: Tensor | None = None) -> Tensor:
    """Vectors (…, D) at length one, into `out` where it is given; zero stays zero."""
    length = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return torch.div(vectors, length.clamp_(min=torch.finfo(length.dtype).tiny), out=out)


def softmax_rows(score: Tensor) -> Tensor:
    """softmax of rows (n, C); torch's own takes three times as long where there are a few classes."""
    weight = (score - score.amax(dim=1, keepdim=True)).exp_()
    return weight.div_(weight.sum(dim=1, keepdim=True))


def unit_rows(embedding: NDArray[Any]) -> NDArray[np.float64]:
    """`unit` of rows (n, D) in NumPy, float64."""
    rows = embedding.astype(np.float64)
    length = np.sqrt(np.einsum("nd,nd->n", rows, rows))
    return rows / np.where(length > 0, length, 1.0)[:, None]


def softmax(exponent: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows (n, C) that sum to one."""
    weight = np.exp(exponent - exponent.max(axis=1, keepdims=True))
    return np.asarray(weight / weight.sum(axis=1, keepdims=True))
