"""Frames of a capture help each other: strangers stand out more, and a frame that is far from all others is alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.core.randomness import generator
from pisa_capc.data.scores import openset_score
from pisa_capc.decide.calibration import UCAPC, OpenSet
from pisa_capc.decide.calibration.openset import Rejection
from pisa_capc.decide.calibration.openset.crowd import CrowdDistance
from pisa_capc.decide.calibration.openset.scores import Seen, single
from pisa_capc.decide.calibration.openset.session import Sessions
from pisa_capc.decide.enrolment.statistics import with_device, without_device
from pisa_capc.model.inference.statistics import SourceStatistics
from tests.decide.calibration.openset.test_session import APART, CLASSES, FEATURES, RADIOS, Radios

SOURCE = RADIOS.source
STRANGERS = RADIOS.classes + 2 * generator(6, "crowd-example").normal(size=(CLASSES, FEATURES))  # each like a class


def gathered(z: np.ndarray, capture: np.ndarray, score: CrowdDistance | None = None) -> Seen:
    frames = single(torch.from_numpy(z), torch.from_numpy(RADIOS.logits(z)))
    return (score or CrowdDistance()).gather(SOURCE, frames, torch.from_numpy(capture))


def unlike(z: np.ndarray, score: str, source: SourceStatistics = SOURCE) -> tuple[np.ndarray, np.ndarray]:
    """Unknown scores of frames of one capture, and which are taken as known."""
    result = OpenSet(UCAPC(), score).calibrate(z, RADIOS.logits(z), source=source)
    return np.asarray(result.unknown_score), np.asarray(result.known)


def test_the_mean_is_of_the_frames_of_the_capture_within_the_distance() -> None:
    z, capture = RADIOS.sessions(np.arange(8) % CLASSES, 9), np.arange(72) % 2
    project = Sessions.of(SOURCE, torch.from_numpy(z)).project(1, 0.0).numpy()
    found = gathered(z, capture)
    x = z @ project
    for i in range(0, len(z), 5):
        near = ((x - x[i]) ** 2).sum(axis=1) <= CrowdDistance.near * 2 * x.shape[1]
        own = near & (capture == capture[i])
        np.testing.assert_allclose(found.embedding[i], z[own].mean(axis=0), rtol=1e-9)
        assert found.frames[i] == pytest.approx(np.sqrt(min(own.sum(), CrowdDistance.most)))


def test_work_in_parts_is_the_same_work(monkeypatch: pytest.MonkeyPatch) -> None:
    z, capture = RADIOS.sessions(np.arange(CLASSES), 20), np.zeros(20 * CLASSES, dtype=np.int64)
    whole = gathered(z, capture)
    monkeypatch.setattr("pisa_capc.decide.calibration.openset.crowd.DISTANCES", 1000)
    for one, other in zip(whole[:3], gathered(z, capture)[:3], strict=True):
        np.testing.assert_allclose(one, other)


def test_frames_without_others_near_them_score_as_by_session() -> None:
    z = RADIOS.sessions(np.arange(CLASSES), 1)  # classes are far apart
    np.testing.assert_allclose(unlike(z, "crowd")[0], unlike(z, "session")[0])


def test_strangers_stand_out_more_and_known_frames_are_not_rejected_more_than_was_asked() -> None:
    known, strange = (RADIOS.sessions(np.arange(CLASSES), 60, centres) for centres in (None, STRANGERS))
    both, n = np.concatenate([known, strange]), len(known)
    areas = {}
    for score in ("session", "crowd"):
        found, taken = unlike(both, score)
        areas[score] = openset_score(found[:n], np.ones(n, dtype=bool), found[n:]).auroc
        assert 1 - taken[:n].mean() < 0.15, score
    assert areas["crowd"] > areas["session"] + 0.01


def test_a_device_more_and_one_less_keep_their_captures() -> None:
    own = RADIOS.sessions(np.array([0]), 30, 2 * APART * np.ones((1, FEATURES)))
    more = with_device(replace(SOURCE, confusion=60 * np.eye(CLASSES)), own, lambda source, z: (z.mean(axis=0), 0.0))
    less = without_device(more, 0)
    for source in (more, less):
        assert len(source.session_capture) == len(source.session_mean)
        assert CrowdDistance().limit(source, len(source.weight), torch.empty(0, FEATURES).double(), 0.05).threshold > 0


def test_where_it_does_not_fit_it_says_so() -> None:
    z = RADIOS.sessions(np.arange(CLASSES), 3)
    with pytest.raises(ConfigError, match="Leave the senders out"):
        OpenSet(UCAPC(), "crowd").calibrate(z, RADIOS.logits(z), source=SOURCE, sender=np.arange(len(z)))
    with pytest.raises(ConfigError, match="needs whole captures"):
        Rejection.fit("crowd", SOURCE, CLASSES, FEATURES, 0.05)
    with pytest.raises(DataError, match="source_session_capture"):
        unlike(z, "crowd", replace(SOURCE, session_capture=None))
    with pytest.raises(ConfigError, match="near"):
        CrowdDistance(near=-1.0)


def test_one_place_has_a_threshold_too() -> None:
    source = Radios(places=1).source
    assert np.isfinite(CrowdDistance().limit(source, CLASSES, torch.empty(0, FEATURES).double(), 0.05).threshold)
