"""Commands of the calibration: calibrate."""

from __future__ import annotations

import json
import math
import warnings
import zipfile
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pisa_capc.cli import app
from pisa_capc.cli.help import BoundedGroup
from pisa_capc.cli.output import say, warnings_as_notes, wide_console
from pisa_capc.core.errors import ConfigError, DataError, unknown_name
from pisa_capc.core.progress import console as notes

if TYPE_CHECKING:
    import numpy as np

    from pisa_capc.decide.calibration import Calibration, Calibrator, Decisions, SourceStatistics

_CARRIED = ("capture", "environment", "frame", "group")
_RESULT = ("probability", "score", "prediction", "known", "unknown_score", "p_value")
PREFIX = "source_"  # of statistics of the source
UNKNOWN = "unknown"  # the name of what no device has sent, as far as a rejection can say
_PLAIN = "once"


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
    scores: Annotated[Path, typer.Argument(help="NPZ file with `embedding` (N, D) and `logits` (N, C).")],
    out: Annotated[Path, typer.Option(help="NPZ file to write: `probability`, `score`, `prediction`.")],
    method: Annotated[
        str | None,
        typer.Option(
            help="careful, ucapc, direct, t3a, lame, label-propagation, pt-map, bd-cspn, transclip, stata, mlls, bbse, "
            "or lda. Default: careful, or U-CAPC without a prior if the "
            "scores lack the source statistics that careful needs."
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="A row of the paper's ablation: paper, which is the published calibration, direct, without-grouping, "
            "without-prior."
        ),
    ] = None,
    prior: Annotated[
        str | None,
        typer.Option(
            help="Class shares that U-CAPC imposes: balanced, none, estimated from the scores, or given, "
            "with --set shares=[0.5,0.3,0.2]."
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(help="What is calibrated together: capture, none, or auto to find groups in the frames' order."),
    ] = None,
    reject: Annotated[
        str,
        typer.Option(
            help="Reject unknown devices first: auto, which is what suits the model, gaussian (closed-form models), "
            "session, crowd, carrier, knn, mahalanobis, vim, energy, msp, or none."
        ),
    ] = "none",
    alpha: Annotated[
        float, typer.Option(help="Share of source-like frames of a known device to reject at most.")
    ] = 0.05,
    set_: Annotated[list[str] | None, typer.Option("--set", help="A parameter of the method, key=value.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw a capture before and after into this file.")] = None,
    plot_capture: Annotated[str | None, typer.Option(help="Which capture to draw; the first by default.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing output file.")] = False,
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
    from pisa_capc.evidence.figures.calibration import plot_capture as draw
    from pisa_capc.evidence.figures.style import check_picture

    asked = {"prior": prior, "group": group}
    named = chosen_calibrator(method or "ucapc", preset, asked, set_ or [])
    if reject not in ("none", AUTO):
        OpenSet(named, reject, alpha)  # what is wrong is said before anything is read
    if plot is not None:
        check_picture(plot)
    refuse_existing(out, force)
    arrays = read_scores(scores)
    base = chosen_calibrator(method, preset, asked, set_ or [], SourceStatistics.from_arrays(arrays))
    find = base.group == "auto"
    if find:
        base = base.set_params(group="capture")
    score = rejection(None if reject == "none" else reject, SourceStatistics.from_arrays(arrays))
    chosen = base if score is None else OpenSet(base, score, alpha)
    with warnings_as_notes():
        if find:
            arrays["group"] = _found_groups(arrays)
        capture = arrays["group"] if find else arrays.get("capture")
        frames = arrays["embedding"], arrays["logits"], capture, SourceStatistics.from_arrays(arrays)
        if isinstance(chosen, OpenSet):
            result = chosen.calibrate(*frames, carrier_hz=arrays.get("cfo_hz"), error=arrays.get("error"))
        else:
            result = chosen.calibrate(*frames)
        warn_where_uneven(base, result, frames[-1])
        _say_if_untrained(arrays)
    drawn = _capture_key(result, plot_capture)
    result.capture(drawn)  # an unknown one is said before anything is written
    write_result(out, result, arrays)
    if plot is not None:
        devices = arrays.get("devices")
        draw(result, plot, drawn, None if devices is None else devices.astype(str).tolist())
    show_result(result, base.title if method is None else method, out, as_json)
    if plot is not None:
        notes.print(f"picture: {plot}", markup=False, highlight=False, soft_wrap=True)


def _say_if_untrained(arrays: dict[str, np.ndarray]) -> None:
    """Warn where the classifier has not learnt its own source: there are decisions, and they mean nothing."""
    from pisa_capc.data.chance import AFTER_TRAINING, at_chance

    decided = arrays.get(f"{PREFIX}confusion")
    if decided is None or decided.ndim != 2:
        return
    if found := at_chance("the classifier on held-out frames of its own source", decided.T):
        warnings.warn(f"{found} {AFTER_TRAINING}", stacklevel=2)


def _found_groups(arrays: dict[str, np.ndarray]) -> np.ndarray:
    """(N,) groups found with all that the scores say about their frames."""
    from pisa_capc.decide.calibration.grouping import find_groups
    from pisa_capc.decide.calibration.inputs import check_inputs

    check_inputs(arrays["embedding"], arrays["logits"])
    found = find_groups(arrays["embedding"], arrays["logits"], arrays.get("cfo_hz"), arrays.get("frame"))
    _watch_order(arrays)
    return found


def _watch_order(arrays: dict[str, np.ndarray]) -> None:
    """Warn where frame numbers fall within a capture: its rows are then not in the order of reception."""
    import numpy as np

    if "capture" not in arrays or "frame" not in arrays:
        return
    order = np.argsort(arrays["capture"], kind="stable")
    capture, frame = arrays["capture"][order], arrays["frame"][order]
    falls = np.flatnonzero((capture[1:] == capture[:-1]) & (frame[1:] < frame[:-1]))
    if len(falls):
        i = falls[0]
        warnings.warn(
            f"--group auto needs frames in the order in which they were received; in capture {capture[i]} frame "
            f"{frame[i + 1]} comes after frame {frame[i]}, as when recordings follow one another (pisa embed writes "
            "them so). Sort the rows by time, use --group capture, or pisa calibrate stream, which plays them in time "
            "order.",
            stacklevel=2,
        )


def usual_calibrator(source: SourceStatistics, published: str) -> Calibrator:
    """The usual calibration of the source, saying which, and how to have the published one."""
    from pisa_capc.decide.calibration import UCAPC, usual

    found = usual(source).calibration
    lacking = "U-CAPC without a prior, because the source statistics that careful needs are missing"
    said = lacking if isinstance(found, UCAPC) else found.title
    notes.print(f"calibration: {said}; {published}", highlight=False, soft_wrap=True)
    return found


def chosen_calibrator(
    method: str | None,
    preset: str | None,
    options: dict[str, str | None],
    settings: list[str],
    source: SourceStatistics | None = None,
    published: str = "--preset paper",
) -> Calibrator:
    """The calibration that was asked for; where none was, the usual one of the source, saying which."""
    from pisa_capc.core.config import from_assignments, from_mapping
    from pisa_capc.decide.calibration import PRESETS, UCAPC, PriorUCAPC, SourceStatistics, calibrator

    if not (method or preset or options.get("prior") or settings):
        found = usual_calibrator(source or SourceStatistics(), f"the published one is {published}")
        return replace(found, group=options.get("group") or found.group)  # type: ignore[call-arg]
    method, preset = method or "ucapc", preset or "paper"
    if preset not in PRESETS:
        raise ConfigError(unknown_name("preset", preset, PRESETS))
    kind = calibrator(method)
    if kind is UCAPC and options.get("prior") in ("given", "estimated"):
        kind = PriorUCAPC
    if preset != "paper" and not issubclass(kind, UCAPC):
        raise ConfigError(f"--preset {preset} belongs to ucapc; {method} has no presets.")
    values: dict[str, Any] = asdict(UCAPC.preset(preset)) if issubclass(kind, UCAPC) else {}
    values |= {name: value for name, value in options.items() if value is not None}
    values |= from_assignments(settings)
    return from_mapping(kind, values, method)


def read_scores(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an NPZ file that a calibration knows; nothing in it is ever unpickled."""
    from numpy.lib import format as npy

    from pisa_capc.data.store.files import reading
    from pisa_capc.data.store.outside import array_members, read_arrays

    if not path.exists():
        raise DataError(f"{path} does not exist; write scores with pisa embed.")
    with reading(path, "an NPZ file of plain arrays, as pisa embed writes scores"):
        with path.open("rb") as file:
            single = file.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX
        if single:
            raise DataError(f"{path} is a single array; expected an NPZ file with embedding and logits.")
        arrays = read_arrays(path, ("embedding", "logits", "cfo_hz", "error", "devices", *_CARRIED), PREFIX)
        missing = [name for name in ("embedding", "logits") if name not in arrays]
        with zipfile.ZipFile(path) as archive:
            found = ", ".join(array_members(archive)) or "nothing"
    if missing:
        raise DataError(f"{path} has no {' and no '.join(missing)}; found {found}. Write scores with pisa embed.")
    for name in ("embedding", "logits"):
        if arrays[name].ndim != 2:
            raise DataError(f"{path}: {name} has shape {arrays[name].shape}; expected (frames, columns).")
    _check_rows(path, arrays)
    if "devices" in arrays and arrays["devices"].shape != (classes := arrays["logits"].shape[1:]):
        raise DataError(f"{path}: devices has shape {arrays['devices'].shape}; expected {classes}, a name per logit.")
    return arrays


def _check_rows(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Refuse arrays that do not have one row per frame. How many frames there are is what most arrays say."""
    found = {name: arrays[name] for name in ("embedding", "logits", *_CARRIED) if name in arrays}
    frames = Counter(values.shape[0] for values in found.values() if values.ndim).most_common(1)[0][0]
    for name, values in found.items():
        columns = values.shape[1:] if name in ("embedding", "logits") else ()
        if values.shape != (frames, *columns):
            others = ", ".join(other for other, v in found.items() if v.shape[:1] == (frames,) and other != name)
            raise DataError(
                f"{path}: {name} {values.shape} does not have one value per frame; expected {(frames, *columns)}, as "
                f"many rows as {others}. Write scores with pisa embed, or correct the array."
            )


def write_result(path: Path, result: Calibration | Decisions, arrays: dict[str, np.ndarray]) -> None:
    """The calibrated frames as NPZ, with what their scores said about them, and who sent them by name."""
    import numpy as np

    from pisa_capc.data.store.files import atomic

    written: dict[str, Any] = {name: arrays[name] for name in _CARRIED if name in arrays}
    found = {name: getattr(result, name, None) for name in _RESULT}
    written |= {name: values for name, values in found.items() if values is not None}
    if (devices := arrays.get("devices")) is not None:
        names = np.append(devices.astype(str), UNKNOWN)
        written |= {"devices": devices, "device": names[np.asarray(result.prediction)]}
    with atomic(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **written)


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
