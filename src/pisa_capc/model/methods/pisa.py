"""PISA's source objective, Eq. (overall_loss), the rows of the component ablation, and controls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from pisa_capc.core.config import check_numbers
from pisa_capc.core.errors import ConfigError
from pisa_capc.model.encoders import build_encoder
from pisa_capc.model.methods.registry import Batch, Method, register_method
from pisa_capc.model.methods.single import SingleMethod, SingleSettings
from pisa_capc.model.networks import PISA, PisaConfig, Single
from pisa_capc.model.objective import cross_entropy, drop_spans, prediction_consistency, supervised_contrastive
from pisa_capc.model.stacked import compiled


@dataclass(frozen=True)
class ObjectiveConfig:
    """Weights of Eq. (overall_loss) and Eq. (topology_consistency), and the perturbed view; the paper's values."""

    graph: float = 0.001  # λ_g, of the graph regulariser
    augmented: float = 0.5  # λ_aug, of the cross-entropy of the perturbed view
    consistency: float = 0.2  # λ_kl, between the two views
    contrastive: float = 0.1  # λ_sup, of the supervised contrastive term
    contrastive_temperature: float = 0.2  # of that term
    antenna_drop: float = 0.25  # probability that the perturbed view loses an antenna
    span_drop: float = 0.15  # probability that it loses a span

    def __post_init__(self) -> None:
        if self.contrastive_temperature <= 0:
            raise ConfigError(f"contrastive_temperature: expected above 0, found {self.contrastive_temperature}.")
        if not (0 <= self.antenna_drop < 1 and 0 <= self.span_drop < 1):
            raise ConfigError(
                f"antenna_drop and span_drop: expected from 0 to below 1, found {self.antenna_drop}, {self.span_drop}."
            )
        check_numbers(self)


@dataclass(frozen=True)
class PisaSettings:
    model: PisaConfig = field(default_factory=PisaConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)


@register_method("pisa")
class PisaMethod(Method):
    """PISA: two pathways anchored in the receive array's topology, Eq. (overall_loss).

    L = L_cls + λ_g L_graph + λ_aug L_cls(x̃) + λ_kl KL(p(x) ‖ p(x̃)) + λ_sup L_supcon.

    Clean and perturbed frames go through the model in one pass of 2B frames, so batch norm has one statistic.
    L_graph is that of the clean frames. Without any weight on the perturbed view only the clean frames are computed.
    """

    Settings = PisaSettings
    title = "PISA"
    citation = "this software's paper, Sections III-B to III-F"
    variants: ClassVar = {
        "full": {},
        "topology-only": {"model": {"pathway": "topology"}},
        "contextual-only": {"model": {"pathway": "contextual"}},
        "no-topology-prior": {"model": {"beta": 0.0}, "objective": {"graph": 0.0}},
        "no-cfo-dynamics": {"model": {"dynamics": False}},
        "no-topology-consistency": {"objective": {"augmented": 0.0, "consistency": 0.0, "contrastive": 0.0}},
        "no-token-refinement": {"model": {"eta": 0.0}},
    }
    settings: PisaSettings
    _fused_weighted: Callable[..., dict[str, Tensor]] | None = None

    def fuse(self) -> None:
        self._fused_weighted = compiled(self.weighted)

    @property
    def two_views(self) -> bool:
        weights = self.settings.objective
        return bool(weights.augmented or weights.consistency or weights.contrastive)

    @property
    def terms(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("cls", "graph", "aug", "kl", "sup") if self.two_views else ("cls", "graph")

    @property
    def drops(self) -> tuple[float, float]:  # type: ignore[override]
        return self.settings.objective.antenna_drop, self.settings.objective.span_drop

    def build(self, runs: int = 1) -> PISA:
        setup = self.setup
        return PISA(setup.classes, setup.encoder, setup.geometry, self.settings.model, runs)

    def loss(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        iq, descriptor, count = batch.iq, batch.descriptor, batch.iq.shape[1]
        mask, known = torch.ones_like(batch.antenna_keep), {}
        if self.two_views:
            if isinstance(model, PISA):
                known["unchanged"] = batch.span_keep.all(-1)
            iq = torch.cat([iq, drop_spans(iq, batch.span_keep)], dim=1)
            mask = torch.cat([mask, batch.antenna_keep], dim=1)
            descriptor = None if descriptor is None else torch.cat([descriptor, descriptor], dim=1)
        output: Any = model(iq, descriptor, mask, **known)
        weighted = self._fused_weighted or self.weighted
        return weighted(output.logits, output.embedding, output.graph_loss[:, :count], batch.label)

    def weighted(self, logits: Tensor, embedding: Tensor, graph_loss: Tensor, label: Tensor) -> dict[str, Tensor]:
        """The weighted terms from what the model returned; logits and embedding hold clean, then perturbed frames."""
        weights, count = self.settings.objective, label.shape[1]
        clean = logits[:, :count]
        terms = {"cls": cross_entropy(clean, label), "graph": weights.graph * graph_loss.mean(1)}
        if logits.shape[1] > count:
            perturbed = logits[:, count:]
            both = torch.cat([label, label], dim=1)
            terms["aug"] = weights.augmented * cross_entropy(perturbed, label)
            terms["kl"] = weights.consistency * prediction_consistency(clean, perturbed)
            terms["sup"] = weights.contrastive * supervised_contrastive(
                embedding, both, weights.contrastive_temperature
            )
        return terms


@dataclass(frozen=True)
class ControlSettings(SingleSettings):
    """objective: PISA's; its weight of the graph term has nothing to weigh here."""

    objective: ObjectiveConfig = field(default_factory=lambda: ObjectiveConfig(graph=0.0))


@register_method("pisa-objective")
class ControlMethod(PisaMethod):
    """PISA's objective without its topology: two views, consistency and contrast on the plain network of Single.

    L = L_cls + λ_aug L_cls(x̃) + λ_kl KL(p(x) ‖ p(x̃)) + λ_sup L_supcon

    PISA's gain over this is the structure's; this one's gain over Single is the objective's. Weights and perturbed view
    are the paper's; a dropped antenna is a channel of zeros.
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
    """Single whose encoder reads one antenna at a time; its features are averaged over the antennas present."""

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

    Other baselines stack the antennas and PISA does not. The gain over Single is that of one encoder for each antenna;
    PISA's gain over this is that of attention across antennas, and of its objective.
    """

    title = "Single per antenna"
    citation = "control of this software"

    def build(self, runs: int = 1) -> nn.Module:
        return SinglePerAntenna(*self.network, runs)
