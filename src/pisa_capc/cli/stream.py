"""Command of a calibration that decides frames as they are received: calibrate stream."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pisa_capc.cli.calibrate import chosen_calibrator, commands
from pisa_capc.cli.options import Alpha, CalibrationName, Force, reject_option
from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.core.progress import console as notes
from pisa_capc.core.progress import progress

if TYPE_CHECKING:
    from pisa_capc.decide.calibration import Decisions, SourceStatistics
    from pisa_capc.decide.calibration.feed import LineReader, Playback
    from pisa_capc.decide.calibration.stream import DecidedStream

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
    from pisa_capc.decide.calibration.stream import DecidedStream, stream_rejection

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
        rejecting = None if reject == "none" else stream_rejection(reject, alpha, source)
        if online.calibration is None:
            online = replace(online, calibration=chosen_calibrator(None, source or SourceStatistics()))
        decider = DecidedStream(online, source, devices, recordings, state, rejecting, _Notes())
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
            if decider.frames:
                decider.keep()
                _say_end(decider, feed.left_out, rejecting is not None, feed.skipped)


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


def _say_end(decided: DecidedStream, left_out: int, rejects: bool, bad: int) -> None:
    """The last line, on standard error."""
    skipped = f", {left_out:,} left out" if left_out else ""
    skipped += f", {decided.strangers:,} set aside as unknown" if rejects else ""
    skipped += f", {bad:,} bad lines skipped" if bad else ""
    notes.print(
        f"{decided.frames:,} frame{'s' * (decided.frames > 1)}{skipped}, "
        f"{decided.groups:,} group{'s' * (decided.groups > 1)}, "
        f"{decided.changed:,} decision{'s' * (decided.changed != 1)} changed, {decided.frames_per_s:,.0f} frames/s",
        highlight=False,
        soft_wrap=True,
    )
