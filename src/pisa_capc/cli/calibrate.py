"""Commands of the calibration: calibrate, calibrate fit, calibrate apply."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pisa_capc.cli import app
from pisa_capc.cli.help import BoundedGroup
from pisa_capc.cli.options import Alpha, AsJson, CalibrationName, Force, reject_option
from pisa_capc.cli.output import say, warnings_as_notes, wide_console
from pisa_capc.core.progress import console as notes

if TYPE_CHECKING:
    from pisa_capc.decide.calibration import Calibration, Calibrator, SourceStatistics

_PLAIN = "once"
Scores = typer.Argument(
    help="NPZ file with `embedding` (N, D) and `logits` (N, C), and mostly `capture` (N,); or a folder that holds them "
    "as embedding.npy, logits.npy and so on."
)
Written = typer.Option(help="Where to write: an NPZ file with `probability`, `score` and `prediction`.")
Prior = typer.Option(
    None,
    help="Class shares that U-CAPC imposes: balanced, none, estimated from the scores, or given, with "
    "--set shares=[0.5,0.3,0.2].",
)
Group = typer.Option(
    None, help="What is calibrated together: capture, none, or auto (not to fit) to find groups in the frames' order."
)
Settings = typer.Option([], "--set", help="A setting, key=value: of the calibration.", show_default=False)


class _PlainByDefault(BoundedGroup):
    """`pisa calibrate SCORES` is the plain command, also for --help, unless the first word names another one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args if args and args[0] in self.commands else [_PLAIN, *args])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return "" if name == _PLAIN else name, command, rest  # usage lines show how it is called


commands = typer.Typer(cls=_PlainByDefault, help="Correct a frozen classifier's decisions with unlabelled frames.")
app.add_typer(commands, name="calibrate")


@commands.command(_PLAIN)
def calibrate(
    scores: Path = Scores,
    out: Path = Written,
    calibration: str | None = CalibrationName,
    prior: str | None = Prior,
    group: str | None = Group,
    labels: Path | None = typer.Option(
        None,
        "--labels",
        help="Labelled source frames of the same classifier: scores with `labels` (N,), or a folder with labels.npy. "
        "From them come the statistics that careful and --reject need.",
        show_default=False,
    ),
    reject: str = reject_option("none"),
    alpha: float = Alpha,
    settings: list[str] = Settings,
    plot: Path | None = typer.Option(None, help="Draw: a capture before and after, into this file."),
    plot_capture: str | None = typer.Option(None, help="Which capture to draw; the first by default."),
    as_json: bool = AsJson,
    force: bool = Force,
) -> None:
    """Correct a frozen classifier's decisions with unlabelled frames.

    The output holds a row per frame: `probability`, `score`, `prediction` (the number of the class) and, where the
    input names the classes in `devices` (C,) as `pisa embed` does, `device`, the name of whom it is from.

    The input may also hold `capture` (strings or integers) to group by, `environment` and `frame`, which are carried
    through, `cfo_hz` (N,), which with `frame` helps `--group auto` and which `--reject carrier` needs, and statistics
    of the source for the methods that need them: `source_weight` (C, D), `source_bias` (C,), `source_mean` (D,),
    `source_class_mean` (C, D), `source_prior` (C,), `source_confusion` (C, C) and `source_temperature`.

    --reject calibrates only frames that resemble the source; the others have the prediction −1 and the device
    "unknown", and the output also holds `known`, `unknown_score` and `p_value`. It needs `source_validation` (V, D),
    `source_validation_logits` (V, C) and `source_validation_label` (V,), embeddings, logits and classes of frames that
    the model was not trained on, and by the score `source_bank` (B, D), embeddings of training frames,
    `source_covariance` (D, D), of embeddings within their classes, or `source_session_…`, of devices in each capture of
    each place, as `pisa embed` writes them.

    To keep what was learnt and use it on other frames, see `pisa calibrate fit --help` and
    `pisa calibrate apply --help`; to decide frames as they are received, `pisa calibrate stream --help`.
    """
    from pisa_capc.data.store.files import refuse_existing
    from pisa_capc.decide.calibration import OpenSet, SourceStatistics
    from pisa_capc.decide.calibration.careful import warn_where_uneven
    from pisa_capc.decide.calibration.policy import AUTO, rejection
    from pisa_capc.decide.calibration.scores_file import (
        found_groups,
        read_labelled,
        read_scores,
        warn_if_untrained,
        write_result,
    )
    from pisa_capc.evidence.figures.calibration import plot_capture as draw
    from pisa_capc.evidence.figures.style import check_picture

    asked = {"prior": prior, "group": group}
    named = named_calibrator(calibration, settings, asked)
    if reject not in ("none", AUTO):
        OpenSet(named, reject, alpha)  # what is wrong is said before anything is read
    if plot is not None:
        check_picture(plot)
    refuse_existing(out, force)
    arrays = read_scores(scores)
    if labels is not None:
        with warnings_as_notes():
            arrays |= read_labelled(labels, arrays)
    base = chosen_calibrator(calibration, SourceStatistics.from_arrays(arrays), settings, asked)
    find = base.group == "auto"
    if find:
        base = base.set_params(group="capture")
    score = rejection(None if reject == "none" else reject, SourceStatistics.from_arrays(arrays))
    chosen = base if score is None else OpenSet(base, score, alpha)
    with warnings_as_notes():
        if find:
            arrays["group"] = found_groups(arrays)
        capture = arrays["group"] if find else arrays.get("capture")
        frames = arrays["embedding"], arrays["logits"], capture, SourceStatistics.from_arrays(arrays)
        if isinstance(chosen, OpenSet):
            result = chosen.calibrate(*frames, carrier_hz=arrays.get("cfo_hz"), error=arrays.get("error"))
        else:
            result = chosen.calibrate(*frames)
        warn_where_uneven(base, result, frames[-1])
        warn_if_untrained(arrays)
    drawn = _capture_key(result, plot_capture)
    result.capture(drawn)  # an unknown one is said before anything is written
    write_result(out, result, arrays)
    if plot is not None:
        devices = arrays.get("devices")
        draw(result, plot, drawn, None if devices is None else devices.astype(str).tolist())
    show_result(result, calibration or base.title, out, as_json)
    if plot is not None:
        notes.print(f"picture: {plot}", markup=False, highlight=False, soft_wrap=True)


@commands.command()
def fit(
    scores: Path = Scores,
    out: Path = typer.Option(help="Where to write: a folder for calibration.safetensors and calibration.json."),
    calibration: str | None = CalibrationName,
    prior: str | None = Prior,
    group: str | None = Group,
    settings: list[str] = Settings,
    as_json: bool = AsJson,
    force: bool = Force,
) -> None:
    """Fit a calibration on one stream and keep it, for `pisa calibrate apply` on others.

    Kept are the prototypes and class potentials of every capture, and a pooled set over all frames for captures that
    are not known here. No frame and no label is kept.
    """
    from pisa_capc.data.store.files import refuse_existing
    from pisa_capc.decide.calibration import FrozenCalibration, SourceStatistics
    from pisa_capc.decide.calibration.scores_file import read_scores

    asked = {"prior": prior, "group": group}
    named_calibrator(calibration, settings, asked)  # what is wrong is said before anything is read
    refuse_existing(out / "calibration.json", force)
    arrays = read_scores(scores)
    source = SourceStatistics.from_arrays(arrays)
    chosen = chosen_calibrator(calibration, source, settings, asked)
    with warnings_as_notes():
        frozen = FrozenCalibration.fit(arrays["embedding"], arrays["logits"], arrays.get("capture"), chosen, source)
    frozen.save(out)
    if as_json:
        fitted = {"captures": list(frozen.captures), "classes": frozen.classes, "features": frozen.features}
        typer.echo(json.dumps({"out": str(out), "frames": len(arrays["logits"]), **fitted}))
        return
    say(f"{out}: fitted on {len(arrays['logits']):,} frames of {', '.join(map(str, frozen.captures))}")


@commands.command()
def apply(
    calibration: Path = typer.Argument(help="A folder that `pisa calibrate fit` wrote."),
    scores: Path = Scores,
    out: Path = Written,
    as_json: bool = AsJson,
    force: bool = Force,
) -> None:
    """Correct decisions with a calibration fitted before; each frame by itself, however few there are.

    A frame gets the prototypes of its `capture` where that was fitted. Other captures, and files without `capture`, get
    the pooled set; a note says which.
    """
    from pisa_capc.data.store.files import refuse_existing
    from pisa_capc.decide.calibration import FrozenCalibration
    from pisa_capc.decide.calibration.scores_file import read_scores, write_result

    refuse_existing(out, force)
    frozen, arrays = FrozenCalibration.load(calibration), read_scores(scores)
    with warnings_as_notes():
        result = frozen.apply(arrays["embedding"], arrays["logits"], arrays.get("capture"))
    write_result(out, result, arrays)
    show_result(result, "frozen", out, as_json)


def named_calibrator(
    name: str | None, settings: Sequence[str] = (), options: Mapping[str, Any] | None = None
) -> Calibrator:
    """The calibration that is asked for by name, U-CAPC without one, with its settings, key=value, and options."""
    from pisa_capc.core.config import from_assignments
    from pisa_capc.decide.calibration.policy import named

    given = {key: value for key, value in (options or {}).items() if value is not None}
    return named(name or "ucapc", given | from_assignments(list(settings)))


def chosen_calibrator(
    name: str | None,
    source: SourceStatistics,
    settings: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    published: str = "the published one is --calibration ucapc",
) -> Calibrator:
    """The calibration that is asked for; where none is, the usual one of the source, with a note that says which."""
    from pisa_capc.decide.calibration import UCAPC, usual

    given = options or {}
    if name or settings or given.get("prior"):
        return named_calibrator(name, settings, given)
    found = usual(source).calibration
    lacking = "U-CAPC without a prior, because the source statistics that careful needs are missing"
    said = lacking if isinstance(found, UCAPC) else found.title
    notes.print(f"calibration: {said}; {published}", highlight=False, soft_wrap=True)
    return found.set_params(group=given.get("group") or found.group)


def show_result(result: Calibration, method: str, out: Path, as_json: bool) -> None:
    """The captures of a calibration and where it was written, for people or as JSON."""
    if as_json:
        typer.echo(json.dumps({**_summary(result, method), "out": str(out)}))
        return
    _print_table(result, method)
    say(f"{out}: {len(result.prediction):,} frames")


def _capture_key(result: Calibration, given: str | None) -> str | int | None:
    """The capture a user means: on the command line integer keys arrive as text."""
    by_text = {str(summary.capture): summary.capture for summary in result.captures}
    return None if given is None else by_text.get(given, given)


def _summary(result: Calibration, method: str) -> dict[str, Any]:
    return {
        "method": method,
        "frames": len(result.prediction),
        "changed": result.changed,
        **({} if result.known is None else {"rejected": _rejected(result)}),
        "captures": [
            {
                "capture": summary.capture,
                "frames": summary.frames,
                "changed": summary.changed,
                "mass_before": summary.mass_before.tolist(),
                "mass_after": summary.mass_after.tolist(),
                **({} if result.judged is None else _finite(result.judged[r]._asdict())),
            }
            for r, summary in enumerate(result.captures)
        ],
    }


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    return {name: None if isinstance(v, float) and not math.isfinite(v) else v for name, v in values.items()}


def _rejected(result: Calibration) -> int:
    return int((result.prediction < 0).sum())


def _print_table(result: Calibration, method: str) -> None:
    from rich.table import Table

    rejected = "" if result.known is None else f", {_rejected(result):,} rejected as unknown"
    caption = "frames per device: of the one with the fewest … the most, as the probabilities add up"
    table = Table(
        title=f"{method}: {result.changed:,} of {len(result.prediction):,} decisions changed{rejected}",
        caption=caption,
    )
    table.add_column("capture")
    for name in ("frames", "changed", "frames per device before", "after"):
        table.add_column(name, justify="right")
    if result.judged is not None:
        for name in ("level", "evenness"):
            table.add_column(name, justify="right")
    for r, summary in enumerate(result.captures):
        cells = [f"{m.min():,.1f} … {m.max():,.1f}" for m in (summary.mass_before, summary.mass_after)]
        if result.judged is not None:
            level, found = result.judged[r]
            cells += [level, f"{found:.3f}" if math.isfinite(found) else "–"]
        table.add_row(str(summary.capture), f"{summary.frames:,}", f"{summary.changed:,}", *cells)
    wide_console().print(table)
