"""PISA: the structure-anchored model, Sections III-B to III-E."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from pisa_capc.core.config import check_numbers
from pisa_capc.core.errors import ConfigError, DataError, unknown_name
from pisa_capc.data.geometry import ArrayGeometry, square
from pisa_capc.model.encoders import WIDTH, build_encoder
from pisa_capc.model.networks.modules import (
    DynamicsModulator,
    Projection,
    StreamModulation,
    SuppressionGate,
    TokenRefinement,
    antenna_average,
    array_view,
    bounded_suppression,
    modulated,
    modulated_gate,
    unmodulated,
)
from pisa_capc.model.networks.streams import distinct
from pisa_capc.model.networks.topology import Propagated, TopologyBlock, topology_exponent
from pisa_capc.model.stacked import Fusable, Linear, at_least_float32, is_frozen, is_quick

PATHWAYS = ("both", "topology", "contextual")


@dataclass(frozen=True)
class PisaConfig:
    """Every setting of the model; the defaults are the paper's.

    tau_s is in wavelengths, tau_t in tokens. pathway: 'both', or one of the two alone (component ablation).
    dynamics: whether the CFO descriptor modulates; without it Δα = 0 and ρ_t = ρ_p = 1.
    """

    tokens: int = 8  # K, tokens of an antenna
    heads: int = 4  # of the topology attention
    embedding: int = 64  # D, dimensions of z
    tau_s: float = 1.0  # wavelengths: reach of the prior over the array
    tau_t: float = 2.0  # tokens: reach of the prior over time
    beta: float = 1.0  # β, weight of log P in the attention
    graph_scale: float = 0.5  # of the residual of the graph block
    graph_dropout: float = 0.1  # of attention weights
    eta: float = 0.2  # η, how far token refinement leaves the mean
    alpha_min: float = 0.0  # lower bound of the gate α
    alpha_max: float = 0.5  # upper bound of the gate α
    delta_alpha_max: float = 0.25  # most that the CFO dynamics move α
    pathway: str = "both"
    dynamics: bool = True

    def __post_init__(self) -> None:
        if self.pathway not in PATHWAYS:
            raise ConfigError(unknown_name("pathway", self.pathway, PATHWAYS))
        if self.tau_s <= 0 or self.tau_t <= 0:
            raise ConfigError(f"tau_s and tau_t must be positive, found {self.tau_s} and {self.tau_t}.")
        if self.tokens < 1 or self.embedding < 1 or self.heads < 1 or WIDTH % self.heads:
            raise ConfigError(
                f"tokens, embedding and heads: expected at least 1, and heads that divide {WIDTH}; "
                f"found {self.tokens}, {self.embedding} and {self.heads}."
            )
        if not 0 <= self.graph_dropout < 1:
            raise ConfigError(f"graph_dropout: expected from 0 to below 1, found {self.graph_dropout}.")
        if self.alpha_min > self.alpha_max:
            raise ConfigError(f"alpha_min {self.alpha_min} exceeds alpha_max {self.alpha_max}.")
        check_numbers(self)


class Details(NamedTuple):
    """The inside of a forward pass, for study."""

    attention: Tensor  # (…, J, J), averaged over heads; node (a, k) is a·K + k
    log_prior: Tensor  # (…, J, J)
    token_weights: Tensor  # (…, K), γ
    alpha: Tensor  # (…,), α̃
    modulation: StreamModulation


class Output(NamedTuple):
    """embedding (…, 64), logits (…, C), graph_loss (…,) per sample, details on request.

    error (N, D, D): covariance of an embedding's own error, of a model that measures it.
    The graph loss is left out in inference without gradients, mask and details, where it is not needed.
    """

    embedding: Tensor
    logits: Tensor
    graph_loss: Tensor | None = None
    details: Details | None = None
    error: Tensor | None = None


class PISA(Fusable):
    """Physics-informed structure anchoring.

    Args:
        classes: number of transmitters.
        encoder: name of the temporal encoder of both pathways.
        geometry: the receive array; the paper's 2×2 square by default.
        config: all other settings.
        runs: how many independent models are stacked; 1 is an ordinary model.

    >>> import torch
    >>> from pisa_capc.model.networks import PISA
    >>> model = PISA(classes=10, encoder="cnn").eval()
    >>> output = model(torch.randn(2, 4, 320, 2), descriptor=torch.zeros(2, 4))
    >>> output.embedding.shape, output.logits.shape
    (torch.Size([2, 64]), torch.Size([2, 10]))
    >>> sum(p.numel() for p in model.parameters())
    39551
    """

    fusable = ("contextual", "guide", "conclude")
    distances: Tensor

    def __init__(
        self,
        classes: int,
        encoder: str = "transformer",
        geometry: ArrayGeometry | None = None,
        config: PisaConfig | None = None,
        runs: int = 1,
    ) -> None:
        super().__init__()
        geometry, config = geometry or square(), config or PisaConfig()
        self.config = config
        self.register_buffer("distances", torch.tensor(geometry.distances(), dtype=torch.float32), persistent=False)
        self.identity_encoder = build_encoder(encoder, 1, runs)
        self.context_encoder = build_encoder(encoder, 1, runs)
        self.topology = TopologyBlock(WIDTH, config.heads, config.graph_scale, config.graph_dropout, runs)
        self.refinement = TokenRefinement(WIDTH, config.eta, runs)
        self.project_identity = Projection(WIDTH, config.embedding, runs)
        self.project_context = Projection(WIDTH, config.embedding, runs)
        self.gate = SuppressionGate(config.embedding, config.alpha_min, config.alpha_max, runs)
        self.modulator = DynamicsModulator(config.delta_alpha_max, runs)
        self.classifier = Linear(config.embedding, classes, runs)

    def forward(
        self,
        iq: Tensor,
        descriptor: Tensor | None = None,
        mask: Tensor | None = None,
        details: bool = False,
        unchanged: Tensor | None = None,
    ) -> Output:
        """iq: (B, A, T, 2), or (R, B, A, T, 2) for a stack. descriptor: (…, 4). mask: (…, A), true where present.

        unchanged: (R, B/2), with a mask, for a stack in training. The second half of the frames are views of the first
        half; true where the two differ only in the antennas that are there. It changes no result, only the time.
        """
        stacked = iq.ndim == 5
        if not stacked:
            iq = iq[None]
            descriptor = None if descriptor is None else descriptor[None]
            mask = None if mask is None else mask[None]
        antennas = len(self.distances)
        if iq.ndim != 5 or iq.shape[2] != antennas or iq.shape[4] != 2:
            raise DataError(
                f"iq: expected (frames, {antennas} antennas, samples, 2), found {tuple(iq.shape[1:])}. "
                "The array geometry of the model and the frames must agree."
            )
        if mask is not None:
            if not self.training and not bool(mask.any(-1).all()):  # in training the views see to it
                raise DataError("mask: a frame has no antenna left; expected at least one per frame. Leave it out.")
            iq = torch.where(mask[..., None, None], iq, 0)  # whatever stands for an absent antenna, NaN included
        output = self.infer(iq, descriptor, mask, details, unchanged)
        return output if stacked else first_run(output)

    def infer(
        self,
        iq: Tensor,
        descriptor: Tensor | None,
        mask: Tensor | None,
        details: bool = False,
        unchanged: Tensor | None = None,
    ) -> Output:
        """As `forward` of a stack, of frames that are as they should be: absent antennas are zero."""
        if mask is None and not self._is_frozen(iq, details):
            mask = torch.ones(iq.shape[:3], dtype=torch.bool, device=iq.device)
        return self.head(*self.encode(iq, mask, unchanged), descriptor, mask, details)

    def _is_frozen(self, x: Tensor, details: bool) -> bool:
        """Whether embedding and logits are all that is asked for."""
        return not (self.training or details) and is_frozen(x)

    def encode(
        self, iq: Tensor, mask: Tensor | None, unchanged: Tensor | None = None
    ) -> tuple[Tensor | None, Tensor | None]:
        """Identity tokens T_a, Eq. (identity_tokens): (R, N, A, K, d); contextual feature f_ctx(x_arr): (R, N, d).

        Absent antennas are zero in iq.
        """
        tokens = context = None
        if self.config.pathway != "contextual":
            streams, count = iq.flatten(1, 2), self.config.tokens
            counting = getattr(self.identity_encoder, "counting", False)  # one of a user's need not be an Encoder
            if mask is not None and unchanged is not None and counting and is_quick(iq):
                found = distinct(mask, unchanged, of_one_size=iq.is_cuda)  # a captured step has one size
                features = self.identity_encoder(found.of(streams), count, counts=found.counts)
                tokens = found.spread(features).unflatten(1, iq.shape[1:3])
            elif mask is not None and self.training and getattr(self.identity_encoder, "skipping", False):
                tokens = self.identity_encoder(streams, count, present=mask.flatten(1)).unflatten(1, iq.shape[1:3])
            else:
                tokens = self.identity_encoder(streams, count).unflatten(1, iq.shape[1:3])
        if self.config.pathway != "topology":
            context = self.context_encoder(array_view(iq, mask), 1).squeeze(2)
        return tokens, context

    def head(
        self,
        tokens: Tensor | None,
        context: Tensor | None,
        descriptor: Tensor | None,
        mask: Tensor | None,
        details: bool = False,
    ) -> Output:
        """Everything behind the encoders. Without a mask all antennas are there, and the model is frozen."""
        if tokens is None:
            output: Output = self.part("contextual")(context)
            return output
        direction, modulation, tau_t, beta = self.part("guide")(tokens, context, descriptor)
        found = self.propagate(tokens, tau_t, beta, mask, details)
        output = self.part("conclude")(found, direction, modulation, mask, details)
        return output

    def contextual(self, context: Tensor) -> Output:
        """The contextual pathway alone."""
        embedding = self.project_context(context)
        no_graph = at_least_float32(embedding.new_zeros(embedding.shape[:2]))
        return Output(embedding, self.classifier(embedding), no_graph)

    def guide(
        self, tokens: Tensor, context: Tensor | None, descriptor: Tensor | None
    ) -> tuple[Tensor | None, StreamModulation, Tensor, Tensor]:
        """What the tokens are led by: the contextual direction, the modulation, and its τ̃_t and β̃."""
        direction = None if context is None else self.project_context(context)
        if descriptor is not None and self.config.dynamics:
            modulation = self.modulator(descriptor)
        else:
            modulation = unmodulated(tokens)
        return direction, modulation, *modulated(modulation, self.config)

    def propagate(
        self, tokens: Tensor, tau_t: Tensor, beta: Tensor, mask: Tensor | None, details: bool = False
    ) -> Propagated:
        """The tokens (R, N, A, K, d) after each has seen the others, as far as array and time let it."""
        count, x = tokens.shape[3], tokens.flatten(2, 3)
        available = found = None
        if mask is not None:
            available = mask.repeat_interleave(count, dim=-1)
            found = self.topology.propagate(x, self.distances, self.config.tau_s, tau_t, beta, available, details)
        if found is None or self._is_frozen(tokens, details):  # frames beside one that misses antennas are the same
            exponent = beta[..., None, None] * topology_exponent(self.distances, count, self.config.tau_s, tau_t)
            nodes = self.topology.infer(x, exponent, available)
            found = Propagated(nodes) if found is None else found._replace(nodes=nodes)
        return found

    def conclude(
        self,
        found: Propagated,
        direction: Tensor | None,
        modulation: StreamModulation,
        mask: Tensor | None,
        details: bool = False,
    ) -> Output:
        """Embedding and logits: the tokens summarised, and the contextual direction suppressed."""
        nodes = found.nodes.unflatten(2, (len(self.distances), -1))
        summary, gamma = self.refinement(antenna_average(nodes, mask))
        embedding = self.project_identity(summary)
        alpha = torch.zeros_like(modulation.delta_alpha)
        if direction is not None:
            alpha = modulated_gate(self.gate(embedding, direction), modulation, self.config)
            embedding = bounded_suppression(embedding, direction, alpha)
        output = Output(embedding, self.classifier(embedding), found.graph_loss)
        if not details:
            return output
        assert found.attention is not None
        assert found.log_prior is not None
        return output._replace(details=Details(found.attention, found.log_prior, gamma, alpha, modulation))


def first_run(output: Output) -> Output:
    """What a stack gave, of its first run."""
    details = output.details
    if details is not None:
        details = Details(
            details.attention[0],
            details.log_prior[0],
            details.token_weights[0],
            details.alpha[0],
            StreamModulation(*(value[0] for value in details.modulation)),
        )
    graph = None if output.graph_loss is None else output.graph_loss[0]
    return Output(output.embedding[0], output.logits[0], graph, details)
