"""DANN: source environments that a critic cannot tell apart."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from pisa_capc.model.methods.across import AgainstCritic
from pisa_capc.model.methods.adversarial import reverse_gradient
from pisa_capc.model.methods.domains import domain_label
from pisa_capc.model.methods.registry import Batch, register_method
from pisa_capc.model.objective import cross_entropy


@register_method("dann")
class DannMethod(AgainstCritic):
    """DANN: embeddings from which a critic cannot read the source environment.

    min_{f,h} max_d CE(h(f(x)), y) − λ CE(d(f(x)), e), e the environment: the critic d is trained with weight 1, and its
    gradient reaches the encoder f times −λ.

    Published: source against target, with λ rising from 0 to 1. Here: between source environments, λ = 1 throughout
    as in DomainBed (Gulrajani and Lopez-Paz, ICLR 2021), and one hidden layer of the embedding's width.
    """

    title = "DANN"
    citation = "Ganin et al., Domain-Adversarial Training of Neural Networks, JMLR 2016"
    terms = ("cls", "critic")

    def loss(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        network: Any = model
        output = network(batch.iq)
        guess = network.critic(reverse_gradient(output.embedding, self.settings.weight))
        return {
            "cls": cross_entropy(output.logits, batch.label),
            "critic": cross_entropy(guess, domain_label(self.member(batch))),
        }
