"""CORAL: equal moments of the source environments."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from pisa_capc.model.methods.across import AcrossEnvironments, WeightSettings
from pisa_capc.model.methods.domains import coral_distance
from pisa_capc.model.methods.registry import Batch, register_method
from pisa_capc.model.objective import cross_entropy


@register_method("coral")
class CoralMethod(AcrossEnvironments):
    """CORAL: embeddings of all source environments get the same mean and covariance.

    L = CE + γ · mean_{i<j} [ mean_d (μ_i − μ_j)² + mean_{d,d'} (C_i − C_j)² ]

    Published: the covariance term between a source and a target. Between source environments, with the means, and
    γ = 1: DomainBed (Gulrajani and Lopez-Paz, ICLR 2021).
    """

    Settings = WeightSettings
    title = "CORAL"
    citation = "Sun and Saenko, Deep CORAL, ECCV Workshops 2016"
    terms = ("cls", "coral")
    settings: WeightSettings

    def loss(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        output: Any = model(batch.iq)
        return {
            "cls": cross_entropy(output.logits, batch.label),
            "coral": self.settings.weight * coral_distance(output.embedding, self.member(batch)),
        }
