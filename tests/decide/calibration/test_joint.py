"""Shift and shares fitted jointly, and the gates."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from studies import joint
from studies.joint import Gated, Joint

from pisa_capc.data.scores import macro_f1
from pisa_capc.decide.calibration import UCAPC, SourceStatistics

CLASSES, SIZE, WIDTH = 6, 12, 0.15
RANDOM = np.random.default_rng(1)
MEANS = 1.0 * np.linalg.qr(RANDOM.normal(size=(SIZE, SIZE)))[0][:CLASSES]
SOURCE = SourceStatistics(
    mean=MEANS.mean(0),
    class_mean=MEANS,
    covariance=WIDTH**2 * np.eye(SIZE),
    prior=np.full(CLASSES, 1 / CLASSES),
    weight=MEANS / WIDTH**2,
    bias=-(MEANS**2).sum(1) / (2 * WIDTH**2),
)
DISTANCE = float(np.linalg.norm(MEANS[0] - MEANS[1]))


def logits(z: np.ndarray) -> np.ndarray:
    """The source's own classifier, at its best there."""
    return np.asarray(-((z[:, None] - MEANS) ** 2).sum(-1) / (2 * WIDTH**2))


def frames(shares: np.ndarray, shift: float, n: int = 600, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Embeddings of a capture that has moved by `shift` of the classes' distance, and their classes."""
    rng = np.random.default_rng(seed)
    label = np.repeat(np.arange(CLASSES), np.round(shares * n).astype(int))
    toward = MEANS[1] - MEANS[0]
    moved = shift * DISTANCE * toward / np.linalg.norm(toward)
    return MEANS[label] + moved + WIDTH * rng.normal(size=(len(label), SIZE)), label


def right(found: object, label: np.ndarray) -> float:
    return macro_f1(label, np.asarray(found.prediction), CLASSES, present=True)  # type: ignore[attr-defined]


EQUAL = np.full(CLASSES, 1 / CLASSES)
SKEWED = np.array([0.5, 0.25, 0.15, 0.1, 0.0, 0.0])


@pytest.mark.parametrize("shares", [EQUAL, SKEWED], ids=["equal", "skewed"])
def test_a_moved_capture_is_found_whatever_its_shares(shares: np.ndarray) -> None:
    z, label = frames(shares, shift=0.6)
    direct = macro_f1(label, logits(z).argmax(1), CLASSES, present=True)
    assert direct < 0.9
    assert right(Joint().calibrate(z, logits(z), source=SOURCE), label) > 0.99


def test_a_skewed_capture_that_has_not_moved_is_left_as_it_is() -> None:
    z, label = frames(SKEWED, shift=0.0)
    scores = logits(z)
    found = Gated().calibrate(z, scores, source=SOURCE)
    np.testing.assert_array_equal(np.asarray(found.prediction), scores.argmax(1))
    assert right(UCAPC().calibrate(z, scores), label) < 0.9  # which would have been the price


def test_equal_shares_are_given_to_ucapc() -> None:
    z, _ = frames(EQUAL, shift=0.1)
    found, published = Gated().calibrate(z, logits(z), source=SOURCE), UCAPC().calibrate(z, logits(z))
    np.testing.assert_array_equal(np.asarray(found.prediction), np.asarray(published.prediction))


def test_a_collision_is_resolved() -> None:
    z, label = frames(np.array([0.5, 0.3, 0.2, 0.0, 0.0, 0.0]), shift=0.72)
    assert (logits(z).argmax(1) == 0).mean() < 0.03  # two devices are taken for one
    found = Gated().calibrate(z, logits(z), source=SOURCE)
    assert right(found, label) > 0.99


def test_one_device_alone_stays_one_device() -> None:
    z, label = frames(np.eye(CLASSES)[2], shift=0.0, n=200)
    assert right(Gated().calibrate(z, logits(z), source=SOURCE), label) == 1


def test_the_bound_never_falls(monkeypatch: pytest.MonkeyPatch) -> None:
    z, _ = frames(SKEWED, shift=0.4)
    u = torch.from_numpy(z)
    space = joint.Space.of(SOURCE, CLASSES, u, "test")
    start = torch.softmax(torch.from_numpy(logits(z)), dim=1)
    bounds = []
    monkeypatch.setattr(joint, "TOLERANCE", 0.0)
    for steps in range(2, 16):
        monkeypatch.setattr(joint, "ITERATIONS", steps)
        bounds.append(float(joint.fit(u @ space.project, space, start[None], [(0.15, 0.3)], effective=4.0).bound))
    assert (np.diff(bounds) > -1e-6 * np.abs(bounds[0])).all()


def test_divergences_are_those_of_the_textbook() -> None:
    weight = torch.tensor([1.5, 3.0, 7.0], dtype=torch.float64)
    dirichlet = torch.distributions.Dirichlet
    expected = torch.distributions.kl_divergence(dirichlet(weight), dirichlet(torch.ones(3, dtype=torch.float64)))
    torch.testing.assert_close(joint._dirichlet_divergence(weight[None])[0], expected)
    a = torch.from_numpy(RANDOM.normal(size=(3, 3)))
    covariance, prior = a @ a.T + torch.eye(3), 2 * torch.eye(3, dtype=torch.float64) + 0.5
    mean = torch.from_numpy(RANDOM.normal(size=(3, 2)))
    normal = torch.distributions.MultivariateNormal
    each = [
        torch.distributions.kl_divergence(normal(mean[:, j], covariance), normal(torch.zeros(3).double(), prior))
        for j in range(2)
    ]
    found = joint._gaussian_divergence(mean[None], covariance[None], prior[None], torch.linalg.inv(prior)[None])
    torch.testing.assert_close(found[0], torch.stack(each).sum())
