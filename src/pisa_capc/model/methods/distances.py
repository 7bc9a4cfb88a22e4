"""Methods that draw the embeddings of the source environments together: CORAL by their moments, MMD by a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pisa_capc.core.errors import ConfigError
from pisa_capc.model.methods.across import AcrossEnvironments, WeightSettings, coral_distance, mean_over_pairs
from pisa_capc.model.methods.registry import Batch, register_method
from pisa_capc.model.objective import cross_entropy
from pisa_capc.model.stacked import at_least_float32, full_precision


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
