"""The studies of the closed form measure what they say they do."""

from __future__ import annotations

import numpy as np
import pytest
from pages import closed_form as page
from studies import limits
from studies.breaking import STEPS, frames_of, tried
from studies.closed_form import TOGETHER, pooled_senders

from pisa_capc.data.scores import macro_f1

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


def test_the_limit_and_the_closed_form_look_at_the_same_frames() -> None:
    np.testing.assert_array_equal(limits.rows_of([5, 2, 9], 3), [0, 2, 4, 5, 6, 7, 11, 15])


def test_recordings_are_drawn_again_among_those_of_their_device() -> None:
    owner = np.array([0, 0, 0, 1, 1])
    again = limits.drawn_again(5, owner, np.random.default_rng(1))
    assert np.all(again[:, :3].sum(axis=1) == 3)
    assert np.all(again[:, 3:].sum(axis=1) == 2)
    assert len(np.unique(again, axis=0)) > 5


def test_macro_f1_of_recordings_together_is_that_of_their_frames() -> None:
    rng = np.random.default_rng(2)
    guess, device, recording = rng.integers(0, 3, 60), rng.integers(0, 3, 60), rng.integers(0, 4, 60)
    each = limits.confusions(guess, device, recording, 3)
    assert limits.macro(each.sum(0)) == pytest.approx(macro_f1(device, guess, 3))


def test_what_the_page_says_of_the_limit_holds() -> None:
    """Near what is possible on Wi-Fi, not below the limit on LoRa."""
    for scene, targets in page.limits()["scenes"].items():
        for own in targets.values():
            for one in own["closed_form"].values():
                assert one["behind"] < (0.003 if scene.startswith("wifi") else 0.0)
    assert all(own["E2"]["limit"] < 0.985 for own in page.limits()["scenes"].values())


def test_what_the_page_says_of_networks_and_of_the_fit_holds() -> None:
    steps = {(own["what"], own["value"]): own for own in page.steps()}
    clean = steps["nothing", 0]
    assert clean["suspected"] <= 0.01
    assert all(page.in_time(harm) for what, harm in page._harms().items() if what != "SNR")
    for value in (0.05, 0.1):
        own = steps["image over frequency", value]
        assert own["pisa-equalised"] > own["closed_form"]
    assert clean["pisa-equalised"] < clean["closed_form"]
    lost = [own["pisa-equalised"] - clean["pisa-equalised"] for own in steps.values() if own["what"] == "clipping"]
    assert min(lost) < steps["clipping", 1.0]["closed_form"] - clean["closed_form"]
    assert max(own["pisa"] for own in steps.values() if own["what"] != "long transmit filter") < 0.25
