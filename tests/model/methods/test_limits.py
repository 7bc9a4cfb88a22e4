"""Known limits of the methods."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pisa_capc.model.methods.across import membership, reverse_gradient
from pisa_capc.model.methods.alignment import divergence
from pisa_capc.model.methods.mixing import mix, mixed_cross_entropy
from pisa_capc.model.methods.risks import invariance_penalty
from pisa_capc.model.objective import cross_entropy
from pisa_capc.model.stacked.noise import permutation
from tests.model.methods.tools import BATCH, batch, gradients, method, of_run, seeded

NOTHING: dict[str, dict[str, Any]] = {
    "coral": {"weight": 0.0},
    "mmd": {"weight": 0.0},
    "dann": {"weight": 0.0},
    "gad": {"weight": 0.0},
    "irm": {"weight": 0.0},
    "sigmix": {"same": 0.0, "other": 0.0},
    "rffcc": {"environment": 0.0, "combined": 0.0},
    "difex": {"distillation": 0.0, "exploration": 0.0, "alignment": 0.0},
    "pisa-objective": {"objective": {"augmented": 0.0, "consistency": 0.0, "contrastive": 0.0}},
}


@pytest.mark.parametrize("name", NOTHING)
def test_a_weight_of_zero_gives_the_gradients_of_erm(name: str) -> None:
    data = of_run(batch(), 0)
    expected = gradients(method("erm"), data)
    found = gradients(method(name, **NOTHING[name]), data)
    for parameter, gradient in expected.items():
        torch.testing.assert_close(found[parameter], gradient, rtol=1e-9, atol=1e-12, msg=parameter)


def test_riei_without_its_weights_leaves_the_classifier_as_erm_does() -> None:
    """The environment's cross-entropy has no weight and still reaches the encoder, but not the identity path."""
    data = of_run(batch(), 0)
    expected = gradients(method("erm"), data)
    found = gradients(method("riei", independence=0.0, entropy=0.0), data)
    for parameter in (name for name in expected if not name.startswith("encoder.")):
        torch.testing.assert_close(found[parameter], expected[parameter], rtol=1e-9, atol=1e-12)


def test_reversal_changes_the_sign_of_the_gradient_and_nothing_else() -> None:
    x = torch.randn(3, 4, requires_grad=True)
    y = reverse_gradient(x, 0.3)
    assert torch.equal(x, y)
    (y**2).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, -0.3 * 2 * x.detach())


@pytest.mark.parametrize("name", ["dann", "gad"])
def test_the_weight_scales_the_pull_on_the_encoder_and_leaves_the_critic(name: str) -> None:
    data = of_run(batch(), 0)
    without, one, two = (gradients(method(name, weight=weight), data) for weight in (0.0, 1.0, 2.0))
    for parameter in without:
        pull = one[parameter] - without[parameter]
        torch.testing.assert_close(two[parameter] - without[parameter], 2 * pull, rtol=1e-6, atol=1e-10)
        assert not parameter.startswith("critic.") or (pull == 0).all()


def test_dann_moves_embeddings_to_where_the_critic_is_worse() -> None:
    data, built = of_run(batch(), 0), method("dann")
    pull = gradients(built, data)["project.second.weight"] - gradients(method("erm"), data)["project.second.weight"]
    model: Any = seeded(built, data.key)
    before = built.loss(model, data)["critic"].item()
    with torch.no_grad():
        model.project.second.weight -= 1e-3 * pull
    assert built.loss(model, data)["critic"].item() > before


def test_gad_takes_an_estimate_below_zero_for_none() -> None:
    """A divergence is never negative: the encoder gains nothing by misleading the estimator."""
    data, built = of_run(batch(), 0), method("gad")
    model: Any = seeded(built, data.key)
    signs = set()
    for scale in (1.0, -1.0):
        with torch.no_grad():
            model.critic.second.weight *= 5 * scale
        terms = built.loss(model, data)
        estimates = divergence(model.critic(model(data.iq).embedding), membership(data.environment, (1, 3)))[0]
        signs |= set(estimates.sign().tolist())
        assert terms["divergence"].item() == pytest.approx(estimates.clamp_min(0).mean().item())
        assert terms["estimator"].item() == pytest.approx(-estimates.mean().item())
    assert signs == {-1.0, 1.0}


def test_mixing_with_share_one_is_the_identity() -> None:
    data = batch()
    partner = permutation(data.key, 0, data.label.shape)
    ones = torch.ones(data.label.shape, dtype=torch.float64)
    assert torch.equal(mix(data.iq, partner, ones), data.iq)
    logits = data.iq[:, :, :, 0, 0]
    torch.testing.assert_close(
        mixed_cross_entropy(logits, data.label, partner, ones), cross_entropy(logits, data.label)
    )
    assert torch.equal(mix(data.iq, partner, 0 * ones)[1, 4], data.iq[1, partner[1, 4]])


def test_mixup_draws_anew_for_each_step_and_run() -> None:
    built, data = method("mixup"), of_run(batch(), 0)
    model = seeded(built, data.key)
    first, second = (built.loss(model, data._replace(key=data.key + i))["cls"] for i in range(2))
    assert not torch.equal(first, second)


def balanced() -> Any:
    data = of_run(batch(), 0)
    return data._replace(environment=torch.tensor([[1, 3] * (BATCH // 2)]))


def test_groupdro_that_never_reweighs_is_erm_on_balanced_batches() -> None:
    expected, found = (gradients(m, balanced()) for m in (method("erm"), method("groupdro", rate=0.0)))
    for parameter, gradient in expected.items():
        torch.testing.assert_close(found[parameter], gradient, rtol=1e-9, atol=1e-12)


def test_groupdro_follows_the_worst_environment() -> None:
    built, data = method("groupdro", rate=50.0), balanced()
    model: Any = seeded(built, data.key)
    by_frame = torch.nn.functional.cross_entropy(model(data.iq).logits[0], data.label[0], reduction="none")
    losses = torch.stack([by_frame[0::2].mean(), by_frame[1::2].mean()])
    for _ in range(20):
        found = built.loss(model, data)["cls"]
    assert found.item() == pytest.approx(losses.max().item(), rel=1e-4)
    assert model.environment_weight.sum().item() == pytest.approx(1)
    assert model.environment_weight[0, losses.argmax()] > 0.99
    assert not model.environment_weight.requires_grad


def test_eada_without_its_critic_is_the_equalised_control() -> None:
    data = of_run(batch(), 0)
    control, eada = method("equalised"), method("eada", weight=0.0)
    own, other = seeded(control, data.key), seeded(eada, data.key)
    other.load_state_dict(own.state_dict(), strict=False)  # the critic is its own
    losses = control.loss(own, data)["cls"], eada.loss(other, data)["cls"]
    torch.testing.assert_close(*losses, rtol=0, atol=0)
    losses[0].sum().backward()
    losses[1].sum().backward()
    found, expected = ({name: p.grad for name, p in m.named_parameters() if p.grad is not None} for m in (other, own))
    assert expected
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_pisa_behind_an_equaliser_is_trained_on_equalised_frames_perturbed_afterwards() -> None:
    data = of_run(batch(), 0)
    behind, plain = method("pisa-equalised"), method("pisa")
    model, other = seeded(behind, data.key), seeded(plain, data.key)
    other.load_state_dict(model.state_dict())
    found, expected = behind.loss(model, data), plain.loss(other, data._replace(iq=model.front(data.iq)))
    assert set(found) == set(expected)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=0)
    assert not torch.allclose(plain.loss(other, data)["cls"], expected["cls"])


def test_dann_ramps_as_published_where_it_is_asked_to() -> None:
    data = of_run(batch(), 0)

    def pulls(steps: int, **settings: Any) -> torch.Tensor:
        """Of the critic on one weight of the encoder, step by step."""
        built, found = method("dann", weight=1.0, **settings), []
        model: Any = seeded(built, data.key)
        for _ in range(steps):
            model.zero_grad()
            built.loss(model, data)["critic"].sum().backward()
            found.append(model.project.second.weight.grad.flatten()[0].clone())
        return torch.stack(found)

    p = (torch.arange(6) / 4).clamp(max=1).double()
    expected = 2 / (1 + torch.exp(-10 * p)) - 1
    torch.testing.assert_close((pulls(6, ramp_steps=4) / pulls(1)).double(), expected, rtol=1e-5, atol=1e-6)
    assert "ramp_steps" not in method("dann").describe()  # records of the constant weight keep their names
    assert method("dann", ramp_steps=9).describe()["ramp_steps"] == 9


def test_irm_raises_its_weight_after_the_first_steps() -> None:
    built, data = method("irm", warmup_steps=2), of_run(batch(), 0)
    model = seeded(built, data.key)
    first, second, third = (built.loss(model, data) for _ in range(3))
    assert torch.equal(first["invariance"], second["invariance"])
    torch.testing.assert_close(third["invariance"], first["invariance"])  # weight 100, divided by 100
    torch.testing.assert_close(third["cls"], first["cls"] / 100)
    assert built.settling_steps == 2
    assert method("irm", weight=1.0).settling_steps == 0  # the weight is reached at once


def test_irm_has_no_penalty_on_average_where_one_classifier_is_best_everywhere() -> None:
    rng = torch.Generator().manual_seed(1)
    logits = torch.randn(400, 64, 4, generator=rng)
    label = torch.distributions.Categorical(logits=logits).sample()  # the logits are the truth
    member = torch.ones(400, 64, 1, dtype=torch.bool)
    found = invariance_penalty(logits, label, member)
    assert abs(found.mean().item()) < 3 * found.std().item() / 20


def test_more_environments_than_a_batch_holds_are_no_trouble() -> None:
    data = of_run(batch(), 0)._replace(environment=torch.full((1, BATCH), 1))
    for name in ("coral", "mmd", "gad", "difex", "irm", "groupdro"):
        assert all(g.isfinite().all() for g in gradients(method(name), data).values())
