"""Methods that weigh the risks of the source environments: IRM and GroupDRO."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pisa_capc.model.methods.across import AcrossEnvironments, WeightSettings, environment_mean
from pisa_capc.model.methods.registry import Batch, register_method
from pisa_capc.model.methods.single import SingleSettings
from pisa_capc.model.networks import Single
from pisa_capc.model.objective import cross_entropy, frame_cross_entropy
from pisa_capc.model.stacked import at_least_float32


@dataclass(frozen=True)
class IrmSettings(WeightSettings):
    """warmup_steps: how long the weight is at most one."""

    weight: float = 100.0
    warmup_steps: int = 500


class Counting(Single):
    """Single that knows how many training steps it has seen."""

    steps: Tensor

    def __init__(self, classes: int, antennas: int, encoder: str, embedding: int, runs: int) -> None:
        super().__init__(classes, antennas, encoder, embedding, runs)
        self.register_buffer("steps", torch.zeros(runs))


def invariance_penalty(logits: Tensor, label: Tensor, member: Tensor) -> Tensor:
    """Mean over the environments in the batch of (∂/∂w CE(w·ℓ, y) at w = 1)²: (R,).

    The square is the product of the slopes of every other frame and of the rest: that of one batch would be too large
    by its variance, and not zero for a classifier that is best everywhere. The slope of one frame is Σ_c p_c ℓ_c − ℓ_y.
    """
    logits = at_least_float32(logits)
    expected = (torch.softmax(logits, -1) * logits).sum(-1)
    slope = expected - logits.gather(-1, label[..., None]).squeeze(-1)
    even = torch.arange(label.shape[1], device=label.device)[None, :, None] % 2 == 0
    halves = member & even, member & ~even
    square = environment_mean(slope, halves[0]) * environment_mean(slope, halves[1])
    there = halves[0].any(1) & halves[1].any(1)  # elsewhere the product is zero
    return square.sum(1) / there.sum(1).clamp_min(1)


@register_method("irm")
class IrmMethod(AcrossEnvironments):
    """IRM: no rescaling of the logits may help in any source environment (IRMv1).

    L = [ CE + λ · mean_e (∂/∂w CE_e(w·ℓ) at w = 1)² ] / max(1, λ), with λ at most 1 in the first steps.

    λ = 100 after 500 steps: DomainBed (Gulrajani and Lopez-Paz, ICLR 2021). Dividing by λ is the authors' code's; it
    stands in for DomainBed's restart of the optimiser. The square is estimated as in the authors' code, by two halves
    of the batch. An epoch that began before λ was reached is not selected: its model is not IRM's.
    """

    Settings = IrmSettings
    title = "IRM"
    citation = "Arjovsky et al., Invariant Risk Minimization, arXiv:1907.02893, 2019"
    terms = ("cls", "invariance")
    settings: IrmSettings

    @property
    def settling_steps(self) -> int:  # type: ignore[override]
        return self.settings.warmup_steps if self.settings.weight > 1 else 0

    def build(self, runs: int = 1) -> nn.Module:
        return Counting(*self.network, runs)

    def loss(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        network: Any = model
        output = network(batch.iq)
        full, started = self.settings.weight, network.steps >= self.settings.warmup_steps
        weight = torch.where(started, full, min(1.0, full))
        network.steps += 1
        scale = weight.clamp_min(1)
        penalty = invariance_penalty(output.logits, batch.label, self.member(batch))
        return {"cls": cross_entropy(output.logits, batch.label) / scale, "invariance": weight / scale * penalty}


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
