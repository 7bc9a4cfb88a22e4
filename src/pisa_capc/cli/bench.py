"""Commands of the benchmarks: bench run, bench select, bench status, bench tables, bench figures."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from pisa_capc.cli import app
from pisa_capc.cli.help import BoundedGroup
from pisa_capc.cli.options import AsJson, options_of
from pisa_capc.cli.output import print_table, say, say_written
from pisa_capc.core.errors import ConfigError, unknown_name
from pisa_capc.core.progress import console as notes

if TYPE_CHECKING:
    from pisa_capc.evidence.benchmark.plan import PlannedRun
    from pisa_capc.evidence.benchmark.protocols import Protocol
    from pisa_capc.evidence.benchmark.records import Record

bench = typer.Typer(
    cls=BoundedGroup, no_args_is_help=True, help="Run the protocols of the paper, and make its tables and figures."
)
app.add_typer(bench, name="bench")

PROTOCOL = "A protocol in the folder `protocols`, as wifi-sim, or a .yaml file."
RECORDS = "Folder of records; each protocol has its own in it."
RESULTS = Path("results/records")
Name = typer.Argument(metavar="PROTOCOL", help=PROTOCOL, show_default=False)
ResultsFolder = typer.Option(RESULTS, "--results", help=RECORDS)


class Request(NamedTuple):
    """A protocol, and where and how its runs are computed."""

    protocol: Any  # benchmark.protocols.Protocol
    options: Any  # benchmark.run.Options


def _request(
    protocol: Annotated[str, PROTOCOL],
    data: Annotated[
        Path | None, "Dataset: or a folder of MAT files as E1/D01/L1.mat, instead of the protocol's."
    ] = None,
    results: Annotated[Path, RECORDS] = RESULTS,
    work: Annotated[Path, "Folder for datasets, checkpoints and models."] = Path("work"),
    engine: Annotated[str, "Where work runs: local or ray."] = "local",
    device: Annotated[str, "auto, cpu or cuda; auto is the GPU where there is one."] = "auto",
    workers: Annotated[
        int, "Processes at a time: jobs. On a CPU each computes with one thread, so that records do not depend on this."
    ] = 1,
    gpus: Annotated[float, "Share of a GPU that a job takes of a Ray cluster."] = 0.0,
) -> Request:
    from pisa_capc.evidence.benchmark.protocols import read_protocol
    from pisa_capc.evidence.benchmark.run import Options

    return Request(read_protocol(protocol), Options(data, results, work, engine, device, workers, gpus))


@bench.command()
@options_of(_request, arguments={"protocol": "PROTOCOL"}, words={"engine": "--run-on"})
def run(
    request: Request,
    only: list[str] = typer.Option(
        [],
        help="Only runs with this target, method, variant, encoder, split_seed or seed, as encoder=cnn,tcn.",
        show_default=False,
    ),
    trained_on: str | None = typer.Option(
        None,
        help="Train nothing: score the models in the work folder, which a machine with this device, cpu or cuda, made.",
        show_default=False,
    ),
    dry_run: bool = typer.Option(
        False, "--dry-run", help="Say what would be computed and about how long it takes, and compute nothing."
    ),
    as_json: bool = AsJson,
) -> None:
    """Compute the runs of a protocol that are not recorded yet.

    Each finished run is a file in the folder of records. A run that was stopped goes on from its last epoch; a job that
    fails is reported, and the others go on. On a GPU all seeds of a model are trained together.
    """
    from pisa_capc.evidence.benchmark import run as runner

    chosen, options = request.protocol, replace(request.options, only=tuple(only), trained_on=trained_on)
    if dry_run:
        survey = runner.dry_run(chosen, options)
        if as_json:
            missing = [[*run.cell, run.name] for run in survey.missing]
            print(json.dumps({"protocol": chosen.name, "runs": len(survey.chosen), "missing": missing}))
            return
        if survey.missing:
            _print_cells(f"{chosen.name}: runs to compute", survey.missing)
        say(f"{len(survey.missing)} of {len(survey.chosen)} runs are to be computed.")
        if survey.missing and options.trained_on is None:
            say(runner.how_long(chosen, survey, options))
        if survey.note:
            say(survey.note)
        return
    found = runner.run_protocol(chosen, options)
    if as_json:
        counts = {"planned": found.planned, "recorded": found.recorded, "skipped": found.skipped}
        failed = [{"job": name, "reason": reason} for name, reason in found.failed]
        print(json.dumps({"protocol": chosen.name, **counts, "failed": failed, "seconds": found.seconds}))
        if found.failed:
            raise typer.Exit(1)
        return
    if found.skipped == found.planned:
        folder = options.results / chosen.name
        say(f"{chosen.name}: all {found.planned} runs are recorded in {folder}; nothing to do.")
        return
    failures = f", {len(found.failed)} jobs failed" if found.failed else ""
    took = runner.duration(found.seconds)
    say(f"{chosen.name}: {found.recorded} runs recorded, {found.skipped} were there{failures}; {took}.")
    for name, reason in found.failed:
        notes.print(f"failed: {name}: {reason}", style="red", markup=False, highlight=False, soft_wrap=True)
    if found.failed:
        raise typer.Exit(1)


@bench.command()
@options_of(_request, arguments={"protocol": "PROTOCOL"}, words={"engine": "--run-on"})
def select(request: Request, as_json: bool = AsJson) -> None:
    """Choose the hyperparameters in a protocol's section `search` without its target environment.

    Every point of the grid is trained without one of the source environments and scored on it; the best mean is chosen.
    Finished trainings are skipped, as by `bench run`. Nothing is changed in the protocol: write the chosen values
    into it.
    """
    from pisa_capc.evidence.benchmark.data import search_record
    from pisa_capc.evidence.benchmark.search import search_protocol

    chosen, options = request
    found = search_protocol(chosen, options)
    if as_json:
        said = {
            method: {"chosen": found.chosen(method).settings, "mean": found.chosen(method).mean}
            for method in found.points
        }
        print(json.dumps({**said, "record": str(search_record(options.results, chosen.name))}))
        return
    sources = chosen.directions[0].source
    rows = []
    for method, points in found.points.items():
        best, tied = found.chosen(method), found.tied(method)
        for point in points:
            scores = [f"{point.macro_f1[source]:.4f}" for source in sources]
            mark = ", ".join(["chosen"] * (point is best) + ["tied"] * bool(tied and point.mean == best.mean))
            rows.append([method, _settings(point.settings), *scores, f"{point.mean:.4f}", mark])
    headings = ["method", "settings", *(f"without {source}" for source in sources), "mean", ""]
    print_table(f"{chosen.name}: Macro-F1 on the source environment left out", headings, rows, left=headings[:2])
    written = {row.method: row.settings for row in chosen.methods}
    for method in found.points:
        best = found.chosen(method)
        now = {key: written[method][key] for key in best.settings}
        verdict = "as the protocol has it" if now == best.settings else f"the protocol has {_settings(now)}"
        if tied := found.tied(method):
            rivals = " and ".join(_settings(point.settings) for point in tied)
            verdict += f"; tied with {rivals}, the first in the grid is chosen"
        say(f"{method}: {_settings(best.settings)} ({verdict})")
    notes.print(f"record: {search_record(options.results, chosen.name)}", highlight=False, soft_wrap=True)


def _settings(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items())


@bench.command()
def new(
    out: Path = typer.Argument(help="File to write, as mine.yaml.", metavar="FILE"),
    method: list[str] = typer.Option(
        ["single", "pisa"], help="Training method, as `pisa methods` lists them; may be given again."
    ),
    encoder: list[str] = typer.Option(
        ["transformer"], help="Temporal encoder, as `pisa encoders` lists them; may be given again."
    ),
    scene: str = typer.Option("wifi", help="Scene: of the simulated set, a built-in one or a YAML file."),
) -> None:
    """Write a protocol with every setting filled in by its default.

    Change in it what should differ, then run it with `pisa bench run FILE`.
    """
    import yaml

    from pisa_capc.data.store.files import write_text_atomic
    from pisa_capc.evidence.benchmark.protocols import new_protocol

    if out.suffix not in (".yaml", ".yml"):
        raise ConfigError(f"{out}: expected the name of a .yaml file.")
    if out.exists():
        raise ConfigError(f"{out}: is there already. Choose another name, or remove it.")
    values = new_protocol(out.stem, method, encoder, scene)
    head = "# Every setting of this experiment. What is left out of methods and calibrations takes its default.\n"
    write_text_atomic(
        out, head + yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=100, default_flow_style=None)
    )
    say(f"protocol: {out}")


@bench.command()
def status(
    protocol: str | None = typer.Argument(
        None,
        metavar="[PROTOCOL]",
        help="As in bench run; by default all protocols, one per line.",
        show_default=False,
    ),
    results: Path = ResultsFolder,
    as_json: bool = AsJson,
) -> None:
    """Say which runs of a protocol are recorded, and which records are of other settings or code."""
    from pisa_capc.evidence.benchmark.plan import plan
    from pisa_capc.evidence.benchmark.protocols import read_protocol
    from pisa_capc.evidence.benchmark.records import read_records, sort_out

    if protocol is None:
        return _status_of_all(results, as_json)
    chosen = read_protocol(protocol)
    runs = plan(chosen)
    records, others = sort_out(read_records(results / chosen.name), runs)
    if as_json:
        print(json.dumps({"protocol": chosen.name, **_counted(records, runs, others)}))
        return
    cells = list(dict.fromkeys(run.cell for run in runs))
    per_cell = len(runs) // len(cells)
    for conditions in sorted({record.conditions for record in records}, key=str):
        own = [record for record in records if record.conditions == conditions]
        name = f"{own[0].dataset} {conditions.dataset}, {conditions.device}, {conditions.precision}"
        counts = dict.fromkeys(cells, 0)
        for record in own:
            counts[record.cell] += 1
        rows = [[*cell, f"{count}/{per_cell}"] for cell, count in counts.items()]
        headings = ["direction", "method", "variant", "encoder", "runs"]
        print_table(f"{chosen.name}: {name}", headings, rows, left=headings[:4])
        say(f"{len(own)} of {len(runs)} runs are recorded.")
    if not records:
        say(f"{chosen.name}: none of {len(runs)} runs is recorded in {results / chosen.name}.")
    _list_others(others, chosen, results)


def _counted(records: list[Record], runs: list[PlannedRun], others: list[tuple[Record, str]]) -> dict[str, Any]:
    """How many runs are recorded, by the place they were computed in, for JSON."""
    made = Counter((r.dataset, r.conditions.dataset, r.conditions.device, r.conditions.precision) for r in records)
    names = ("dataset", "fingerprint", "device", "precision")
    places = [{**dict(zip(names, place, strict=True)), "runs": count} for place, count in made.items()]
    return {"planned": len(runs), "recorded": places, "others": len(others)}


def _status_of_all(results: Path, as_json: bool) -> None:
    from pisa_capc.evidence.benchmark.plan import plan
    from pisa_capc.evidence.benchmark.protocols import protocol_files, read_protocol
    from pisa_capc.evidence.benchmark.records import read_records, sort_out

    rows, found = [], []
    for name in protocol_files():
        runs = plan(read_protocol(name))
        records, others = sort_out(read_records(results / name), runs)
        found.append({"protocol": name, **_counted(records, runs, others)})
        counts = Counter((r.dataset, f"{r.conditions.device}, {r.conditions.precision}") for r in records)
        for dataset, place in sorted(counts) or [("–", "–")]:
            rows.append([name, dataset, place, f"{counts[dataset, place]}/{len(runs)}", str(len(others) or "–")])
    if as_json:
        print(json.dumps(found))
        return
    headings = ["protocol", "dataset", "made on", "runs", "of other code or settings"]
    print_table(str(results), headings, rows, left=headings[:3])


@bench.command()
def tables(
    protocol: str = Name,
    results: Path = ResultsFolder,
    format: str = typer.Option(
        "markdown", "--as", help="Format to write: markdown, latex, or csv with one row per stage for programs."
    ),
    out: Path | None = typer.Option(None, help="Where to write: a file; default standard output.", show_default=False),
    as_json: bool = AsJson,
) -> None:
    """Make the tables of a protocol from its records alone."""
    from pisa_capc.data.store.files import write_text_atomic
    from pisa_capc.evidence.benchmark import render
    from pisa_capc.evidence.benchmark.protocols import read_protocol
    from pisa_capc.evidence.benchmark.results import load_results
    from pisa_capc.evidence.benchmark.tables import flat_rows, make_tables

    if format not in (*render.FORMATS, "csv"):
        raise ConfigError(unknown_name("format", format, (*render.FORMATS, "csv")))
    chosen = read_protocol(protocol)
    found = load_results(chosen, results / chosen.name)
    if as_json:  # the rows of csv
        text = json.dumps(flat_rows(found), indent=1) + "\n"
    elif format == "csv":
        text = render.as_csv(flat_rows(found))
    else:
        text = render.FORMATS[format](make_tables(chosen, found))
    if out is None:
        say(text.removesuffix("\n"))
    else:
        write_text_atomic(out, text)
        notes.print(f"tables: {out}", highlight=False, soft_wrap=True)
    _list_others(found.others, chosen, results)


@bench.command()
def figures(
    protocol: str = Name,
    results: Path = ResultsFolder,
    format: str = typer.Option("pdf", "--as", help="Format to write: pdf, svg or png."),
    out: Path = typer.Option(Path("figures"), help="Where to write: a folder."),
    as_json: bool = AsJson,
) -> None:
    """Draw a protocol from its records alone: three-stage bars, source against target, confusions, captures.

    Captions are in `captions.md`. What needs embeddings comes from trained runs: `pisa figures`.
    """
    from pisa_capc.evidence.benchmark.protocols import read_protocol
    from pisa_capc.evidence.benchmark.results import load_results
    from pisa_capc.evidence.figures.protocol import make_figures
    from pisa_capc.evidence.figures.style import write_captions

    chosen = read_protocol(protocol)
    found = load_results(chosen, results / chosen.name)
    pictures = make_figures(chosen, found, out, format)
    say_written(pictures, write_captions(out, pictures), as_json)
    _list_others(found.others, chosen, results)


def _print_cells(title: str, runs: list[PlannedRun]) -> None:
    from pisa_capc.evidence.benchmark.tables import shown_cell

    counts = Counter(tuple(shown_cell(run.cell)) for run in runs)
    headings = ["direction", "method", "variant", "encoder", "runs"]
    print_table(title, headings, [[*cell, str(count)] for cell, count in counts.items()], left=headings[:4])


def _list_others(others: list[tuple[Record, str]], protocol: Protocol, results: Path) -> None:
    """Records that belong to other settings or code: never counted, and never silently left out."""
    for record, difference in others:
        notes.print(
            f"not counted: {record.path(results / protocol.name)}: {difference}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    if others:
        notes.print(
            f"{len(others)} records are of other settings or code and are not counted. "
            f"`pisa bench run {protocol.given}` computes these runs as they are now; then the files can be removed.",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
