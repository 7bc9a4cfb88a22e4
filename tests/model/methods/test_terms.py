"""The terms of the methods against loops, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pisa_capc.model.methods.across import Critic, coral_distance, domain_label, environment_mean, frozen, membership
from pisa_capc.model.methods.alignment import divergence, squared_mmd
from pisa_capc.model.methods.disentangled import prediction_entropy
from pisa_capc.model.methods.mixing import SITES, mixed_cross_entropy, partner_of_same_device
from pisa_capc.model.methods.risks import invariance_penalty
from pisa_capc.model.stacked import Linear
from pisa_capc.model.stacked.noise import permutation
from tests.model.methods.tools import batch, gradients, method, of_run, seeded
from tests.reference import methods as reference
from tests.reference import objective

NAMES = (2, 5, 9)  # of the environments
CASES = {  # environment of each frame of three runs
    "all": [[2, 5, 9, 2, 5, 9, 2, 5, 9], [2, 2, 2, 2, 5, 5, 5, 9, 9], [9, 9, 5, 5, 2, 2, 2, 2, 9]],
    "some absent": [[2, 2, 2, 5, 5, 5, 5, 5, 5], [9] * 9, [2, 2, 2, 2, 5, 9, 9, 9, 9]],
}


@pytest.fixture(params=list(CASES))
def environment(request: pytest.FixtureRequest) -> Tensor:
    return torch.tensor(CASES[request.param])


@pytest.fixture
def z() -> Tensor:
    return torch.randn(3, 9, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.fixture
def label() -> Tensor:
    return torch.randint(4, (3, 9), generator=torch.Generator().manual_seed(2))


def by_run(function: Any, *tensors: Tensor) -> list[float]:
    return [function(*(t[r].numpy() for t in tensors)) for r in range(3)]


def test_coral(z: Tensor, environment: Tensor) -> None:
    found = coral_distance(z, membership(environment, NAMES))
    np.testing.assert_allclose(found, by_run(reference.coral, z, environment), atol=1e-12)


def test_coral_is_zero_for_equal_moments(z: Tensor) -> None:
    twice = torch.cat([z, z], dim=1)
    member = membership(torch.tensor([[2] * 9 + [5] * 9] * 3), NAMES)
    assert coral_distance(twice, member).abs().max() < 1e-20
    assert squared_mmd(twice, member, (0.1, 1.0)).abs().max() < 1e-12


def test_mmd(z: Tensor, environment: Tensor) -> None:
    gammas = (0.1, 1.0, 10.0)
    found = squared_mmd(z, membership(environment, NAMES), gammas)
    expected = by_run(lambda a, e: reference.mmd(a, e, gammas), z, environment)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_invariance_penalty(z: Tensor, label: Tensor, environment: Tensor) -> None:
    found = invariance_penalty(z, label, membership(environment, NAMES))
    np.testing.assert_allclose(found, by_run(reference.invariance, z, label, environment), rtol=1e-6)


def test_divergence(z: Tensor, environment: Tensor) -> None:
    member, score = membership(environment, NAMES), z[..., :3]
    place = domain_label(member)
    np.testing.assert_allclose(divergence(score, member), by_run(reference.divergence, score, place), atol=1e-12)


def test_divergence_of_constant_scores_is_zero_and_has_finite_gradients(environment: Tensor) -> None:
    score = torch.ones(3, 9, 3, dtype=torch.float64, requires_grad=True)
    found = divergence(score, membership(environment, NAMES))
    assert found.abs().max() < 1e-12
    found.sum().backward()
    assert score.grad is not None
    assert score.grad.isfinite().all()


def test_prediction_entropy(z: Tensor) -> None:
    np.testing.assert_allclose(prediction_entropy(z), by_run(reference.entropy, z), atol=1e-12)


def test_riei_is_rewarded_for_parts_that_leave_each_other_uncertain() -> None:
    built, data = method("riei", entropy=0.7), batch()
    model: Any = seeded(built, of_run(data, 0).key)
    uncertain = built.loss(model, of_run(data, 0))["entropy"].item()
    with torch.no_grad():
        for head in (model.classifier, model.environment_classifier):
            head.weight.zero_()
            head.bias.zero_()
    most = built.loss(model, of_run(data, 0))["entropy"].item()
    assert most == pytest.approx(-0.7 * (np.log(4) + np.log(2)))  # −λ (H over devices + H over environments)
    assert most < uncertain


def test_sigmix_has_the_labels_of_both_that_it_mixes(monkeypatch: pytest.MonkeyPatch) -> None:
    """L = … + w_o [λ' CE(h(x̃), y_i) + (1 − λ') CE(h(x̃), y_j)], against a loop, with logits that are linear in x."""
    from pisa_capc.model.stacked.noise import symmetric_beta

    class Averaging:
        def __call__(self, iq: Tensor) -> Any:
            self.iq = iq
            self.logits = iq.mean(2)[..., :2, :].flatten(2)
            return self

    built, data = method("sigmix", same=0.0), batch()
    found = built.loss(Averaging(), data)["other"]  # type: ignore[arg-type]
    share = symmetric_beta(data.key, SITES + 3, data.label.shape, built.settings.alpha)  # type: ignore[attr-defined]
    partner = permutation(data.key, SITES + 5, data.label.shape)
    for r in range(data.label.shape[0]):
        total = 0.0
        for i in range(data.label.shape[1]):
            j, kept = int(partner[r, i]), float(share[r, i])
            mixed = kept * data.iq[r, i] + (1 - kept) * data.iq[r, j]
            log_p = torch.log_softmax(mixed.mean(0)[:2].flatten(), 0)
            own, other = (float(log_p[data.label[r, k]]) for k in (i, j))
            total -= kept * own + (1 - kept) * other
        assert found[r].item() == pytest.approx(total / data.label.shape[1])


def test_mixed_cross_entropy(z: Tensor, label: Tensor) -> None:
    partner = permutation(torch.tensor([3, 4, 5], dtype=torch.int32), 0, label.shape)
    share = torch.rand(3, 9, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    found = mixed_cross_entropy(z, label, partner, share)
    np.testing.assert_allclose(found, by_run(reference.mixed_cross_entropy, z, label, partner, share), atol=1e-12)


def test_environment_mean(z: Tensor, environment: Tensor) -> None:
    found = environment_mean(z[..., 0], membership(environment, NAMES))
    for r in range(3):
        for i, e in enumerate(NAMES):
            own = z[r, environment[r] == e, 0]
            assert found[r, i] == pytest.approx(float(own.mean()) if len(own) else 0.0)


def test_partners_are_of_the_same_device_and_another_environment(label: Tensor) -> None:
    environment = torch.tensor(CASES["all"])
    key = torch.tensor([3, 4, 5], dtype=torch.int32)
    partner = partner_of_same_device(label, environment, key, 0)
    for r in range(3):
        for i, j in enumerate(partner[r].tolist()):
            assert label[r, i] == label[r, j]
            others = [k for k in range(9) if label[r, k] == label[r, i] and k != i]
            elsewhere = [k for k in others if environment[r, k] != environment[r, i]]
            assert j in (elsewhere or others or [i])


def test_a_frozen_layer_passes_gradients_to_its_input_alone() -> None:
    layer, x = Linear(4, 3, runs=2), torch.randn(2, 5, 4, requires_grad=True)
    torch.testing.assert_close(frozen(layer, x), layer(x))
    frozen(layer, x).sum().backward()
    assert x.grad is not None
    assert layer.weight.grad is None
    assert layer.bias.grad is None
    critic = Critic(4, 6, 3, runs=2)
    torch.testing.assert_close(critic.frozen(x), critic(x))
    critic.frozen(x).sum().backward()
    assert all(p.grad is None for p in critic.parameters())


def test_rffcc_recombines_identity_with_the_environment_of_the_partner() -> None:
    built, data = method("rffcc"), of_run(batch(), 0)
    model: Any = seeded(built, data.key)
    terms = built.loss(model, data)
    identity, place = model.parts(data.iq)
    partner = permutation(data.key, SITES, data.label.shape)[0]
    where = (data.environment[0] == 3).long()
    both = identity + place[:, partner]
    who = objective.cross_entropy(model.classifier(both)[0].detach().numpy(), data.label[0].numpy())
    which = objective.cross_entropy(model.environment_classifier(both)[0].detach().numpy(), where[partner].numpy())
    assert terms["combined"].item() == pytest.approx(who + which)
    alone = objective.cross_entropy(model.environment_classifier(place)[0].detach().numpy(), where.numpy())
    assert terms["environment"].item() == pytest.approx(0.5 * alone)


def test_difex_terms() -> None:
    built, data = method("difex", distillation=2.0, exploration=3.0, alignment=4.0), of_run(batch(), 0)
    model: Any = seeded(built, data.key)
    terms = {name: value.item() for name, value in built.loss(model, data).items()}
    iq = torch.view_as_complex(data.iq)
    phase = torch.fft.fft(iq).angle()
    z = model(data.iq).embedding[0].detach().numpy()
    teacher = model.teacher(torch.stack([phase.cos(), phase.sin()], -1)).embedding[0].detach().numpy()
    internal, mutual = z[:, :32], z[:, 32:]
    assert terms["distillation"] == pytest.approx(2 * np.mean((internal - teacher) ** 2), rel=1e-6)
    a, b = (half / np.linalg.norm(half, axis=1, keepdims=True) for half in (internal, mutual))
    assert terms["exploration"] == pytest.approx(-3 * np.mean((a - b) ** 2), rel=1e-6)
    assert terms["alignment"] == pytest.approx(4 * reference.coral(mutual, data.environment[0].numpy()))


def test_the_teacher_of_difex_learns_from_its_own_labels_alone() -> None:
    data = of_run(batch(), 0)
    one, other = (gradients(method("difex", distillation=weight), data) for weight in (0.0, 5.0))
    for name in one:
        assert torch.equal(one[name], other[name]) == (name.startswith("teacher.") or name.startswith("classifier."))
