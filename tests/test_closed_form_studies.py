"""The studies of the closed form measure what they say they do."""

from __future__ import annotations

import numpy as np
from studies.breaking import STEPS, frames_of, tried
from studies.closed_form import TOGETHER, pooled_senders

BY_NAME = {(step.what, step.value): step for step in STEPS}


def test_what_is_broken_is_told_worse_and_is_noticed() -> None:
    clean, coarse = (tried(BY_NAME[key], seed=1) for key in (("nothing", 0), ("quantisation", 4.0)))
    assert clean["closed_form"] > 0.9
    assert coarse["closed_form"] < clean["closed_form"] - 0.2
    assert clean["suspected"] < 0.05
    assert coarse["suspected"] > 0.9


def test_a_step_of_the_receiver_leaves_the_source_as_it_is() -> None:
    (clean, _, place), (clipped, _, _) = (frames_of(BY_NAME[key], 1) for key in (("nothing", 0), ("clipping", 1.0)))
    np.testing.assert_array_equal(clean[place < 2], clipped[place < 2])
    assert not np.allclose(clean[place == 2], clipped[place == 2])


def test_frames_are_pooled_within_a_device_and_a_place() -> None:
    device, place = np.repeat([0, 1], 25), np.tile(np.repeat([0, 1], [12, 13]), 2)
    number = pooled_senders(device, place)
    for each in np.unique(number):
        mine = number == each
        assert mine.sum() <= TOGETHER
        assert len(set(zip(device[mine].tolist(), place[mine].tolist(), strict=True))) == 1
