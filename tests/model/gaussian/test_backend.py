"""The back-end is exact where it can be compared, honest about strangers, and leaves other devices alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import multivariate_normal

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.model.gaussian import GaussianBackend, Observations, fit_backend
from pisa_capc.model.gaussian.algebra import gaussians, inverse_of
from tests.reference.gaussian import device_from, log_likelihood

Array = NDArray[Any]
SIZE = 3
S = np.array([[1.0, 0.3, 0.0], [0.3, 0.8, 0.1], [0.0, 0.1, 0.5]])
P = np.diag([0.5, 0.2, 0.4])


def errors(rng: np.random.Generator, count: int, scale: float = 1.0) -> Array:
    """(count, d, d) covariances that differ from frame to frame."""
    roots = rng.normal(size=(count, SIZE, SIZE)) * rng.uniform(0.2, 1.5, size=(count, 1, 1)) * scale
    return np.asarray(roots @ roots.swapaxes(1, 2) / SIZE)


def drawn(rng: np.random.Generator, covariance: Array) -> Array:
    return np.asarray(np.einsum("nij,nj->ni", np.linalg.cholesky(covariance), rng.normal(size=covariance.shape[:2])))


class World:
    """Devices heard in places, as the model says they are."""

    def __init__(self, devices: int, places: int, frames: int, seed: int = 0, apart: float = 4.0) -> None:
        rng = np.random.default_rng(seed)
        self.means = rng.normal(size=(devices, SIZE)) * apart
        self.device = np.repeat(np.arange(devices), places * frames)
        self.place = np.tile(np.repeat(np.arange(places), frames), devices)
        shift = drawn(rng, np.broadcast_to(P, (devices * places, SIZE, SIZE)))[
            np.repeat(np.arange(devices * places), frames)
        ]
        self.error = errors(rng, len(self.device))
        self.value = self.means[self.device] + shift + drawn(rng, S + self.error)
        self.names = [f"D{number}" for number in range(devices)]

    def fit(self) -> GaussianBackend:
        return fit_backend(self.value, self.error, self.device, self.place, self.names)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(3)


@pytest.fixture
def known(rng: np.random.Generator) -> GaussianBackend:
    backend = GaussianBackend({}, S, P)
    for name in ("a", "b", "c"):
        values = rng.normal(size=SIZE) * 4 + rng.normal(size=(5, SIZE))
        backend = backend.enrol(name, backend.evidence(values, errors(rng, 5)), [0, 0, 1, 1, 1])
    return backend


@pytest.mark.parametrize("size", [1, 2, 6, 20])
def test_gaussians_are_those_of_scipy(size: int, rng: np.random.Generator) -> None:
    """With an error for each frame and with one for all; by elimination and, of many dimensions, by factors."""
    roots = rng.normal(size=(9, size, size))
    covariances = roots @ roots.swapaxes(1, 2) + 0.1 * np.eye(size)
    np.testing.assert_allclose(inverse_of(covariances), np.linalg.inv(covariances), rtol=1e-7, atol=1e-8)
    value, mean = rng.normal(size=(5, size)), rng.normal(size=(4, size))
    diagonal = covariances[:5].diagonal(0, 1, 2)
    for own, error in (
        (covariances[:5], covariances),
        (diagonal, np.stack([np.diag(each) for each in diagonal])),
        (None, np.zeros((5, size, size))),
    ):
        distance, log = gaussians(value, own, mean, covariances[5:])
        for n in range(5):
            for k in range(4):
                covariance = error[n] + covariances[5 + k]
                off = value[n] - mean[k]
                np.testing.assert_allclose(distance[n, k], off @ np.linalg.solve(covariance, off))
                np.testing.assert_allclose(log[n, k], multivariate_normal.logpdf(value[n], mean[k], covariance))


def test_a_device_is_learnt_as_by_generalised_least_squares(rng: np.random.Generator) -> None:
    value, error, place = rng.normal(size=(7, SIZE)), errors(rng, 7), [0, 1, 0, 2, 2, 1, 0]
    backend = GaussianBackend({}, S, P)
    device = backend.learn(backend.evidence(value, error), place)
    mean, covariance = device_from(value, error, place, S, P)
    np.testing.assert_allclose(device.mean, mean)
    np.testing.assert_allclose(device.error, covariance)
    assert (device.frames, device.places) == (7, 3)


def test_the_likelihood_of_many_frames_of_a_sender_is_the_joint_one(
    known: GaussianBackend, rng: np.random.Generator
) -> None:
    """Shared errors, of the place and of the mean, are not counted as independent: up to a constant for all devices."""
    value, error = rng.normal(size=(6, SIZE)), errors(rng, 6)
    sender = np.array([0, 1, 0, 1, 1, 0])
    pooled = known.log_likelihood(known.evidence(value, error).pooled(sender))
    for number in (0, 1):
        mine = sender == number
        exact = [
            log_likelihood(value[mine], device.mean, device.error, error[mine], S, P)
            for device in known.devices.values()
        ]
        np.testing.assert_allclose(pooled[number] - pooled[number, 0], np.array(exact) - exact[0], atol=1e-9)


def test_a_fit_finds_the_spreads_and_the_means() -> None:
    world = World(devices=12, places=12, frames=40)
    backend = world.fit()
    np.testing.assert_allclose(backend.frame, S, atol=0.12)
    np.testing.assert_allclose(backend.place, P, atol=0.3)
    means = np.stack([device.mean for device in backend.devices.values()])
    bars = np.sqrt(np.stack([device.error.diagonal() for device in backend.devices.values()]))
    assert np.mean(np.abs(means - world.means) < 1.96 * bars) > 0.85


def test_a_fit_is_the_most_likely_one() -> None:
    """No other frame covariance nearby explains the frames better; the prior of the places counts for little here."""
    world = World(devices=3, places=4, frames=6, seed=4)
    backend = world.fit()

    def evidence_of(frame: Array, place: Array) -> float:
        total = 0.0
        for number in range(3):
            for where in range(4):
                mine = (world.device == number) & (world.place == where)
                total += log_likelihood(
                    world.value[mine], world.means[number], np.zeros((SIZE, SIZE)), world.error[mine], frame, place
                )
        return total

    best = evidence_of(backend.frame, backend.place)
    assert best > evidence_of(2 * backend.frame, backend.place)
    assert best > evidence_of(0.5 * backend.frame, backend.place)


def test_the_same_p_values_for_known_devices_whatever_the_error_bars() -> None:
    """One frame in twenty of a known device in a place never seen is below 5 %, bad frames no more than good ones."""
    world = World(devices=8, places=12, frames=40, seed=1, apart=20)
    backend, rng = world.fit(), np.random.default_rng(9)
    means = world.means[rng.integers(0, 8, size=8000)]
    for scale in (0.1, 1, 4):
        error = errors(rng, 8000, scale)
        value = means + drawn(rng, S + P + error)
        rejected = np.mean(backend.p_value(backend.evidence(value, error)) < 0.05)
        assert 0.03 < rejected < 0.065


@pytest.mark.parametrize(("devices", "places", "most"), [(10, 3, 0.12), (4, 3, 0.14), (10, 2, 0.17)])
def test_places_that_differ_more_than_frames_are_allowed_for(devices: int, places: int, most: float) -> None:
    """Few places tell little of how much places differ; a prior as small as a frame's scatter rejects half of all."""
    rng, rejected = np.random.default_rng(3), []
    for _ in range(8):
        means = rng.normal(size=(devices, 6)) * 0.5
        device, place = np.repeat(np.arange(devices), places * 60), np.tile(np.repeat(np.arange(places), 60), devices)
        shift = rng.normal(size=(devices, places, 6)) * 0.03
        error = np.broadcast_to(1e-4 * np.eye(6), (len(device), 6, 6))
        value = means[device] + shift[device, place] + rng.normal(size=(len(device), 6)) * np.sqrt(2e-4)
        backend = fit_backend(value, error, device, place, [str(number) for number in range(devices)])
        new = means[np.repeat(np.arange(devices), 30)] + rng.normal(size=(30 * devices, 6)) * 0.03
        new += rng.normal(size=new.shape) * np.sqrt(2e-4)
        rejected.append(np.mean(backend.p_value(backend.evidence(new, error[: len(new)])) < 0.05))
    assert np.mean(rejected) < most


def test_few_frames_and_frames_that_are_all_alike_make_no_certain_back_end() -> None:
    rng = np.random.default_rng(0)
    value, device = rng.normal(size=(11, 6)), np.append(np.arange(10), 0)
    few = fit_backend(value, None, device, np.zeros(11, dtype=np.int64), [str(number) for number in range(10)])
    assert np.linalg.cond(few.frame) < 1e3
    alike = fit_backend(np.ones((6, 3)), None, np.repeat([0, 1], 3), np.zeros(6, dtype=np.int64), ["a", "b"])
    assert np.isfinite(alike.frame).all()
    assert alike.frame.max() < 1e-6


def test_strangers_are_told_from_known_devices() -> None:
    world = World(devices=10, places=4, frames=30, seed=2)
    mine = world.device < 7
    backend = fit_backend(world.value[mine], world.error[mine], world.device[mine], world.place[mine], world.names[:7])
    evidence = backend.evidence(world.value, world.error)
    rejected = backend.p_value(evidence) < 0.05
    assert np.mean(rejected[mine]) < 0.08
    assert np.mean(rejected[~mine]) > 0.5
    ratio = backend.ratio(evidence, np.where(mine, world.device, 0))
    assert np.mean(ratio[mine] > 0) > 0.9
    assert np.mean(ratio[~mine] > 0) < 0.2


def test_three_frames_are_enough_to_enrol_and_nothing_else_changes(known: GaussianBackend) -> None:
    rng = np.random.default_rng(6)
    mean = np.array([9.0, -9.0, 9.0])
    more = known.enrol("d", known.evidence(mean + rng.normal(size=(3, SIZE)) * 0.5), ["here"] * 3)
    assert list(more.devices) == ["a", "b", "c", "d"]
    assert more.devices["d"].places == 1
    assert all(more.devices[name] is known.devices[name] for name in known.devices)
    evidence = more.evidence(np.vstack([mean, rng.normal(size=(4, SIZE))]))
    np.testing.assert_allclose(more.log_likelihood(evidence)[:, :3], known.log_likelihood(evidence))
    assert more.log_likelihood(evidence)[0].argmax() == 3
    assert list(more.remove("b").devices) == ["a", "c", "d"]


def test_an_uncertain_mean_claims_less(known: GaussianBackend) -> None:
    """A device from one frame has a wide Gaussian, one from many in many places a narrow one."""
    value = np.zeros((30, SIZE))
    few = known.learn(known.evidence(value[:1]), [0])
    many = known.learn(known.evidence(value), range(30))
    assert np.all(few.error.diagonal() > 10 * many.error.diagonal())


def test_embeddings_have_no_errors_of_their_own() -> None:
    world = World(devices=5, places=3, frames=30, seed=3)
    backend = fit_backend(world.value, None, world.device, world.place, world.names)
    found = backend.log_likelihood(backend.evidence(world.value)).argmax(axis=1)
    assert np.mean(found == world.device) > 0.8


def test_bad_input_says_what_was_found(known: GaussianBackend) -> None:
    world = World(devices=3, places=2, frames=4)
    with pytest.raises(DataError, match=r"shape \(2, 5\): expected \(frames, 3\)"):
        known.evidence(np.zeros((2, 5)))
    with pytest.raises(ConfigError, match="'a' is enrolled already"):
        known.enrol("a", known.evidence(np.zeros((3, SIZE))), [0, 0, 0])
    with pytest.raises(ConfigError, match="device 'x'"):
        known.remove("x")
    with pytest.raises(DataError, match="0 frames with 0 places"):
        known.learn(known.evidence(np.zeros((0, SIZE))), [])
    with pytest.raises(DataError, match="claims"):
        known.ratio(known.evidence(np.zeros((2, SIZE))), np.array([0, 3]))
    with pytest.raises(ConfigError, match="no device is known"):
        GaussianBackend({}, S, P).p_value(known.evidence(np.zeros((1, SIZE))))
    with pytest.raises(DataError, match="without gaps"):
        known.evidence(np.zeros((2, SIZE))).pooled(np.array([0, 2]))
    with pytest.raises(DataError, match="'D3' has no frame"):
        fit_backend(world.value, world.error, world.device, world.place, [*world.names, "D3"])
    with pytest.raises(DataError, match="not finite"):
        fit_backend(world.value * np.nan, None, world.device, world.place, world.names)
    with pytest.raises(DataError, match="two or more"):
        fit_backend(world.value[::4], None, world.device[::4], world.place[::4], world.names)
    with pytest.raises(DataError, match="a device and a place for each"):
        fit_backend(world.value, None, world.device[1:], world.place, world.names)


def test_one_device_alone(known: GaussianBackend) -> None:
    """It has p-values, but nothing to weigh a claim against."""
    one = known.remove("b").remove("c")
    evidence: Observations = one.evidence(np.zeros((2, SIZE)))
    assert one.p_value(evidence).shape == (2,)
    with pytest.raises(ConfigError, match="single device"):
        one.ratio(evidence, np.array([0, 0]))
