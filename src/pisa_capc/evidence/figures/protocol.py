"""The figures that the records of a protocol are enough for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pisa_capc.core.progress import progress
from pisa_capc.data.scores import Scores
from pisa_capc.evidence.benchmark.deployed import deployed
from pisa_capc.evidence.benchmark.protocols import Protocol
from pisa_capc.evidence.benchmark.results import Results
from pisa_capc.evidence.benchmark.tables import FULL, is_comparison, stage_name
from pisa_capc.evidence.figures.bars import three_stage_bars
from pisa_capc.evidence.figures.captures import capture_scores
from pisa_capc.evidence.figures.confusion import confusion_figure
from pisa_capc.evidence.figures.deployments import deployment_changes
from pisa_capc.evidence.figures.methods import method_scores
from pisa_capc.evidence.figures.scatter import source_against_target
from pisa_capc.evidence.figures.style import Picture, check_format
from pisa_capc.model.encoders import encoder_title


def make_figures(protocol: Protocol, results: Results, folder: Path, format: str) -> list[Picture]:
    """Of every dataset and direction: three-stage bars, source against target, and by encoder confusions and captures.
    Of a comparison of many methods: their scores by encoder. Of deployments: what calibrations change in each.

    The bars need the methods single and pisa. Files are numbered by dataset and direction, in the order of the records.
    """
    check_format(format)
    pictures = []
    with progress("figures", None) as bar:
        for i, place in enumerate(results.places(), 1):
            for picture in _at(protocol, results, place, folder, f"{i}", format):
                bar.advance(1, picture.path.name)
                pictures.append(picture._replace(caption=f"{picture.caption} {results.remark(place)}".strip()))
    return pictures


def _at(
    protocol: Protocol, results: Results, place: tuple[str, str], folder: Path, number: str, format: str
) -> Iterator[Picture]:
    if protocol.deployments:
        for found in deployed(protocol, results, place):
            name = f"deployments-{number}-{found.method}-{found.variant}".removesuffix(f"-{FULL}")
            if len(found.stages) > 1:
                yield deployment_changes(found, folder / f"{name}.{format}")
        return
    if is_comparison(protocol):
        for encoder in protocol.encoders:
            yield method_scores(protocol, results, place, encoder, folder / f"methods-{number}-{encoder}.{format}")
        return
    if {"single", "pisa"} <= {row.method for row in protocol.methods}:
        yield three_stage_bars(protocol, results, place, folder / f"three-stages-{number}.{format}")
    yield source_against_target(results, place, folder / f"source-target-{number}.{format}")
    for encoder in protocol.encoders:
        stages = stage_scores(results, place, encoder)
        if not stages:
            continue
        where = f"{encoder_title(encoder)}, {place[0]}, {place[1]}"
        for name, figure in (("confusion", confusion_figure), ("captures", capture_scores)):
            picture = figure(stages, folder / f"{name}-{number}-{encoder}.{format}")
            yield picture._replace(caption=f"{where}. {picture.caption}")


def stage_scores(results: Results, place: tuple[str, str], encoder: str) -> dict[str, list[Scores]]:
    """Scores of all runs by stage; records that hold no confusions are left out."""
    found: dict[str, list[Scores]] = {}
    for key, runs in results.runs.items():
        if key[:2] != place or key.encoder != encoder:
            continue
        for record in runs.values():
            for stage, values in record.stages.items():
                if "confusion" in values:
                    name = stage_name(key.method, stage, key.variant)
                    found.setdefault(name, []).append(Scores.from_json(values))
    return found
