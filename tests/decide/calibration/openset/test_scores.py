"""Every rejection score is its equation, and has the limits it promises."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from studies.scores import VirtualLogit

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.decide.calibration import SourceStatistics
from pisa_capc.decide.calibration.openset import score_frames, unknown_score, unknown_scores
from pisa_capc.decide.calibration.openset.gaussian import GaussianRatio
from pisa_capc.decide.calibration.openset.scores import (
    Energy,
    Mahalanobis,
    NearestNeighbour,
    UnknownScore,
    single,
)
from tests.decide.calibration.openset.examples import Scored, World
from tests.reference import openset as reference

WORLD = World()
SOURCE = WORLD.source()
FRAMES = WORLD.known(30)


def scores(score: UnknownScore, source: SourceStatistics = SOURCE, frames: Scored = FRAMES) -> np.ndarray:
    z, logits = torch.from_numpy(frames.embedding), torch.from_numpy(frames.logits)
    return score_frames(score.fit(source, logits.shape[1], z), z, logits, torch.from_numpy(frames.carrier_hz)).numpy()


def test_scores_are_those_of_the_slow_reference():
    means, covariance, bank = (np.float64(a) for a in (SOURCE.class_mean, SOURCE.covariance, SOURCE.bank))
    sessions = [np.float64(getattr(SOURCE, f"session_{name}")) for name in ("mean", "label", "frames", "covariance")]
    carriers = SOURCE.session_carrier_hz, sessions[1], sessions[2], float(SOURCE.carrier_variance_hz2)
    slow = {
        "msp": lambda z, logits, c: reference.msp(logits),
        "energy": lambda z, logits, c: reference.energy(logits),
        "knn": lambda z, logits, c: reference.knn(z, bank, 10),
        "mahalanobis": lambda z, logits, c: reference.mahalanobis(z, means, covariance),
        "vim": lambda z, logits, c: reference.vim(z, logits, bank, SOURCE.weight, SOURCE.bias, 3),
        "session": lambda z, logits, c: min(reference.sessions(z, 1, *sessions, moved=3.0)),
        "carrier": lambda z, logits, c: min(
            reference.sessions(z, 1, *sessions, moved=3.0) + reference.carriers(c, 1, *carriers, moved=3.0)
        ),
    }
    slow["crowd"] = slow["session"]  # of a frame by itself
    backend = SOURCE.device_mean, SOURCE.device_error, SOURCE.frame_spread, SOURCE.place_spread
    slow["gaussian"] = lambda z, logits, c: reference.gaussian(z, *backend)
    assert set(slow) == set(unknown_scores())
    for name, function in slow.items():
        frames = zip(FRAMES.embedding, FRAMES.logits, FRAMES.carrier_hz, strict=True)
        expected = [function(*frame) for frame in frames]
        np.testing.assert_allclose(scores(unknown_score(name)()), expected, rtol=1e-8, err_msg=name)


@pytest.mark.parametrize("name", sorted(unknown_scores()))
def test_unknown_frames_score_higher(name: str):
    world = World(features=16)  # where random directions are nearly orthogonal
    source = world.source()
    inside, outside = (scores(unknown_score(name)(), source, f) for f in (world.known(150), world.unknown(150)))
    assert reference.auroc(inside, outside) > 0.75


@pytest.mark.parametrize("name", sorted(unknown_scores()))
def test_a_frame_scores_the_same_alone_and_among_others(name: str, monkeypatch: pytest.MonkeyPatch):
    together = scores(unknown_score(name)())
    monkeypatch.setattr("pisa_capc.decide.calibration.openset.scores.ROWS", 7)
    np.testing.assert_allclose(scores(unknown_score(name)()), together, rtol=1e-9)


@pytest.mark.parametrize("name", sorted(unknown_scores()))
def test_extreme_frames_have_finite_scores(name: str):
    frames = Scored(
        np.array([[1e6] * 6, [0.0] * 6]), np.array([[2e3, 0, 0, 0], [-2e3] * 4]), np.zeros(2), np.array([1e7, 0.0])
    )
    assert np.isfinite(scores(unknown_score(name)(), frames=frames)).all()


def test_energy_of_a_low_temperature_is_the_highest_logit():
    np.testing.assert_allclose(scores(Energy(temperature=1e-4)), -FRAMES.logits.max(axis=1), atol=1e-3)


def test_mahalanobis_with_identity_covariance_is_euclid():
    found = scores(Mahalanobis(), replace(SOURCE, covariance=np.eye(6)))
    distance = np.linalg.norm(FRAMES.embedding[:, None] - SOURCE.class_mean, axis=2).min(axis=1)
    np.testing.assert_allclose(found, distance**2, rtol=1e-9)


def test_mahalanobis_leaves_out_directions_without_variance():
    wider = FRAMES._replace(embedding=np.c_[FRAMES.embedding, np.full(30, 9.0)])
    source = replace(
        SOURCE, covariance=np.pad(SOURCE.covariance, (0, 1)), class_mean=np.pad(SOURCE.class_mean, ((0, 0), (0, 1)))
    )
    np.testing.assert_allclose(scores(Mahalanobis(), source, wider), scores(Mahalanobis()), rtol=1e-6)


def test_mahalanobis_ignores_a_class_that_was_never_trained():
    frames = replace(SOURCE, prior=np.array([0, 0.3, 0.3, 0.4]))
    expected = [
        reference.mahalanobis(z, SOURCE.class_mean[1:], np.float64(SOURCE.covariance)) for z in FRAMES.embedding
    ]
    np.testing.assert_allclose(scores(Mahalanobis(), frames), expected, rtol=1e-8)


def test_the_length_of_an_embedding_does_not_matter_to_knn():
    longer = FRAMES._replace(embedding=FRAMES.embedding * np.linspace(0.1, 10, 30)[:, None])
    np.testing.assert_allclose(scores(NearestNeighbour(), frames=longer), scores(NearestNeighbour()), atol=1e-9)


def test_the_nearest_neighbour_of_a_bank_frame_is_itself():
    nothing = np.zeros(len(SOURCE.bank))
    bank = Scored(SOURCE.bank, np.zeros((len(SOURCE.bank), 4)), nothing, nothing)
    np.testing.assert_allclose(scores(NearestNeighbour(neighbour=1), frames=bank), 0, atol=1e-7)


def test_vim_without_a_residual_is_the_energy():
    everything = VirtualLogit(dimension=6)  # nothing is left outside the principal space
    np.testing.assert_allclose(scores(everything), scores(Energy()), rtol=1e-9)
    plane = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 3)))[0]
    flat = replace(SOURCE, bank=SOURCE.bank @ plane @ plane.T, bias=np.zeros(4))
    np.testing.assert_allclose(scores(VirtualLogit(), flat), scores(Energy()), rtol=1e-9)


def test_vim_grows_with_the_residual_only():
    source = replace(SOURCE, bias=np.zeros(4))
    rest = np.linalg.svd(np.float64(SOURCE.bank))[2][-1]  # a direction outside the principal space
    moved = FRAMES._replace(embedding=FRAMES.embedding + 50 * rest)
    assert (scores(VirtualLogit(), source, moved) > scores(VirtualLogit(), source)).all()


@pytest.mark.parametrize(
    ("name", "missing"),
    [("knn", "bank"), ("vim", "bank"), ("vim", "weight"), ("vim", "bias"), ("mahalanobis", "covariance"),
     ("mahalanobis", "class_mean"), ("session", "session_mean"), ("session", "session_covariance")],
)  # fmt: skip
def test_a_missing_statistic_is_named(name: str, missing: str):
    with pytest.raises(DataError, match=f"{name} needs source_{missing}.*Train the model again"):
        scores(unknown_score(name)(), replace(SOURCE, **{missing: None}))


def test_what_does_not_fit_is_refused():
    with pytest.raises(ConfigError, match="Did you mean 'mahalanobis'"):
        unknown_score("mahalonobis")
    with pytest.raises(DataError, match="holds 5 training embeddings; the 10-th neighbour"):
        scores(NearestNeighbour(), replace(SOURCE, bank=SOURCE.bank[:5]))
    with pytest.raises(DataError, match=r"source_bank has shape \(200, 5\)"):
        scores(NearestNeighbour(), replace(SOURCE, bank=SOURCE.bank[:, :5]))
    with pytest.raises(ConfigError, match="dimension is 7; expected a number from 0 to the 6 features"):
        scores(VirtualLogit(dimension=7))
    with pytest.raises(DataError, match="vim: the highest logits"):
        scores(VirtualLogit(), replace(SOURCE, bias=np.full(4, -1e3)))
    for wrong in (lambda: Energy(temperature=0), lambda: NearestNeighbour(neighbour=0)):
        with pytest.raises(ConfigError, match="expected a number"):
            wrong()


def test_frames_of_a_sender_are_pooled_by_the_back_end():
    backend, score, z = SOURCE.backend(), GaussianRatio(), torch.from_numpy(FRAMES.embedding[:12])
    sender = torch.arange(12) // 4
    seen = score.together(SOURCE, single(z, torch.zeros(12, 4)), sender)
    expected = backend.strangeness(backend.evidence(z.numpy()).pooled(sender.numpy()))
    np.testing.assert_allclose(score.fit(SOURCE, 4, z)(seen), expected, rtol=1e-8)


def test_the_back_end_rejects_as_many_known_frames_as_it_promises():
    backend, like = SOURCE.backend(), torch.from_numpy(FRAMES.embedding)
    fresh = backend.strangeness(backend.drawn(20_000, np.random.default_rng(5)))
    for alpha in (0.02, 0.05, 0.2):
        assert np.mean(fresh > GaussianRatio().limit(SOURCE, 4, like, alpha).threshold) == pytest.approx(alpha, rel=0.2)
