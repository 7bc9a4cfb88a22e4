"""Each comparison method has the limits its equations promise."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import softmax

from pisa_capc.core.errors import DataError
from pisa_capc.core.randomness import generator
from pisa_capc.decide.calibration import SourceStatistics
from pisa_capc.decide.calibration.peers import (
    BBSE,
    BDCSPN,
    LAME,
    MLLS,
    PTMAP,
    T3A,
    Direct,
    LabelPropagation,
    StatA,
    TransCLIP,
)
from pisa_capc.decide.calibration.peers.bd_cspn import domain_shift
from pisa_capc.decide.calibration.peers.graph import nearest_neighbours, normalised_graph
from pisa_capc.decide.calibration.peers.label_shift import label_shift_weights
from pisa_capc.decide.calibration.peers.transclip import log_likelihood, shared_variance
from pisa_capc.decide.calibration.vectors import softmax_rows
from tests.decide.calibration.examples import Example, shifted_captures


@pytest.fixture
def example() -> Example:
    return shifted_captures()


@pytest.fixture
def source(example: Example) -> SourceStatistics:
    return SourceStatistics(weight=example.weight, class_mean=example.weight)


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_a_source_statistic_of_the_wrong_shape_is_named(example: Example):
    with pytest.raises(DataError, match=r"source_weight has shape \(6, 4\); expected \(4, 6\)"):
        T3A().calibrate(example.embedding, example.logits, source=SourceStatistics(weight=example.weight.T))


def test_direct_is_the_softmax(example: Example):
    result = Direct().calibrate(example.embedding, example.logits)
    np.testing.assert_allclose(result.probability, softmax(example.logits, axis=1))
    assert result.changed == 0


def test_t3a_with_one_support_of_certain_rows_is_the_classifier_direction(example: Example):
    certain = SourceStatistics(weight=30 * unit(example.weight))  # rows so long that no frame is as certain
    result = T3A(supports=1).calibrate(example.embedding, example.logits, source=certain)
    np.testing.assert_allclose(result.prototypes[0], unit(example.weight), atol=1e-12)
    np.testing.assert_allclose(result.score, example.embedding @ unit(example.weight).T, atol=1e-12)


def test_t3a_with_all_supports_is_the_mean_of_what_was_decided(example: Example, source: SourceStatistics):
    result = T3A(supports=0).calibrate(example.embedding, example.logits, source=source)
    decided = example.logits.argmax(1)
    rows = (example.weight @ example.weight.T).argmax(1)
    directions = np.concatenate((unit(example.weight), unit(example.embedding)))
    labels = np.concatenate((rows, decided))
    expected = unit(np.stack([directions[labels == k].sum(0) for k in range(4)]))
    np.testing.assert_allclose(result.prototypes[0], expected, atol=1e-12)


def test_lame_without_neighbours_is_the_softmax(example: Example):
    result = LAME(neighbours=0).calibrate(example.embedding, example.logits)
    np.testing.assert_allclose(result.probability, softmax(example.logits, axis=1), atol=1e-12)


def test_lame_is_a_fixed_point_of_its_equation(example: Example):
    result = LAME(iterations=1000, tolerance=1e-12).calibrate(example.embedding, example.logits)
    index, _ = nearest_neighbours(torch.from_numpy(example.embedding), 5)
    pulled = result.probability[index.numpy()].sum(1)
    expected = softmax(np.log(softmax(example.logits, axis=1)) + pulled, axis=1)
    np.testing.assert_allclose(result.probability, expected, atol=1e-9)


def test_neighbours_equal_a_full_similarity_matrix(example: Example, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("pisa_capc.decide.calibration.peers.graph._ELEMENTS", 1000)
    index, cosine = nearest_neighbours(torch.from_numpy(example.embedding), 3)
    similarity = unit(example.embedding) @ unit(example.embedding).T
    np.fill_diagonal(similarity, -2)
    np.testing.assert_array_equal(index, np.argsort(-similarity, axis=1)[:, :3])
    np.testing.assert_allclose(cosine, -np.sort(-similarity, axis=1)[:, :3], atol=1e-6)


def test_label_propagation_that_does_not_spread_changes_nothing(example: Example):
    result = LabelPropagation(spread=0).calibrate(example.embedding, example.logits)
    np.testing.assert_allclose(result.probability, softmax(example.logits, axis=1), atol=1e-12)


def test_label_propagation_solves_its_linear_system(example: Example):
    result = LabelPropagation(spread=0.6).calibrate(example.embedding, example.logits)
    graph = normalised_graph(*nearest_neighbours(torch.from_numpy(example.embedding), 5), 5.0).to_dense().numpy()
    np.testing.assert_allclose(graph, graph.T, atol=1e-15)
    expected = np.linalg.solve(np.eye(len(graph)) - 0.6 * graph, softmax(example.logits, axis=1))
    np.testing.assert_allclose(result.probability, expected / expected.sum(1, keepdims=True), atol=1e-9)


def test_pt_map_fills_classes_evenly(example: Example):
    result = PTMAP(sinkhorn_iterations=500).calibrate(example.embedding, example.logits)
    np.testing.assert_allclose(result.probability.sum(0), len(example.logits) / 4, rtol=1e-6)


def test_bd_cspn_does_not_shift_where_means_agree(example: Example):
    embedding = torch.from_numpy(example.embedding)
    assert domain_shift(embedding, embedding.mean(0)).abs().max() == 0
    known = {"class_mean": example.weight}
    moved = BDCSPN().calibrate(
        example.embedding + 3.0, example.logits, source=SourceStatistics(**known, mean=example.embedding.mean(0))
    )
    still = BDCSPN().calibrate(
        example.embedding, example.logits, source=SourceStatistics(**known, mean=example.embedding.mean(0))
    )
    np.testing.assert_allclose(moved.probability, still.probability, atol=1e-12)


def test_the_shared_variance_is_the_second_moment(example: Example):
    features, assigned = torch.from_numpy(unit(example.embedding)), torch.from_numpy(softmax(example.logits, axis=1))
    means = torch.from_numpy(unit(example.weight))
    squares = (features[:, None, :] - means) ** 2
    torch.testing.assert_close(
        shared_variance(features.square().sum(0), assigned.T @ features, assigned.sum(0), means, len(features)),
        (assigned[..., None] * squares).sum((0, 1)) / len(features),
    )
    variance = torch.linspace(0.5, 2, 6, dtype=torch.float64)
    exact = torch.distributions.Normal(means, variance.sqrt()).log_prob(features[:, None, :]).sum(-1)
    given = log_likelihood(features, means, variance)
    torch.testing.assert_close(given - given[:, :1], exact - exact[:, :1])


def test_stata_keeps_the_source_where_the_anchor_is_infinite(example: Example, source: SourceStatistics):
    result = StatA(anchor=1e15).calibrate(example.embedding, example.logits, source=source)
    np.testing.assert_allclose(result.prototypes[0], unit(example.weight), atol=1e-9)


def test_stata_without_an_anchor_is_transclip(example: Example, source: SourceStatistics):
    anchored = StatA(anchor=0).calibrate(example.embedding, example.logits, source=source)
    free = TransCLIP().calibrate(example.embedding, example.logits)
    np.testing.assert_allclose(anchored.probability, free.probability, atol=1e-12)


def test_mlls_leaves_posteriors_whose_prior_is_the_sources():
    posterior = np.array([[0.7, 0.3], [0.1, 0.9], [0.4, 0.6]])
    known = SourceStatistics(prior=posterior.mean(0))
    result = MLLS().calibrate(np.ones((3, 2)), np.log(posterior), source=known)
    np.testing.assert_allclose(result.probability, posterior, atol=1e-9)


@pytest.mark.filterwarnings("ignore:embedding .* look exchanged")
def test_mlls_finds_the_true_shift():
    draw = generator(7, "test")
    label = (draw.random(20000) < 0.8).astype(int)
    signal = draw.normal(size=20000) + 2 * label
    logits = np.stack((-(signal**2), -((signal - 2) ** 2)), axis=1) / 2  # exact posteriors under equal priors
    result = MLLS(iterations=1000).calibrate(np.ones((20000, 1)), logits)
    assert result.probability.mean(0)[1] == pytest.approx(0.8, abs=0.01)


def test_bbse_with_an_identity_confusion_gives_the_decision_frequencies():
    decision = torch.tensor([0, 0, 0, 1, 2, 2])
    weights = label_shift_weights(torch.eye(3, dtype=torch.float64), decision)
    torch.testing.assert_close(weights / 3, torch.tensor([3, 1, 2], dtype=torch.float64) / 6)


def test_bbse_undoes_a_known_confusion():
    confused = torch.tensor([[0.4, 0.1], [0.1, 0.4]], dtype=torch.float64)  # joint: equal priors, 80 % right
    decision = torch.tensor([0] * 26 + [1] * 74)  # what 10 % / 90 % frames would be decided as
    torch.testing.assert_close(label_shift_weights(confused, decision), torch.tensor([0.2, 1.8], dtype=torch.float64))
    with pytest.raises(DataError, match="confusion"):
        BBSE().calibrate(np.ones((1, 1)), np.ones((1, 2)), source=SourceStatistics(confusion=np.zeros((2, 2))))


def test_stata_is_its_equations_step_by_step(example: Example, source: SourceStatistics):
    features, method = unit(example.embedding), StatA(neighbours=3, rounds=2, assignment_steps=2)
    anchors, p = unit(example.weight), softmax(example.logits, axis=1)
    index, cosine = (value.numpy() for value in nearest_neighbours(torch.from_numpy(example.embedding), 3))

    def means(y: np.ndarray) -> np.ndarray:
        trust = (y.sum(0) / (y.sum(0) + method.anchor))[:, None]
        return trust * (y.T @ features) / y.sum(0)[:, None] + (1 - trust) * anchors

    y, mu = p, means(p)
    for _ in range(method.rounds):
        off = (features[:, None, :] - mu) ** 2
        variance = (y[..., None] * off).sum((0, 1)) / len(features)
        for _ in range(method.assignment_steps):
            near = (np.maximum(cosine, 0)[..., None] * y[index]).sum(1)
            y = softmax(np.log(p) - 0.5 * (off / variance).sum(-1) + near, axis=1)
        mu = means(y)
    found = method.calibrate(example.embedding, example.logits, source=source).probability
    np.testing.assert_allclose(found, y, rtol=1e-9, atol=1e-12)


def test_softmax_of_rows_is_softmax():
    score = 1e3 * torch.randn(50, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(softmax_rows(score), torch.softmax(score, dim=1), rtol=1e-13, atol=0)
