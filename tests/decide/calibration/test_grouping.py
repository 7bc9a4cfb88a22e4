"""Groups found from frames are the captures, whoever transmits when."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from pisa_capc import UCAPC
from pisa_capc.cli import app
from pisa_capc.cli import calibrate as _registers  # noqa: F401
from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.decide.calibration import calibrator
from pisa_capc.decide.calibration.grouping import BLOCK, GroupFinder, GroupSettings, find_groups
from pisa_capc.decide.calibration.vectors import unit_rows
from tests.decide.calibration.streams import CLASSES, FEATURES, Stream, stream


def groups(frames: Stream, *known: str) -> np.ndarray:
    extra = {name: getattr(frames, name) for name in known}
    return find_groups(frames.embedding, frames.logits, **extra)


def agreement(found: np.ndarray, capture: np.ndarray) -> float:
    """Share of frames whose group's number is their capture's: groups are numbered as they are first seen."""
    return float((found == capture).mean())


@pytest.mark.parametrize("known", [(), ("cfo_hz",)], ids=str)
def test_captures_of_alternating_transmitters_are_recovered(known: tuple[str, ...]):
    frames = stream((0, 1, 2))
    found = groups(frames, *known)
    assert set(found) == {0, 1, 2}
    assert agreement(found, frames.capture) > 0.95


@pytest.mark.parametrize("known", [("frame",), ("cfo_hz", "frame")], ids=str)
def test_with_frame_numbers_the_captures_are_exact(known: tuple[str, ...]):
    frames = stream((0, 1, 2))
    np.testing.assert_array_equal(groups(frames, *known), frames.capture)


def test_a_capture_that_returns_is_recognised():
    frames = stream((0, 1, 0, 2, 1))
    found = groups(frames)
    assert set(found) == {0, 1, 2}
    assert agreement(found, frames.capture) > 0.93


@pytest.mark.parametrize("known", [(), ("cfo_hz",), ("frame",)], ids=str)
def test_one_endless_capture_is_one_group(known: tuple[str, ...]):
    assert set(groups(stream((0,), frames=6000), *known)) == {0}


@pytest.mark.parametrize("known", [(), ("cfo_hz",), ("frame",), ("cfo_hz", "frame")], ids=str)
def test_a_change_of_transmitter_is_no_change_of_capture(known: tuple[str, ...]):
    assert set(groups(stream((0,), frames=2400, in_turn=False), *known)) == {0}


@pytest.mark.parametrize("known", [(), ("cfo_hz",)], ids=str)
def test_a_single_transmitter_gives_no_verdict(known: tuple[str, ...]):
    """Its capture may have changed or not; cutting the stream into groups of one class would be worse."""
    assert set(groups(stream((0, 1), transmitters=1), *known)) == {0}


def test_frames_out_of_order_within_a_capture_change_nothing():
    frames = stream((0, 1, 2))
    order = np.lexsort((np.random.default_rng(0).random(len(frames)), np.arange(len(frames)) // 600))
    shuffled = frames.select(order)
    assert agreement(groups(shuffled), frames.capture) > 0.95
    assert agreement(groups(shuffled, "cfo_hz", "frame"), frames.capture) > 0.95


def test_numbers_that_count_on_are_not_taken_for_recordings():
    frames = stream((0, 1))
    counting = find_groups(frames.embedding, frames.logits, frame=np.arange(len(frames)))
    np.testing.assert_array_equal(counting, groups(frames))


def test_groups_beyond_the_memory_are_forgotten_and_begin_anew():
    frames = stream((0, 1, 2, 0))
    found = find_groups(frames.embedding, frames.logits, frame=frames.frame, settings=GroupSettings(groups=2))
    np.testing.assert_array_equal(found, np.repeat([0, 1, 2, 3], 600))


def test_what_is_found_does_not_depend_on_how_frames_are_handed_over():
    frames = stream((0, 1), frames=400)
    unit, decision = unit_rows(frames.embedding), frames.logits.argmax(axis=1)
    settled = []
    for size in (1, 5, BLOCK):
        finder = GroupFinder(CLASSES, FEATURES)
        events, start = [], 0
        while start < len(frames):
            part = slice(start, start := start + min(size, finder.room))
            events += finder.push(unit[part], decision[part])
        settled.append((events, finder.current, finder.arrays["mean"]))
    for events, current, mean in settled[1:]:
        assert (events, current) == settled[0][:2]
        np.testing.assert_array_equal(mean, settled[0][2])


def test_few_or_no_frames_are_one_group():
    frames = stream((0,), frames=10)
    np.testing.assert_array_equal(groups(frames), np.zeros(10))
    assert len(find_groups(np.empty((0, 3)), np.empty((0, 2)))) == 0


def test_unusable_settings_and_columns_are_explained():
    frames = stream((0,), frames=10)
    with pytest.raises(ConfigError, match="window is 3; expected at least"):
        GroupSettings(window=3)
    with pytest.raises(ConfigError, match="tolerance is 0"):
        GroupSettings(tolerance=0)
    with pytest.raises(DataError, match=r"cfo_hz is float64 \(9,\); expected one finite number per frame, \(10,\)"):
        find_groups(frames.embedding, frames.logits, frames.cfo_hz[:9])


def test_calibrations_find_groups_where_they_are_asked_to():
    frames = stream((0, 1, 2))
    found = groups(frames)
    expected = UCAPC().calibrate(frames.embedding, frames.logits, found)
    result = UCAPC(group="auto").calibrate(frames.embedding, frames.logits)
    np.testing.assert_array_equal(result.probability, expected.probability)
    assert [c.frames for c in result.captures] == np.bincount(found).tolist()
    tensors = [torch.tensor(values, dtype=torch.bfloat16) for values in (frames.embedding, frames.logits)]
    assert len(UCAPC(group="auto").calibrate(*tensors).captures) == 3
    peer = calibrator("lame")(group="auto").calibrate(frames.embedding, frames.logits)
    assert [c.frames for c in peer.captures] == np.bincount(found).tolist()


def test_the_command_finds_groups_with_all_it_is_given(tmp_path: Path):
    frames = stream((0, 1, 2))
    scores, out = tmp_path / "scores.npz", tmp_path / "out.npz"
    np.savez(
        scores,
        embedding=frames.embedding,
        logits=frames.logits,
        frame=frames.frame,
        cfo_hz=frames.cfo_hz,
        capture=np.zeros(len(frames), dtype=int),  # not to be read
    )
    ran = CliRunner().invoke(
        app, ["calibrate", str(scores), "--out", str(out), "--calibration", "ucapc", "--group", "auto", "--json"]
    )
    assert ran.exit_code == 0, ran.output
    assert [c["frames"] for c in json.loads(ran.stdout)["captures"]] == [600, 600, 600]
    expected = UCAPC().calibrate(frames.embedding, frames.logits, frames.capture)
    with np.load(out, allow_pickle=False) as written:
        np.testing.assert_array_equal(written["group"], frames.capture)
        np.testing.assert_array_equal(written["probability"], expected.probability)


def test_unsigned_frame_numbers_count_like_others():
    frames = stream((0, 1))
    number = np.tile(np.arange(len(frames.logits) // 2), 2)
    signed = find_groups(frames.embedding, frames.logits, None, number)
    np.testing.assert_array_equal(signed, find_groups(frames.embedding, frames.logits, None, number.astype(np.uint16)))
    assert not np.array_equal(signed, find_groups(frames.embedding, frames.logits))  # they do count
