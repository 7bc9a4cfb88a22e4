"""What must hold of the model whatever its parameters are."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.data.geometry import ArrayGeometry, circular, custom, square
from pisa_capc.model.methods import Setup, build_method
from pisa_capc.model.networks import PISA, PisaConfig, Single
from pisa_capc.model.networks.modules import StreamModulation, modulated, modulated_gate
from pisa_capc.model.networks.pisa import Details, Output
from pisa_capc.model.networks.topology import graph_loss, log_topology_prior, topology_attention
from tests.models import random_pisa

TOKENS = 8


def inputs(frames: int = 3, antennas: int = 4, samples: int = 48, seed: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    """I/Q, descriptor, and a mask in which the second frame lacks antenna 1 and the third all but antenna 2."""
    g = torch.Generator().manual_seed(seed)
    mask = torch.ones(frames, antennas, dtype=torch.bool)
    mask[1, 1] = False
    mask[2, [i for i in range(antennas) if i != 2]] = False
    iq = torch.randn(frames, antennas, samples, 2, generator=g, dtype=torch.float64)
    return iq, 3 * torch.rand(frames, 4, generator=g, dtype=torch.float64), mask


def run(model: PISA, *arguments: Tensor | None) -> tuple[Output, Details]:
    with torch.no_grad():
        output: Output = model(*arguments, details=True)
    assert output.details is not None
    return output, output.details


def prior_of(geometry: ArrayGeometry, mask: Tensor) -> Tensor:
    available = mask.repeat_interleave(TOKENS, -1)[None]
    tau_t = torch.full((1, len(mask)), 2.0, dtype=torch.float64)
    return log_topology_prior(torch.from_numpy(geometry.distances()), TOKENS, 1.0, tau_t, available)[0].exp()


def test_rows_of_the_prior_sum_to_one_over_the_available_nodes() -> None:
    _, _, mask = inputs()
    prior = prior_of(square(), mask)
    torch.testing.assert_close(prior.sum(-1), torch.ones(3, 32, dtype=torch.float64))
    available = mask.repeat_interleave(TOKENS, -1)
    assert (prior.masked_select(~available[:, None, :].expand_as(prior)) == 0).all()


def test_prior_between_available_nodes_does_not_involve_the_others() -> None:
    """Taking an antenna away by the mask is the same as an array that never had it."""
    _, _, mask = inputs()
    with_hole = prior_of(square(), mask)[1]
    smaller = prior_of(custom(square().positions[[0, 2, 3]]), torch.ones(1, 3, dtype=torch.bool))[0]
    keep = [a * TOKENS + k for a in (0, 2, 3) for k in range(TOKENS)]
    torch.testing.assert_close(with_hole[keep][:, keep], smaller)


def test_prior_decays_with_distance_and_with_time() -> None:
    prior = prior_of(square(), torch.ones(1, 4, dtype=torch.bool))[0]
    itself, neighbour, across, next_token = prior[0, [0, TOKENS, 3 * TOKENS, 1]]
    assert neighbour / itself == pytest.approx(math.exp(-0.5))
    assert across / itself == pytest.approx(math.exp(-math.sqrt(0.5)))
    assert next_token / itself == pytest.approx(math.exp(-0.5))


def test_attention_is_the_prior_where_queries_and_keys_say_nothing() -> None:
    model = random_pisa()
    with torch.no_grad():
        model.topology.query.weight.zero_()
        model.topology.query.bias.zero_()
    iq, _, mask = inputs()
    output, details = run(model, iq, None, mask)
    torch.testing.assert_close(details.attention, details.log_prior.exp())
    torch.testing.assert_close(output.graph_loss, torch.zeros(3, dtype=torch.float64), rtol=0, atol=1e-12)


def test_attention_without_evidence_is_the_prior_to_the_power_of_its_strength() -> None:
    _, _, mask = inputs()
    available = mask.repeat_interleave(TOKENS, -1)[None]
    prior = prior_of(square(), mask)[None]
    nothing = torch.zeros(1, len(mask), 2, 4 * TOKENS, 5, dtype=torch.float64)
    for strength in (0.0, 1.0, 2.5):
        beta = torch.full((1, len(mask)), strength, dtype=torch.float64)
        found = topology_attention(nothing, nothing, prior.log().clamp_min(-1e9), beta, available)
        expected = torch.where(available[..., None, :], prior**strength, 0.0)
        expected = (expected / expected.sum(-1, keepdim=True))[:, :, None].expand_as(found)
        torch.testing.assert_close(found, expected)


def test_modulation_scales_decay_and_strength_and_shifts_a_bounded_suppression() -> None:
    config = PisaConfig(tau_t=2.0, beta=0.5, alpha_min=0.1, alpha_max=0.6)
    shift, rho_t, rho_p = (torch.tensor([values]) for values in ([0.0, 0.2, -0.2], [1.0, 2.0, 0.5], [1.0, 0.5, 2.0]))
    modulation = StreamModulation(shift, rho_t, rho_p)
    tau_t, beta = modulated(modulation, config)
    torch.testing.assert_close(tau_t, torch.tensor([[2.0, 4.0, 1.0]]))
    torch.testing.assert_close(beta, torch.tensor([[0.5, 0.25, 1.0]]))
    alpha = modulated_gate(torch.full((1, 3), 0.5), modulation, config)
    torch.testing.assert_close(alpha, torch.tensor([[0.5, 0.6, 0.3]]))
    alpha = modulated_gate(torch.full((1, 3), 0.1), modulation, config)
    torch.testing.assert_close(alpha, torch.tensor([[0.1, 0.3, 0.1]]))


def test_graph_loss_is_a_divergence() -> None:
    g = torch.Generator().manual_seed(0)
    available = torch.ones(1, 6, 5, dtype=torch.bool)
    for _ in range(5):
        attention, prior = (torch.softmax(3 * torch.randn(1, 6, 5, 5, generator=g), -1) for _ in range(2))
        assert (graph_loss(attention, prior.log(), available) > 0).all()
        assert graph_loss(prior, prior.log(), available).abs().max() < 1e-6


def test_graph_loss_ignores_absent_nodes() -> None:
    iq, descriptor, mask = inputs()
    output, _ = run(random_pisa(), iq, descriptor, mask)
    assert (output.graph_loss >= 0).all()
    # Attention and prior may be anything at absent nodes.
    nodes = torch.tensor([True, True, False, True])
    attention, prior = (torch.rand(1, 1, 4, 4).softmax(-1) for _ in range(2))
    expected = graph_loss(
        attention[..., nodes, :][..., nodes], prior[..., nodes, :][..., nodes].log(), nodes[nodes][None, None]
    )
    torch.testing.assert_close(graph_loss(attention, prior.log(), nodes[None, None]), expected)


def test_a_frame_without_any_antenna_is_refused() -> None:
    mask = torch.tensor([[True] * 4, [False] * 4])
    with pytest.raises(DataError, match="no antenna left"):
        random_pisa().eval()(torch.randn(2, 4, 64, 2), None, mask)


@pytest.mark.parametrize(
    "settings", [{"heads": 5}, {"tokens": 0}, {"graph_dropout": 1.0}, {"alpha_min": 0.9}, {"tau_s": 0.0}], ids=str
)
def test_settings_that_make_no_model_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        PisaConfig(**settings)


def test_without_prior_strength_the_geometry_does_not_matter() -> None:
    iq, descriptor, mask = inputs()
    config = PisaConfig(beta=0.0)
    near, far = (random_pisa(geometry=square(spacing), config=config) for spacing in (0.5, 4.0))
    torch.testing.assert_close(run(near, iq, descriptor, mask)[0].logits, run(far, iq, descriptor, mask)[0].logits)
    near, far = (random_pisa(geometry=square(spacing)) for spacing in (0.5, 4.0))
    difference = run(near, iq, descriptor, mask)[0].logits - run(far, iq, descriptor, mask)[0].logits
    assert difference[:2].abs().max() > 1e-4


@pytest.mark.parametrize("stands_for_absent", [0.0, 1e6, float("nan")])
def test_samples_of_an_absent_antenna_do_not_matter(stands_for_absent: float) -> None:
    iq, descriptor, mask = inputs()
    model = random_pisa()
    other = iq.masked_fill(~mask[..., None, None], stands_for_absent)
    expected, found = run(model, iq, descriptor, mask)[0], run(model, other, descriptor, mask)[0]
    torch.testing.assert_close(found.logits, expected.logits, rtol=0, atol=0)
    single = Single(3, 4, "cnn").double().eval()
    torch.testing.assert_close(single(iq, None, mask).logits, single(other, None, mask).logits, rtol=0, atol=0)


def test_suppression_is_bounded() -> None:
    iq, _, _ = inputs(frames=6)
    model = random_pisa()
    with torch.no_grad():
        model.modulator.last.bias.copy_(torch.tensor([[50.0, 0, 0]]))  # Δα at its largest
        model.gate.second.bias.fill_(50.0)  # φ = 1
    full, details = run(model, iq, torch.ones(6, 4, dtype=torch.float64))
    assert details.modulation.delta_alpha == pytest.approx(np.full(6, 0.25))
    assert details.alpha == pytest.approx(np.full(6, 0.5))
    anchored = dataclasses.replace(model.config, pathway="topology")
    identity = random_pisa(config=anchored)
    identity.load_state_dict(model.state_dict())
    z_id = run(identity, iq, torch.ones(6, 4, dtype=torch.float64))[0].embedding
    assert (full.embedding - z_id).abs().max() <= 0.5


def test_no_descriptor_is_exactly_the_unmodulated_case() -> None:
    iq, descriptor, mask = inputs()
    model = random_pisa()
    _, details = run(model, iq, None, mask)
    delta_alpha, rho_t, rho_p = details.modulation
    assert (delta_alpha == 0).all()
    assert (rho_t == 1).all()
    assert (rho_p == 1).all()
    assert (run(model, iq, descriptor, mask)[1].modulation.rho_t != 1).all()
    without = random_pisa(config=PisaConfig(dynamics=False))
    expected = run(model, iq, None, mask)[0].logits
    torch.testing.assert_close(run(without, iq, descriptor, mask)[0].logits, expected, rtol=0, atol=0)


def test_training_starts_unmodulated() -> None:
    iq, descriptor, _ = inputs()
    model = PISA(10, "cnn").double().eval()
    torch.testing.assert_close(run(model, iq, descriptor)[0].logits, run(model, iq)[0].logits, rtol=0, atol=0)


def test_order_of_the_antennas_does_not_matter_if_the_geometry_goes_along() -> None:
    geometry, order = circular(5, 0.4), [3, 0, 4, 1, 2]
    moved = custom(geometry.positions[order])
    iq, descriptor, mask = inputs(antennas=5)
    expected = run(random_pisa(geometry=geometry), iq, descriptor, mask)[0]
    found = run(random_pisa(geometry=moved), iq[:, order], descriptor, mask[:, order])[0]
    torch.testing.assert_close(found.embedding, expected.embedding, rtol=0, atol=1e-10)


def test_order_of_the_antennas_matters_if_the_geometry_stays() -> None:
    geometry, order = custom([[0.0], [0.5], [5.0]]), [0, 2, 1]
    iq, descriptor, _ = inputs(antennas=3)
    expected = run(random_pisa(geometry=geometry), iq, descriptor)[0]
    found = run(random_pisa(geometry=geometry), iq[:, order], descriptor)[0]
    assert (found.embedding - expected.embedding).abs().max() > 1e-4


def test_token_weights_only_matter_through_eta() -> None:
    iq, descriptor, mask = inputs()
    results = {}
    for eta in (0.0, 0.2):
        model = random_pisa(config=PisaConfig(eta=eta))
        before = run(model, iq, descriptor, mask)[0].embedding
        with torch.no_grad():
            model.refinement.score.weight.normal_()
        results[eta] = (run(model, iq, descriptor, mask)[0].embedding - before).abs().max()
    assert results[0.0] == 0
    assert results[0.2] > 1e-4


def test_every_ablation_row_is_a_configuration() -> None:
    iq, descriptor, mask = inputs()
    setup = Setup(10, "cnn", square())
    models = {}
    for variant in ("full", "topology-only", "contextual-only", "no-topology-prior", "no-cfo-dynamics",
                    "no-topology-consistency", "no-token-refinement"):  # fmt: skip
        method = build_method("pisa", setup, variant)
        model = method.build()
        assert isinstance(model, PISA)
        trained = random_pisa(config=model.config)
        trained.load_state_dict(random_pisa().state_dict())
        models[variant] = trained
    full, details = run(models["full"], iq, descriptor, mask)

    topology, inside = run(models["topology-only"], iq, descriptor, mask)
    direction = models["contextual-only"](iq, descriptor, mask).embedding.detach()
    rebuilt = topology.embedding - details.alpha[:, None] * torch.tanh(direction)
    torch.testing.assert_close(full.embedding, rebuilt, rtol=0, atol=1e-12)
    assert (inside.alpha == 0).all()

    s = models["full"].project_context(models["full"].encode(iq[None] * mask[None, ..., None, None], mask[None])[1])
    torch.testing.assert_close(direction, s[0].detach())
    assert (models["contextual-only"](iq, descriptor, mask).graph_loss == 0).all()

    assert models["no-topology-prior"].config.beta == 0
    assert build_method("pisa", setup, "no-topology-prior").settings.objective.graph == 0
    assert models["no-token-refinement"].config.eta == 0
    plain = build_method("pisa", setup, "no-topology-consistency")
    assert plain.terms == ("cls", "graph")


def test_ablated_pathways_are_not_computed() -> None:
    iq, descriptor, _ = inputs()
    for pathway, unused in (("topology", "context_encoder"), ("contextual", "identity_encoder")):
        model = random_pisa(config=PisaConfig(pathway=pathway))
        with torch.no_grad():
            for value in getattr(model, unused).parameters():
                value.fill_(float("nan"))
        assert torch.isfinite(model(iq, descriptor).logits).all()


def test_antenna_count_that_does_not_match_the_geometry_is_refused() -> None:
    with pytest.raises(DataError, match=r"expected \(frames, 4 antennas, samples, 2\), found \(2, 3, 64, 2\)"):
        PISA(10, "cnn")(torch.zeros(2, 3, 64, 2))
    with pytest.raises(DataError, match="4 antennas"):
        Single(10, 4, "cnn")(torch.zeros(2, 3, 64, 2))


def test_unknown_pathway_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'topology'"):
        PisaConfig(pathway="topolgy")
    with pytest.raises(ConfigError, match="positive"):
        PisaConfig(tau_s=0.0)
