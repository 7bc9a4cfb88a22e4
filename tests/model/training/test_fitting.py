"""Training: one run or many, to the end or in two goes."""

from __future__ import annotations

import gc
import math
import re
import threading
import weakref
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from pisa_capc.core.errors import ConfigError, DataError, ModelError
from pisa_capc.data.frames import Frames
from pisa_capc.data.sources import FrameSource
from pisa_capc.model.inference import devices
from pisa_capc.model.inference.devices import has_bfloat16
from pisa_capc.model.methods.pisa import PisaMethod
from pisa_capc.model.runs import Metrics
from pisa_capc.model.training import TrainingConfig, fit
from pisa_capc.model.training import stack as training_stack
from pisa_capc.model.training.stack import Stack
from tests.model.training.tools import FAST, TRAINING, Killed, assert_identical, make_stack, weights
from tests.problems import runs, small_frames


@pytest.fixture(scope="module")
def frames() -> Frames:
    return small_frames()


@pytest.mark.parametrize("encoder", ["cnn", "transformer"])
def test_a_stack_trains_as_each_run_would_alone(frames: Frames, encoder: str) -> None:
    these = runs(frames, (1, 1), (1, 2), (2, 1))
    together = make_stack(frames, these, encoder)
    losses = together.train_epoch(0)
    scores = together.validate()
    for i, run in enumerate(these):
        alone = make_stack(frames, [run], encoder)
        np.testing.assert_allclose(losses[:, i], alone.train_epoch(0)[:, 0], rtol=2e-4, atol=1e-6)
        assert scores[i] == pytest.approx(alone.validate()[0], abs=0.1)
    assert not np.allclose(losses[:, 0], losses[:, 1], rtol=1e-2)


def test_a_stack_that_is_let_go_is_gone_at_once(frames: Frames) -> None:
    """With it the frames and the open files of its bank: the next training of a process needs the room."""
    made = make_stack(frames, runs(frames))
    made.train_epoch(0)
    left = weakref.ref(made)
    gc.disable()
    try:
        del made
        assert left() is None
    finally:
        gc.enable()


@pytest.mark.slow
@pytest.mark.parametrize("encoder", ["cnn", "mscnn", "resnet", "tcn", "cvcnn", "cldnn", "transformer"])
def test_every_encoder_trains_two_epochs_in_a_stack_as_alone(frames: Frames, encoder: str) -> None:
    these = runs(frames, (1, 1), (2, 2))
    together = fit(these, **FAST | {"encoder": encoder}, stacked=True)
    alone = fit(these, **FAST | {"encoder": encoder}, stacked=False)
    for a, b in zip(together, alone, strict=True):
        for one, other in zip(a.run.history, b.run.history, strict=True):
            assert one.loss == pytest.approx(other.loss, rel=5e-3, abs=1e-4)


def test_fitting_a_stack_gives_the_models_of_single_fits(frames: Frames) -> None:
    these = runs(frames, (1, 1), (1, 2))
    together, alone = (fit(these, **FAST, stacked=stacked) for stacked in (True, False))
    for a, b in zip(together, alone, strict=True):
        first, other = (x.run.history[0].loss for x in (a, b))
        assert first == pytest.approx(other, rel=1e-3, abs=1e-5)
        assert a.run.seed == b.run.seed


def test_runs_with_fewer_frames_are_a_stack_of_their_own(frames: Frames, tmp_path: Path) -> None:
    """Blocks of time leave other numbers of frames to train with in every split."""
    first, second, third = runs(frames, (1, 1), (2, 1), (1, 2))
    fewer = replace(second, split=replace(second.split, train=second.split.train[3:]))
    both = fit([first, fewer, third], **FAST, stacked=True, out=tmp_path)
    for model, one in zip(both, (fit([first, third], **FAST, stacked=True), fit(fewer, **FAST)), strict=False):
        assert_identical(model, one[0])
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {run.name for run in (first, fewer, third)}


def test_the_same_seed_gives_the_same_weights(frames: Frames) -> None:
    [a], [b], [c] = (fit(runs(frames, (1, seed)), **FAST) for seed in (7, 7, 8))
    assert_identical(a, b)
    assert not torch.equal(weights(a)["classifier.weight"], weights(c)["classifier.weight"])


@pytest.mark.parametrize("encoder", ["cnn", "cldnn", "transformer"])
def test_a_training_is_the_same_with_any_number_of_threads(frames: Frames, encoder: str) -> None:
    [one], [two] = (fit(runs(frames)[:1], **FAST | {"encoder": encoder}, threads=threads) for threads in (1, 2))
    assert all(torch.equal(value, weights(two)[name]) for name, value in weights(one).items())


def test_every_step_of_every_run_drops_something_else(frames: Frames) -> None:
    stack = make_stack(frames, runs(frames, (1, 1), (2, 2)))
    seen: list[int] = []
    for epoch in range(2):
        stack.train_epoch(epoch, lambda: seen.extend(stack._key.tolist()))
    assert len(seen) == 2 * 2 * stack.steps
    assert len(set(seen)) == len(seen)
    first, second = stack.draw(0), stack.draw(1)
    assert not np.array_equal(first, second)  # the order of the frames
    assert not np.array_equal(first[:, 0], first[:, 1])


def test_what_is_drawn_ahead_is_what_the_epoch_draws(frames: Frames, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after one that was stopped, a step or a draw in between, and not in turn."""
    drawn: list[int] = []
    draw = training_stack.draw_epoch
    monkeypatch.setattr(training_stack, "draw_epoch", lambda *how: drawn.append(how[1]) or draw(*how))

    def begun() -> Stack:
        stack = make_stack(frames, runs(frames))
        np.testing.assert_array_equal(stack.train_epoch(0), first)
        return stack

    def stopped(stack: Stack) -> None:
        with pytest.raises(Killed):
            stack.train_epoch(1, stop)

    def stop() -> None:
        raise Killed

    whole = make_stack(frames, runs(frames))
    first, second = (whole.train_epoch(epoch).copy() for epoch in (0, 1))
    assert drawn == [0, 0, 1, 2]  # to be captured, and each epoch once
    for between in (
        lambda _: None,
        stopped,
        Stack.step,
        lambda stack: stack.draw(7),
        lambda stack: stack.train_epoch(7),
    ):
        stack = begun()
        state = {name: value.clone() for name, value in stack.state().items()}
        between(stack)
        stack.load_state(state)
        np.testing.assert_array_equal(stack.train_epoch(1), second)


def test_the_best_epoch_is_kept(frames: Frames, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two runs, one is best after the second epoch, the other after the first, and a tie keeps the earlier."""
    scores = iter([[0.3, 0.9], [0.8, 0.5], [0.8, 0.9]])
    seen: list[torch.Tensor] = []

    def validate(self: Stack) -> NDArray[np.float64]:
        seen.append(self.model.state_dict()["classifier.weight"].clone())
        return np.array(next(scores))

    monkeypatch.setattr(Stack, "validate", validate)
    how = FAST | {"training": replace(TRAINING, epochs=3)}
    first, second = fit(runs(frames, (1, 1), (2, 2)), **how, stacked=True)
    assert torch.equal(weights(first)["classifier.weight"][0], seen[1][0])
    assert torch.equal(weights(second)["classifier.weight"][0], seen[0][1])
    assert first.run.metrics == Metrics(0.8, 2)
    assert second.run.metrics == Metrics(0.9, 1)


@pytest.mark.parametrize(("settling", "epoch"), [(0, 1), (1, 3), (10**6, 4)])
def test_an_epoch_before_the_objective_has_settled_is_not_kept(
    frames: Frames, monkeypatch: pytest.MonkeyPatch, settling: int, epoch: int
) -> None:
    scores = iter([0.9, 0.5, 0.6, 0.55])
    monkeypatch.setattr(Stack, "validate", lambda self: np.array([next(scores)]))
    monkeypatch.setattr(PisaMethod, "settling_steps", settling)
    [found] = fit(runs(frames, (1, 1)), **FAST | {"training": replace(TRAINING, epochs=4)})
    expected = {1: 0.9, 3: 0.6, 4: 0.55}[epoch]  # where no epoch has settled, the last
    assert found.run.metrics == Metrics(expected, epoch)


class Guarded:
    """A source that may not be read at some rows."""

    def __init__(self, source: FrameSource, forbidden: NDArray[np.int64]) -> None:
        self.source, self.forbidden = source, forbidden

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.source, name)
        if not name.startswith("read") and name != "cfo_traces":
            return value

        def read(rows: NDArray[np.int64], *rest: Any) -> Any:
            assert not np.isin(rows, self.forbidden).any(), "target frames were read"
            return value(rows, *rest)

        return read


def test_target_frames_are_never_read(frames: Frames) -> None:
    target = np.flatnonzero(frames.environment == 0)
    guarded = replace(frames, source=Guarded(frames.source, target))
    with pytest.raises(AssertionError, match="target frames were read"):
        _ = runs(guarded)[0].split.target.iq  # the guard works
    fit(runs(guarded), **FAST)


def spoil(frames: Frames, row: int) -> Frames:
    iq = frames.iq.copy()
    iq[row, 0, 3] = np.nan
    return replace(frames, source=replace(frames.source, iq=iq))  # type: ignore[type-var]


def test_nan_in_a_frame_names_the_frame(frames: Frames) -> None:
    row = int(np.flatnonzero((frames.environment == 2) & (frames.device == 1))[4])
    with pytest.raises(DataError, match="frame 4 of E3/D2/L1 holds NaN"):
        fit(runs(spoil(frames, row)), **FAST)


def test_a_batch_beyond_the_frames_and_a_folder_of_a_dataset_are_refused(frames: Frames, tmp_path: Path) -> None:
    few = len(runs(frames)[0].split.train)
    with pytest.raises(ConfigError, match=rf"training\.batch: found 5000, expected at most the {few} training frames"):
        fit(runs(frames), **FAST | {"training": replace(TRAINING, batch=5000)})
    (tmp_path / "dataset.json").touch()
    with pytest.raises(DataError, match="holds a dataset"):
        fit(runs(frames), **FAST, out=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["dataset.json"]


def test_every_epoch_shows_the_parts_of_the_loss(frames: Frames, capsys: pytest.CaptureFixture[str]) -> None:
    [trained] = fit(runs(frames), **FAST | {"show": True})
    parts = trained.run.history[-1].loss
    *_, last = (line for line in capsys.readouterr().err.splitlines() if "epoch" in line)
    total, listed = re.search(r"loss ([\d.]+) \((.+)\) val F1", last).groups()  # type: ignore[union-attr]
    shown = {name: float(value) for name, value in (part.split() for part in listed.split(", "))}
    assert shown == pytest.approx(parts, rel=0.01, abs=1e-6)
    assert float(total) == pytest.approx(sum(parts.values()), abs=0.001)


def test_one_run_and_several_do_not_share_a_folder(frames: Frames, tmp_path: Path) -> None:
    one, several = runs(frames), runs(frames, (1, 1), (1, 2))
    fit(several, **FAST, out=tmp_path / "several")
    with pytest.raises(ModelError, match="holds 2 runs, as split1-seed1"):
        fit(one, **FAST, out=tmp_path / "several")
    fit(one, **FAST, out=tmp_path / "one")
    with pytest.raises(ModelError, match="holds the model of one run"):
        fit(several, **FAST, out=tmp_path / "one")
    assert not list((tmp_path / "one").glob("split*"))


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("CUDA out of memory. Tried to allocate 20 GiB")])
def test_lack_of_memory_is_a_clear_error(frames: Frames, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(self: Stack, *_: object) -> None:
        raise error

    monkeypatch.setattr(Stack, "train_epoch", fail)
    with pytest.raises(ConfigError, match=r"ran out of memory \(.*\)\. Use a smaller --batch"):
        fit(runs(frames), **FAST)


def test_a_loss_that_explodes_stops_the_training(frames: Frames) -> None:
    with pytest.raises(ModelError, match=r"run split1-seed1: .* at step .* of epoch"):
        fit(runs(frames), **FAST | {"training": replace(TRAINING, learning_rate=1e38)})


def test_streamed_frames_train_as_resident_ones(frames: Frames) -> None:
    resident, streamed = (make_stack(frames, runs(frames, (1, 1), (2, 2)), resident=r) for r in (True, False))
    for epoch in range(2):
        np.testing.assert_array_equal(streamed.train_epoch(epoch), resident.train_epoch(epoch))
        np.testing.assert_array_equal(streamed.validate(), resident.validate())


def test_a_streamed_epoch_that_is_stopped_leaves_no_thread_and_can_be_run_again(frames: Frames) -> None:
    stopped, whole = (make_stack(frames, runs(frames), resident=False) for _ in range(2))
    initial = {name: value.clone() for name, value in stopped.model.state_dict().items()}

    def stop() -> None:
        raise Killed

    with pytest.raises(Killed) as found:
        stopped.train_epoch(0, stop)
    assert found.traceback  # it is held on to, and with it everything that the epoch had
    assert not [t for t in threading.enumerate() if t.name.startswith("read-ahead")]
    stopped.reset(initial)
    np.testing.assert_array_equal(stopped.train_epoch(0), whole.train_epoch(0))


@pytest.mark.parametrize("most", [20, 512])
def test_a_validation_in_even_pieces_decides_as_one_that_is_not(
    frames: Frames, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """On a GPU the pieces are replayed; here they are computed, after each of two epochs."""
    monkeypatch.setattr(training_stack, "frames_at_a_time", lambda *_: most)
    monkeypatch.setattr(training_stack, "_stream_of_its_own", nullcontext)
    monkeypatch.setattr(Stack, "_captured", lambda self, work, what: SimpleNamespace(replay=work))
    stack = make_stack(frames, runs(frames, (1, 1), (2, 2)))
    assert stack._pieces.numel() > stack.validation_rows.size  # some frames fill up
    for epoch in range(2):
        stack.train_epoch(epoch)
        scores = []
        for stack.fused in (False, True):
            scores.append(stack.validate())
        np.testing.assert_array_equal(scores[0], scores[1])
        with torch.no_grad():
            assert torch.equal(stack._decisions(), stack._replayed_decisions())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("encoder", ["cnn", "cldnn", "transformer"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_on_a_gpu_a_captured_validation_sees_what_the_steps_have_learnt(
    frames: Frames, monkeypatch: pytest.MonkeyPatch, encoder: str, precision: str
) -> None:
    monkeypatch.setattr(training_stack, "frames_at_a_time", lambda *_: 20)
    stack = make_stack(frames, runs(frames, (1, 1), (2, 2)), encoder, device="cuda", precision=precision)
    found = []
    for epoch in range(3):
        stack.train_epoch(epoch)
        stack.validate()
        found.append(stack._decided.clone())
        stack._piece.zero_()
        with torch.no_grad():
            for _ in stack._pieces:
                stack._decide_piece()
        assert torch.equal(stack._decided, found[-1])
    assert not torch.equal(found[0], found[-1])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu_no_training_of_a_process_leaves_traces_in_the_next(frames: Frames) -> None:
    """Batches of one view, of two, and stacks of other sizes, one after the other: all as on a CPU."""
    how = FAST | {"encoder": "transformer", "precision": "float32"}
    few, many = runs(frames), runs(frames, (1, 1), (1, 2))
    for these, variant in (
        (few, "full"),
        (few, "no-topology-consistency"),
        (many, "contextual-only"),
        (few, "no-token-refinement"),
    ):
        found, expected = (fit(these, **how | {"device": device}, variant=variant) for device in ("cuda", "cpu"))
        for a, b in zip(found, expected, strict=True):
            for ours, right in zip(a.run.history, b.run.history, strict=True):
                assert ours.loss == pytest.approx(right.loss, rel=0.01, abs=1e-4), variant


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("encoder", ["cnn", "cldnn", "transformer"])
def test_mixed_precision_follows_full_precision(frames: Frames, encoder: str) -> None:
    how = FAST | {"encoder": encoder, "device": "cuda"}
    [full], [mixed] = (fit(runs(frames), **how, precision=p) for p in ("float32", "bfloat16"))
    for a, b in zip(full.run.history, mixed.run.history, strict=True):
        assert b.loss == pytest.approx(a.loss, rel=0.1, abs=0.01)
    assert mixed.run.precision == "bfloat16"
    assert all(p.dtype == torch.float32 for p in mixed.model.parameters())


@pytest.mark.skipif(not has_bfloat16(), reason="a processor without bfloat16")
@pytest.mark.parametrize("encoder", ["cnn", "cldnn", "transformer"])
def test_mixed_precision_on_a_cpu_follows_full_precision(frames: Frames, encoder: str) -> None:
    how = FAST | {"encoder": encoder, "device": "cpu"}
    [full], [mixed] = (fit(runs(frames), **how, precision=p) for p in ("float32", "bfloat16"))
    for a, b in zip(full.run.history, mixed.run.history, strict=True):
        assert b.loss == pytest.approx(a.loss, rel=0.1, abs=0.01)
    assert mixed.run.precision == "bfloat16"
    assert all(p.dtype == torch.float32 for p in mixed.model.parameters())


def test_a_cpu_without_bfloat16_refuses_it(frames: Frames, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "has_bfloat16", lambda: False)
    with pytest.raises(ConfigError, match="needs a GPU, or a processor with instructions for it"):
        fit(runs(frames), **FAST | {"device": "cpu", "precision": "bfloat16"})


def test_frames_without_cfo_train(frames: Frames) -> None:
    silent = replace(frames, source=replace(frames.source, cfo_hz=None))  # type: ignore[type-var]
    [trained] = fit(runs(silent), **FAST, precision="auto")
    assert np.isfinite(trained.run.metrics.validation_f1)
    assert trained.run.precision == "float32", "on a CPU"


def test_tensorboard_files_appear(frames: Frames, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    fit(runs(frames), **FAST, tensorboard=tmp_path)
    assert list((tmp_path / "split1-seed1").glob("events.out.tfevents.*"))


def test_short_frames_are_used_whole_and_long_ones_cut(frames: Frames) -> None:
    [whole] = fit(runs(frames), **FAST)
    assert whole.run.samples == 32
    [cut] = fit(runs(frames), **FAST | {"training": replace(TRAINING, samples=16)})
    assert cut.run.samples == 16


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"encoder": "resnett"}, "Did you mean 'resnet'"),
        ({"method": "pissa"}, "Did you mean 'pisa'"),
        ({"variant": "topology"}, "Did you mean 'topology-only'"),
        ({"settings": {"model": {"betta": 1.0}}}, "Did you mean 'beta'"),
        ({"device": "gpu"}, "expected auto, cpu or cuda"),
        ({"training": replace(TRAINING, samples=33)}, "33 of each frame were asked for, and the frames hold 32"),
        ({"precision": "half"}, "expected auto, float32 or bfloat16"),
    ],
)
def test_unknown_choices_are_refused(frames: Frames, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        fit(runs(frames), **FAST | change)


def test_impossible_trainings_are_refused(frames: Frames) -> None:
    with pytest.raises(ConfigError, match="no runs"):
        fit([], **FAST)
    with pytest.raises(ConfigError, match="share split seed and training seed"):
        fit(runs(frames, (1, 1), (1, 1)), **FAST)
    with pytest.raises(ConfigError, match="epochs: expected at least 1, found 0"):
        TrainingConfig(epochs=0)
    with pytest.raises(ConfigError, match="learning_rate > 0"):
        TrainingConfig(learning_rate=0)
    with pytest.raises(
        ConfigError, match=r"training\.learning_rate: expected a finite number, zero or more, found nan"
    ):
        TrainingConfig(learning_rate=math.nan)
    with pytest.raises(ConfigError, match=r"training\.weight_decay: expected a finite number, zero or more, found inf"):
        TrainingConfig(weight_decay=math.inf)
    with pytest.raises(DataError, match="one dataset"):
        fit(runs(frames, (1, 1)) + runs(small_frames(), (2, 2)), **FAST)


def test_only_what_is_all_ours_takes_a_step_on_whatever_is_in_memory(frames: Frames) -> None:
    class Mine(PisaMethod):
        """Somebody's loss, which may check what it is given."""

    class Net(torch.nn.Module):
        """Somebody's network."""

    made = make_stack(frames, runs(frames))
    assert made._is_ours()
    method, made.method = made.method, Mine.__new__(Mine)
    assert not made._is_ours()
    made.method = method
    made.model.extra = Net()
    assert not made._is_ours()
