"""EADA: equalisation, then adversarial alignment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from pisa_capc.errors import ConfigError
from pisa_capc.methods.across import CriticSettings
from pisa_capc.methods.adversarial import WithCritic
from pisa_capc.methods.dann import DannMethod
from pisa_capc.methods.equaliser import PREAMBLES, Equaliser
from pisa_capc.methods.registry import register

WAVEFORMS = ("auto", *PREAMBLES)


@dataclass(frozen=True)
class EadaSettings(CriticSettings):
    """taps: length of the channel estimate [samples]; ridge: its regularisation, of the preamble's mean power;
    noise: floor of the equaliser, of the channel's mean power. waveform: 'auto' is the one with this sample rate."""

    waveform: str = "auto"
    taps: int = 8
    ridge: float = 0.01
    noise: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.waveform not in WAVEFORMS:
            raise ConfigError(f"waveform: expected one of {', '.join(WAVEFORMS)}, found {self.waveform!r}.")
        if self.ridge == 0 or self.noise == 0:
            raise ConfigError("ridge and noise: expected more than 0, or silence could not be equalised.")


class Equalised(WithCritic):
    """A network that sees each antenna through an equaliser."""

    def __init__(self, equaliser: Equaliser, *network: Any, **critic: Any) -> None:
        super().__init__(*network, **critic)
        self.equalise = equaliser

    def feature(self, iq: Tensor, mask: Tensor | None = None) -> Tensor:
        return super().feature(self.equalise(iq), mask)


@register("eada")
class EadaMethod(DannMethod):
    """EADA: every antenna is equalised with the known preamble, then a critic must not see the environment.

    x̂ = equalise(x) as in `Equaliser`;  min_{f,h} max_d CE(h(f(x̂)), y) − λ CE(d(f(x̂)), e) as in DANN.

    Published: the comparison table's name, and that equalisation is combined with domain adaptation. No description
    that fits the name was found, so all of the above is our reading: the channel of each antenna is estimated from
    the preamble (Wi-Fi) or the known chirp (LoRa), the frequency offset is kept because it is the device's, and the
    alignment is that of source environments by gradient reversal. The frame has to begin with the preamble.
    """

    Settings = EadaSettings
    citation = "named EADA in this software's paper; equalisation combined with domain adaptation"
    needs = ("frames that begin with a Wi-Fi preamble (20 MS/s) or a LoRa upchirp (1 MS/s)",)
    settings: EadaSettings

    def build(self, runs: int = 1) -> nn.Module:
        s, setup = self.settings, self.setup
        equaliser = Equaliser(self._waveform(), setup.samples, s.taps, s.ridge, s.noise)
        environments = len(setup.source_environments)
        return Equalised(equaliser, *self.network, runs, hidden=s.hidden, environments=environments)

    def _waveform(self) -> str:
        rate = self.setup.sample_rate_hz
        found = [name for name, preamble in PREAMBLES.items() if preamble.sample_rate_hz == rate]
        if self.settings.waveform == "auto" and not found:
            known = ", ".join(f"{p.sample_rate_hz:g} ({name})" for name, p in PREAMBLES.items())
            raise ConfigError(
                f"eada: no preamble is known at {rate:g} samples/s; known: {known}. Set waveform if it is one of these."
            )
        return found[0] if self.settings.waveform == "auto" else self.settings.waveform
