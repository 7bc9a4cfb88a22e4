"""Rejection scores that only studies compare with: `msp` (Hendrycks and Gimpel, ICLR 2017) and `vim` (Wang et al., CVPR
2022).

pisa calibrate scores.npz --out out.npz --plugin studies/scores.py --reject vim
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.decide.calibration.base import require
from pisa_capc.decide.calibration.openset.scores import (
    ScoreFunction,
    UnknownScore,
    register_rejection,
    require_rows,
)
from pisa_capc.model.inference.statistics import SourceStatistics


@register_rejection("msp")
@dataclass(frozen=True)
class MaximumSoftmax(UnknownScore):
    """u = 1 − max_k softmax(ℓ)_k, the plain baseline. Needs nothing of the source."""

    def fit(self, source: SourceStatistics, classes: int, like: Tensor) -> ScoreFunction:
        return lambda seen: 1 - torch.softmax(seen.logits, dim=1).amax(dim=1)


@register_rejection("vim")
@dataclass(frozen=True)
class VirtualLogit(UnknownScore):
    """ViM: u = α ‖(z − o)^{P⊥}‖ − log Σ_k exp(ℓ_k), the residual outside the principal space P beside the energy.

    o = −W⁺ b is where all logits are zero, P spans the `dimension` leading axes of the training embeddings around it
    (half of them by default, as the authors for small embeddings), and α = mean max ℓ / mean ‖residual‖ over the
    training embeddings. The authors' softmax probability of the virtual logit α‖·‖ is the logistic function of u.
    Where the training embeddings have no residual α is zero, and u is the energy. Needs `weight`, `bias` and `bank`.
    """

    dimension: int | None = None

    def fit(self, source: SourceStatistics, classes: int, like: Tensor) -> ScoreFunction:
        features = like.shape[1]
        weight = require(source, "weight", (classes, features), like, "vim")
        bias = require(source, "bias", (classes,), like, "vim")
        bank = require_rows(source, "bank", features, like, "vim")
        dimension = features // 2 if self.dimension is None else self.dimension
        if not 0 <= dimension <= features:
            raise ConfigError(f"dimension is {dimension}; expected a number from 0 to the {features} features.")
        origin = -torch.linalg.pinv(weight) @ bias
        centred = bank - origin
        rest = torch.linalg.eigh(centred.T @ centred)[1][:, : features - dimension]  # eigenvalues ascend

        def residual(embedding: Tensor) -> Tensor:
            return torch.linalg.vector_norm((embedding - origin) @ rest, dim=1)

        highest = float((bank @ weight.T + bias).amax(dim=1).mean())
        if highest <= 0:
            raise DataError(
                f"vim: the highest logits of the training embeddings are {highest:.3g} on average; expected them "
                "above zero, or the virtual logit has the wrong sign. Use another score."
            )
        outside = float(residual(bank).mean())
        scale = highest / outside if outside > 1e-9 * float(centred.norm(dim=1).mean()) else 0.0
        return lambda seen: scale * residual(seen.embedding) - torch.logsumexp(seen.logits, dim=1)
