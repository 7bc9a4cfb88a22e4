"""What the methods share that work across source environments."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from pisa_capc.model.methods.adversarial import WithCritic
from pisa_capc.model.methods.domains import membership
from pisa_capc.model.methods.registry import Batch
from pisa_capc.model.methods.single import SingleMethod, SingleSettings


@dataclass(frozen=True)
class WeightSettings(SingleSettings):
    weight: float = 1.0  # of the term beside the cross-entropy


class AcrossEnvironments(SingleMethod):
    """Base of the methods that need two source environments or more."""

    least_environments = 2

    def member(self, batch: Batch) -> Tensor:
        """(R, B, E) booleans: which source environment a frame is of."""
        return membership(batch.environment, self.setup.source_environments)


@dataclass(frozen=True)
class CriticSettings(WeightSettings):
    hidden: int = 64  # width of the critic's hidden layer


class AgainstCritic(AcrossEnvironments):
    """Base of the methods whose encoder works against a critic."""

    Settings = CriticSettings
    settings: CriticSettings

    def build(self, runs: int = 1) -> nn.Module:
        environments = len(self.setup.source_environments)
        return WithCritic(*self.network, runs, hidden=self.settings.hidden, environments=environments)
