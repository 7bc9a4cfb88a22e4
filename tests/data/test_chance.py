"""Scores against guessing."""

from __future__ import annotations

import numpy as np
import pytest

from pisa_capc.data.chance import against_chance, at_chance


def blind(rng: np.random.Generator, devices: int, frames: int) -> np.ndarray:
    """Decisions that never look at the device, and favour some."""
    share = rng.dirichlet(np.ones(devices))
    return np.stack([rng.multinomial(frames, share) for _ in range(devices)])


@pytest.mark.parametrize("devices", [2, 5, 10])
def test_decisions_blind_to_the_device_are_mostly_not_told_from_guessing(devices: int) -> None:
    rng = np.random.default_rng(devices)
    told = [against_chance(blind(rng, devices, 200)).is_told for _ in range(400)]
    assert np.mean(told) < 0.08  # 2.5 % in one direction, and few devices have a rough spread


def test_recordings_that_err_together_are_not_told_from_guessing() -> None:
    """Every device's frames are all given to one device at random: thousands of frames say no more than ten draws."""
    rng = np.random.default_rng(0)
    told = [against_chance(1000 * np.eye(10, dtype=int)[rng.integers(0, 10, 10)]).is_told for _ in range(400)]
    assert np.mean(told) < 0.08


def test_devices_that_are_recognised_are_told_from_guessing() -> None:
    confusion = 20 * np.eye(10, dtype=int) + 5
    found = against_chance(confusion)
    assert found.is_told
    assert found.recognised == pytest.approx(25 / 70)
    assert found.guess == pytest.approx(0.1)
    assert at_chance("x", confusion) is None


def test_devices_without_frames_do_not_count() -> None:
    confusion = np.zeros((5, 5), dtype=int)
    confusion[:2, :2] = [[30, 2], [1, 31]]
    assert against_chance(confusion).is_told
    assert against_chance(confusion).guess == pytest.approx(0.5)
    assert "is not told from chance" in str(at_chance("x", np.zeros((3, 3), dtype=int)))


def test_of_one_device_alone_nothing_is_said() -> None:
    confusion = np.zeros((5, 5), dtype=int)
    confusion[0] = [30, 2, 0, 1, 1]
    assert at_chance("x", confusion) is None
