"""Frames: cheap selection, lazy reading, and columns that stay together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pisa_capc import Frames, UnlabelledFrames, load
from pisa_capc.core.errors import DataError
from pisa_capc.data.frames import group_name, groups_of
from pisa_capc.data.geometry import linear
from pisa_capc.data.samples import normalise_power
from pisa_capc.data.sources import MemorySource, SelectedSource, groups
from tests.datasets import write_random

RNG = np.random.default_rng(0)
IQ = (RNG.normal(size=(12, 4, 20)) + 1j * RNG.normal(size=(12, 4, 20))).astype(np.complex64)
CFO = RNG.normal(size=(12, 4))


@pytest.fixture
def frames() -> Frames:
    return Frames.from_arrays(
        IQ, device=list("abc") * 4, environment=["E1"] * 6 + ["E2"] * 6, capture=["L1", "M"] * 6, cfo_hz=CFO
    )


class Counting(MemorySource):
    """Remembers how many rows were read."""

    read = 0

    def read_iq(self, rows, samples, out=None):  # type: ignore[no-untyped-def]
        Counting.read += len(rows)
        return super().read_iq(rows, samples, out)


class TestSelection:
    def test_reads_no_samples_until_asked_and_then_only_its_own(self, frames: Frames) -> None:
        import dataclasses

        Counting.read = 0
        lazy = dataclasses.replace(frames, source=Counting(IQ, CFO))
        some = lazy.where(environment=["E2"]).select([0, 3]).segment(5).unlabelled()
        assert Counting.read == 0
        np.testing.assert_array_equal(some.iq, IQ[[6, 9], :, :5])
        assert Counting.read == 2

    @settings(max_examples=30, deadline=None)
    @given(st.lists(st.lists(st.booleans(), min_size=12, max_size=12), min_size=1, max_size=3))
    def test_of_a_selection_is_the_selection_of_both(self, masks: list[list[bool]]) -> None:
        chosen, both = Frames.from_arrays(IQ, device=list("abcd") * 3, cfo_hz=CFO), np.arange(12)
        for mask in masks:
            keep = np.array(mask)[: len(chosen)]
            chosen, both = chosen.select(keep), both[keep]
        np.testing.assert_array_equal(chosen.rows, both)
        np.testing.assert_array_equal(chosen.iq, IQ[both])
        np.testing.assert_array_equal(chosen.cfo_hz, CFO[both])
        np.testing.assert_array_equal(chosen.device, both % 4)

    def test_by_names_keeps_the_named(self, frames: Frames) -> None:
        found = frames.where(environment=["E2"], capture=["M"])
        assert set(found.capture_key.tolist()) == {"E2/M"}
        assert len(found) == 3

    def test_by_an_unknown_name_names_the_nearest(self, frames: Frames) -> None:
        with pytest.raises(DataError, match=r"unknown environment 'E22'. Did you mean 'E2'\? Known: E1, E2."):
            frames.where(environment=["E22"])
        with pytest.raises(DataError, match=f"{frames.devices[0]} is a device of these frames.*--pattern"):
            frames.where(environment=[frames.devices[0]])

    def test_a_mask_of_another_length_is_refused(self, frames: Frames) -> None:
        with pytest.raises(DataError, match="expected a mask of 12 frames"):
            frames.select([True, False])

    def test_of_nothing_is_empty(self, frames: Frames) -> None:
        assert len(frames.select([])) == 0
        assert frames.select([]).iq.shape == (0, 4, 20)

    def test_batches_are_the_frames_in_order(self, frames: Frames) -> None:
        pieces = list(frames.batches(5))
        assert [len(p) for p in pieces] == [5, 5, 2]
        np.testing.assert_array_equal(np.concatenate([p.iq for p in pieces]), IQ)

    def test_a_segment_longer_than_the_frame_is_refused(self, frames: Frames) -> None:
        with pytest.raises(DataError, match="frames hold 20 samples, 21 were asked for"):
            frames.segment(21)


class TestUnlabelled:
    def test_shows_everything_but_the_device(self, frames: Frames) -> None:
        bare = frames.unlabelled()
        assert not hasattr(bare, "device")
        np.testing.assert_array_equal(bare.iq, frames.iq)
        np.testing.assert_array_equal(bare.capture_key, frames.capture_key)
        assert not hasattr(bare.select([0]), "device")


class TestConcatenation:
    def test_unites_names_and_keeps_rows(self, frames: Frames, tmp_path: Path) -> None:
        other = Frames.from_arrays(IQ[:3], device=["z", "a", "z"], environment="E0", cfo_hz=CFO[:3])
        joined = Frames.concatenate([frames.select([4, 1]), other])
        assert joined.devices == ("a", "b", "c", "z")
        assert [joined.devices[d] for d in joined.device] == ["b", "b", "z", "a", "z"]
        assert [joined.environments[e] for e in joined.environment] == ["E1", "E1", "E0", "E0", "E0"]
        np.testing.assert_array_equal(joined.iq, IQ[[4, 1, 0, 1, 2]])
        np.testing.assert_array_equal(joined.select([3, 0]).cfo_hz, CFO[[1, 4]])

    def test_of_disk_and_memory_reads_from_both(self, tmp_path: Path) -> None:
        stored = load(write_random(tmp_path / "set", samples=20))
        held = Frames.from_arrays(IQ, device="x")
        joined = Frames.concatenate([held, stored])
        np.testing.assert_array_equal(joined.select([0, len(joined) - 1]).iq, [IQ[0], stored.iq[-1]])
        assert joined.cfo_hz is None  # one part has none

    def test_of_sets_that_differ_is_refused(self, frames: Frames) -> None:
        with pytest.raises(DataError, match=r"part 1 has carrier_hz 1.0"):
            Frames.concatenate([frames, Frames.from_arrays(IQ, device="a", carrier_hz=1.0)])
        with pytest.raises(DataError, match="no frames given"):
            Frames.concatenate([])


class TestFromArrays:
    def test_counts_the_frames_of_each_recording(self) -> None:
        frames = Frames.from_arrays(IQ[:5], device=list("abaab"))
        np.testing.assert_array_equal(frames.frame, [0, 0, 1, 2, 1])

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"iq": IQ[0]}, r"expected \(frames, antennas, samples\), found shape \(4, 20\)"),
            ({"device": ["a"]}, r"device: expected 12 values"),
            ({"frame": [0]}, r"frame: expected 12 values"),
            ({"cfo_hz": CFO[:, :3]}, r"cfo_hz: expected \(12, 4\) \(frames, antennas\), found \(12, 3\)"),
            ({"geometry": linear(3)}, "describes 3 antennas, the frames have 4"),
            ({"iq": np.where(np.arange(12)[:, None, None] == 7, np.nan, IQ)}, "frame 7 holds NaN or infinite"),
            ({"iq": np.where(np.arange(12)[:, None, None] == 3, 0, IQ)}, "frame 3 has zero power"),
            ({"cfo_hz": np.full((12, 4), np.inf)}, "the CFO of frame 0 is NaN or infinite"),
        ],
    )
    def test_refuses_what_does_not_fit(self, arguments: dict[str, object], message: str) -> None:
        with pytest.raises(DataError, match=message):
            Frames.from_arrays(**{"iq": IQ, "device": "a", **arguments})  # type: ignore[arg-type]


class TestPower:
    @settings(max_examples=25, deadline=None)
    @given(st.floats(1e-12, 1e12))
    def test_is_one_on_average_whatever_the_scale(self, scale: float) -> None:
        power = np.mean(np.abs(normalise_power((IQ * scale).astype(np.complex64))) ** 2, axis=(1, 2))
        np.testing.assert_allclose(power, 1, rtol=1e-5)

    def test_keeps_the_ratio_between_antennas(self) -> None:
        scaled = IQ * np.array([1, 2, 3, 4], dtype=np.float32)[:, None]
        out = normalise_power(scaled)
        np.testing.assert_allclose(out[0, 3] / out[0, 0], scaled[0, 3] / scaled[0, 0], rtol=1e-5)

    def test_of_the_segment_and_not_of_the_frame(self, frames: Frames) -> None:
        power = np.mean(np.abs(normalise_power(frames.segment(5).iq)) ** 2, axis=(1, 2))
        np.testing.assert_allclose(power, 1, rtol=1e-5)

    def test_of_silence_is_refused(self) -> None:
        with pytest.raises(DataError, match="frame 1 has zero power"):
            normalise_power(np.stack([IQ[0], 0 * IQ[0]]))


def test_groups_are_recordings(frames: Frames) -> None:
    found = {group_name(frames, int(g[0])): g.tolist() for g in groups_of(frames)}
    assert found["E1", "a", "L1"] == [0]
    assert sum(map(len, found.values())) == 12
    assert groups(np.array([], dtype=np.int64)) == []


def test_selected_rows_of_a_source_are_numbered_from_zero() -> None:
    source = SelectedSource(MemorySource(IQ, CFO), np.array([5, 2]))
    np.testing.assert_array_equal(source.read_iq(np.array([1]), 20), IQ[[2]])
    np.testing.assert_array_equal(source.read_cfo_hz(np.array([0])), CFO[[5]])
    (trace,) = source.cfo_traces(np.array([0, 1]))
    np.testing.assert_array_equal(trace.position, [5, 2])
    np.testing.assert_array_equal(trace.cfo_hz, CFO)


def test_one_environment_can_be_named_without_a_list() -> None:
    frames = Frames.from_arrays(np.ones((4, 2, 8)), device=list("aabb"), environment=["E1", "E2", "E1", "E2"])
    assert len(frames.where(environment="E1")) == len(frames.where(environment=["E1"])) == 2


def test_frames_are_chosen_by_number_slice_mask_and_positions(frames: Frames) -> None:
    assert frames[3].rows.tolist() == [3]
    assert frames[-1].rows.tolist() == [11]
    assert frames[2:8:3].rows.tolist() == [2, 5]
    assert frames[[4, 1]].rows.tolist() == [4, 1]
    assert frames[frames.device == 0].rows.tolist() == [0, 3, 6, 9]
    assert len(frames[[]]) == 0
    with pytest.raises(IndexError, match="frame 12: there are 12 frames"):
        frames[12]


def test_frames_of_a_device_are_found_by_its_name(frames: Frames) -> None:
    found = frames.where(environment="E2", device=["a", "c"])
    assert {frames.devices[d] for d in found.device} == {"a", "c"}
    assert found.rows.tolist() == [6, 8, 9, 11]
    with pytest.raises(DataError, match="unknown device 'd'"):
        frames.where(device="d")


def test_saved_frames_are_read_back(frames: Frames, tmp_path: Path) -> None:
    frames.save(tmp_path / "set")
    found = load(tmp_path / "set")
    for (spec, before), (_, after) in zip(frames.recordings(), found.recordings(), strict=True):
        assert group_name(after, 0) == (spec.environment, spec.device, spec.capture)
        np.testing.assert_array_equal(after.iq, before.iq)
        np.testing.assert_array_equal(after.cfo_hz, before.cfo_hz)
    with pytest.raises(DataError, match="not an empty folder"):
        frames.save(tmp_path / "set")


def test_frames_of_nobody_knows_whom_have_no_device() -> None:
    frames = UnlabelledFrames.from_arrays(IQ, environment=["E1"] * 6 + ["E2"] * 6, cfo_hz=CFO)
    assert not hasattr(frames, "device")
    assert frames.frame.tolist() == [*range(6)] * 2
    np.testing.assert_array_equal(frames.where(environment="E2").iq, IQ[6:])


def test_a_notebook_shows_counts_and_escapes_names() -> None:
    frames = Frames.from_arrays(IQ, device="a", environment="<b>E1", capture="L1")
    assert "<td>&lt;b&gt;E1/L1</td><td>12</td>" in frames._repr_html_()
    assert repr(frames) == "Frames(12 frames of 4 × 20 samples: <b>E1/L1)"
