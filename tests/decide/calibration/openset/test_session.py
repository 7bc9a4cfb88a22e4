"""Where classes, sessions and frames are Gaussian, the session score has the distributions that theory gives it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.core.randomness import generator
from pisa_capc.data.scores import openset_score
from pisa_capc.decide.calibration import UCAPC, OpenSet, SourceStatistics
from pisa_capc.decide.calibration.openset import score_frames, score_senders
from pisa_capc.decide.calibration.openset.session import SessionDistance, Sessions
from pisa_capc.decide.enrolment.statistics import with_device, without_device
from pisa_capc.model.inference.statistics import openset_statistics

CLASSES, FEATURES = 6, 8
SPREAD, MOVES, APART = 1.0, 0.5, 12.0  # standard deviations of frames, sessions and classes


class Radios:
    """Classes far apart; each session is off its class, each frame off its session."""

    def __init__(self, places: int = 2, captures: int = 3, frames: int = 60) -> None:
        self.draw = generator(7, "session-example")
        self.classes = APART * self.draw.normal(size=(CLASSES, FEATURES))
        cells = np.array([(k, p, c) for k in range(CLASSES) for p in range(places) for c in range(captures)])
        z, label = self.sessions(cells[:, 0], frames), np.repeat(cells[:, 0], frames)
        where = np.repeat(cells[:, 1:], frames, axis=0)
        held = np.arange(len(z)) % 3 == 0
        parts = (z[~held], label[~held], z[held], self.logits(z[held]), label[held], where[~held], where[held])
        made = {name: value.numpy() for name, value in openset_statistics(*parts).items()}
        self.source = SourceStatistics(weight=self.classes, bias=np.zeros(CLASSES), mean=z.mean(axis=0), **made)

    def sessions(self, label: np.ndarray, frames: int, centres: np.ndarray | None = None) -> np.ndarray:
        """(len(label) · frames, D) frames of new sessions."""
        means = (self.classes if centres is None else centres)[label]
        means = means + MOVES * self.draw.normal(size=means.shape)
        return np.repeat(means, frames, axis=0) + SPREAD * self.draw.normal(size=(len(means) * frames, FEATURES))

    def logits(self, z: np.ndarray) -> np.ndarray:
        return z @ self.classes.T

    def score(self, z: np.ndarray, frames: int) -> np.ndarray:
        """Of senders with `frames` rows each."""
        embedding = torch.from_numpy(z)
        sender = torch.arange(len(z) // frames).repeat_interleave(frames)
        function = SessionDistance().fit(self.source, CLASSES, embedding)
        return score_senders(function, embedding, torch.from_numpy(self.logits(z)), sender)[::frames].numpy()


RADIOS = Radios()
MANY = Radios(captures=50, frames=30)


def test_both_covariances_are_found() -> None:
    found = Sessions.of(MANY.source, torch.zeros(1, FEATURES, dtype=torch.float64))
    np.testing.assert_allclose(found.spread, SPREAD**2 * np.eye(FEATURES), atol=0.1)
    np.testing.assert_allclose(found.moves, MOVES**2 * np.eye(FEATURES), atol=0.1)


def squared_distance(z: np.ndarray, frames: int) -> np.ndarray:
    """Of means of senders to the nearest class mean: z̄ − m is exactly N(0, S + W/n), along C − 1 axes."""
    eye = torch.eye(FEATURES, dtype=torch.float64)
    means, label = torch.from_numpy(MANY.classes), torch.arange(CLASSES)
    project = Sessions(means, label, label, SPREAD**2 * eye, MOVES**2 * eye).project(frames, 1.0)
    senders = torch.from_numpy(z.reshape(-1, frames, FEATURES).mean(axis=1))
    return np.asarray(torch.cdist(senders @ project, means @ project).amin(dim=1).square())


@pytest.mark.parametrize("frames", [1, 10])
def test_known_senders_are_chi_squared_whatever_the_number_of_frames(frames: int) -> None:
    found = squared_distance(MANY.sessions(np.arange(3000) % CLASSES, frames), frames)
    assert stats.kstest(found, stats.chi2(CLASSES - 1).cdf).pvalue > 1e-3


@pytest.mark.parametrize("frames", [1, 3, 10])
def test_strangers_are_told_apart_as_well_as_theory_says(frames: int) -> None:
    towards = MANY.classes[1] - MANY.classes[0]
    beside = MANY.classes[:1] + 2.0 * towards / np.linalg.norm(towards)  # two standard deviations of a frame away
    label = np.zeros(3000, dtype=np.int64)
    known, strange = (squared_distance(MANY.sessions(label, frames, c), frames) for c in (None, beside))
    off = 2.0**2 / (MOVES**2 + SPREAD**2 / frames)
    expected = stats.chi2(CLASSES - 1).cdf(stats.ncx2(CLASSES - 1, off).rvs(100_000, random_state=MANY.draw)).mean()
    assert openset_score(known, known >= 0, strange).auroc == pytest.approx(expected, abs=0.02)


def test_the_threshold_rejects_its_share_in_a_new_place_and_the_plain_one_more() -> None:
    alpha, like = 0.05, torch.zeros(1, FEATURES, dtype=torch.float64)
    label = np.arange(2000) % CLASSES
    limit = SessionDistance().limit(RADIOS.source, CLASSES, like, alpha).threshold
    for frames in (1, 10):
        rejected = (RADIOS.score(RADIOS.sessions(label, frames), frames) > limit).mean()
        assert rejected < 1.5 * alpha
    inside = torch.as_tensor(RADIOS.source.validation).double()
    plain = np.quantile(RADIOS.score(inside.numpy(), 1), 1 - alpha)
    assert plain < limit
    assert (RADIOS.score(RADIOS.sessions(label, 10), 10) > plain).mean() > alpha


def test_frames_of_a_sender_are_rejected_together() -> None:
    strangers = APART * RADIOS.draw.normal(size=(4, FEATURES))
    z = np.concatenate([RADIOS.sessions(np.arange(12) % CLASSES, 10), RADIOS.sessions(np.arange(4), 10, strangers)])
    sender = np.repeat([f"02:00:00:00:00:{i:02x}" for i in range(16)], 10)
    result = OpenSet(UCAPC(), "session").calibrate(z, RADIOS.logits(z), source=RADIOS.source, sender=sender)
    known = np.asarray(result.known).reshape(16, 10)
    assert (known == known[:, :1]).all()
    assert known[:12, 0].sum() >= 10
    assert not known[12:].any()
    shuffled = RADIOS.draw.permutation(len(z))
    again = OpenSet(UCAPC(), "session").calibrate(
        z[shuffled], RADIOS.logits(z)[shuffled], source=RADIOS.source, sender=sender[shuffled]
    )
    np.testing.assert_allclose(again.unknown_score, np.asarray(result.unknown_score)[shuffled], rtol=1e-9)


@pytest.mark.parametrize(("places", "captures"), [(1, 3), (1, 1)])
def test_one_place_and_one_capture_have_a_threshold_too(places: int, captures: int) -> None:
    one = Radios(places, captures)
    limit, reference = SessionDistance().limit(one.source, CLASSES, torch.zeros(1, FEATURES).double(), 0.05)
    assert np.isfinite(reference).all()
    assert reference.min() < limit < reference.max()


def test_a_device_more_and_one_less_keep_their_sessions() -> None:
    own = RADIOS.sessions(np.zeros(1, dtype=np.int64), 40, APART * RADIOS.draw.normal(size=(1, FEATURES)))
    before = replace(RADIOS.source, confusion=60 * np.eye(CLASSES))
    more = with_device(before, own, lambda source, z: (z.mean(axis=0), 0.0))
    like = torch.zeros(1, FEATURES, dtype=torch.float64)
    limit = SessionDistance().limit(RADIOS.source, CLASSES, like, 0.05).threshold
    function = SessionDistance().fit(more, CLASSES + 1, like)
    known = score_frames(function, torch.from_numpy(own), torch.zeros(40, CLASSES + 1))
    assert float((known > limit).double().mean()) < 0.2
    assert SessionDistance().limit(more, CLASSES + 1, like, 0.05).threshold < 2 * limit
    less = without_device(more, 0)
    assert set(less.session_label) == set(range(CLASSES))
    np.testing.assert_array_equal(less.session_label[less.validation_session], less.validation_label)
    kept = more.validation_label != 0
    np.testing.assert_array_equal(
        less.session_mean[less.validation_session], more.session_mean[more.validation_session[kept]]
    )


def test_what_is_missing_is_said() -> None:
    with pytest.raises(DataError, match=r"an earlier version trained the model\. Train the model again, or choose"):
        OpenSet(UCAPC()).calibrate(np.zeros((3, FEATURES)), np.zeros((3, CLASSES)), source=SourceStatistics())
    wrong = replace(RADIOS.source, validation_session=np.full(len(RADIOS.source.validation), 99))
    with pytest.raises(DataError, match="names session 99 of 36; expected their numbers"):
        OpenSet(UCAPC()).calibrate(np.zeros((3, FEATURES)), np.zeros((3, CLASSES)), source=wrong)
    with pytest.raises(ConfigError, match="moved is -1"):
        SessionDistance(-1)
