"""Single: a plain encoder trained with cross-entropy, Eq. (source_risk); and what other methods on it share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from pisa_capc.core.config import check_numbers
from pisa_capc.core.errors import ConfigError
from pisa_capc.model.methods.registry import Batch, Method, register_method
from pisa_capc.model.networks import Single
from pisa_capc.model.objective import cross_entropy


@dataclass(frozen=True)
class SingleSettings:
    embedding: int = 64  # dimensions of z

    def __post_init__(self) -> None:
        """Widths and counts are at least one, weights and rates at least zero."""
        for name, value in vars(self).items():
            if isinstance(value, int) and value < 1:
                raise ConfigError(f"{name}: expected at least 1, found {value}.")
        check_numbers(self)


@register_method("erm")
@register_method("single")
class SingleMethod(Method):
    """Single, also called ERM: one encoder on the stacked antennas, cross-entropy only.

    min E L_ce(h_s(f_θ(x)), y). Antennas are channels, there is no structure. Empirical risk minimisation with this
    encoder is the same thing, so `erm` and `single` are two names of one method.

    Comparison methods extend it with terms of their own, on the same network and optimiser. Where a publication has no
    weight that carries over to this network, the default is one. No default was chosen by a score: a protocol can
    search a grid of weights on a source environment that is left out.
    """

    Settings = SingleSettings
    title = "Single"
    citation = "Vapnik, Statistical Learning Theory, 1998"
    settings: SingleSettings

    def build(self, runs: int = 1) -> nn.Module:
        return Single(*self.network, runs)

    @property
    def network(self) -> tuple[int, int, str, int]:
        """Arguments of Single, or of what extends it."""
        setup = self.setup
        return setup.classes, setup.geometry.antennas, setup.encoder, self.settings.embedding

    def loss(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        output: Any = model(batch.iq)
        return {"cls": cross_entropy(output.logits, batch.label)}
