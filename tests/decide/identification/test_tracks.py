"""Frames of one sender, and frames decided together."""

from __future__ import annotations

import numpy as np
import pytest

from pisa_capc.decide.identification.tracks import decide_together, groups_in_time, tracks

CARRIER_HZ = 5e9  # a tolerance of 5 kHz


def test_a_device_and_who_has_taken_its_address_are_two_tracks() -> None:
    cfo_hz = np.array([10e3, -40e3, 11e3, -41e3, 9e3])
    assert tracks(["a"] * 5, cfo_hz, CARRIER_HZ).tolist() == [0, 1, 0, 1, 0]


def test_a_drifting_carrier_is_followed_and_addresses_are_kept_apart() -> None:
    assert tracks(["a"] * 6, 4e3 * np.arange(6.0), CARRIER_HZ).tolist() == [0] * 6
    assert tracks(["a", "b", None, "a", None], np.zeros(5), CARRIER_HZ).tolist() == [0, 1, 2, 0, 2]


def test_a_group_ends_with_its_window_and_no_address_is_a_group_of_one() -> None:
    address: list[str | None] = ["a", "a", None, "a", None, "a"]
    track, time_s = np.array([0, 0, 1, 0, 1, 0]), np.array([0.0, 0.4, 0.5, 0.9, 0.95, 1.1])
    assert groups_in_time(address, track, time_s, 1.0).tolist() == [0, 0, 1, 0, 2, 3]


def test_frames_together_are_surer_than_apart_and_less_than_if_independent() -> None:
    one = np.array([0.7, 0.2, 0.1])
    probability = decide_together(np.tile(one, (4, 1)), np.zeros(4, dtype=np.int64))
    squared = one**2  # √4 frames
    np.testing.assert_allclose(probability, np.tile(squared / squared.sum(), (4, 1)))
    independent = one**4 / (one**4).sum()
    assert one[0] < probability[0, 0] < independent[0]


def test_a_group_of_one_is_as_it_was() -> None:
    probability = np.array([[0.6, 0.4], [0.9, 0.1], [0.2, 0.8]])
    together = decide_together(probability, np.array([0, 1, 1]))
    np.testing.assert_allclose(together[0], probability[0])
    assert together[1, 0] == pytest.approx(together[2, 0])
