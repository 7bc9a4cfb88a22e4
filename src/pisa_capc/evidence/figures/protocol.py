"""The figures that the records of a protocol are enough for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pisa_capc.core.progress import progress
from pisa_capc.data.deployments import Deployment
from pisa_capc.data.protocol import DIRECT, PAPER, SAFE
from pisa_capc.data.scores import Scores
from pisa_capc.evidence.benchmark.protocols import Protocol
from pisa_capc.evidence.benchmark.results import Deployed, Key, Results, deployed, mean
from pisa_capc.evidence.benchmark.tables import FULL, is_comparison, shared_stages, stage_name, stages_of
from pisa_capc.evidence.figures.confusion import capture_scores, confusion_figure
from pisa_capc.evidence.figures.style import (
    COLOURS,
    COLUMN_INCHES,
    GREY,
    MARKERS,
    PAGE_INCHES,
    Picture,
    canvas,
    check_format,
    mark_chance,
    score_axis,
    score_marks,
    stage_colour,
)
from pisa_capc.model.encoders import encoder_title

TITLES = {PAPER: "U-CAPC as published", SAFE: "safe preset"}
LARGEST = 0.3  # change that has the deepest colour


def column_title(deployment: Deployment) -> str:
    """A deployment in a few words.

    >>> column_title(Deployment("missing", frames=512, missing=0.3)), column_title(Deployment("balanced"))
    ('30 % of devices missing', 'as received')
    """
    named = (
        (deployment.dirichlet, "skewed, Dirichlet {:g}"),
        (100 * (deployment.missing or 0), "{:.0f} % of devices missing"),
        (100 * deployment.unknown, "{:.0f} % unknown devices"),
        (deployment.devices, "devices in a capture: {}"),
        (not deployment.identifiers, "captures not named"),
        (deployment.frozen, "fitted on half, applied"),
        (deployment.frames, "{} frames, balanced"),
    )
    return next((words.format(value) for value, words in named if value), "as received")


def deployment_changes(found: Deployed, path: Path) -> Picture:
    """Change of Macro-F1 against direct inference, mean over runs: encoders by row, deployments by column.

    A panel each for U-CAPC as published and under the guard, or for the first two calibrations where there are others.
    """
    shown = [stage for stage in (PAPER, SAFE) if stage in found.stages] or found.stages[1:3]
    # Deployments scored on the second half without freezing are there for comparison only.
    columns = [d for d in found.deployments if d.scored == "all" or d.frozen]
    columns = [d for d in columns if all(found.mean(d, stage) is not None for stage in shown)]
    encoders = list(found.records)
    with canvas(path, PAGE_INCHES, 1.7 + 0.3 * len(encoders)) as figure:
        panels = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
        for axes, stage in zip(panels, shown, strict=True):
            gains = np.array([[found.gain(d, stage, encoder) for d in columns] for encoder in encoders])
            image = axes.imshow(gains, cmap="PuOr_r", vmin=-LARGEST, vmax=LARGEST, aspect="auto")
            for (i, j), value in np.ndenumerate(gains):
                ink = "white" if abs(value) > 2 / 3 * LARGEST else "black"
                axes.text(j, i, f"{value:+.2f}".replace("0.", "."), ha="center", va="center", fontsize=5, color=ink)
            axes.set_xticks(
                range(len(columns)), [column_title(d) for d in columns], rotation=60, ha="right", fontsize=6
            )
            axes.set_yticks(range(len(encoders)), [encoder_title(e) for e in encoders], fontsize=6)
            axes.set_title(TITLES.get(stage, stage))
        figure.colorbar(image, ax=panels, label="change of Macro-F1", extend="both", aspect=30, pad=0.01)
        figure.suptitle(f"{found.place[0]}: change of Macro-F1 against direct inference")
    what = f"{stage_name(found.method, DIRECT, found.variant)}, {', '.join(found.place)}"
    change = "Change of Macro-F1 against direct inference by encoder and deployment"
    columns_are = "Columns are kinds of captures: as received, and drawn from these as their names say"
    return Picture(path, f"{what}. {change}, mean over runs ({found.runs} in all). {columns_are}.")


def source_against_target(results: Results, place: tuple[str, str], path: Path) -> Picture:
    """Target Macro-F1 against source-validation Macro-F1: a point per run, a marker per stage, a colour per encoder.

    Where there is one encoder, the colours tell the stages apart as the markers do.
    """
    from matplotlib.lines import Line2D

    series: dict[str, list[tuple[str, list[float], list[float]]]] = {}
    for key, runs in results.runs.items():
        if key[:2] != place:
            continue
        source = results.source_f1(key)
        for stage in next(iter(runs.values())).stages:
            target = results.f1(key, stage)
            both = [seeds for seeds in target if seeds in source]
            points = (key.encoder, [source[s] for s in both], [target[s] for s in both])
            series.setdefault(stage_name(key.method, stage, key.variant), []).append(points)
    encoders = list(dict.fromkeys(encoder for rows in series.values() for encoder, _, _ in rows))

    def colour(name: str, encoder: str) -> str:
        return COLOURS[encoders.index(encoder) % len(COLOURS)] if len(encoders) > 1 else stage_colour(name)

    labels = [
        Line2D([], [], color="#444444" if len(encoders) > 1 else colour(name, ""), label=name, **_mark(i))
        for i, name in enumerate(series)
    ]
    if len(encoders) > 1:
        labels += [Line2D([], [], color=colour("", e), label=encoder_title(e), **_mark(0)) for e in encoders]
    line: dict[str, Any] = {"color": GREY, "linewidth": 0.7, "linestyle": "--"}
    labels.append(Line2D([], [], label="target = source", **line))  # beside the line it would cover points
    columns = 4 if max(len(str(label.get_label())) for label in labels) < 16 else 2
    with canvas(path, COLUMN_INCHES, 2.9 + 0.14 * -(-len(labels) // columns)) as figure:
        axes = figure.subplots()
        axes.axline((0, 0), slope=1, zorder=0, **line)
        for i, (name, rows) in enumerate(series.items()):
            for encoder, x, y in rows:
                look: dict[str, Any] = {"marker": MARKERS[i % len(MARKERS)], "color": colour(name, encoder)}
                axes.scatter(x, y, s=14, alpha=0.8, linewidths=0, clip_on=False, **look)
        score_axis(axes)
        score_axis(axes, upright=True)
        axes.set(aspect="equal", xlabel="source-validation F1", ylabel="target Macro-F1")
        figure.legend(handles=labels, loc="outside lower center", ncols=columns, handletextpad=0.4, columnspacing=1)
    return Picture(path, f"Source-validation against target Macro-F1, {place[0]}, {place[1]}; one point per run.")


def _mark(i: int) -> dict[str, Any]:
    """A marker without a line, for the legend."""
    return {"linestyle": "", "marker": MARKERS[i % len(MARKERS)], "markersize": 4}


def method_scores(protocol: Protocol, results: Results, place: tuple[str, str], encoder: str, path: Path) -> Picture:
    """A line per method, best direct inference on top; a marker per stage with the standard deviation over the runs.

    Stages that not every method has are left to the tables.
    """
    keys = {row.method: Key(*place, row.method, FULL, encoder) for row in protocol.methods}
    direct = {method: f1.mean for method, key in keys.items() if (f1 := mean(results.f1(key, DIRECT)))}
    methods = sorted(direct, key=direct.__getitem__)
    shared = shared_stages(protocol)
    with canvas(path, COLUMN_INCHES, 0.8 + 0.2 * len(methods)) as figure:
        axes = figure.subplots()
        if chance := results.chance(place):
            mark_chance(axes, chance)
        for i, stage in enumerate((DIRECT, *shared)):
            scores = {y: mean(results.f1(keys[method], stage)) for y, method in enumerate(methods)}
            found = {y + 0.22 * (len(shared) / 2 - i): score for y, score in scores.items() if score is not None}
            name = {DIRECT: "direct", PAPER: "U-CAPC"}.get(stage, stage)
            values, spreads = [score.mean for score in found.values()], [score.std or 0.0 for score in found.values()]
            score_marks(axes, values, found, spreads, color=stage_colour(name), marker=MARKERS[i], label=name)
        axes.set_yticks(range(len(methods)), [stage_name(method, DIRECT) for method in methods])
        score_axis(axes)
        axes.set_xlabel("target Macro-F1")
        axes.grid(axis="x", linewidth=0.3)
        figure.legend(loc="outside upper center", ncols=2 + len(shared), handletextpad=0.4, columnspacing=1)
    where = f"{encoder_title(encoder)}, {place[0]}, {place[1]}"
    line = "; the dotted line is a guess among the devices" if chance else ""
    return Picture(path, f"{where}. Target Macro-F1 by method and stage, mean and standard deviation over runs{line}.")


def three_stage_bars(protocol: Protocol, results: Results, place: tuple[str, str], path: Path) -> Picture:
    """Bars of Single, PISA and PISA-CAPC, plain and safe, with their values, and the standard deviation over the runs.

    place: dataset and direction.
    """
    encoders = [e for e in protocol.encoders if any(key[:2] == place and key.encoder == e for key in results.runs)]
    with canvas(path, PAGE_INCHES, 2.4) as figure:
        axes = figure.subplots()
        stages = stages_of(results, place)
        width = 0.84 / len(stages)
        for i, (name, method, stage, _) in enumerate(stages):
            found = {j: mean(results.f1(Key(*place, method, FULL, e), stage)) for j, e in enumerate(encoders)}
            bars = {j + width * (i - (len(stages) - 1) / 2): value for j, value in found.items() if value is not None}
            heights, spreads = [v.mean for v in bars.values()], [v.std or 0.0 for v in bars.values()]
            axes.bar(
                list(bars),
                heights,
                0.93 * width,
                color=stage_colour(name),
                label=name,
                yerr=spreads,
                error_kw={"lw": 0.7},
            )
            for x, height, spread in zip(bars, heights, spreads, strict=True):
                axes.text(x, height + spread + 0.01, f"{height:.3f}", ha="center", va="bottom", fontsize=6, rotation=90)
        axes.set_xticks(range(len(encoders)), [encoder_title(e) for e in encoders])
        axes.set_xlim(-0.6, len(encoders) - 0.4)
        score_axis(axes, upright=True)
        if chance := results.chance(place):
            mark_chance(axes, chance, upright=True)
        axes.set_ylabel("Macro-F1")
        figure.legend(loc="outside upper center", ncols=len(stages) + 1)
    runs = max(len(own) for key, own in results.runs.items() if key[:2] == place)
    caption = (
        f"Macro-F1 on the target by encoder and stage, {place[0]}, {place[1]}. "
        f"Bars are means over up to {runs} runs, lines their sample standard deviation."
    )
    return Picture(path, caption)


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
