"""RFFCC: disentangled feature cross-combination."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from pisa_capc.model.methods.across import AcrossEnvironments
from pisa_capc.model.methods.domains import domain_label
from pisa_capc.model.methods.mixing import SITES, of_partner
from pisa_capc.model.methods.registry import Batch, register_method
from pisa_capc.model.methods.single import SingleSettings
from pisa_capc.model.methods.twoparts import TwoParts
from pisa_capc.model.objective import cross_entropy
from pisa_capc.model.stacked.noise import permutation


@dataclass(frozen=True)
class RffccSettings(SingleSettings):
    """environment, combined: weights of the environment's classifier and of the recombined pairs."""

    environment: float = 0.5
    combined: float = 1.0


@register_method("rffcc")
class RffccMethod(AcrossEnvironments):
    """RFFCC: identity and environment parts are separated by recombining those of different frames.

    L = CE(h(u_i), y_i) + λ CE(d(v_i), e_i) + α [ CE(h(u_i + v_j), y_i) + CE(d(u_i + v_j), e_j) ]
    with u, v the identity and environment parts of a frame and j a random partner: whatever environment part is added
    to an identity must not change who it is, nor the other way round. Inference uses h(u).

    Published: the comparison table's name, and that disentangled feature cross-combination separates receiver-related
    and identity-related information. The objective, the sum as the combination and source environments in the place of
    receivers are our reading. λ = 0.5 is that of a public relative, the code DR-RFF, whose other weights belong to
    terms that are not here; α is one.
    """

    Settings = RffccSettings
    title = "RFFCC"
    citation = "named RFFCC in this software's paper: disentangled feature cross-combination"
    terms = ("cls", "environment", "combined")
    settings: RffccSettings

    def build(self, runs: int = 1) -> nn.Module:
        return TwoParts(*self.network, runs, environments=len(self.setup.source_environments))

    def loss(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        network: Any = model
        identity, place = network.parts(batch.iq)
        where = domain_label(self.member(batch))
        partner = permutation(batch.key, SITES, batch.label.shape)
        both = identity + of_partner(place, partner)
        who_of_both = cross_entropy(network.classifier(both), batch.label)
        where_of_both = cross_entropy(network.environment_classifier(both), of_partner(where, partner))
        return {
            "cls": cross_entropy(network.classifier(identity), batch.label),
            "environment": self.settings.environment * cross_entropy(network.environment_classifier(place), where),
            "combined": self.settings.combined * (who_of_both + where_of_both),
        }
