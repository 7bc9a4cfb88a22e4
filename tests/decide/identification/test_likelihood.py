"""Evidence by likelihood ratios keeps its promise where the Gaussians are right, and one frame decides nothing."""

from __future__ import annotations

import numpy as np
import pytest

from pisa_capc.core.errors import DataError
from pisa_capc.decide.identification.likelihood import Likelihoods, likelihoods
from pisa_capc.model.gaussian import Device, GaussianBackend
from tests.reference.gaussian import log_likelihood as slow

SIZE, DEVICES = 4, 6
ALPHA = 0.05
RANDOM = np.random.default_rng(7)
MEANS = 6 * RANDOM.normal(size=(DEVICES, SIZE))
FRAME, PLACE = np.eye(SIZE), 0.5 * np.eye(SIZE)
BACKEND = GaussianBackend(
    {str(k): Device(mean, 0.05 * np.eye(SIZE), 100, 2) for k, mean in enumerate(MEANS)}, FRAME, PLACE
)


def heard(device: int, frames: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Frames of a device in one place, and their errors."""
    error = np.einsum("n,ij->nij", random.uniform(0.2, 3.0, frames), np.eye(SIZE))
    own = MEANS[device] + 0.05**0.5 * random.normal(size=SIZE) + 0.5**0.5 * random.normal(size=SIZE)
    scatter = (1 + error[:, 0, 0])[:, None] ** 0.5 * random.normal(size=(frames, SIZE))
    return own + scatter, error


def evidence(value: np.ndarray, error: np.ndarray, claimed: int = 0, track: int = 0) -> tuple[np.ndarray, np.ndarray]:
    return likelihoods(BACKEND, claimed, [track] * len(value), value, error)


def test_a_genuine_claim_is_confirmed_and_rarely_refuted() -> None:
    """Places differ, and frames of a place share what they have of it: they are not as many witnesses."""
    found = [evidence(*heard(0, 40, np.random.default_rng(seed))) for seed in range(300)]
    refuted = np.mean([against.max() >= -np.log(ALPHA) for against, _ in found])
    confirmed = np.mean([support.max() >= -np.log(ALPHA) for _, support in found])
    assert refuted <= ALPHA
    assert confirmed > 0.95


def test_an_impersonator_is_refuted_within_a_few_frames() -> None:
    for seed in range(20):
        against, support = evidence(*heard(3, 6, np.random.default_rng(seed)))
        assert against[-1] >= -np.log(ALPHA)
        assert support.max() < -np.log(ALPHA)


def test_the_ratio_is_that_of_all_frames_together() -> None:
    """Of the pool of even frames, by one large Gaussian of all its values."""
    value, error = heard(3, 2, RANDOM)
    test = Likelihoods(BACKEND, 0)
    for one in (0, 0, 1, 1):  # the same frames in both pools
        test.push(0, value[one], error[one])
    each = [slow(value, d.mean, d.error, error, FRAME, PLACE) for d in BACKEND.devices.values()]
    middle, spread = BACKEND.population
    stranger = slow(value, middle, spread, error, FRAME, PLACE)
    ratio = np.log((np.mean(np.exp(each[1:])) + np.exp(stranger)) / 2) - each[0]
    [track] = test._tracks.values()
    np.testing.assert_allclose(track.ratios, [ratio, each[0] - max(stranger, *each[1:])], rtol=1e-6)


def test_one_frame_alone_decides_nothing() -> None:
    value, error = heard(0, 30, RANDOM)
    value[0] += 1e3
    against, _ = evidence(value, error)
    assert against.max() < -np.log(ALPHA)


def test_two_who_send_in_turn_at_one_carrier_are_noticed() -> None:
    (own, errors), (others, more) = heard(0, 30, RANDOM), heard(3, 30, RANDOM)
    value, error = (np.stack(pair, axis=1).reshape(60, *pair[0].shape[1:]) for pair in ((own, others), (errors, more)))
    against, _ = evidence(value, error)
    assert against[-1] >= -np.log(ALPHA)


def test_another_carrier_is_another_track() -> None:
    """A sender that joins under the address is found among many frames of the device itself."""
    (own, errors), (others, more) = heard(0, 200, RANDOM), heard(3, 6, RANDOM)
    test = Likelihoods(BACKEND, 0)
    for frame in zip(own, errors, strict=True):
        test.push(1, *frame)
    assert test.log_m[0] < 0
    for frame in zip(others, more, strict=True):
        test.push(2, *frame)
    assert test.log_m[0] >= -np.log(ALPHA)
    for number in range(100):  # and is not forgotten for those who send a frame each
        test.push(10 + number, own[0], errors[0])
    assert test.log_m[0] >= -np.log(ALPHA)


def test_a_frame_that_was_not_measured_says_nothing() -> None:
    value, error = heard(0, 10, RANDOM)
    error[4] = np.inf
    for curve in evidence(value, error):
        assert curve[4] == curve[3]


def test_a_claim_needs_the_device_and_another() -> None:
    with pytest.raises(DataError, match="a claim needs the claimed one and another"):
        Likelihoods(BACKEND, 9)
    with pytest.raises(DataError, match="knows 1 devices"):
        Likelihoods(GaussianBackend({"0": BACKEND.devices["0"]}, FRAME, PLACE), 0)


def test_the_stakes_of_all_tracks_are_one_stake() -> None:
    """Frames that say nothing win nothing, at however many carriers they come."""
    test = Likelihoods(BACKEND, 0)
    for track in range(5):
        np.testing.assert_allclose(test.push(track, MEANS[0], np.full((SIZE, SIZE), np.inf)), 0, atol=1e-12)
