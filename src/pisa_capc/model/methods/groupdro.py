"""GroupDRO: the worst source environment counts most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pisa_capc.model.methods.across import AcrossEnvironments
from pisa_capc.model.methods.domains import environment_mean
from pisa_capc.model.methods.registry import Batch, register_method
from pisa_capc.model.methods.single import SingleSettings
from pisa_capc.model.networks import Single
from pisa_capc.model.objective import frame_cross_entropy


@dataclass(frozen=True)
class GroupDroSettings(SingleSettings):
    """rate: η, how fast the weights follow the losses."""

    rate: float = 0.01


class Weighted(Single):
    """Single with a weight of each source environment, which is no parameter but is kept with the model."""

    environment_weight: Tensor

    def __init__(
        self, classes: int, antennas: int, encoder: str, embedding: int, runs: int, *, environments: int
    ) -> None:
        super().__init__(classes, antennas, encoder, embedding, runs)
        self.register_buffer("environment_weight", torch.full((runs, environments), 1 / environments))


@register_method("groupdro")
class GroupDroMethod(AcrossEnvironments):
    """GroupDRO: the loss of the worst source environment is minimised.

    L = Σ_e q_e CE_e,  q_e ∝ q_e exp(η CE_e) after each step's losses.

    η = 0.01 as published. An environment that is not in the batch has no loss there and keeps its share.
    """

    Settings = GroupDroSettings
    title = "GroupDRO"
    citation = "Sagawa et al., Distributionally Robust Neural Networks for Group Shifts, ICLR 2020"
    settings: GroupDroSettings

    def build(self, runs: int = 1) -> nn.Module:
        return Weighted(*self.network, runs, environments=len(self.setup.source_environments))

    def loss(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        network: Any = model
        losses = environment_mean(frame_cross_entropy(network(batch.iq).logits, batch.label), self.member(batch))
        with torch.no_grad():
            raised = network.environment_weight * torch.exp(self.settings.rate * losses)
            weight = raised / raised.sum(1, keepdim=True)
            network.environment_weight.copy_(weight)
        return {"cls": (weight * losses).sum(1)}
