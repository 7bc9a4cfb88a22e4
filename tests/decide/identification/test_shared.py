"""Several devices under one address are found where carriers and fingerprints split alike, and only there."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest

from pisa_capc.decide.identification import ClaimVerdict, identify, verify
from pisa_capc.decide.identification.shared import FEWEST, LOOK, NEWEST, Shared, Watched, one_sender
from pisa_capc.decide.identification.verification import judged, shared_in
from pisa_capc.model.inference import TrainedModel
from tests.decide.identification.test_identify import ENROLLED, PLAIN, A, B, C
from tests.decide.identification.tools import found_in

NOTHING = np.zeros(40)
SURE = np.full(40, 9.0)


def test_p_is_the_share_of_divisions_that_are_as_uneven() -> None:
    score = np.random.default_rng(5).normal(size=11) + np.repeat([0.0, 1.0], [5, 6])
    ranks = score.argsort().argsort()

    def uneven(members: Sequence[int]) -> float:
        return abs(float(ranks[list(members)].sum()) - 5 * 10 / 2)

    slow = np.mean([uneven(members) >= uneven(range(5)) for members in combinations(range(11), 5)])
    order = [9, 0, 5, 1, 6, 2, 7, 3, 8, 4, 9, 10]  # the first is from before both carriers are there
    assert one_sender([int(i >= 5) for i in order], score[order]) == (pytest.approx(slow), (6, 5))


def test_a_carrier_that_jumps_is_not_another_device_more_often_than_promised() -> None:
    rng, alpha, trials = np.random.default_rng(0), 0.05, 300
    tests = [one_sender(rng.permutation(40) % 2, rng.normal(size=40)) for _ in range(trials)]
    false = sum(test is not None and test.p <= alpha for test in tests)
    assert 0 < false <= 1.7 * alpha * trials  # 3 standard deviations


@pytest.mark.parametrize(("n", "m", "shift"), [(32, 32, 1.5), (90, 10, 2.5)])
def test_two_devices_are_found_though_a_few_frames_alone_tell_little(n: int, m: int, shift: float) -> None:
    rng = np.random.default_rng(2)
    track = rng.permutation(np.repeat([4, 9], [n, m]))
    found = one_sender(track, rng.normal(size=n + m) + shift * (track == 9))
    assert found is not None
    assert found.p < 1e-3
    assert sum(found.frames) <= n + m


def test_few_frames_at_a_second_carrier_are_not_compared() -> None:
    score = np.arange(40.0)
    assert one_sender([0] * 40, score) is None
    assert one_sender([*[0, 1] * (FEWEST - 1), *[0] * 40][:40], score) is None
    assert one_sender([*[0, 1] * FEWEST, *[0] * 40][:40], score) is not None


def test_only_frames_since_both_carriers_are_there_are_compared() -> None:
    """A device that was away and comes back at another carrier and place is one."""
    assert one_sender([0] * 20 + [1] * 20, np.arange(40.0)) is None
    later = one_sender([0] * 20 + [1, 0] * 10, np.arange(40.0))
    assert later is not None
    assert later.frames == (10, 10)
    assert later.p > 0.5


def test_recordings_are_looked_at_one_by_one() -> None:
    recording = np.repeat([0, 1], 40)
    track = np.concatenate([np.arange(40) % 2, np.arange(40) % 2 + 2])
    score = np.concatenate([np.tile([0.0, 1.0], 20), np.zeros(40)]) + np.random.default_rng(0).normal(size=80) / 9
    alone = one_sender(track[:40].tolist(), score[:40])
    assert alone is not None
    assert shared_in(recording, track, score) == (pytest.approx(2 * alone.p), alone.frames)
    assert shared_in(recording, recording, score) is None


def test_the_level_is_of_all_addresses_together() -> None:
    near = Shared(0.004, (9, 9))
    assert judged(NOTHING, SURE, near, 0.01, 0.01)[0] == "several devices"
    assert judged(NOTHING, SURE, near, 0.01, 0.01 / 3)[0] == "genuine"
    assert judged(SURE, SURE, near, 0.01, 0.01)[0] == "several devices"
    assert judged(SURE, SURE, None, 0.01, 0.01) == ("not the device", 1)
    assert judged(NOTHING, NOTHING, None, 0.01, 0.01) == ("undecided", None)


def verdict_on(trained: TrainedModel, theirs: int, own: int, offset_hz: float = 20e3) -> ClaimVerdict:
    """On the address of D1, under which D3 sends so many frames beside its own, among two that nobody else uses."""
    senders = np.random.default_rng(1).permutation(np.repeat([2, 0], [theirs, own])).tolist()
    sent = [(device, A) for device in senders] + [(1, B), (2, C)] * 20
    verdicts = verify(identify(trained, [found_in(sent, offset_hz)], PLAIN, "cpu"), ENROLLED)
    assert {one.verdict for one in verdicts if one.address != A} == {"genuine"}
    return next(one for one in verdicts if one.address == A)


@pytest.mark.parametrize(("theirs", "own"), [(30, 30), (10, 90)])
def test_an_address_of_two_devices_has_a_verdict_of_its_own(trained: TrainedModel, theirs: int, own: int) -> None:
    found = verdict_on(trained, theirs, own)
    assert found.verdict == "several devices"
    assert found.alarm
    assert (found.sounds_like, found.after) == ("D3", theirs + own)
    said = found.to_json()
    assert said["one_sender_p"] < 0.01 / 3
    assert 2 * FEWEST <= sum(said["at_two_carriers"]) <= theirs + own


@pytest.mark.parametrize(
    ("theirs", "own", "expected"),
    [(0, 40, "genuine"), (40, 0, "not the device"), (2, 2, "undecided")],
)
def test_other_addresses_have_the_verdicts_they_had(
    trained: TrainedModel, theirs: int, own: int, expected: str
) -> None:
    found = verdict_on(trained, theirs, own)
    assert (found.verdict, found.shared) == (expected, None)


def test_at_one_carrier_two_devices_are_not_told_from_one(trained: TrainedModel) -> None:
    found = verdict_on(trained, 30, 30, offset_hz=0.0)
    assert found.shared is None
    assert found.verdict in ("undecided", "not the device")


class TestAsFramesCome:
    def test_it_is_found_at_a_look_and_said_once(self) -> None:
        watched = Watched(0.01)
        said = [watched.push(i % 2, float(i % 2)) for i in range(4 * LOOK)]
        assert [i for i, one in enumerate(said) if one] == [LOOK - 1]
        assert (watched.found, watched.looks) == (True, 4)

    def test_looks_at_one_carrier_cost_nothing(self) -> None:
        watched = Watched(0.01)
        for _ in range(9 * LOOK):
            watched.push(0, 0.0)
        assert watched.looks == 0

    def test_it_is_over_when_the_other_has_gone(self) -> None:
        watched = Watched(0.01)
        for i in range(LOOK):
            watched.push(i % 2, float(i % 2))
        for _ in range(NEWEST + LOOK):
            watched.push(0, 0.0)
        assert not watched.found

    def test_one_whose_carrier_jumps_is_seldom_taken_for_two_however_long(self) -> None:
        rng, trials = np.random.default_rng(3), 20
        tests = [Watched(0.05) for _ in range(trials)]
        found = [any(test.push(i % 2, rng.normal()) for i in range(10 * LOOK)) for test in tests]
        assert sum(found) <= 4

    def test_levels_sum_to_alpha(self) -> None:
        """What is found at the first look is not at the hundredth, by the same frames."""
        rng = np.random.default_rng(8)
        frames = [(i % 2, float(rng.normal() + 1.5 * (i % 2))) for i in range(LOOK)]
        first, late = Watched(0.05), Watched(0.05, looks=10_000)
        for track, strange in frames:
            first.push(track, strange)
            late.push(track, strange)
        assert (first.found, late.found) == (True, False)
