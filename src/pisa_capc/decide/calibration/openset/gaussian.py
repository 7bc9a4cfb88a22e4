r"""Unknown devices by the Gaussian back-end: does a known device explain a measurement, or an unknown one?

    u = ln N(z̄; μ_0, B + P + Λ⁻¹) − ln 1/K Σ_k N(z̄; m_k, V_k + P + Λ⁻¹)
    Λ = Σ_n (S + R_n)⁻¹,    z̄ = Λ⁻¹ Σ_n (S + R_n)⁻¹ z_n

over the frames n of one sender, or over one frame (`model.gaussian`): a log-likelihood ratio, which no other score of
the same z and R can beat where the model is right (Neyman and Pearson, 1933). A frame whose error bars say nothing has
u near 0.

The threshold at α is the 1 − α quantile of u over frames of the known devices, drawn from the model with the error bars
of the source's frames. So α is kept over all frames together, in places that resemble the source's as they resemble
each other; of frames with wider error bars than the source's more are rejected. No held-out frame is needed: a device
enrolled from three frames is separated from unknown ones at once. Chosen over the distance min_k alone, whose rate of
false rejections is the same for every frame, and over `session` on source environments: studies/closed_form.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pisa_capc.core.errors import DataError
from pisa_capc.core.randomness import generator
from pisa_capc.decide.calibration.openset.scores import (
    ScoreFunction,
    ScoreLimit,
    Seen,
    UnknownScore,
    register_rejection,
)
from pisa_capc.model.gaussian import GaussianBackend, Observations
from pisa_capc.model.inference.statistics import SourceStatistics

UNMEASURED = 1e9  # u of a frame that could not be measured: it is nobody's
DRAWN = 20_000  # frames of known devices that are drawn for a threshold


@register_rejection("gaussian")
@dataclass(frozen=True)
class GaussianRatio(UnknownScore):
    """As the module has it. Needs the back-end among the statistics, and the errors of embeddings that have some."""

    def fit(self, source: SourceStatistics, classes: int, like: Tensor) -> ScoreFunction:
        backend = source.backend()

        def ratio(seen: Seen) -> Tensor:
            found = np.full(len(seen.embedding), UNMEASURED)
            observed, measured = observations(backend, source, seen)
            if measured.any():
                found[measured] = backend.strangeness(observed)
            return torch.from_numpy(found).to(seen.embedding.device)

        return ratio

    def together(self, source: SourceStatistics, seen: Seen, sender: Tensor) -> Seen:
        """The frames of one sender as one, each by how certain it is; those that could not be measured are left out."""
        backend, means = source.backend(), super().together(source, seen, sender)
        observed, measured = observations(backend, source, seen)
        there, number = np.unique(sender.cpu().numpy()[measured], return_inverse=True)
        pooled = observed.pooled(number)
        assert pooled.own is not None, "pooling gives each sender an error"
        value = means.embedding.clone()
        error = value.new_full((*value.shape, value.shape[1]), torch.inf)
        # `fit` adds S, which is in the error of what was pooled already.
        value[there], error[there] = torch.from_numpy(pooled.value), torch.from_numpy(pooled.own - backend.frame)
        return means._replace(embedding=value, error=error)

    def limit(self, source: SourceStatistics, classes: int, like: Tensor, alpha: float) -> ScoreLimit:
        backend, random = source.backend(), generator(0, "frames of known devices")
        known = np.sort(backend.strangeness(backend.drawn(DRAWN, random, source.frame_error))).astype(np.float64)
        return ScoreLimit(float(np.quantile(known, 1 - alpha)), known)


def observations(backend: GaussianBackend, source: SourceStatistics, seen: Seen) -> tuple[Observations, np.ndarray]:
    """The frames that could be measured, and which of all they are."""
    value = seen.embedding.double().cpu().numpy()
    if seen.error is None and source.frame_error is None:  # a network's embeddings: R = 0
        return backend.evidence(value), np.ones(len(value), dtype=bool)
    if seen.error is None:
        raise DataError(
            "gaussian needs the error of every embedding, which is not with these scores: an earlier version wrote "
            "them. Write them again with pisa embed, or choose another score, as session."
        )
    error = seen.error.double().cpu().numpy()
    measured = np.isfinite(error).reshape(len(error), -1).all(axis=1)
    return backend.evidence(value[measured], error[measured]), measured
