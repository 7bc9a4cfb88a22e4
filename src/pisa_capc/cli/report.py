"""Commands that show results: figures, report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pisa_capc.cli import app
from pisa_capc.cli.bench import ResultsFolder
from pisa_capc.cli.model import Device
from pisa_capc.cli.options import AsJson
from pisa_capc.cli.output import listed, say, say_written
from pisa_capc.core.errors import ConfigError

if TYPE_CHECKING:
    from pisa_capc.evidence.figures.run import Subject

Beside = typer.Option(
    [],
    "--with",
    help="A run to show beside it, as Single of the same encoder or another encoder; may be given again.",
    show_default=False,
)
Target = typer.Option(None, help="Target environments, as E1; default the run's own.", show_default=False)
Kind = typer.Option(
    None,
    help="Which of confusion, captures, calibration, tsne, topology and umap, as tsne,umap; default all but "
    "umap, which needs the package umap-learn.",
    show_default=False,
)
Points = typer.Option(1000, help="Target frames that t-SNE and UMAP place.")


@app.command()
def figures(
    run: Path = typer.Argument(help="A run that `pisa train` wrote.", show_default=False),
    dataset: Path = typer.Argument(help="The dataset it was trained on.", show_default=False),
    target: str | None = Target,
    beside: list[Path] = Beside,
    kind: str | None = Kind,
    out: Path = typer.Option(Path("figures"), help="Where to write: a folder."),
    format: str = typer.Option("pdf", "--as", help="Format to write: pdf, svg or png."),
    points: int = Points,
    seed: int = typer.Option(2026, help="Seed: of the frames that are placed, and of their placing."),
    device: str = Device,
    as_json: bool = AsJson,
) -> None:
    """Draw a trained run on the target: embeddings, decisions, calibration and the array.

    Each run says itself which method and encoder it is of: with `--with` for Single, panels are the paper's three
    stages, and further encoders are further rows. Captions are in `captions.md`.
    """
    from pisa_capc.evidence.figures.run import USUAL, check, draw_run
    from pisa_capc.evidence.figures.style import write_captions

    kinds = USUAL if kind is None else listed(kind)
    check(kinds, format, points)
    pictures = draw_run(_subjects([run, *beside], dataset, target, device), out, format, kinds, points, seed)
    say_written(pictures, write_captions(out, pictures), as_json)


@app.command()
def report(
    subject: str = typer.Argument(
        metavar="RUN|DATASET|PROTOCOL",
        help="A run that `pisa train` wrote, or a folder of several; a dataset; or a protocol, as wifi-sim.",
        show_default=False,
    ),
    out: Path = typer.Option(Path("report.html"), help="Where to write: a page."),
    data: Path | None = typer.Option(None, help="Dataset: the one that the run was trained on.", show_default=False),
    target: str | None = Target,
    beside: list[Path] = Beside,
    kind: str | None = Kind,
    points: int = Points,
    device: str = Device,
    results: Path = ResultsFolder,
    as_json: bool = AsJson,
) -> None:
    """Write one page with tables, figures, settings and provenance, which opens from disk without a network.

    Of a protocol it is made from the records alone, of a run from its model and the dataset, of a dataset from what
    `pisa check` finds in it.
    """
    from pisa_capc.evidence.benchmark.protocols import read_protocol
    from pisa_capc.evidence.benchmark.results import load_results
    from pisa_capc.evidence.figures.run import USUAL, check
    from pisa_capc.evidence.reports import report_of_dataset, report_of_protocol, report_of_runs
    from pisa_capc.model.inference.model import runs_inside

    run = Path(subject)
    if data is not None or (run / "model.json").is_file() or runs_inside(run):
        if data is None:
            raise ConfigError(f"{subject}: a report of a run needs the dataset it was trained on: give --data FOLDER.")
        kinds = USUAL if kind is None else listed(kind)
        check(kinds, "svg", points)
        page = report_of_runs(_subjects([run, *beside], data, target, device), data, kinds, points)
    else:
        if target is not None or beside:
            raise ConfigError(f"{subject}: holds no run; --target and --with belong to one. Give --data with a run.")
        if (run / "dataset.json").is_file():
            page = report_of_dataset(run)
        else:
            protocol = read_protocol(subject)
            page = report_of_protocol(protocol, load_results(protocol, results / protocol.name))
    page.save(out)
    if as_json:
        print(json.dumps({"out": str(out), "bytes": out.stat().st_size}))
        return
    say(str(out))


def _subjects(folders: list[Path], dataset: Path, target: str | None, device: str) -> list[Subject]:
    from pisa_capc.data.frames import load
    from pisa_capc.data.store.native import fingerprint
    from pisa_capc.evidence.evaluation import check_dataset, infer_runs, load_runs
    from pisa_capc.model.inference.devices import choose_device

    place = str(choose_device(device))
    groups, frames, mark = [load_runs(folder) for folder in folders], load(dataset), fingerprint(dataset)
    environments = list(groups[0][0][1].run.target) if target is None else listed(target)
    for group in groups:
        for folder, trained in group:
            check_dataset(trained, frames, mark, folder, dataset, environments)
    return [infer_runs(group, frames, environments, place) for group in groups]
