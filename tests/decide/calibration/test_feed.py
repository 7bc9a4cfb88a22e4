"""`pisa calibrate stream` prints what the online calibrator decides, frame by frame, and says what it cannot use."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from threadpoolctl import threadpool_info, threadpool_limits
from typer.testing import CliRunner, Result

from pisa_capc import Frames
from pisa_capc.cli import app, main
from pisa_capc.cli import stream as _registers  # noqa: F401
from pisa_capc.core.errors import DataError, PisaError
from pisa_capc.data.protocol import split
from pisa_capc.decide.calibration import (
    UCAPC,
    Decisions,
    GroupSettings,
    Online,
    OnlineCalibrator,
    SourceStatistics,
    usual,
)
from pisa_capc.decide.calibration.feed import LONGEST, LineReader, Playback
from pisa_capc.decide.calibration.stream import DecidedStream
from pisa_capc.model.inference import embed
from pisa_capc.model.training import Run, TrainingConfig, fit
from tests.decide.calibration.streams import CLASSES, FEATURES, Stream, stream

FRAMES = stream((0, 1, 0), frames=300)


def run(*arguments: str | Path, text: str | bytes = "") -> Result:
    """The command, as published where its calibration is not told."""
    told = [] if any("calibration." in str(argument) for argument in arguments) else ["--calibration", "ucapc"]
    return CliRunner().invoke(app, ["calibrate", "stream", *map(str, arguments), *told], input=text)


def decided(ran: Result) -> list[dict[str, Any]]:
    assert ran.exit_code == 0, (ran.stderr, ran.exception)
    return [json.loads(line) for line in ran.stdout.splitlines()]


def objects(frames: Stream = FRAMES, *names: str) -> list[dict[str, Any]]:
    return [{n: getattr(frames, n)[i].tolist() for n in ("embedding", "logits", *names)} for i in range(len(frames))]


def lines(objects: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(fields) + "\n" for fields in objects)


def pushed(frames: Stream, *names: str, settings: Online | None = None) -> Decisions:
    """The same frames, handed to the calibrator in Python."""
    online = OnlineCalibrator(CLASSES, FEATURES, "cfo_hz" in names, settings)
    return online.push(frames.embedding, frames.logits, **{name: getattr(frames, name) for name in names})


def same(found: list[dict[str, Any]], expected: Decisions) -> None:
    assert [line["prediction"] for line in found] == expected.prediction.tolist()
    assert [line["group"] for line in found] == expected.group.tolist()
    highest = expected.probability[np.arange(len(found)), expected.prediction]
    np.testing.assert_allclose([line["probability"] for line in found], highest, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("names", "options", "settings"),
    [
        ((), [], None),
        (("cfo_hz",), [], None),
        (("cfo_hz", "frame"), ["--recordings"], None),
        (
            (),
            ["--set", "warmup=16", "--set", "calibration.prior=none", "--set", "finder.window=96"],
            Online(UCAPC(prior="none"), GroupSettings(window=96), warmup=16),
        ),
    ],
    ids=["plain", "offsets", "recordings", "settings"],
)
def test_lines_are_decided_as_by_the_calibrator(names: tuple[str, ...], options: list[str], settings: Online | None):
    ran = run(*options, text=lines(objects(FRAMES, *names)))
    expected = pushed(FRAMES, *names, settings=settings)
    same(decided(ran), expected)
    groups, changed = len(set(expected.group)), int((expected.prediction != FRAMES.logits.argmax(axis=1)).sum())
    assert groups == 2
    assert changed > 0
    assert f"900 frames, {groups} groups, {changed} decisions changed, " in ran.stderr
    assert "frames/s" in ran.stderr


def test_a_stream_under_way_counts_its_decisions_and_goes_on_from_its_folder(tmp_path: Path):
    played = list(Playback({"embedding": FRAMES.embedding, "logits": FRAMES.logits}))
    for part in (played[:500], played[500:]):
        under_way = DecidedStream(Online(), state=tmp_path / "kept")
        decided = Decisions.joined([under_way.decide(frame) for frame in part])
        under_way.keep()
    later = slice(500, None)
    np.testing.assert_array_equal(
        decided.prediction, pushed(FRAMES, settings=Online(usual(SourceStatistics()).calibration)).prediction[later]
    )
    assert under_way.changed == (decided.prediction != FRAMES.logits[later].argmax(axis=1)).sum() > 0
    assert (under_way.frames, under_way.groups, under_way.strangers) == (400, 2, 0)
    with pytest.raises(DataError, match="frames have 6 logits, the run has 2 devices"):
        DecidedStream(Online(), devices=("a", "b")).decide(played[0])


def test_threads_of_blas_do_not_spin_beside_a_stream(monkeypatch: pytest.MonkeyPatch):
    push, threads = OnlineCalibrator.push, set[int]()

    def watched(*given: Any) -> Decisions:
        threads.update(one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas")
        return push(*given)

    monkeypatch.setattr(OnlineCalibrator, "push", watched)
    with threadpool_limits(2):
        decided(run(text=lines(objects()[:3])))
    assert threads <= {1}


def test_a_line_says_which_frame_it_is_of():
    few = objects(FRAMES.select(slice(0, 3)))
    few[1] |= {"frame": 40, "capture": "E1/L1", "antenna": "not read"}
    first, second, third = decided(run(text=lines(few)))
    assert set(first) == {"frame", "prediction", "probability", "group"}
    assert (first["frame"], second["frame"], third["frame"]) == (0, 40, 2)
    assert second["capture"] == "E1/L1"
    every = decided(run("--all-classes", text=lines(few)))[1]
    assert every["probabilities"][every["prediction"]] == every["probability"]
    np.testing.assert_allclose(every["scores"], FRAMES.logits[1], rtol=0, atol=1e-12)


def test_a_file_of_lines_may_have_blank_ones_and_no_last_newline(tmp_path: Path):
    path = tmp_path / "frames.jsonl"
    path.write_text("\n" + lines(objects(FRAMES.select(slice(0, 5)))).replace("\n", "\n\n").rstrip())
    assert [line["frame"] for line in decided(run(path))] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("odd", ["NaN", "-Infinity", "null", "1e999", "1e200", "1" + 400 * "0"])
@pytest.mark.parametrize("name", ["embedding", "logits", "cfo_hz"])
def test_frames_that_are_not_finite_are_left_out_and_change_nothing(odd: str, name: str):
    frames = FRAMES.select(slice(0, 120))
    whole = [json.dumps(fields) for fields in objects(frames, "cfo_hz")]
    value = odd if name == "cfo_hz" else f"[{odd}{', 0.5' * (getattr(frames, name).shape[1] - 1)}]"
    broken = json.dumps({k: v for k, v in objects(frames, "cfo_hz")[100].items() if k != name})
    broken = f'{broken[:-1]}, "{name}": {value}}}'
    ran = run(text="\n".join([*whole[:100], broken, *whole[100:]]))
    found = decided(ran)
    same(found, pushed(frames, "cfo_hz"))
    assert [line["frame"] for line in found] == [*range(100), *range(101, 121)], "the frame left out is counted"
    assert f"line 101 is left out: {name} is not finite" in ran.stderr
    assert "120 frames, 1 left out, " in ran.stderr


def test_the_largest_numbers_that_are_taken_do_no_harm():
    frames = FRAMES.select(slice(0, 150))
    some = objects(frames, "cfo_hz")
    some[70] = {"embedding": [1e150] * FEATURES, "logits": [-1e150, *[1e150] * (CLASSES - 1)], "cfo_hz": 1e150}
    assert len(decided(run(text=lines(some)))) == 150


def test_many_notes_become_few():
    good = objects(FRAMES.select(slice(0, 20)))
    bad = [fields | {"logits": [None] * CLASSES} for fields in good]
    ran = run(text=lines([*bad, good[0]]))
    assert decided(ran)[0]["frame"] == 20
    assert ran.stderr.count("is left out") == 5
    assert ran.stderr.count("Further notes are not shown") == 1
    assert "1 frame, 20 left out" in ran.stderr


Z, L = [0.5] * 4, [0.1, 0.2, 0.3]
GOOD = json.dumps({"embedding": Z, "logits": L})
WITH_CFO = json.dumps({"embedding": Z, "logits": L, "cfo_hz": 1.0})


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("embedding 0.1 0.2", r"line 3: is no JSON \(.*Expected \{\"embedding\""),
        ('{"embedding": [0.1, 0.', "line 3: is no JSON .*the input ends within it"),
        ("[" * 100_000, "line 3: is no JSON"),
        (b'{"embedding": "\xff\xfe"}', "line 3: is no JSON"),
        ("[0.1, 0.2]", r"line 3: is \[0.1, 0.2\]; expected an object"),
        ('{"embedding": [1, 2, 3, 4], "logit": [1]}', 'line 3: has no logits; found "embedding", "logit", expected'),
        ("{}", "line 3: has no embedding and no logits; found nothing"),
        (json.dumps({"embedding": Z[1:], "logits": L}), "line 3: embedding has 3 numbers; expected 4, as in the first"),
        (json.dumps({"embedding": Z, "logits": [*L, 0]}), "line 3: logits has 4 numbers; expected 3, as in the first"),
        (json.dumps({"embedding": [], "logits": L}), r"line 3: embedding is \[\]; expected a list of numbers"),
        (json.dumps({"embedding": 0.5, "logits": L}), "line 3: embedding is 0.5; expected a list of numbers"),
        (json.dumps({"embedding": ["0.5", 1, 1, 1], "logits": L}), 'line 3: embedding holds "0.5"; expected numbers'),
        (json.dumps({"embedding": [Z], "logits": L}), "line 3: embedding has 1 numbers; expected 4"),
        (json.dumps({"embedding": Z, "logits": [True, 1, 1]}), "line 3: logits holds true; expected numbers"),
        (WITH_CFO, "line 3: has cfo_hz, the first frame had none"),
        (json.dumps({"embedding": Z, "logits": L, "frame": "7"}), 'line 3: frame is "7"; expected a whole number'),
        (
            json.dumps({"embedding": Z, "logits": L, "frame": 2**63}),
            f"line 3: frame is {2**63}; expected a whole number",
        ),
        (json.dumps({"embedding": Z, "logits": L, "frame": 7.5}), "line 3: frame is 7.5; expected a whole number"),
        (json.dumps({"embedding": Z, "logits": L, "capture": [1]}), r"line 3: capture is \[1\]; expected a name"),
        ('"' * LONGEST + "{}", "line 3: is longer than 1,048,576 bytes"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_no_frame_ends_the_stream_and_says_where(bad: str | bytes, message: str):
    text = bad if isinstance(bad, bytes) else bad.encode()
    ran = run(text=f"{GOOD}\n{GOOD}\n".encode() + text)
    assert len(ran.stdout.splitlines()) == 2, "what came before is decided"
    assert "2 frames, 1 group, 0 decisions changed" in ran.stderr
    assert isinstance(ran.exception, PisaError)  # which `pisa` turns into one line and exit code 2
    with pytest.raises(DataError, match=message):
        raise ran.exception


def test_an_offset_that_is_missing_is_said():
    assert "line 2: has no cfo_hz, the first frame had one" in str(run(text=f"{WITH_CFO}\n{GOOD}\n").exception)


def test_a_stream_without_frames_is_said(tmp_path: Path):
    (tmp_path / "empty.jsonl").touch()
    nothing = json.dumps({"embedding": Z, "logits": [None] * 3})
    for arguments, text, message in [
        ([], "", "standard input: holds no frame"),
        ([], "\n \n", "standard input: holds no frame"),
        ([], nothing, r"holds no frame that can be decided (1 left out)"),
        ([tmp_path / "empty.jsonl"], "", "empty.jsonl: holds no frame"),
        ([tmp_path / "absent.jsonl"], "", "absent.jsonl: cannot be read (No such file"),
        ([tmp_path], "", "cannot be read (Is a directory)"),
        ([tmp_path / "absent.npz"], "", "absent.npz does not exist"),
    ]:
        ran = run(*arguments, text=text)
        assert message in str(ran.exception)
        assert isinstance(ran.exception, DataError)
        assert "frames/s" not in ran.stderr


def test_numbers_out_of_order_are_said_once_and_decided_as_they_come():
    frames = FRAMES.select(slice(0, 200))
    numbered = [fields | {"frame": n} for fields, n in zip(objects(frames), [*range(90), 95, 92, 93, 91], strict=False)]
    ran = run(text=lines(numbered))
    same(decided(ran), pushed(frames.select(slice(0, 94))))
    assert ran.stderr.count("note:") == 1
    assert "line 92: frame 92 comes after 95" in ran.stderr
    assert "note:" not in run("--recordings", text=lines(numbered)).stderr
    assert "line 3: has no frame; --recordings" in str(
        run("--recordings", text=lines([*numbered[:2], *objects(frames)])).exception
    )


def test_lines_are_read_only_when_they_are_asked_for():
    """So that a stream without an end needs no more memory than one of a line."""

    class Endless(io.BytesIO):
        asked = 0

        def readline(self, size: int | None = -1, /) -> bytes:
            self.asked += 1
            return GOOD.encode() + b"\n"

    file = Endless()
    for n, frame in zip(count(1), LineReader(file, pytest.fail), strict=False):
        assert (frame.position, file.asked) == (n - 1, n)
        if n == 1000:
            break


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    """As `pisa embed` writes them: recording after recording, each numbered from 0."""
    rows = np.lexsort((FRAMES.frame, FRAMES.capture, FRAMES.label))
    shuffled = FRAMES.select(rows)
    np.savez(
        tmp_path / "scores.npz",
        embedding=shuffled.embedding.astype(np.float32),
        logits=shuffled.logits.astype(np.float32),
        capture=np.array(["E1/L1", "E1/L2"])[shuffled.capture],
        environment=np.full(len(shuffled), "E1"),
        frame=shuffled.frame,
        cfo_hz=shuffled.cfo_hz,
        source_weight=np.ones((CLASSES, FEATURES)),
    )
    return tmp_path / "scores.npz"


def test_scores_are_played_back_capture_after_capture(scores: Path):
    found = decided(run(scores))
    assert [line["capture"] for line in found] == ["E1/L1"] * 600 + ["E1/L2"] * 300
    for name in ("E1/L1", "E1/L2"):
        numbers = [line["frame"] for line in found if line["capture"] == name]
        assert numbers == sorted(numbers)
    assert {line["group"] for line in found} == {0, 1}


@pytest.mark.parametrize("options", [[], ["--recordings"]], ids=str)
def test_what_is_written_is_what_was_printed_by_row(options: list[str], scores: Path):
    out, auto = scores.with_name("decided.npz"), scores.with_name("auto.npz")
    found = decided(run(scores, "--out", out, *options))
    CliRunner().invoke(app, ["calibrate", str(scores), "--out", str(auto), "--calibration", "ucapc", "--group", "auto"])
    with np.load(out) as written, np.load(auto) as plain, np.load(scores) as given:
        assert {n: (written[n].dtype, written[n].shape) for n in written.files} == {
            n: (plain[n].dtype, plain[n].shape) for n in plain.files
        }
        order = Playback(dict(given)).order
        names = ("embedding", "logits", "cfo_hz", *(["frame"] if options else []))
        online = OnlineCalibrator(CLASSES, FEATURES, with_cfo=True)
        expected = online.push(**{name: given[name][order] for name in names})
        same(found, expected)
        np.testing.assert_array_equal(written["prediction"][order], expected.prediction)
        np.testing.assert_array_equal(written["group"][order], expected.group)
        np.testing.assert_allclose(written["probability"][order], expected.probability, rtol=0, atol=1e-6)
        np.testing.assert_array_equal(written["capture"], given["capture"])
    assert "--force" in str(run(scores, "--out", out).exception)


def test_ctrl_c_while_playing_leaves_no_half_file(scores: Path, monkeypatch: pytest.MonkeyPatch):
    push = OnlineCalibrator.push

    def interrupted(self: OnlineCalibrator, *arguments: Any) -> Decisions:
        if self.finder.seen == 7:
            raise KeyboardInterrupt
        return push(self, *arguments)

    monkeypatch.setattr(OnlineCalibrator, "push", interrupted)
    assert len(decided(run(scores))) == 7
    ran = run(scores, "--out", scores.with_name("decided.npz"))
    assert ran.exit_code == 130
    assert "7 frames, " in ran.stderr
    assert [path.name for path in scores.parent.iterdir()] == ["scores.npz"]


def test_the_order_of_playing():
    rows = {"embedding": np.ones((4, 2)), "logits": np.ones((4, 3))}
    capture = np.array(["b", "a", "b", "a"])
    assert Playback(rows).order.tolist() == [0, 1, 2, 3]
    assert Playback({**rows, "capture": capture}).order.tolist() == [0, 1, 2, 3]
    counted_on = np.array([7, 5, 4, 6])  # of a receiver: places may come again
    assert Playback({**rows, "capture": capture, "frame": counted_on}).order.tolist() == [2, 1, 3, 0]
    within = np.array([1, 1, 0, 0], dtype=np.uint16)  # of recordings
    assert Playback({**rows, "capture": capture, "frame": within}).order.tolist() == [3, 1, 2, 0]
    assert Playback({**rows, "frame": within}).order.tolist() == [2, 3, 0, 1]


def test_scores_that_cannot_be_played_are_explained(scores: Path):
    with np.load(scores) as stored:
        arrays = dict(stored)
    cases: list[tuple[dict[str, Any], list[str], str]] = [
        ({"logits": np.full((900, CLASSES), np.nan)}, [], "logits holds NaN or infinity in 900 of 900 frames"),
        ({"cfo_hz": np.ones(3)}, [], "cfo_hz is float64 (3,); expected one finite number per frame"),
        ({"frame": np.full(900, "x")}, [], "frame is <U1 (900,)"),
        ({"frame": None}, ["--recordings"], "have no frame; --recordings"),
    ]
    for changes, options, message in cases:
        np.savez(scores, **{k: v for k, v in (arrays | changes).items() if v is not None})
        ran = run(scores, *options)
        assert message in str(ran.exception)
        assert not ran.stdout


def test_options_that_do_not_fit_are_explained(tmp_path: Path):
    for options, message in [
        (["--out", tmp_path / "out.npz"], "--out is for an .npz"),
        (["--set", "warmpu=3"], "Did you mean 'warmup'"),
        (["--set", "calibration.pior=none"], "Did you mean 'prior'"),
        (["--set", "warmup=0"], "warmup is 0"),
        (["--run", tmp_path], "holds no model.json"),
    ]:
        assert message in str(run(*options, text=GOOD).exception)


def test_devices_have_the_names_of_the_run(tmp_path: Path):
    iq = np.random.default_rng(0).normal(size=(48, 2, 64))
    frames = Frames.from_arrays(iq, device=["A7", "B2"] * 24, environment=np.repeat(["E1", "E2"], 24))
    part = split(frames, "E2", "E1", seed=2026)
    short = TrainingConfig(epochs=1, batch=16)
    [model] = fit([Run(part, 2026)], encoder="cnn", training=short, device="cpu", out=tmp_path / "run", show=False)
    embed(model, part.target).save(tmp_path / "scores.npz")
    found = decided(run(tmp_path / "scores.npz", "--run", tmp_path / "run"))
    assert found
    assert all(line["device"] == ("A7", "B2")[line["prediction"]] for line in found)
    assert "frames have 3 logits, the run has 2 devices" in str(run("--run", tmp_path / "run", text=GOOD).exception)


def test_a_progress_bar_does_not_take_the_decisions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Where standard error is a terminal a bar is drawn there, and what is printed still goes to standard output."""
    (tmp_path / "frames.jsonl").write_text(lines(objects(FRAMES.select(slice(0, 50)))))
    terminal = Console(file=io.StringIO(), force_terminal=True)
    monkeypatch.setattr("pisa_capc.core.progress.console", terminal)
    assert len(decided(run(tmp_path / "frames.jsonl"))) == 50
    drawn = terminal.file.getvalue()  # type: ignore[attr-defined]
    assert "50/?" in drawn
    assert "prediction" not in drawn


def test_where_nothing_is_told_the_source_decides_and_the_command_says_which(tmp_path: Path):
    usual = CliRunner().invoke(app, ["calibrate", "stream"], input=lines(objects()))
    assert "U-CAPC without a prior, because the source statistics that careful needs are missing" in usual.stderr
    assert decided(usual) == decided(run("--set", "calibration.prior=none", text=lines(objects())))
    scores = tmp_path / "scores.npz"
    means = np.random.default_rng(0).normal(size=(CLASSES, FEATURES))
    known = SourceStatistics(class_mean=means, weight=means, covariance=np.eye(FEATURES))
    stored = {f"source_{name}": values for name, values in known.known().items()}
    np.savez(scores, embedding=FRAMES.embedding, logits=FRAMES.logits, **stored)  # type: ignore[arg-type]
    careful = CliRunner().invoke(app, ["calibrate", "stream", str(scores)])
    assert "calibration: careful; the published one is --calibration ucapc" in careful.stderr
    stream = OnlineCalibrator(CLASSES, FEATURES, source=known)
    expected = stream.push(FRAMES.embedding, FRAMES.logits).prediction
    assert [line["prediction"] for line in decided(careful)] == expected.tolist()
    lda = CliRunner().invoke(app, ["calibrate", "stream", str(scores), "--calibration", "lda"])
    assert decided(lda) != decided(careful)
    lacking = CliRunner().invoke(app, ["calibrate", "stream", "--calibration", "lda"], input=lines(objects()))
    assert "LDA head needs source_class_mean" in str(lacking.exception)


def test_a_wrong_line_is_exit_code_2(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(sys, "argv", ["pisa", "calibrate", "stream"])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(GOOD.encode() + b"\nnonsense\n")))
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 1
    assert "error: line 2: is no JSON" in printed.err


def test_bad_lines_are_skipped_and_counted_where_that_is_asked_for():
    bad = ["nonsense", '{"embedding": [1], "logits": []}', "[]"]
    text = "\n".join([bad[0], GOOD, *bad[1:], GOOD]) + "\n"
    ran = run("--skip-bad", text=text)
    assert len(decided(ran)) == 2
    assert "note: line 1 is skipped: it is no JSON" in ran.stderr
    assert "2 frames, 3 bad lines skipped" in ran.stderr


def test_a_stream_goes_on_from_its_state_as_if_it_had_not_stopped(tmp_path: Path):
    whole = decided(run(text=lines(objects())))
    half = len(whole) // 2
    first = decided(run("--state", tmp_path / "state", text=lines(objects()[:half])))
    second = decided(run("--state", tmp_path / "state", text=lines(objects()[half:])))
    assert [{**line, "frame": 0} for line in first + second] == [{**line, "frame": 0} for line in whole]
    other = run("--state", tmp_path / "state", "--set", "warmup=3", text=GOOD)
    assert "is the state of a stream with" in str(other.exception)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_every_frame_is_decided_before_the_next_is_sent_and_a_signal_ends_it(number: signal.Signals):
    with subprocess.Popen(
        [sys.executable, "-m", "pisa_capc", "calibrate", "stream", "--calibration", "ucapc"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            for n in range(3):
                process.stdin.write(GOOD.encode() + b"\n")
                process.stdin.flush()
                assert json.loads(process.stdout.readline())["frame"] == n
            process.send_signal(number)
            assert process.wait(20) == 0
            assert process.stderr.read().startswith(b"3 frames, 1 group, 0 decisions changed, ")
        finally:
            process.kill()
