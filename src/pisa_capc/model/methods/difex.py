"""DIFEX: internal and mutual invariance in two halves of the embedding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pisa_capc.core.errors import ConfigError
from pisa_capc.model.methods.across import AcrossEnvironments, coral_distance
from pisa_capc.model.methods.registry import Batch, register_method
from pisa_capc.model.methods.single import SingleSettings
from pisa_capc.model.networks import Single
from pisa_capc.model.objective import cross_entropy
from pisa_capc.model.stacked import at_least_float32, full_precision

SILENCE = 1e-12


@dataclass(frozen=True)
class DifexSettings(SingleSettings):
    """distillation, exploration, alignment: α, β and λ."""

    distillation: float = 1.0
    exploration: float = 1.0
    alignment: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.embedding % 2:
            raise ConfigError(f"embedding: expected an even number, which splits into halves, found {self.embedding}.")


class WithTeacher(Single):
    """Single and a teacher of half its embedding, which sees the phase of the spectrum."""

    def __init__(self, classes: int, antennas: int, encoder: str, embedding: int, runs: int) -> None:
        super().__init__(classes, antennas, encoder, embedding, runs)
        self.teacher = Single(classes, antennas, encoder, embedding // 2, runs)


def spectral_phase(iq: Tensor) -> Tensor:
    """(cos φ, sin φ) of each antenna's spectrum, (…, T, 2) → the same: a phase without its jump at ±π."""
    with full_precision(iq):
        spectrum = torch.view_as_real(torch.fft.fft(torch.view_as_complex(at_least_float32(iq).contiguous())))
        return spectrum * torch.rsqrt(spectrum.square().sum(-1, keepdim=True) + SILENCE)


@register_method("difex")
class DifexMethod(AcrossEnvironments):
    """DIFEX: half of the embedding follows a teacher of spectral phase, the other half is aligned across environments.

    L = CE(h([z₁, z₂]), y) + α MSE(z₁, t) − β dist(z₁, z₂) + λ · mean_{i<j} CORAL(z₂) + CE(h_t(t), y)
    with t the teacher's embedding, which gets no gradient but that of its own cross-entropy.

    Published: the objective, a teacher that is trained first, weights of one by default (and swept), several choices of
    dist. Our reading: the teacher, of the student's make, is trained beside the student in the same steps; its input is
    the phase as cosine and sine, the antennas as channels; of the published choices dist is the mean squared difference
    of the L2-normalised halves, which is bounded, so that no weight can make the loss run away.
    """

    Settings = DifexSettings
    title = "DIFEX"
    citation = "Lu et al., Domain-invariant Feature Exploration for Domain Generalization, TMLR 2022"
    terms = ("cls", "teacher", "distillation", "exploration", "alignment")
    settings: DifexSettings

    def build(self, runs: int = 1) -> nn.Module:
        return WithTeacher(*self.network, runs)

    def loss(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        network: Any = model
        output, lesson = network(batch.iq), network.teacher(spectral_phase(batch.iq))
        internal, mutual = at_least_float32(output.embedding).chunk(2, dim=-1)
        followed = (internal - at_least_float32(lesson.embedding).detach()).square().mean((1, 2))
        apart = (F.normalize(internal, dim=-1) - F.normalize(mutual, dim=-1)).square().mean((1, 2))
        return {
            "cls": cross_entropy(output.logits, batch.label),
            "teacher": cross_entropy(lesson.logits, batch.label),
            "distillation": self.settings.distillation * followed,
            "exploration": -self.settings.exploration * apart,
            "alignment": self.settings.alignment * coral_distance(mutual, self.member(batch)),
        }
