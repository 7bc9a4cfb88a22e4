"""Command of a calibration that decides frames as they are received: calibrate stream."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from pisa_capc.cli.calibrate import chosen_calibrator, commands
from pisa_capc.cli.options import Alpha, CalibrationName, Force, reject_option
from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.core.progress import console as notes
from pisa_capc.core.progress import progress

if TYPE_CHECKING:
    from pisa_capc.decide.calibration import Decisions, Online, OnlineCalibrator, SourceStatistics
    from pisa_capc.decide.calibration.feed import LineReader, Playback, StreamFrame
    from pisa_capc.decide.calibration.openset import Rejection

    Aside: TypeAlias = Callable[[int, int], Rejection]

STANDARD_INPUT = Path("-")
NOTES = 5  # that are shown; a receiver that sends nothing but NaN should not fill a disk


@commands.command()
def stream(
    frames: Annotated[
        Path, typer.Argument(help="JSON lines, or an .npz that `pisa embed` wrote; - is standard input.")
    ] = STANDARD_INPUT,
    run: Annotated[
        Path | None, typer.Option(help="A run that `pisa train` wrote; here for the names of the devices.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where to write, with an .npz: `probability`, `score`, `prediction`, `group`.")
    ] = None,
    recordings: Annotated[
        bool, typer.Option("--recordings", help="`frame` falls where a recording begins: look for groups only there.")
    ] = False,
    all_classes: Annotated[
        bool, typer.Option("--all-classes", help="Also print the probability and score of every class.")
    ] = False,
    calibration: str | None = CalibrationName,
    reject: str = reject_option("none"),
    alpha: float = Alpha,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting, key=value: warmup=32, calibration.prior=none, finder.window=96."),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(help="Folder of what was learnt; it goes on from there, and leaves it there at the end."),
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out what cannot be used: lines that are no frames, counted.")
    ] = False,
    force: bool = Force,
) -> None:
    """Decide frames as they are received, one JSON line in, one JSON line out, without names of captures.

    A line holds a frame's `embedding` and `logits`, and may hold `cfo_hz`, which helps to find groups, and `frame` and
    `capture`, which are carried through: {"embedding": [0.1, …], "logits": [1.9, …], "frame": 17}. What is printed for
    it, at once, is {"frame": 17, "prediction": 3, "device": "D04", "probability": 0.93, "group": 0}: the number of the
    class, its name with --run, and the group of frames whose prototypes decided.

    The order of the lines is the order of the frames. A frame with NaN, infinity or null is left out with a note, any
    other fault ends the stream with the number of its line, unless --skip-bad skips it. Ctrl-C and SIGTERM end it too;
    they still print the summary and write --state.

    --reject sets frames aside that resemble no device of the source: their prediction and group are -1, their device
    is unknown, and nothing is learnt from them; `unknown_score` says how little each frame resembles it. It needs --run
    or an .npz of `pisa embed`.

    An .npz is played back in the order of its `frame`, capture after capture where numbers repeat.

    The careful calibration adapts as it sees more of a group, and has an alarm: if frames become less confident than
    those it learnt from, a note says so and the group is learnt again. As long as nothing changes, this happens on
    average at most once in ten thousand frames.
    """
    from threadpoolctl import threadpool_limits

    from pisa_capc.core.config import from_assignments
    from pisa_capc.data.store.files import refuse_existing
    from pisa_capc.decide.calibration import Online, SourceStatistics
    from pisa_capc.decide.calibration.feed import EXPECTED, Playback
    from pisa_capc.decide.calibration.scores_file import write_result

    given = from_assignments(settings or [])
    if calibration is not None:
        given["calibration"] = {**given.get("calibration", {}), "method": calibration}
    online = Online.from_mapping(given, "stream")
    if out is not None:
        if frames.suffix != ".npz":
            raise ConfigError("--out is for an .npz. Decisions about JSON lines are printed: add > decided.jsonl.")
        refuse_existing(out, force)
    devices, source = _known(run)
    printed = sys.stdout  # a progress bar would put itself in its place
    # Products here are small, and BLAS's own threads would only spin.
    with threadpool_limits(1), _sigterm_as_ctrl_c(), _opened(frames, recordings, skip_bad) as feed:
        total = len(feed) if isinstance(feed, Playback) else None
        if source is None and isinstance(feed, Playback):
            source = SourceStatistics.from_arrays(feed.arrays)
        aside = None if reject == "none" else _aside(reject, alpha, source)
        online, source = _chosen(online, source)
        decider = _Decider(online, devices, recordings, state, source, aside)
        kept: list[Decisions] = []
        try:
            with progress("stream", total, show=frames != STANDARD_INPUT and not printed.isatty()) as bar:
                for frame in feed:
                    decisions = decider.decide(frame)
                    printed.write(json.dumps(decider.line(frame, decisions, all_classes)) + "\n")
                    printed.flush()
                    bar.advance()
                    if out is not None:
                        kept.append(decisions)
        except KeyboardInterrupt:
            if out is not None:  # half of it is not what was asked for
                raise
        else:
            if not decider.frames:
                read = "standard input" if frames == STANDARD_INPUT else frames
                left = f" ({feed.left_out:,} left out)" if feed.left_out else ""
                raise DataError(f"{read}: holds no frame that can be decided{left}; expected lines as {EXPECTED}.")
            if out is not None and isinstance(feed, Playback):
                result = feed.by_row(kept)
                write_result(out, result, {**feed.arrays, "group": result.group})
        finally:
            decider.end(feed.left_out, feed.skipped)


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    """A service is stopped by SIGTERM, and is to end as one that a person stops."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _opened(frames: Path, recordings: bool, skip_bad: bool) -> Iterator[LineReader | Playback]:
    from pisa_capc.decide.calibration.feed import LineReader, Playback
    from pisa_capc.decide.calibration.scores_file import read_scores

    if frames.suffix == ".npz":
        yield Playback(read_scores(frames), recordings)
    elif frames == STANDARD_INPUT:
        yield LineReader(sys.stdin.buffer, _Notes(), recordings, skip_bad)
    else:
        try:
            file = frames.open("rb")
        except OSError as error:
            raise DataError(f"{frames}: cannot be read ({error.strerror}). Expected JSON lines, or an .npz.") from error
        with file:
            yield LineReader(file, _Notes(), recordings, skip_bad)


def _known(run: Path | None) -> tuple[tuple[str, ...], SourceStatistics | None]:
    """The devices of a run, and its source statistics."""
    from pisa_capc.model.inference import load_model

    if run is None:
        return (), None
    trained = load_model(run)
    return trained.devices, trained.statistics


def _chosen(settings: Online, source: SourceStatistics | None) -> tuple[Online, SourceStatistics | None]:
    """With the calibration of the settings, or with what is usual with this source, saying which."""
    from pisa_capc.decide.calibration import SourceStatistics
    from pisa_capc.decide.calibration.online import usual_stream

    known = source or SourceStatistics()
    if settings.calibration is None:
        settings = replace(settings, calibration=chosen_calibrator(None, known))
    return usual_stream(settings, known)


def _aside(name: str, alpha: float, source: SourceStatistics | None) -> Aside:
    """What fits a rejection to a stream of so many classes and features."""
    from pisa_capc.decide.calibration import UCAPC
    from pisa_capc.decide.calibration.openset import DEFAULT, OpenSet, Rejection
    from pisa_capc.decide.calibration.openset.names import MEASURED
    from pisa_capc.decide.calibration.policy import AUTO, usual

    OpenSet(UCAPC(), DEFAULT if name == AUTO else name, alpha)  # what is wrong is said before a frame has come
    if source is None:
        raise ConfigError("--reject needs what is known of the source: give --run, or an .npz of `pisa embed`.")
    score = usual(source).rejection if name == AUTO else name
    if score == MEASURED:
        if name != AUTO:
            raise ConfigError(
                "--reject gaussian needs the error of every frame, which streams do not hold. Use session."
            )
        score = DEFAULT
    return lambda classes, features: Rejection.fit(score, source, classes, features, alpha)


class _Notes:
    """Says the first few notes, then that there are more."""

    def __init__(self) -> None:
        self._left = NOTES

    def __call__(self, text: str) -> None:
        self._left -= 1
        if self._left == 0:
            text += " Further notes are not shown."
        if self._left >= 0:
            notes.print(f"note: {text}", style="yellow", markup=False, highlight=False, soft_wrap=True)


class _Decider:
    """A stream under way, and what there is to say of it in the end."""

    def __init__(
        self,
        settings: Online,
        devices: tuple[str, ...],
        recordings: bool,
        state: Path | None,
        source: SourceStatistics | None,
        aside: Aside | None,
    ) -> None:
        self._source, self._aside, self._notes = source, aside, _Notes()
        self._settings, self._devices, self._recordings, self._state = settings, devices, recordings, state
        self._calibrator: OnlineCalibrator | None = None
        self._started = 0.0
        self.frames = self._changed = self._groups = self._strangers = 0

    def decide(self, frame: StreamFrame) -> Decisions:
        if self._calibrator is None:
            self._calibrator = self._begin(frame)
            if self._aside is not None:
                self._calibrator.rejection = self._aside(len(frame.logits), len(frame.embedding))
        number = frame.number if self._recordings else None
        decisions = self._calibrator.push(frame.embedding, frame.logits, frame.cfo_hz, number)
        self.frames += 1
        if decisions.prediction[0] < 0:
            self._strangers += 1
            return decisions
        self._changed += int(decisions.prediction[0] != frame.logits.argmax())
        self._groups = max(self._groups, int(decisions.group[0]) + 1)
        if decisions.alarm[0]:
            self._notes(
                f"frame {frame.position}: frames of group {decisions.group[0]} have become less confident than "
                "those learnt from; the group is forgotten and learnt again."
            )
        return decisions

    def _begin(self, frame: StreamFrame) -> OnlineCalibrator:
        from pisa_capc.decide.calibration import OnlineCalibrator

        if self._devices and len(self._devices) != len(frame.logits):
            raise DataError(
                f"frames have {len(frame.logits)} logits, the run has {len(self._devices)} devices. "
                "Give the run whose model made them."
            )
        self._started = time.perf_counter()
        shape = len(frame.logits), len(frame.embedding), frame.cfo_hz is not None
        if self._state is None or not (self._state / "stream.json").is_file():
            return OnlineCalibrator(*shape, self._settings, source=self._source)
        stream = OnlineCalibrator.load(self._state)
        kept = stream.classes, stream.features, stream.finder.with_cfo
        alike = stream.settings == self._settings and (stream.source is None) == (self._source is None)
        if kept != shape or not alike:
            raise DataError(
                f"{self._state}: is the state of a stream with {kept[0]} classes, {kept[1]} features, "
                f"{'a' if kept[2] else 'no'} CFO and its own settings; these frames have {shape[0]} and {shape[1]}, "
                f"{'a' if shape[2] else 'no'} CFO. Give frames of one model and the same --set, or another --state."
            )
        return stream

    def line(self, frame: StreamFrame, decisions: Decisions, all_classes: bool) -> dict[str, Any]:
        """What is printed of a frame."""
        from pisa_capc.decide.calibration.scores_file import UNKNOWN

        prediction, known = int(decisions.prediction[0]), bool(decisions.prediction[0] >= 0)
        likeliest = prediction if known else int(decisions.probability[0].argmax())
        return {
            "frame": frame.position if frame.number is None else frame.number,
            **({} if frame.capture is None else {"capture": frame.capture}),
            "prediction": prediction,
            **({"device": self._devices[prediction] if known else UNKNOWN} if self._devices else {}),
            "probability": float(decisions.probability[0, likeliest]),
            "group": int(decisions.group[0]),
            **({} if decisions.unknown_score is None else {"unknown_score": float(decisions.unknown_score[0])}),
            **(
                {"probabilities": decisions.probability[0].tolist(), "scores": decisions.score[0].tolist()}
                if all_classes
                else {}
            ),
        }

    def end(self, left_out: int, bad: int) -> None:
        """Keep what was learnt, where that was asked for, and say the last line, on standard error."""
        if not self.frames:
            return
        if self._state is not None and self._calibrator is not None:
            self._calibrator.save(self._state)
        rate = self.frames / max(time.perf_counter() - self._started, 1e-9)
        skipped = f", {left_out:,} left out" if left_out else ""
        skipped += f", {self._strangers:,} set aside as unknown" if self._aside is not None else ""
        skipped += f", {bad:,} bad lines skipped" if bad else ""
        notes.print(
            f"{self.frames:,} frame{'s' * (self.frames > 1)}{skipped}, "
            f"{self._groups:,} group{'s' * (self._groups > 1)}, "
            f"{self._changed:,} decision{'s' * (self._changed != 1)} changed, {rate:,.0f} frames/s",
            highlight=False,
            soft_wrap=True,
        )
