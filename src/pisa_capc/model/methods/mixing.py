"""Frames and labels mixed with those of others: Mixup and SigMix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pisa_capc.core.errors import ConfigError
from pisa_capc.model.methods.registry import Batch, register_method
from pisa_capc.model.methods.single import SingleMethod, SingleSettings
from pisa_capc.model.objective import cross_entropy, frame_cross_entropy
from pisa_capc.model.stacked.noise import permutation, symmetric_beta, uniform

SITES = 1 << 16  # first place of the methods' draws, far from those of a model's dropouts


def of_partner(x: Tensor, partner: Tensor) -> Tensor:
    """x[r, partner[r, i]] for each run and frame: (R, B, …), (R, B) → (R, B, …)."""
    runs, frames = partner.shape
    first = frames * torch.arange(runs, device=x.device)[:, None]
    return x.flatten(0, 1).index_select(0, (first + partner).flatten()).unflatten(0, partner.shape)


def mix(x: Tensor, partner: Tensor, share: Tensor) -> Tensor:
    """λ x_i + (1 − λ) x_partner(i): x (R, B, …), λ = share (R, B)."""
    own = share.view(*share.shape, *(1,) * (x.ndim - 2)).to(x.dtype)
    return torch.lerp(of_partner(x, partner), x, own)


def mixed_cross_entropy(logits: Tensor, label: Tensor, partner: Tensor, share: Tensor) -> Tensor:
    """λ CE(ℓ, y_i) + (1 − λ) CE(ℓ, y_partner(i)), averaged over the batch: (R,)."""
    own, other = frame_cross_entropy(logits, label), frame_cross_entropy(logits, of_partner(label, partner))
    return (share * own + (1 - share) * other).mean(1)


def partner_of_same_device(label: Tensor, environment: Tensor, key: Tensor, site: int) -> Tensor:
    """For each frame (R, B) a random one of the same device.

    From another environment if the batch has one, else another frame of its own environment, else the frame itself.
    """
    same = label[:, :, None] == label[:, None, :]
    elsewhere = environment[:, :, None] != environment[:, None, :]
    itself = torch.eye(label.shape[1], dtype=torch.bool, device=label.device)
    rank = same.float() * (1 + 2 * elsewhere.float()) * (1 - itself.float())  # 3 elsewhere, 1 here, 0 other devices
    chance = uniform(key, site, (*label.shape, label.shape[1]))
    return (rank + chance * (rank > 0) + 0.5 * itself).argmax(-1)


@dataclass(frozen=True)
class MixupSettings(SingleSettings):
    """alpha: of the Beta(α, α) that λ is from."""

    alpha: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.alpha == 0:
            raise ConfigError("alpha: expected more than 0; without mixing the method is erm.")


@register_method("mixup")
class MixupMethod(SingleMethod):
    """Mixup: training on mixtures of two frames, with labels mixed alike.

    L = λ CE(h(x̃), y_i) + (1 − λ) CE(h(x̃), y_j),  x̃ = λ x_i + (1 − λ) x_j,  λ ~ Beta(α, α), j a random partner.

    α = 0.2 as published for ImageNet and in DomainBed (Gulrajani and Lopez-Paz, ICLR 2021). λ is drawn for every
    frame, and the partner is any frame of the batch, whatever its environment.
    """

    Settings = MixupSettings
    title = "Mixup"
    citation = "Zhang et al., mixup: Beyond Empirical Risk Minimization, ICLR 2018"
    settings: MixupSettings

    def loss(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        shape = batch.label.shape
        share = symmetric_beta(batch.key, SITES, shape, self.settings.alpha)
        partner = permutation(batch.key, SITES + 2, shape)
        output: Any = model(mix(batch.iq, partner, share))
        return {"cls": mixed_cross_entropy(output.logits, batch.label, partner, share)}


@dataclass(frozen=True)
class SigMixSettings(MixupSettings):
    """same, other: weights of the mixtures with the same device and with others."""

    same: float = 1.0
    other: float = 1.0


@register_method("sigmix")
class SigMixMethod(MixupMethod):
    """SigMix: waveforms of a device are mixed across time and source environments, and with other devices.

    L = CE(h(x), y) + w_s CE(h(λ x_i + (1 − λ) x_s(i)), y_i) + w_o [ λ' CE(h(x̃), y_i) + (1 − λ') CE(h(x̃), y_j) ]
    with x̃ = λ' x_i + (1 − λ') x_j and λ, λ' ~ Beta(α, α). s(i) is a frame of the same device, from another environment
    where the batch has one; j is any frame.

    Published: the comparison table's name, and that signals are mixed across time and receivers. No code or equation
    was found, so the objective is our reading; with one source environment it mixes across time only. The weights are
    one and α is mixup's: nothing was published. All views go through the network in one pass, with one batch statistic.
    """

    Settings = SigMixSettings
    title = "SigMix"
    citation = "named SigMix in this software's paper: mixes signals across time and receivers"
    settings: SigMixSettings

    @property
    def terms(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("cls", *(name for name in ("same", "other") if getattr(self.settings, name)))

    def loss(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        s, key, label, count = self.settings, batch.key, batch.label, batch.label.shape[1]
        views = [batch.iq]
        if s.same:
            kept = symmetric_beta(key, SITES, label.shape, s.alpha)
            same = partner_of_same_device(label, batch.environment, key, SITES + 2)
            views.append(mix(batch.iq, same, kept))
        if s.other:
            share = symmetric_beta(key, SITES + 3, label.shape, s.alpha)
            partner = permutation(key, SITES + 5, label.shape)
            views.append(mix(batch.iq, partner, share))
        output: Any = model(torch.cat(views, dim=1))
        logits = list(output.logits.split(count, dim=1))
        terms = {"cls": cross_entropy(logits.pop(0), label)}
        if s.same:
            terms["same"] = s.same * cross_entropy(logits.pop(0), label)
        if s.other:
            terms["other"] = s.other * mixed_cross_entropy(logits.pop(0), label, partner, share)
        return terms
