"""Single and PISA on equalised or phase-aligned frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from pisa_capc.model.methods.across import CriticSettings, WithCritic
from pisa_capc.model.methods.alignment import ByReversal
from pisa_capc.model.methods.equaliser import Equalised, EqualiserSettings, PreambleReference, PreambleSettings
from pisa_capc.model.methods.pisa import PisaMethod, PisaSettings
from pisa_capc.model.methods.preamble import BehindPreamble
from pisa_capc.model.methods.registry import Batch, register_method
from pisa_capc.model.methods.single import SingleMethod, SingleSettings
from pisa_capc.model.networks import PISA, Single

CITATION = "control of this software; equaliser of its reading of EADA"


@dataclass(frozen=True)
class EqualisedSettings(EqualiserSettings, SingleSettings):
    """Of the network and of the equaliser."""

    def __post_init__(self) -> None:
        SingleSettings.__post_init__(self)
        EqualiserSettings.__post_init__(self)


class EqualisedSingle(Equalised, Single):
    """Single's network on equalised frames."""


@register_method("equalised")
class EqualisedMethod(BehindPreamble, SingleMethod):
    """Single on equalised frames: every antenna is equalised with the known preamble, then cross-entropy only.

    min E L_ce(h(f(x̂)), y), x̂ = equalise(x) as in `Equaliser`.

    The gain over Single is the equaliser's; EADA's gain over this is the alignment's. The frame has to
    begin with the preamble. Equaliser and its values are EADA's.
    """

    Settings = EqualisedSettings
    title = "Equalised Single"
    citation = CITATION
    settings: EqualisedSettings

    def build(self, runs: int = 1) -> nn.Module:
        return EqualisedSingle(self.front(), *self.network, runs)


@dataclass(frozen=True)
class EqualisedPisaSettings(EqualiserSettings, PisaSettings):
    """PISA's and those of the equaliser."""


class EqualisedPISA(PISA):
    """PISA on equalised frames."""

    def __init__(self, front: PreambleReference, *network: Any) -> None:
        super().__init__(*network)
        self.front = front

    def encode(
        self, iq: Tensor, mask: Tensor | None, unchanged: Tensor | None = None
    ) -> tuple[Tensor | None, Tensor | None]:
        # In training the loss has equalised already: through a dropped span of the perturbed view none could see.
        return super().encode(iq if self.training else self.front(iq, mask), mask, unchanged)


@register_method("pisa-equalised")
class EqualisedPisaMethod(BehindPreamble, PisaMethod):
    """PISA on equalised frames: every antenna is equalised with the known preamble, then as PISA.

    Eq. (overall_loss) of x̂ = equalise(x) as in `Equaliser`; views are perturbed after that.

    The gain over `equalised` is that of PISA's structure and objective once the channel is removed.
    The frame has to begin with the preamble.
    """

    Settings = EqualisedPisaSettings
    title = "Equalised PISA"
    citation = CITATION
    variants = {"full": {}}  # noqa: RUF012
    settings: EqualisedPisaSettings

    def build(self, runs: int = 1) -> PISA:
        setup = self.setup
        return EqualisedPISA(self.front(), setup.classes, setup.encoder, setup.geometry, self.settings.model, runs)

    def loss(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        network: Any = model
        return super().loss(model, batch._replace(iq=network.front(batch.iq)))


ALIGNED = "option of this software, see studies/lora_source.py"


@dataclass(frozen=True)
class AlignedSettings(PreambleSettings, SingleSettings):
    """Of the network and of the preamble."""

    def __post_init__(self) -> None:
        SingleSettings.__post_init__(self)
        PreambleSettings.__post_init__(self)


@register_method("aligned")
class AlignedMethod(EqualisedMethod):
    """Single on frames whose antennas are each turned to the phase of the known preamble.

    min E L_ce(h(f(x̂)), y), x̂ = align(x) as in `Aligner`.

    A chirp carries its sender's fingerprint as a faint mirror image and a faint tone in a fixed relation to it, while
    the phase of the whole differs from frame to frame: networks of short filters do not learn the relation by
    themselves. Without the phase they do. The frame has to begin with the preamble.
    """

    Settings = AlignedSettings  # type: ignore[assignment]
    title = "Aligned Single"
    citation = ALIGNED


@dataclass(frozen=True)
class AlignedPisaSettings(PreambleSettings, PisaSettings):
    """PISA's and those of the preamble."""


@register_method("pisa-aligned")
class AlignedPisaMethod(EqualisedPisaMethod):
    """PISA on frames whose antennas are each turned to the phase of the known preamble; see `AlignedMethod`.

    Eq. (overall_loss) of x̂ = align(x) as in `Aligner`; views are perturbed after that.
    """

    Settings = AlignedPisaSettings  # type: ignore[assignment]
    title = "Aligned PISA"
    citation = ALIGNED


@dataclass(frozen=True)
class EadaSettings(EqualiserSettings, CriticSettings):
    """Of the critic and of the equaliser."""

    def __post_init__(self) -> None:
        CriticSettings.__post_init__(self)
        EqualiserSettings.__post_init__(self)


class EqualisedWithCritic(Equalised, WithCritic):
    """DANN's network on equalised frames."""


@register_method("eada")
class EadaMethod(BehindPreamble, ByReversal):
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
