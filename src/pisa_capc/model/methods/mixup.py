"""Mixup of frames and labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from pisa_capc.core.errors import ConfigError
from pisa_capc.model.methods.mixing import SITES, mix, mixed_cross_entropy
from pisa_capc.model.methods.registry import Batch, register_method
from pisa_capc.model.methods.single import SingleMethod, SingleSettings
from pisa_capc.model.stacked.noise import permutation, symmetric_beta


@dataclass(frozen=True)
class MixupSettings(SingleSettings):
    """alpha: of the Beta(α, α) that λ is from."""

    alpha: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.alpha == 0:
            raise ConfigError("alpha: expected more than 0; without mixing the method is erm.")


@register_method("mixup")
class MixupMethod(SingleMethod):
    """Mixup: training on mixtures of two frames, with labels mixed alike.

    L = λ CE(h(x̃), y_i) + (1 − λ) CE(h(x̃), y_j),  x̃ = λ x_i + (1 − λ) x_j,  λ ~ Beta(α, α), j a random partner.

    α = 0.2 as published for ImageNet and in DomainBed (Gulrajani and Lopez-Paz, ICLR 2021). λ is drawn for every
    frame, and the partner is any frame of the batch, whatever its environment.
    """

    Settings = MixupSettings
    title = "Mixup"
    citation = "Zhang et al., mixup: Beyond Empirical Risk Minimization, ICLR 2018"
    settings: MixupSettings

    def loss(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        shape = batch.label.shape
        share = symmetric_beta(batch.key, SITES, shape, self.settings.alpha)
        partner = permutation(batch.key, SITES + 2, shape)
        output: Any = model(mix(batch.iq, partner, share))
        return {"cls": mixed_cross_entropy(output.logits, batch.label, partner, share)}
