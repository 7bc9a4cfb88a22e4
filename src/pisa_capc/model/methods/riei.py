"""RIEI: receiver-independent emitter identification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pisa_capc.model.methods.across import AcrossEnvironments
from pisa_capc.model.methods.adversarial import frozen
from pisa_capc.model.methods.domains import domain_label
from pisa_capc.model.methods.registry import Batch, register_method
from pisa_capc.model.methods.single import SingleSettings
from pisa_capc.model.methods.twoparts import TwoParts
from pisa_capc.model.objective import cross_entropy
from pisa_capc.model.stacked import at_least_float32


@dataclass(frozen=True)
class RieiSettings(SingleSettings):
    """independence, entropy: λ_MI and λ_IE."""

    independence: float = 1.2
    entropy: float = 1.2


def prediction_entropy(logits: Tensor) -> Tensor:
    """−Σ_c p_c log p_c, averaged over the batch: (R, B, C) → (R,)."""
    log_p = torch.log_softmax(at_least_float32(logits), -1)
    return -(log_p.exp() * log_p).sum(-1).mean(1)


@register_method("riei")
class RieiMethod(AcrossEnvironments):
    """RIEI: an emitter part and a receiver part that say nothing about each other.

    L = CE(EC(z_e), y) + CE(RC(z_r), e) + λ_MI |cos(z_e, z_r)| − λ_IE [ H(EC(z_r)) + H(RC(z_e)) ]

    Published: the objective, λ = 1.2, and two alternating updates: (1) cross-entropies update everything; (2) with the
    heads frozen, the other terms update the encoder. Our reading: both in one step, the heads of (2) with detached
    parameters, which gives the same gradients but for the step between; source environments in the place of
    receivers; two projections of Single's width instead of two halves of one.
    """

    Settings = RieiSettings
    title = "RIEI"
    citation = "arXiv:2411.03636 (receiver-independent emitter identification), 2024"
    terms = ("cls", "environment", "independence", "entropy")
    settings: RieiSettings

    def build(self, runs: int = 1) -> nn.Module:
        return TwoParts(*self.network, runs, environments=len(self.setup.source_environments))

    def loss(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        network: Any = model
        emitter, receiver = network.parts(batch.iq)
        cosine = F.cosine_similarity(at_least_float32(emitter), at_least_float32(receiver), dim=-1)
        confusion = prediction_entropy(frozen(network.classifier, receiver)) + prediction_entropy(
            frozen(network.environment_classifier, emitter)
        )
        where = domain_label(self.member(batch))
        return {
            "cls": cross_entropy(network.classifier(emitter), batch.label),
            "environment": cross_entropy(network.environment_classifier(receiver), where),
            "independence": self.settings.independence * cosine.abs().mean(1),
            "entropy": -self.settings.entropy * confusion,
        }
