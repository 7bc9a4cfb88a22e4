"""The acquisition-dynamics descriptor, against a slow version written from the formulas."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from pisa_capc import Frames, load
from pisa_capc.core.errors import DataError
from pisa_capc.data.descriptors import WINDOW, cfo_descriptors, descriptors_of_trace, newest_descriptor
from pisa_capc.data.protocol import split
from tests.datasets import write_random


def spread(values: list[float]) -> float:
    mean = sum(values) / len(values)
    return math.sqrt(sum((v - mean) ** 2 for v in values) / len(values))


def reference(cfo_hz: NDArray[np.float64], window: int = 32) -> NDArray[np.float64]:
    out = []
    for t in range(len(cfo_hz)):
        seen = [list(map(float, cfo_hz[u])) for u in range(max(0, t - window + 1), t + 1)]
        per_antenna = list(zip(*seen, strict=True))
        steps = [[b - a for a, b in itertools.pairwise(trace)] for trace in per_antenna]
        raw = [
            spread(seen[-1]),
            sum(spread(row) for row in seen) / len(seen),
            sum(spread(list(trace)) for trace in per_antenna) / len(per_antenna),
            sum(spread(trace) for trace in steps) / len(steps) if len(seen) > 1 else 0.0,
        ]
        out.append([math.log1p(min(v, 200e3) / 1e3) for v in raw])
    return np.array(out)


@pytest.mark.parametrize(("frames", "antennas"), [(1, 4), (2, 4), (31, 3), (32, 1), (33, 4), (100, 2)])
def test_the_vectorised_descriptor_is_the_formula(frames: int, antennas: int) -> None:
    cfo_hz = np.random.default_rng(0).normal(20e3, 3e3, (frames, antennas))
    np.testing.assert_allclose(descriptors_of_trace(cfo_hz), reference(cfo_hz), atol=1e-12)


def test_a_long_trace_is_cut_into_blocks_without_a_seam() -> None:
    cfo_hz = np.random.default_rng(1).normal(0, 1e3, (4096 + 40, 2))
    whole = descriptors_of_trace(cfo_hz)
    np.testing.assert_allclose(whole[4080:], descriptors_of_trace(cfo_hz[4000:])[80:], atol=1e-12)


def test_a_stream_gives_the_same_numbers() -> None:
    cfo_hz = np.random.default_rng(2).normal(0, 5e3, (90, 4))
    newest = np.array([newest_descriptor(cfo_hz[max(0, i + 1 - WINDOW) : i + 1]) for i in range(len(cfo_hz))])
    np.testing.assert_allclose(newest, descriptors_of_trace(cfo_hz), atol=1e-12)


def test_a_common_offset_is_no_spread() -> None:
    drift = np.linspace(0, 31e3, 32)[:, None]
    last = descriptors_of_trace(np.repeat(drift, 4, axis=1))[-1]
    assert last[0] == last[1] == 0  # all antennas agree
    assert last[2] > 2  # the drift is a temporal spread of about 9 kHz
    assert last[3] == pytest.approx(0, abs=1e-9)  # at a constant rate


def test_spreads_are_clipped_at_200_khz() -> None:
    wild = np.array([[-1e9, 1e9]] * 3)
    assert descriptors_of_trace(wild)[0, 0] == pytest.approx(np.log1p(200))


def test_frames_of_another_length_than_the_window_do_not_look_ahead() -> None:
    cfo_hz = np.random.default_rng(3).normal(0, 1e3, (60, 4))
    np.testing.assert_array_equal(descriptors_of_trace(cfo_hz)[:40], descriptors_of_trace(cfo_hz[:40]))


def test_the_descriptor_belongs_to_the_recording_and_not_to_the_selection(tmp_path) -> None:
    frames = load(write_random(tmp_path / "set", devices=3, frames=40))
    whole = cfo_descriptors(frames)
    assert whole is not None
    some = np.random.default_rng(4).permutation(len(frames))[:50]
    np.testing.assert_array_equal(cfo_descriptors(frames.select(some)), whole[some])
    parts = split(frames, "E1", "E2", seed=1)
    np.testing.assert_array_equal(cfo_descriptors(parts.target), whole[parts.target.rows])
    twice = Frames.concatenate([frames.where(environment=["E2"]), frames.where(environment=["E1"])])
    np.testing.assert_array_equal(
        cfo_descriptors(twice), np.concatenate([whole[frames.environment == 1], whole[frames.environment == 0]])
    )


def test_one_recording_is_not_mixed_with_the_next() -> None:
    cfo_hz = np.random.default_rng(5).normal(0, 1e3, (20, 2)) + np.repeat([[0.0], [90e3]], 10, axis=0)
    iq = np.ones((20, 2, 8))
    frames = Frames.from_arrays(iq, device=["a"] * 10 + ["b"] * 10, cfo_hz=cfo_hz)
    expected = np.concatenate([descriptors_of_trace(cfo_hz[:10]), descriptors_of_trace(cfo_hz[10:])])
    np.testing.assert_allclose(cfo_descriptors(frames.unlabelled()), expected, rtol=1e-6)


def test_time_order_is_the_frame_index_and_not_the_row() -> None:
    cfo_hz = np.random.default_rng(6).normal(0, 1e3, (12, 2))
    shuffled = np.random.default_rng(7).permutation(12)
    frames = Frames.from_arrays(np.ones((12, 2, 8)), device="a", cfo_hz=cfo_hz[shuffled], frame=shuffled)
    np.testing.assert_allclose(cfo_descriptors(frames), descriptors_of_trace(cfo_hz)[shuffled], rtol=1e-6)


def test_without_cfo_there_is_no_descriptor() -> None:
    assert cfo_descriptors(Frames.from_arrays(np.ones((3, 2, 8)), device="a")) is None


def test_wrong_shapes_are_named() -> None:
    with pytest.raises(DataError, match=r"expected \(frames, antennas\) in Hz, found shape \(5,\)"):
        descriptors_of_trace(np.zeros(5))
