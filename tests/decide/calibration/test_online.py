"""A stream is decided frame by frame, with a constant state, as well as if its captures were known."""

from __future__ import annotations

import copy
import json
import multiprocessing
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pisa_capc import UCAPC
from pisa_capc.core.errors import ConfigError, DataError, ModelError
from pisa_capc.data.store.seal import sealed
from pisa_capc.decide.calibration import (
    Careful,
    FrozenCalibration,
    GroupSettings,
    Online,
    OnlineCalibrator,
    PriorUCAPC,
    SourceStatistics,
)
from pisa_capc.decide.calibration.learning import Learner
from tests.decide.calibration.streams import CLASSES, FEATURES, Stream, stream

MEANS = np.random.default_rng(0).normal(size=(CLASSES, FEATURES))
KNOWN = SourceStatistics(class_mean=MEANS, weight=MEANS, covariance=np.eye(FEATURES))
SMALL = Online(sample=64, memory=128, warmup=16, refresh=64)


def calibrator(settings: Online | None = None, with_cfo: bool = False) -> OnlineCalibrator:
    return OnlineCalibrator(CLASSES, FEATURES, with_cfo, settings)


def test_a_stream_starts_empty_and_with_the_classifiers_own_decisions():
    online = calibrator()
    empty = online.push(np.empty((0, FEATURES)), np.empty((0, CLASSES)))
    assert empty.probability.shape == (0, CLASSES)
    frames = stream((0,), frames=Online().warmup)
    first = online.push(frames.embedding, frames.logits)
    np.testing.assert_array_equal(first.score, frames.logits)
    np.testing.assert_array_equal(first.prediction, frames.logits.argmax(axis=1))
    later = online.push(frames.embedding, frames.logits)
    assert not np.allclose(later.score, frames.logits)


@pytest.mark.parametrize("lag", [0, 32])
@pytest.mark.parametrize("with_cfo", [False, True], ids=["by class", "by offset"])
def test_batches_and_single_frames_give_the_same_decisions(with_cfo: bool, lag: int):
    frames, settings = stream((0, 1, 0), frames=400), replace(SMALL, lag=lag)
    cfo_hz = frames.cfo_hz if with_cfo else None
    whole = calibrator(settings, with_cfo)
    at_once = whole.push(frames.embedding, frames.logits, cfo_hz)
    draw = np.random.default_rng(0)
    for size in (1, 7, None):
        online, parts, start = calibrator(settings, with_cfo), [], 0
        while start < len(frames):
            part = slice(start, start := start + (size or int(draw.integers(1, 60))))
            parts.append(
                online.push(frames.embedding[part], frames.logits[part], None if cfo_hz is None else cfo_hz[part])
            )
        np.testing.assert_array_equal(np.concatenate([p.prediction for p in parts]), at_once.prediction)
        np.testing.assert_array_equal(np.concatenate([p.group for p in parts]), at_once.group)
        np.testing.assert_allclose(np.concatenate([p.probability for p in parts]), at_once.probability, atol=1e-9)


def test_what_is_learnt_in_the_background_decides_after_its_lag_however_long_it_takes(
    monkeypatch: pytest.MonkeyPatch,
):
    frames, settings = stream((0,), frames=200), replace(SMALL, lag=32)
    expected = calibrator(settings).push(frames.embedding, frames.logits).score
    assert np.flatnonzero((expected != frames.logits).any(axis=1))[0] == SMALL.warmup + 32
    run = Learner.learn
    monkeypatch.setattr(Learner, "learn", lambda *given, **named: time.sleep(0.05) or run(*given, **named))
    slow, scores = calibrator(settings), []
    for frame in zip(frames.embedding, frames.logits, strict=True):
        scores.append(slow.push(*frame).score)
    np.testing.assert_allclose(np.concatenate(scores), expected, atol=1e-9)


def test_a_lag_that_does_not_fit_the_looks_is_refused():
    with pytest.raises(ConfigError, match="multiple of 16"):
        Online(lag=20)


def test_one_frame_needs_no_batch_axis():
    frames = stream((0,), frames=3)
    online = calibrator(with_cfo=True)
    result = online.push(frames.embedding[0], frames.logits[0], frames.cfo_hz[0], frames.frame[0])
    assert result.probability.shape == (1, CLASSES)
    np.testing.assert_allclose(result.probability.sum(), 1)


def test_between_two_runs_of_ucapc_the_state_is_frozen():
    """The first fit of a stream is U-CAPC on all frames so far, and decides the next ones as `frozen` does."""
    frames = stream((0,), frames=80)
    online = calibrator()
    online.push(frames.embedding[:64], frames.logits[:64])
    result = online.push(frames.embedding[64:], frames.logits[64:])
    frozen = FrozenCalibration.fit(frames.embedding[:64], frames.logits[:64])
    expected = frozen.apply(frames.embedding[64:], frames.logits[64:])
    np.testing.assert_allclose(result.probability, expected.probability, atol=1e-10)
    np.testing.assert_array_equal(result.prediction, expected.prediction)


@pytest.mark.parametrize("calibration", [UCAPC(prior="none"), UCAPC(passes=0), UCAPC(epsilon=0.5)], ids=str)
def test_the_settings_of_ucapc_are_used(calibration: UCAPC):
    frames = stream((0,), frames=80)
    online = calibrator(Online(calibration))
    online.push(frames.embedding[:64], frames.logits[:64])
    frozen = FrozenCalibration.fit(frames.embedding[:64], frames.logits[:64], settings=calibration)
    expected = frozen.apply(frames.embedding[64:], frames.logits[64:])
    result = online.push(frames.embedding[64:], frames.logits[64:])
    np.testing.assert_allclose(result.probability, expected.probability, atol=1e-10)


def test_a_stream_is_decided_better_than_by_the_classifier():
    frames = stream((0, 1, 2), frames=900)
    result = calibrator().push(frames.embedding, frames.logits)
    settled = np.tile(np.arange(900) >= 300, 3)  # once the change was found and the group has its prototypes
    correct = (result.prediction == frames.label)[settled].mean()
    direct = (frames.logits.argmax(axis=1) == frames.label)[settled].mean()
    known = (UCAPC().calibrate(frames.embedding, frames.logits, frames.capture).prediction == frames.label)[settled]
    assert direct < correct
    assert known.mean() - correct < 0.02


def test_groups_close_and_reopen_with_the_state_they_had():
    frames = stream((0, 1, 0, 1), frames=800)
    online = calibrator()
    result = online.push(frames.embedding, frames.logits)
    settled = np.tile(np.arange(800) >= 2 * GroupSettings().window, 4)
    np.testing.assert_array_equal(result.group[settled], frames.capture[settled])
    before = calibrator()
    before.push(frames.embedding[:1600], frames.logits[:1600])
    kept = before._arrays["taken"].copy()
    assert (online._arrays["taken"][:2] > kept[:2]).all(), "a reopened group goes on counting"


def test_one_endless_capture_keeps_one_group_and_a_constant_state():
    online = calibrator(SMALL)
    frames = stream((0,), frames=4000)
    size = online.nbytes
    result = online.push(frames.embedding, frames.logits)
    assert set(result.group) == {0}
    assert online.nbytes == size


def test_the_state_does_not_grow_with_groups():
    online = calibrator(Online(finder=GroupSettings(groups=2), sample=64, memory=128))
    frames = stream(tuple(range(5)), frames=400)
    size = online.nbytes
    result = online.push(frames.embedding, frames.logits, frame=frames.frame)
    assert max(result.group) == 4
    assert online.nbytes == size


def test_a_forgotten_group_leaves_nothing_to_the_next_one():
    """The slot of group 0 is given to group 2, which must begin with its own frames only."""
    frames = stream((0, 1, 2), frames=400)
    settings = Online(finder=GroupSettings(groups=2), warmup=150)
    whole = calibrator(settings)
    whole.push(frames.embedding, frames.logits, frame=frames.frame)
    alone = calibrator(settings)
    last = frames.select(slice(800, None))
    alone.push(last.embedding, last.logits, frame=last.frame)
    slot = int((whole.finder.arrays["number"] == 2).argmax())
    assert whole._arrays["taken"][slot] + whole.finder.pending == 400
    taken = int(alone._arrays["taken"][0])
    np.testing.assert_array_equal(whole._arrays["sample_unit"][slot, :taken], alone._arrays["sample_unit"][0, :taken])


@pytest.mark.parametrize("with_cfo", [False, True], ids=["by class", "by offset"])
def test_a_capture_of_one_transmitter_is_one_group_and_not_balanced(with_cfo: bool):
    frames = stream((0,), transmitters=1, frames=1000)
    online = calibrator(with_cfo=with_cfo)
    result = online.push(frames.embedding, frames.logits, frames.cfo_hz if with_cfo else None)
    assert set(result.group) == {0}
    assert (result.prediction == 0).mean() >= (frames.logits.argmax(axis=1) == 0).mean()
    balanced = UCAPC().calibrate(frames.embedding, frames.logits).prediction
    assert (balanced == 0).mean() < 0.5, "what would happen otherwise"


def test_the_sample_is_uniform_over_the_frames_of_a_group():
    """Of 4,000 frames with memory for all of them, each quarter has about a quarter of the sample."""
    frames = stream((0,), frames=4000)
    online = calibrator(Online(sample=256, memory=4000))
    # A constant added to a frame's logits changes nothing but marks the frame with its time.
    time = np.arange(4000)[:, None] - frames.logits.max(axis=1, keepdims=True)
    online.push(frames.embedding, frames.logits + time)
    when = online._arrays["sample_logits"][0].max(axis=1)
    counts = np.histogram(when, bins=4, range=(0, 4000 - GroupSettings().window))[0]
    assert counts.sum() == 256
    assert counts.min() > 40  # binomial(256, 1/4): 64 ± 7


@pytest.mark.parametrize("lag", [0, 64])
def test_a_saved_stream_goes_on_as_if_it_had_not_stopped(tmp_path: Path, lag: int):
    frames = stream((0, 1, 0), frames=500)
    first, rest = frames.select(slice(0, 777)), frames.select(slice(777, None))
    online = calibrator(replace(SMALL, lag=lag), with_cfo=True)
    online.push(first.embedding, first.logits, first.cfo_hz, first.frame)
    assert (online._coming is not None) == (lag > 0)
    copy.deepcopy(online).save(tmp_path)  # as a listener does
    again = OnlineCalibrator.load(tmp_path)
    assert again.settings == online.settings
    a, b = (o.push(rest.embedding, rest.logits, rest.cfo_hz, rest.frame) for o in (online, again))
    np.testing.assert_array_equal(a.probability, b.probability)
    np.testing.assert_array_equal(a.group, b.group)


def edit(folder: Path, **changes: Any) -> None:
    path = folder / "stream.json"
    path.write_text(json.dumps(sealed(json.loads(path.read_text()) | changes)))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "stream.json").unlink(), "holds no stream.json"),
        (lambda f: edit(f, schema=0), "schema 0; this version reads 1"),
        (lambda f: edit(f, classes=CLASSES + 1), "do not fit their description"),
        (lambda f: edit(f, with_cfo=True), "do not fit their description"),
        (lambda f: edit(f, settings={"smaple": 3}), "Did you mean 'sample'"),
        (lambda f: edit(f, counters={}), "not a stream's state"),
        (lambda f: (f / "stream.safetensors").write_bytes(b""), "damaged"),
    ],
)
def test_a_damaged_state_is_refused(tmp_path: Path, damage: Any, message: str):
    calibrator(SMALL).save(tmp_path)
    damage(tmp_path)
    with pytest.raises(ModelError, match=message):
        OnlineCalibrator.load(tmp_path)


def test_unusable_frames_are_explained_and_change_nothing():
    frames = stream((0,), frames=4)
    online = calibrator()
    z, logits = frames.embedding, frames.logits
    broken = np.where(np.arange(4)[:, None] == 2, np.nan, z)
    cases: list[tuple[tuple[Any, ...], str]] = [
        ((z[:, :3], logits), r"embedding has shape \(4, 3\); expected \(n, 16\)"),
        ((z, logits[:3]), "embedding has 4 frames and logits 3"),
        ((broken, logits), "NaN or infinity"),
        ((z, logits, frames.cfo_hz), "with_cfo=True"),
        ((z, logits, None, frames.frame[:2]), r"frame has shape \(2,\)"),
    ]
    for arguments, message in cases:
        with pytest.raises(DataError, match=message):
            online.push(*arguments)
    assert online.finder.seen == 0
    with pytest.raises(DataError, match="give cfo_hz"):
        calibrator(with_cfo=True).push(z, logits)
    with pytest.raises(ConfigError, match="memory is 10"):
        Online(memory=10)


def test_frames_in_another_order_are_decided_too():
    """Within a capture the order may be any; across captures it is what tells them apart."""
    frames = stream((0, 1), frames=800)
    order = np.lexsort((np.random.default_rng(1).random(len(frames)), frames.capture))
    shuffled: Stream = frames.select(order)
    result = calibrator().push(shuffled.embedding, shuffled.logits)
    settled = np.tile(np.arange(800) >= 300, 2)
    np.testing.assert_array_equal(result.group[settled], shuffled.capture[settled])


def test_a_fork_learns_in_a_thread_of_its_own():
    frames = stream((0,), frames=400)

    def learn() -> None:
        calibrator(replace(SMALL, lag=32)).push(frames.embedding, frames.logits)

    learn()
    child = multiprocessing.get_context("fork").Process(target=learn)
    child.start()
    child.join(60)
    child.kill()
    assert child.exitcode == 0


@pytest.mark.parametrize(("by", "named"), [({"source": KNOWN}, "careful"), ({}, "ucapc")])
def test_a_state_of_earlier_versions_goes_on_by_what_it_was_made_by(tmp_path: Path, by: dict[str, Any], named: str):
    """They kept the settings of U-CAPC, whatever calibrated, and did not name it."""
    frames = stream((0,), frames=200)
    online = OnlineCalibrator(CLASSES, FEATURES, settings=SMALL, **by)
    online.push(frames.embedding, frames.logits)
    online.save(tmp_path)
    about = json.loads((tmp_path / "stream.json").read_text())
    assert about["settings"]["calibration"].get("method", "ucapc") == named
    about["settings"]["calibration"] = asdict(UCAPC())
    (tmp_path / "stream.json").write_text(json.dumps(sealed({k: v for k, v in about.items() if k != "digest"})))
    again = OnlineCalibrator.load(tmp_path)
    assert again.settings == online.settings
    expected = online.push(frames.embedding, frames.logits)
    np.testing.assert_array_equal(again.push(frames.embedding, frames.logits).probability, expected.probability)


@pytest.mark.parametrize(("by", "goes_on"), [({"source": KNOWN}, "careful"), ({}, "ucapc")])
@pytest.mark.parametrize(
    "settings", [{"method": "safe", "group": "capture"}, asdict(UCAPC())], ids=["named", "unnamed"]
)
def test_a_state_that_was_kept_under_the_guard_goes_on_without_it(
    tmp_path: Path, by: dict[str, Any], goes_on: str, settings: dict[str, Any]
):
    frames = stream((0,), frames=200)
    online = OnlineCalibrator(CLASSES, FEATURES, settings=SMALL, **by)
    online.push(frames.embedding, frames.logits)
    online.save(tmp_path)
    about = {k: v for k, v in json.loads((tmp_path / "stream.json").read_text()).items() if k != "digest"}
    about["settings"]["calibration"], about["guard"] = settings, ["-inf", "0.1", "inf"]
    (tmp_path / "stream.json").write_text(json.dumps(sealed(about)))
    with pytest.warns(UserWarning, match=f"under its guard, which is gone. It goes on by {goes_on}"):
        again = OnlineCalibrator.load(tmp_path)
    assert again.settings.calibration in (Careful(), UCAPC(prior="none"))
    assert again.push(frames.embedding, frames.logits).probability.shape == (200, CLASSES)


def test_a_calibration_that_is_not_registered_cannot_be_kept(tmp_path: Path):
    online = calibrator(Online(PriorUCAPC()))
    with pytest.raises(ConfigError, match="PriorUCAPC is no registered calibration"):
        online.save(tmp_path)
