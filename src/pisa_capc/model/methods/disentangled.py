"""Embeddings in parts that are to hold nothing of each other: DIFEX, RFFCC and RIEI."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pisa_capc.core.errors import ConfigError
from pisa_capc.model.encoders import WIDTH
from pisa_capc.model.methods.across import AcrossEnvironments, coral_distance, domain_label, frozen
from pisa_capc.model.methods.mixing import SITES, of_partner
from pisa_capc.model.methods.registry import Batch, register_method
from pisa_capc.model.methods.single import SingleSettings
from pisa_capc.model.networks import Single
from pisa_capc.model.networks.modules import Projection
from pisa_capc.model.objective import cross_entropy
from pisa_capc.model.stacked import Linear, at_least_float32, full_precision
from pisa_capc.model.stacked.noise import permutation

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


class TwoParts(Single):
    """Single, whose embedding is the identity part, and beside it a part for the environment with its own classifier.

    Both parts come from one encoder through projections of the same make, so the identity path is Single's in size.
    """

    def __init__(
        self, classes: int, antennas: int, encoder: str, embedding: int, runs: int, *, environments: int
    ) -> None:
        super().__init__(classes, antennas, encoder, embedding, runs)
        self.project_environment = Projection(WIDTH, embedding, runs)
        self.environment_classifier = Linear(embedding, environments, runs)

    def parts(self, iq: Tensor) -> tuple[Tensor, Tensor]:
        """Identity and environment embeddings, (R, B, D) each."""
        feature = self.feature(iq)
        return self.project(feature), self.project_environment(feature)


@dataclass(frozen=True)
class RffccSettings(SingleSettings):
    """environment, combined: weights of the environment's classifier and of the recombined pairs."""

    environment: float = 0.5
    combined: float = 1.0


@register_method("rffcc")
class RffccMethod(AcrossEnvironments):
    """RFFCC: identity and environment parts are separated by recombining those of different frames.

    L = CE(h(u_i), y_i) + λ CE(d(v_i), e_i) + α [ CE(h(u_i + v_j), y_i) + CE(d(u_i + v_j), e_j) ]
    with u, v the identity and environment parts of a frame and j a random partner: whatever environment part is added
    to an identity must not change who it is, nor the other way round. Inference uses h(u).

    Published: the comparison table's name, and that disentangled feature cross-combination separates receiver-related
    and identity-related information. The objective, the sum as the combination and source environments in the place of
    receivers are our reading. λ = 0.5 is that of a public relative, the code DR-RFF, whose other weights belong to
    terms that are not here; α is one.
    """

    Settings = RffccSettings
    title = "RFFCC"
    citation = "named RFFCC in this software's paper: disentangled feature cross-combination"
    terms = ("cls", "environment", "combined")
    settings: RffccSettings

    def build(self, runs: int = 1) -> nn.Module:
        return TwoParts(*self.network, runs, environments=len(self.setup.source_environments))

    def loss(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        network: Any = model
        identity, place = network.parts(batch.iq)
        where = domain_label(self.member(batch))
        partner = permutation(batch.key, SITES, batch.label.shape)
        both = identity + of_partner(place, partner)
        who_of_both = cross_entropy(network.classifier(both), batch.label)
        where_of_both = cross_entropy(network.environment_classifier(both), of_partner(where, partner))
        return {
            "cls": cross_entropy(network.classifier(identity), batch.label),
            "environment": self.settings.environment * cross_entropy(network.environment_classifier(place), where),
            "combined": self.settings.combined * (who_of_both + where_of_both),
        }


@dataclass(frozen=True)
class RieiSettings(SingleSettings):
    """independence, entropy: λ_MI and λ_IE."""

    independence: float = 1.2
    entropy: float = 1.2


def prediction_entropy(logits: Tensor) -> Tensor:
    """−Σ_c p_c log p_c, averaged over the batch: (R, B, C) → (R,)."""
    log_p = torch.log_softmax(at_least_float32(logits), -1)
    return -(log_p.exp() * log_p).sum(-1).mean(1)


@register_method("riei")
class RieiMethod(AcrossEnvironments):
    """RIEI: an emitter part and a receiver part that say nothing about each other.

    L = CE(EC(z_e), y) + CE(RC(z_r), e) + λ_MI |cos(z_e, z_r)| − λ_IE [ H(EC(z_r)) + H(RC(z_e)) ]

    Published: the objective, λ = 1.2, and two alternating updates: (1) cross-entropies update everything; (2) with the
    heads frozen, the other terms update the encoder. Our reading: both in one step, the heads of (2) with detached
    parameters, which gives the same gradients but for the step between; source environments in the place of
    receivers; two projections of Single's width instead of two halves of one.
    """

    Settings = RieiSettings
    title = "RIEI"
    citation = "arXiv:2411.03636 (receiver-independent emitter identification), 2024"
    terms = ("cls", "environment", "independence", "entropy")
    settings: RieiSettings

    def build(self, runs: int = 1) -> nn.Module:
        return TwoParts(*self.network, runs, environments=len(self.setup.source_environments))

    def loss(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        network: Any = model
        emitter, receiver = network.parts(batch.iq)
        cosine = F.cosine_similarity(at_least_float32(emitter), at_least_float32(receiver), dim=-1)
        confusion = prediction_entropy(frozen(network.classifier, receiver)) + prediction_entropy(
            frozen(network.environment_classifier, emitter)
        )
        where = domain_label(self.member(batch))
        return {
            "cls": cross_entropy(network.classifier(emitter), batch.label),
            "environment": cross_entropy(network.environment_classifier(receiver), where),
            "independence": self.settings.independence * cosine.abs().mean(1),
            "entropy": -self.settings.entropy * confusion,
        }
