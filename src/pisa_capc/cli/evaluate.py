"""The command evaluate: scores of trained runs on frames that they have not seen."""

from __future__ import annotations

import json
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pisa_capc.cli import app
from pisa_capc.cli.model import Anyway, Data, Device, MissingAntenna, confirm
from pisa_capc.cli.options import AsJson
from pisa_capc.cli.output import listed, print_table, say, with_spread
from pisa_capc.core.errors import ConfigError
from pisa_capc.core.progress import console as notes

if TYPE_CHECKING:
    from pisa_capc.data.frames import Frames
    from pisa_capc.data.scores import Scores
    from pisa_capc.evidence.evaluation import Later, RunScores, UnknownDeviceScores
    from pisa_capc.model.inference import TrainedModel


@app.command()
def evaluate(
    run: list[Path] = typer.Argument(
        help="A run that `pisa train` wrote, or a folder of its seeds; several are compared.", show_default=False
    ),
    dataset: Path = Data,
    target: str | None = typer.Option(
        None,
        help="Target environments, as E1; default the run's target, or all of another dataset without it.",
        show_default=False,
    ),
    plot: Path | None = typer.Option(None, help="Draw: the confusion matrix, into this file.", show_default=False),
    det: Path | None = typer.Option(
        None, help="Draw the DET curves of claims into this file: misses over false accepts.", show_default=False
    ),
    device: str = Device,
    missing_antenna: list[int] = MissingAntenna,
    anyway: bool = Anyway,
    as_json: bool = AsJson,
) -> None:
    """Score runs on frames they have not seen: direct inference, and beside it U-CAPC as published.

    On the dataset that the run was trained on it is the target part of its split. Another dataset is taken for later
    recordings of the same radios: devices are known by their names, some of them may be absent. Frames of devices that
    the run does not know are scored by how well they are told from the others.

    Identification: Macro-F1, accuracy (rank-1), balanced accuracy and Macro-AUROC. Verification, where every frame
    claims every device: the equal error rate (EER), and Cllr in bits, 0 for perfect likelihood ratios and 1 for useless
    ones; its minimum is what is left after the best calibration of their size.

    Of several seeds the mean and the sample standard deviation are given, and the plot is of all of them together.
    Several runs, `pisa evaluate RUN RUN … DATASET`, are printed side by side.
    """
    from pisa_capc.data.frames import load
    from pisa_capc.data.protocol import stage_title
    from pisa_capc.data.store.native import fingerprint
    from pisa_capc.evidence import evaluation
    from pisa_capc.evidence.figures.confusion import plot_confusions
    from pisa_capc.evidence.figures.det import plot_det
    from pisa_capc.evidence.figures.style import check_picture
    from pisa_capc.model.inference.devices import choose_device

    for option, picture, shown in (("--plot", plot, "confusions"), ("--det", det, "curves")):
        if picture is not None:
            check_picture(picture)
            if len(run) > 1:
                raise ConfigError(f"{option}: shows the {shown} of one run; name one of them.")
    place, frames, mark = str(choose_device(device)), load(dataset), fingerprint(dataset)
    groups = [(folder, evaluation.load_runs(folder)) for folder in run]
    places = {tuple(listed(target)) if target is not None else tuple(_usual_target(r[0][1], frames)) for _, r in groups}
    if len(places) > 1:
        raise ConfigError("the runs have different targets. Say with --target what they are to be compared on.")
    [environments] = map(list, places)
    scored = [
        (folder, runs[0][1], _scored(runs, frames, mark, dataset, environments, place, missing_antenna, anyway))
        for folder, runs in groups
    ]
    if as_json:
        found = [
            {
                "source": list(trained.run.source),
                "target": environments,
                "runs": [result.to_json() for result in results],
                "summary": evaluation.summary(results),
            }
            for _, trained, results in scored
        ]
        print(json.dumps(found if len(found) > 1 else found[0], indent=1))
    elif len(scored) > 1:
        _print_compared(scored, environments)
    else:
        [(_, trained, results)] = scored
        _print_scores(f"{', '.join(trained.run.source)} → {', '.join(environments)}, {trained.run.title}", results)
    if plot is not None:
        [(_, _, results)] = scored
        plot_confusions(plot, {stage: evaluation.pooled(results, stage) for stage in results[0].stages})
        notes.print(f"picture: {plot}", highlight=False, soft_wrap=True)
    if det is not None:
        [(_, _, results)] = scored
        several = len(results) > 1
        curves = {
            f"{one.name}, {stage_title(stage)}" if several else stage_title(stage): curve
            for one in results
            for stage, curve in one.claims.items()
        }
        if not curves:
            raise ConfigError("--det: the run knows a single device, so there are no claims to be wrong about.")
        plot_det(det, curves)
        notes.print(f"picture: {det}", highlight=False, soft_wrap=True)


def _scored(
    runs: list[tuple[Path, TrainedModel]],
    frames: Frames,
    mark: str,
    dataset: Path,
    environments: list[str],
    device: str,
    missing: list[int],
    anyway: bool,
) -> list[RunScores]:
    """The scores of runs of one experiment. mark: fingerprint of the dataset."""
    from pisa_capc.evidence import evaluation

    trained = runs[0][1]
    own = evaluation.has_split_of(trained, frames, mark)
    for folder, one in runs if own else ():
        evaluation.check_dataset(one, frames, mark, folder, dataset, environments)
    later = None if own else _later(trained, frames, environments, anyway)
    return evaluation.evaluate(runs, frames, environments, device, missing=missing, later=later)


def _print_compared(scored: list[tuple[Path, TrainedModel, list[RunScores]]], environments: list[str]) -> None:
    """Every metric after every stage, a column for each run."""
    from pisa_capc.data.protocol import stage_title
    from pisa_capc.data.scores import mean_and_spread
    from pisa_capc.evidence.evaluation import METRICS

    rows = []
    for metric, name in METRICS.items():
        for stage in dict.fromkeys(stage for *_, results in scored for stage in results[0].stages):
            row = [name, stage_title(stage)]
            for *_, results in scored:
                values = [getattr(one.stages[stage], metric) for one in results if stage in one.stages]
                row.append(with_spread(*mean_and_spread(values)) if values else "–")
            rows.append(row)
    headings = [
        f"{folder}: {trained.run.title}" + (f", {len(results)} runs" if len(results) > 1 else "")
        for folder, trained, results in scored
    ]
    print_table(f"Scores in {', '.join(environments)}", ["metric", "stage", *headings], rows, left=("metric", "stage"))


def _usual_target(trained: TrainedModel, frames: Frames) -> list[str]:
    """The run's target, or where a dataset does not have it all of its environments."""
    target = trained.run.target
    return list(target if set(target) <= set(frames.environments) else frames.environments)


def _later(trained: TrainedModel, frames: Frames, environments: list[str], anyway: bool) -> Later:
    """Frames of another dataset, after saying what is to be known of them."""
    from pisa_capc.evidence.evaluation import doubts, later_frames

    found = later_frames(trained, frames, environments)
    why = doubts(trained, frames)
    if seen := [name for name in environments if name in trained.run.source]:
        why.append(f"{', '.join(seen)} is a source of the run, so they may be frames it was trained on")
    confirm(why, anyway)
    text = "Not the dataset of the run: taken for later recordings, devices by their names."
    if found.strangers:
        text += f" Unknown to the run, and scored as unknown devices: {', '.join(found.strangers)}."
    if found.absent:
        text += (
            f" Not there: {', '.join(found.absent)}. U-CAPC as published assumes all devices in every capture, equally "
            "often; read the direct scores, or those of careful."
        )
    notes.print(text, highlight=False, soft_wrap=True)
    return found


def _print_strangers(found: list[UnknownDeviceScores]) -> None:
    """How well unknown devices are told from known ones, mean and spread over the runs."""
    from pisa_capc.data.scores import mean_and_spread

    rows = [
        ("AUROC", lambda one: one.scores.auroc),
        ("EER", lambda one: one.scores.eer),
        ("false accepts at 5 % rejected", lambda one: one.scores.fpr95),
        ("unknown accepted, threshold of the source", lambda one: one.accepted),
        ("known rejected, threshold of the source", lambda one: one.rejected),
    ]
    if all(one.ratio is not None for one in found):
        rows.append(("Cllr (bits)", lambda one: one.ratio.cllr))
        rows.append(("minimum Cllr (bits)", lambda one: one.ratio.min_cllr))
    title = f"Unknown devices, {found[0].frames:,} frames, by {found[0].score}"
    cells = [[name, with_spread(*mean_and_spread([value(one) for one in found]))] for name, value in rows]
    print_table(title, ["measure", "value"], cells)


def _print_scores(title: str, results: list[RunScores]) -> None:
    """All metrics, the stages of inference side by side."""
    from pisa_capc.data.chance import stages_at_chance
    from pisa_capc.data.protocol import stage_title
    from pisa_capc.data.scores import mean_and_spread
    from pisa_capc.evidence.evaluation import METRICS, pooled

    stages = list(results[0].stages)
    titles = [stage_title(stage) for stage in stages]

    def cells(value: Callable[[Scores], float]) -> list[str]:
        return [with_spread(*mean_and_spread([value(run.stages[stage]) for run in results])) for stage in stages]

    rows = [[name, *cells(attrgetter(metric))] for metric, name in METRICS.items()]
    print_table(title, [f"{len(results)} run{'s' * (len(results) > 1)}", *titles], rows)
    if len(results) > 1:
        by_run = [[run.name, *(f"{run.stages[stage].macro_f1:.4f}" for stage in stages)] for run in results]
        print_table("Macro-F1 by run", ["run", *titles], by_run)
    else:
        say(f"run {results[0].name}")
    first = results[0].stages[stages[0]]
    by_device = [[name, *cells(lambda s: s.per_device[name])] for name in first.per_device]  # noqa: B023
    print_table("F1 by device", ["device", *titles], by_device)
    by_capture = [
        [name, f"{capture.frames:,}", *cells(lambda s: s.per_capture[name].macro_f1)]  # noqa: B023
        for name, capture in first.per_capture.items()
    ]
    print_table("Macro-F1 by capture", ["capture", "frames", *titles], by_capture)
    if strangers := [run.strangers for run in results if run.strangers is not None]:
        _print_strangers(strangers)
    if found := stages_at_chance({stage_title(stage): pooled(results, stage).confusion for stage in stages}):
        notes.print(found, style="yellow", highlight=False, soft_wrap=True)
