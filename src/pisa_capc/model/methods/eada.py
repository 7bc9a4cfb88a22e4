"""EADA: equalisation, then adversarial alignment."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from pisa_capc.model.methods.across import CriticSettings
from pisa_capc.model.methods.adversarial import WithCritic
from pisa_capc.model.methods.dann import DannMethod
from pisa_capc.model.methods.equaliser import Equalised, EqualiserSettings
from pisa_capc.model.methods.preamble import BehindPreamble
from pisa_capc.model.methods.registry import register_method


@dataclass(frozen=True)
class EadaSettings(EqualiserSettings, CriticSettings):
    """Of the critic and of the equaliser."""

    def __post_init__(self) -> None:
        CriticSettings.__post_init__(self)
        EqualiserSettings.__post_init__(self)


class EqualisedWithCritic(Equalised, WithCritic):
    """DANN's network behind an equaliser."""


@register_method("eada")
class EadaMethod(BehindPreamble, DannMethod):
    """EADA: every antenna is equalised with the known preamble, then a critic must not see the environment.

    x̂ = equalise(x) as in `Equaliser`;  min_{f,h} max_d CE(h(f(x̂)), y) − λ CE(d(f(x̂)), e) as in DANN.

    Published: the comparison table's name, and that equalisation is combined with domain adaptation. No description
    that fits the name was found, so all of the above is our reading: the channel of each antenna is estimated from
    the preamble (Wi-Fi) or the known chirp (LoRa), the frequency offset is kept because it is the device's, and the
    alignment is that of source environments by gradient reversal. The frame has to begin with the preamble. What the
    equaliser does alone is the method `equalised`.
    """

    Settings = EadaSettings
    title = "EADA"
    citation = "named EADA in this software's paper; equalisation combined with domain adaptation"
    settings: EadaSettings

    def build(self, runs: int = 1) -> nn.Module:
        environments = len(self.setup.source_environments)
        return EqualisedWithCritic(
            self.front(), *self.network, runs, hidden=self.settings.hidden, environments=environments
        )
