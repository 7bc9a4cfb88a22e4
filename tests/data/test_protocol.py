"""The split rule, its counts, and that target labels stay out of reach."""

from __future__ import annotations

import dataclasses
import gc
import pickle
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import pisa_capc
from pisa_capc import Frames, UnlabelledFrames
from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.data.protocol import FEW_SHOT, Evaluator, SplitRule, few_shot_note, frames_left_out, split


def wifi_layout(static: int = 512, mobile: int = 1024) -> Frames:
    """The columns of the paper's set, with one antenna and one sample per frame."""
    rows = [
        (e, f"D{d:02d}", c)
        for e in ("E1", "E2", "E3")
        for d in range(1, 11)
        for c in ("L1", "L2", "L3", "M")
        if (e, d, c) != ("E3", 5, "L1")
        for _ in range(mobile if c == "M" else static)
    ]
    environment, device, capture = zip(*rows, strict=True)
    iq = np.ones((len(rows), 1, 1), dtype=np.complex64)
    return Frames.from_arrays(iq, device, environment, capture)


@pytest.fixture(scope="module")
def frames() -> Frames:
    return wifi_layout()


@pytest.mark.parametrize("seed", [2026, 2027, 2028])
@pytest.mark.parametrize(
    ("source", "target", "counts"),
    [
        (["E2", "E3"], "E1", (40570, 10118, 24960)),
        (["E1", "E2"], "E3", (40980, 10220, 24464)),
        (["E1", "E3"], "E2", (40570, 10118, 24960)),
    ],
)
def test_counts_are_those_of_the_paper(frames: Frames, source: list[str], target: str, counts, seed: int) -> None:
    parts = split(frames, source, target, seed)
    assert (len(parts.train), len(parts.validation), len(parts.target), len(parts.evaluator)) == (*counts, counts[2])


def test_the_target_keeps_2496_frames_of_each_device(frames: Frames) -> None:
    parts = split(frames, ["E2", "E3"], "E1", 2026)
    assert set(Counter(frames.device[parts.target.rows].tolist()).values()) == {2496}


def test_every_group_is_split_by_the_rule(frames: Frames) -> None:
    parts = split(frames, ["E2", "E3"], ["E1"], 2026)
    by_group = Counter(zip(parts.validation.capture_key.tolist(), parts.validation.device.tolist(), strict=True))
    assert {n for (key, _), n in by_group.items() if key.endswith("M")} == {205}
    assert {n for (key, _), n in by_group.items() if not key.endswith("M")} == {102}


def test_parts_are_disjoint_and_in_dataset_order(frames: Frames) -> None:
    parts = split(frames, ["E2", "E3"], "E1", 2026)
    used = [parts.train.rows, parts.validation.rows, parts.target.rows]
    assert len(np.unique(np.concatenate(used))) == sum(map(len, used))
    assert all((np.diff(rows) > 0).all() for rows in used)
    assert set(np.unique(parts.train.environment)) == set(np.unique(parts.validation.environment)) == {1, 2}
    assert set(np.unique(parts.target.environment)) == {0}
    assert parts.devices == frames.devices


def test_a_seed_repeats_its_draw_and_another_seed_draws_otherwise(frames: Frames) -> None:
    first, again, other = (split(frames, ["E2"], "E1", seed) for seed in (2026, 2026, 2027))
    np.testing.assert_array_equal(first.validation.rows, again.validation.rows)
    np.testing.assert_array_equal(first.target.rows, again.target.rows)
    assert (first.validation.rows != other.validation.rows).any()
    assert (first.target.rows != other.target.rows).any()


def test_a_groups_draw_does_not_depend_on_the_rest_of_the_set_or_its_order(frames: Frames) -> None:
    whole = split(frames, ["E2", "E3"], "E1", 2026)
    shuffled = frames.select(np.random.default_rng(0).permutation(len(frames)))
    fewer = split(shuffled, ["E2"], "E1", 2026)
    in_e2 = whole.validation.rows[whole.validation.environment == 1]
    np.testing.assert_array_equal(np.sort(fewer.validation.rows), in_e2)
    np.testing.assert_array_equal(np.sort(fewer.target.rows), whole.target.rows)


@pytest.mark.parametrize(("n", "validation", "dropped"), [(3, 1, 0), (8, 2, 2), (51, 10, 12), (64, 13, 16)])
def test_small_sets_follow_the_rule_and_drop_at_most_a_quarter(n: int, validation: int, dropped: int) -> None:
    small = Frames.from_arrays(np.ones((2 * n, 1, 1)), device="a", environment=["E1"] * n + ["E2"] * n)
    parts = split(small, "E1", "E2", 1)
    assert (len(parts.train), len(parts.validation), len(parts.target)) == (n - validation, validation, n - dropped)
    assert frames_left_out(FEW_SHOT, n) == dropped


def test_groups_that_leave_out_fewer_frames_than_asked_are_told_of() -> None:
    assert few_shot_note(16, [64, 512]) == ""
    assert few_shot_note(0, [3]) == ""
    assert "of 2 recordings fewer, for they are short: 12 of 51." in few_shot_note(16, [512, 51, 63])
    assert few_shot_note(900, [512, 1024]).startswith("900 frames of each target recording are set aside")


class TestRefusals:
    def test_too_few_frames(self) -> None:
        tiny = Frames.from_arrays(np.ones((4, 1, 1)), device="a", environment=["E1", "E1", "E2", "E2"])
        with pytest.raises(DataError, match=r"too few frames for the split: E1/a/L1 has 2.* at least 3 per capture"):
            split(tiny, "E1", "E2", 1)

    def test_an_environment_that_is_source_and_target(self, frames: Frames) -> None:
        with pytest.raises(ConfigError, match="'E1' is both source and target"):
            split(frames, ["E1", "E2"], "E1", 1)

    def test_an_unknown_environment_names_the_nearest(self, frames: Frames) -> None:
        with pytest.raises(DataError, match=r"unknown environment 'E33'. Did you mean 'E3'"):
            split(frames, ["E33"], "E1", 1)

    def test_no_environment(self, frames: Frames) -> None:
        with pytest.raises(ConfigError, match=r"source: no environment given. Known: E1, E2, E3"):
            split(frames, [], "E1", 1)

    def test_a_device_that_no_source_has(self, frames: Frames) -> None:
        without = frames.select((frames.environment == 0) | (frames.device != 4))
        with pytest.raises(DataError, match="device D05: recorded in the target and in no source"):
            split(without, ["E2", "E3"], "E1", 1)


class TestHiddenLabels:
    @pytest.fixture
    def parts(self):
        return split(wifi_layout(4, 4), ["E2", "E3"], "E1", 2026)

    def test_target_frames_have_no_device(self, parts) -> None:
        assert type(parts.target) is UnlabelledFrames
        assert not hasattr(parts.target, "device")
        assert not hasattr(parts.target, "devices")
        assert "device" not in {f.name for f in dataclasses.fields(parts.target)}

    def test_no_attribute_of_the_evaluator_is_an_array_of_labels(self, parts) -> None:
        evaluator = parts.evaluator
        assert not hasattr(evaluator, "__dict__")
        for name in dir(evaluator):
            value = getattr(evaluator, name)
            assert not isinstance(value, np.ndarray | Frames | list), name
        public = [name for name in dir(evaluator) if not name.startswith("_")]
        scoring = ["claims", "macro_f1", "openset", "score"]
        assert public == sorted(["devices", "draw_deployment", "first_half", "labels_for_drawing", "select", *scoring])

    def test_printing_shows_no_labels(self, parts) -> None:
        assert repr(parts.evaluator) == "Evaluator(120 frames of 10 devices; labels hidden)"
        assert repr(parts.target) == "UnlabelledFrames(120 frames of 1 × 1 samples: E1/L1, E1/L2, E1/L3, E1/M)"
        assert "D01" not in repr(parts.target)

    def test_it_cannot_be_written_to_disk(self, parts) -> None:
        with pytest.raises((AttributeError, TypeError, pickle.PicklingError)):
            pickle.dumps(parts.evaluator)

    def test_labels_are_not_among_what_the_evaluator_refers_to(self, parts) -> None:
        assert not [x for x in gc.get_referents(parts.evaluator) if isinstance(x, np.ndarray | Frames)]


def test_only_pictures_use_the_labels() -> None:
    evaluator = Evaluator(Frames.from_arrays(np.ones((4, 1, 1)), device=list("abab")))
    labels = evaluator.labels_for_drawing()
    np.testing.assert_array_equal(labels, [0, 1, 0, 1])
    labels[:] = 0  # a copy: what a picture does with it changes no score
    assert evaluator.score([[1, 0], [0, 1], [1, 0], [0, 1]]).accuracy == 1
    source = Path(pisa_capc.__file__).parent
    users = {p.relative_to(source).as_posix() for p in source.rglob("*.py") if "labels_for_drawing" in p.read_text()}
    assert users == {"data/protocol.py", "evidence/figures/projection.py"}
    users = {p.relative_to(source).as_posix() for p in source.rglob("*.py") if "draw_deployment" in p.read_text()}
    assert users == {"data/protocol.py", "evidence/evaluation/deployment.py"}


def test_an_evaluator_of_some_frames_scores_those() -> None:
    evaluator = Evaluator(Frames.from_arrays(np.ones((4, 1, 1)), device=list("abab")))
    assert evaluator.select([0, 3]).score([[0.9, 0.1], [0.2, 0.8]]).accuracy == 1
    assert len(evaluator.select([True, False, True, True])) == 3


class TestBlocksOfTime:
    def test_validation_is_one_block_of_every_group_with_a_gap_on_either_side(self, frames: Frames) -> None:
        parts = split(frames, ["E2", "E3"], "E1", 2026, held_out="block")
        for device, capture in ((0, "L1"), (3, "M"), (9, "L3")):
            held, kept = (
                part.frame[
                    (part.device == device) & (part.capture == frames.captures.index(capture)) & (part.environment == 1)
                ]
                for part in (parts.validation, parts.train)
            )
            assert len(held) == round(0.2 * (1024 if capture == "M" else 512))
            np.testing.assert_array_equal(held, np.arange(held[0], held[0] + len(held)))
            assert np.abs(kept[:, None] - held).min() == 32  # 31 frames in neither: a window of 32 reaches no further
        assert len(parts.validation) == 10118
        assert len(parts.target) == 24960

    def test_blocks_lie_elsewhere_with_another_seed_and_in_every_group(self, frames: Frames) -> None:
        def starts(seed: int) -> list[int]:
            held = split(frames, ["E2"], "E1", seed, held_out="block").validation
            return [int(held.frame[(held.device == d) & (held.capture == 0)].min()) for d in range(10)]

        assert starts(1) == starts(1)
        assert starts(1) != starts(2)
        assert len(set(starts(1))) > 5

    def test_short_recordings_keep_training_frames(self) -> None:
        few = Frames.from_arrays(np.ones((30, 1, 1)), device=list("ab") * 15, environment=["E1"] * 20 + ["E2"] * 10)
        parts = split(few, "E1", "E2", 1, held_out="block")
        assert (len(parts.validation), min(Counter(parts.train.device.tolist()).values())) == (4, 4)

    def test_the_published_split_is_described_as_before(self) -> None:
        assert SplitRule().to_json() == {"validation": 0.2, "few_shot": 16}
        assert SplitRule(held_out="block").to_json() == {"validation": 0.2, "few_shot": 16, "held_out": "block"}

    def test_another_way_is_refused(self, frames: Frames) -> None:
        with pytest.raises(ConfigError, match=r"split.held_out: unknown choice 'blocks'. Did you mean 'block'"):
            split(frames, "E2", "E1", 1, held_out="blocks")
