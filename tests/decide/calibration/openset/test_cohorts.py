"""Scores beside proxies: nobody is taken for one, and cohorts are of other devices."""

from __future__ import annotations

import numpy as np
import torch
from studies.cohorts import Beside, Far, less_impostors, refused_by_proxies, t_norm, z_norm

from pisa_capc.decide.calibration.openset import UnknownScore, score_frames
from pisa_capc.decide.calibration.openset.session import SessionDistance
from tests.decide.calibration.openset.test_session import CLASSES, RADIOS

ENROLLED = CLASSES - 2  # the last two are proxies
LABEL = np.repeat(np.arange(CLASSES), 20)
FRAMES = RADIOS.sessions(LABEL, 1)


def unlike(score: UnknownScore) -> np.ndarray:
    z = torch.from_numpy(FRAMES)
    return score_frames(score.fit(RADIOS.source, ENROLLED, z), z, torch.from_numpy(RADIOS.logits(FRAMES))).numpy()


def example() -> Far:
    """Four sessions of three devices, the last a proxy; two frames."""
    to = torch.tensor([[1.0, 2.0, 9.0, 16.0], [8.0, 9.0, 4.0, 3.0]])
    between = torch.tensor([[0.0, 1.0, 6.0, 8.0], [1.0, 0.0, 7.0, 5.0], [6.0, 7.0, 0.0, 9.0], [8.0, 5.0, 9.0, 0.0]])
    label = torch.tensor([0, 0, 1, 2])
    return Far(to, between, label, label < 2, torch.ones(4, dtype=torch.bool))


def test_without_proxies_it_is_session() -> None:
    np.testing.assert_allclose(unlike(Beside(enrolled=CLASSES)), unlike(SessionDistance()))


def test_nobody_is_taken_for_a_proxy() -> None:
    found, plain = unlike(Beside(enrolled=ENROLLED)), unlike(SessionDistance())
    known = LABEL < ENROLLED
    np.testing.assert_allclose(found[known], plain[known])
    assert found[~known].min() > found[known].max()
    refused = unlike(Beside(enrolled=ENROLLED, way=refused_by_proxies))
    np.testing.assert_allclose(refused[known], plain[known])
    assert refused[~known].min() > 1e5


def test_impostors_of_a_session_are_the_sessions_of_other_devices() -> None:
    far = example()
    np.testing.assert_allclose(less_impostors(far, 1.0), far.to - torch.tensor([7.0, 6.0, 22 / 3, 22 / 3]))
    own = far._replace(cohort=far.own)
    np.testing.assert_allclose(less_impostors(own, 1.0)[:, 0], far.to[:, 0] - 6.0)


def test_z_norm_is_by_session_and_t_norm_by_frame() -> None:
    far = example()
    logs = np.log([6.0, 8.0])  # of the other devices to the first session
    np.testing.assert_allclose(z_norm(far, 0)[:, 0], (far.to[:, 0].log() - logs.mean()) / logs.std(), rtol=1e-6)
    seen = far.to.log().numpy()
    expected = (seen - seen.mean(axis=1, keepdims=True)) / seen.std(axis=1, ddof=1, keepdims=True)
    np.testing.assert_allclose(t_norm(far, 0), expected, rtol=1e-5)
