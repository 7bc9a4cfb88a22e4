"""The alarm is as often false as it says, and finds what it is for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pisa_capc.decide.calibration import alarm


def first_alarm(doubt: NDArray[np.float64], m: float, frames: float = alarm.FRAMES) -> int:
    """Frames of a stream up to its first alarm, or all of them."""
    found = alarm.evidence(np.zeros(len(alarm.BETS)), m, np.stack([1 - doubt, doubt], axis=1))
    over = alarm.raised(found, frames)
    return int(over.argmax()) + 1 if over.any() else len(doubt)


def test_false_alarms_are_as_far_apart_as_stated_at_the_bound_itself() -> None:
    rng = np.random.default_rng(0)
    m, frames = 0.2, 100
    until = [first_alarm(0.5 * (rng.random(500) < m / 0.5), m, frames) for _ in range(60)]
    assert np.mean(until) >= frames  # streams that raised none in time count too little, which is the hard way


def test_streams_that_are_as_sure_as_before_raise_none_and_unsure_ones_soon() -> None:
    rng = np.random.default_rng(1)
    before = rng.beta(1, 9, size=(512, 1))
    m = alarm.bound(np.hstack([1 - before, before]))
    assert all(first_alarm(rng.beta(1, 9, size=2000), m) == 2000 for _ in range(5))
    changed = [first_alarm(np.concatenate([rng.beta(1, 9, size=1000), rng.beta(2, 3, size=200)]), m) for _ in range(5)]
    assert min(changed) > 1000
    assert max(changed) < 1150
