"""Single: a plain encoder trained with cross-entropy, Eq. (source_risk)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from pisa_capc.methods.registry import Batch, Method, register
from pisa_capc.model import Single
from pisa_capc.training.objective import cross_entropy


@dataclass(frozen=True)
class SingleSettings:
    embedding: int = 64


@register("single")
class SingleMethod(Method):
    """min E L_ce(h_s(f_θ(x)), y): antennas as channels, one encoder, no structure."""

    Settings = SingleSettings
    settings: SingleSettings

    def build(self, runs: int = 1) -> Single:
        setup = self.setup
        return Single(setup.classes, setup.geometry.antennas, setup.encoder, self.settings.embedding, runs)

    def loss(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        output: Any = model(batch.iq)
        return {"cls": cross_entropy(output.logits, batch.label)}
