"""SigMix: signals mixed across time and environments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pisa_capc.model.methods.mixing import SITES, mix, mixed_cross_entropy, partner_of_same_device
from pisa_capc.model.methods.mixup import MixupMethod, MixupSettings
from pisa_capc.model.methods.registry import Batch, register_method
from pisa_capc.model.objective import cross_entropy
from pisa_capc.model.stacked.noise import permutation, symmetric_beta


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
