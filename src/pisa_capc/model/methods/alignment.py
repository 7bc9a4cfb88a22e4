"""Methods that align the embeddings of the source environments: DANN and GAD by a critic, CORAL by moments, MMD by a
kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pisa_capc.core.errors import ConfigError
from pisa_capc.model.methods.across import (
    AcrossEnvironments,
    AgainstCritic,
    CriticSettings,
    WeightSettings,
    WithCritic,
    coral_distance,
    domain_label,
    mean_over_pairs,
    reverse_gradient,
)
from pisa_capc.model.methods.registry import Batch, register_method
from pisa_capc.model.objective import cross_entropy
from pisa_capc.model.stacked import at_least_float32, full_precision


@dataclass(frozen=True)
class DannSettings(CriticSettings):
    """ramp_steps: of training, over which λ rises from 0 to its weight as published; null: it has it throughout."""

    ramp_steps: int | None = None


class RampedCritic(WithCritic):
    """Single with a critic, which knows how many training steps it has seen."""

    steps: Tensor

    def __init__(self, classes: int, antennas: int, encoder: str, embedding: int, runs: int, **critic: int) -> None:
        super().__init__(classes, antennas, encoder, embedding, runs, **critic)
        self.register_buffer("steps", torch.zeros(runs))


class ByReversal(AgainstCritic):
    """Base of the methods whose critic reaches the encoder through a reversed gradient."""

    terms = ("cls", "critic")

    def strength(self, network: Any) -> float | Tensor:
        """λ of this step, one or (R, 1, 1)."""
        return self.settings.weight

    def loss(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        network: Any = model
        output = network(batch.iq)
        guess = network.critic(reverse_gradient(output.embedding, self.strength(network)))
        return {
            "cls": cross_entropy(output.logits, batch.label),
            "critic": cross_entropy(guess, domain_label(self.member(batch))),
        }


@register_method("dann")
class DannMethod(ByReversal):
    """DANN: embeddings from which a critic cannot read the source environment.

    min_{f,h} max_d CE(h(f(x)), y) − λ CE(d(f(x)), e), e the environment: the critic d is trained with weight 1, and its
    gradient reaches the encoder f times −λ.

    Published: source against target, with λ = 2 / (1 + e^{−10p}) − 1, p the part of the training that is done. Here:
    between source environments, and one hidden layer of the embedding's width; λ is constant as in DomainBed (Gulrajani
    and Lopez-Paz, ICLR 2021), or with `ramp_steps` the published one times the weight, p = steps / ramp_steps.
    """

    Settings = DannSettings
    settings: DannSettings
    title = "DANN"
    citation = "Ganin et al., Domain-Adversarial Training of Neural Networks, JMLR 2016"

    def build(self, runs: int = 1) -> nn.Module:
        if self.settings.ramp_steps is None:
            return super().build(runs)
        environments = len(self.setup.source_environments)
        return RampedCritic(*self.network, runs, hidden=self.settings.hidden, environments=environments)

    def strength(self, network: Any) -> float | Tensor:
        """The weight, or what the ramp has of it by now."""
        if self.settings.ramp_steps is None:
            return self.settings.weight
        done = (network.steps / self.settings.ramp_steps).clamp(max=1)
        network.steps += 1
        return (self.settings.weight * torch.tanh(5 * done))[:, None, None]  # 2 / (1 + e^{−10p}) − 1 = tanh 5p

    def describe(self) -> dict[str, Any]:
        """Without what came later, where it is not used: records of the constant weight keep their names."""
        return {name: value for name, value in super().describe().items() if (name, value) != ("ramp_steps", None)}


NEVER = -1e30  # a score that adds nothing to a sum of exponentials, and no NaN to its gradient


def divergence(score: Tensor, member: Tensor) -> Tensor:
    """Donsker–Varadhan bound of KL(P_e ‖ P_others) from scores T_e (R, B, E): (R, E).

    E_{P_e} T_e − log E_{P_others} exp T_e; zero for an environment that is alone in the batch, or not in it.
    """
    score = at_least_float32(score)
    count = member.sum(1)
    others = member.shape[1] - count
    own = torch.where(member, score, 0.0).sum(1) / count.clamp_min(1)
    log_mean = torch.logsumexp(torch.where(member, NEVER, score), 1) - others.clamp_min(1).to(score.dtype).log()
    return torch.where((count > 0) & (others > 0), own - log_mean, 0.0)


@register_method("gad")
class GadMethod(AgainstCritic):
    """GAD: the divergence of source environments is estimated by ascent and made small by descent.

    min_{f,h} CE(h(f(x)), y) + λ · mean_e max(0, D_e),  max_T mean_e D_e,
    D_e = E_{P_e} T_e(f(x)) − log E_{P_others} exp T_e(f(x))

    Published (under the title of receiver-impact mitigation by domain adaptation; that this is the comparison table's
    GAD is likely, not certain): ½ a weighted cross-entropy of source and target, and a MINE estimate of the KL
    divergence of their features, by ascent and descent in turn. Our reading: without target frames cross-entropy is the
    source's with weight one; the divergence is that of each source environment from the others; both directions are
    taken in one step, each with the other's part detached. An estimate below zero cannot be a divergence, and an
    encoder that lowers it further learns to mislead the estimator and nothing else, so it is cut off there for the
    encoder. λ is one; one hidden layer of the embedding's width.
    """

    title = "GAD"
    citation = "arXiv:2404.08566 (gradient ascent-descent, receiver-impact mitigation), 2024"
    terms = ("cls", "divergence", "estimator")

    def loss(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        network: Any = model
        output = network(batch.iq)
        member, z = self.member(batch), output.embedding
        seen = divergence(network.critic.frozen(z), member).clamp_min(0)
        return {
            "cls": cross_entropy(output.logits, batch.label),
            "divergence": self.settings.weight * seen.mean(1),
            "estimator": -divergence(network.critic(z.detach()), member).mean(1),
        }


@register_method("coral")
class CoralMethod(AcrossEnvironments):
    """CORAL: embeddings of all source environments get the same mean and covariance.

    L = CE + γ · mean_{i<j} [ mean_d (μ_i − μ_j)² + mean_{d,d'} (C_i − C_j)² ]

    Published: the covariance term between a source and a target. Between source environments, with the means, and
    γ = 1: DomainBed (Gulrajani and Lopez-Paz, ICLR 2021).
    """

    Settings = WeightSettings
    title = "CORAL"
    citation = "Sun and Saenko, Deep CORAL, ECCV Workshops 2016"
    terms = ("cls", "coral")
    settings: WeightSettings

    def loss(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        output: Any = model(batch.iq)
        return {
            "cls": cross_entropy(output.logits, batch.label),
            "coral": self.settings.weight * coral_distance(output.embedding, self.member(batch)),
        }


@dataclass(frozen=True)
class MmdSettings(WeightSettings):
    """kernel_gammas: γ of the Gaussian kernels that are summed."""

    kernel_gammas: tuple[float, ...] = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.kernel_gammas:
            raise ConfigError("kernel_gammas: expected one or more; without a kernel the method is erm.")


def squared_mmd(z: Tensor, member: Tensor, gammas: Sequence[float]) -> Tensor:
    """Mean over pairs of environments of E k(x, x') + E k(y, y') − 2 E k(x, y): z (R, B, D) → (R,).

    k(x, y) = Σ_γ exp(−γ ‖x − y‖²); the expectations are over all pairs of frames, a frame with itself included.
    """
    with full_precision(z):
        z = at_least_float32(z)
        square = z.square().sum(-1)
        distance = (square[:, :, None] + square[:, None, :] - 2 * z @ z.mT).clamp_min(0)
        kernel = torch.stack([torch.exp(-gamma * distance) for gamma in gammas]).sum(0)
        count = member.sum(1)
        weight = member.to(z.dtype) / count.clamp_min(1)[:, None]
        mean = weight.mT @ kernel @ weight  # (R, E, E)
    own = mean.diagonal(dim1=1, dim2=2)
    return mean_over_pairs(own[:, :, None] + own[:, None, :] - 2 * mean, count > 0)


@register_method("mmd")
class MmdMethod(AcrossEnvironments):
    """MMD: the maximum mean discrepancy between source environments is made small.

    L = CE + γ · mean_{i<j} MMD²(Z_i, Z_j), with the kernel Σ_g exp(−g ‖x − y‖²).

    Published: MMD of an autoencoder's code, with an adversarial prior. The form used as a baseline ever since, without
    autoencoder, and with these kernels and γ = 1: DomainBed (Gulrajani and Lopez-Paz, ICLR 2021).
    """

    Settings = MmdSettings
    title = "MMD"
    citation = "Li et al., Domain Generalization with Adversarial Feature Learning, CVPR 2018"
    terms = ("cls", "mmd")
    settings: MmdSettings

    def loss(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        output: Any = model(batch.iq)
        distance = squared_mmd(output.embedding, self.member(batch), self.settings.kernel_gammas)
        return {"cls": cross_entropy(output.logits, batch.label), "mmd": self.settings.weight * distance}
