"""Controls: PISA's training objective without its topology, and Single with one encoder for all antennas."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor, nn

from pisa_capc.model.encoders import build_encoder
from pisa_capc.model.methods.pisa import ObjectiveConfig, PisaMethod
from pisa_capc.model.methods.registry import register_method
from pisa_capc.model.methods.single import SingleMethod, SingleSettings
from pisa_capc.model.networks import Single


@dataclass(frozen=True)
class ControlSettings(SingleSettings):
    """objective: PISA's; its weight of the graph term has nothing to weigh here."""

    objective: ObjectiveConfig = field(default_factory=lambda: ObjectiveConfig(graph=0.0))


@register_method("pisa-objective")
class ControlMethod(PisaMethod):
    """PISA's objective without its topology: two views, consistency and contrast on the plain network of Single.

    L = L_cls + λ_aug L_cls(x̃) + λ_kl KL(p(x) ‖ p(x̃)) + λ_sup L_supcon

    What PISA gains over this is the structure's doing; what this gains over Single is the objective's. Weights and
    perturbed view are the paper's; a dropped antenna is a channel of zeros.
    """

    Settings = ControlSettings  # type: ignore[assignment]
    title = "PISA's objective alone"
    citation = "control of this software; objective of its paper, Section III-F"
    variants = {"full": {}}  # noqa: RUF012
    settings: ControlSettings  # type: ignore[assignment]

    @property
    def terms(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(name for name in super().terms if name != "graph")

    def build(self, runs: int = 1) -> nn.Module:  # type: ignore[override]
        setup = self.setup
        return Single(setup.classes, setup.geometry.antennas, setup.encoder, self.settings.embedding, runs)

    def weighted(self, logits: Tensor, embedding: Tensor, graph_loss: Tensor, label: Tensor) -> dict[str, Tensor]:
        terms = super().weighted(logits, embedding, graph_loss, label)
        del terms["graph"]
        return terms


class SinglePerAntenna(Single):
    """Single whose encoder hears one antenna at a time: the mean of its features over the antennas that are there."""

    def __init__(self, classes: int, antennas: int, encoder: str, embedding: int, runs: int = 1) -> None:
        super().__init__(classes, antennas, encoder, embedding, runs)
        self.encoder = build_encoder(encoder, 1, runs)

    def feature(self, iq: Tensor, mask: Tensor | None = None) -> Tensor:
        each: Tensor = self.encoder(iq.flatten(1, 2), 1).squeeze(2).unflatten(1, iq.shape[1:3])  # (R, N, A, WIDTH)
        if mask is None:
            return each.mean(2)
        there = mask[..., None].to(each.dtype)
        return (each * there).sum(2) / there.sum(2)


@register_method("single-per-antenna")
class PerAntennaMethod(SingleMethod):
    """Single with one encoder for all antennas, whose features are averaged; cross-entropy only.

    min E L_ce(h(1/A Σ_a f(x_a)), y)

    Other baselines stack the antennas and PISA does not. What this gains over Single is the doing of one encoder for
    each antenna; what PISA gains over this is that of attention across them, and of its objective.
    """

    title = "Single per antenna"
    citation = "control of this software"

    def build(self, runs: int = 1) -> nn.Module:
        return SinglePerAntenna(*self.network, runs)
