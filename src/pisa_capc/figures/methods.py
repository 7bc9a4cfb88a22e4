"""Macro-F1 of every method of a comparison, before and after calibration."""

from __future__ import annotations

from pathlib import Path

from pisa_capc.benchmark.protocols import Protocol
from pisa_capc.benchmark.results import Key, Results, mean
from pisa_capc.benchmark.tables import FULL, shared_stages, stage_name
from pisa_capc.encoders import encoder_title
from pisa_capc.figures.style import COLUMN_INCHES, GREY, MARKERS, STAGE_COLOURS, Picture, canvas
from pisa_capc.protocol import DIRECT


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
        if chance := _chance(results, place):
            axes.axvline(chance, color=GREY, linewidth=0.7, linestyle="--", zorder=0)
        for i, stage in enumerate((DIRECT, *shared)):
            scores = {y: mean(results.f1(keys[method], stage)) for y, method in enumerate(methods)}
            found = {y + 0.22 * (len(shared) / 2 - i): score for y, score in scores.items() if score is not None}
            axes.errorbar(
                [score.mean for score in found.values()],
                list(found),
                xerr=[score.std or 0.0 for score in found.values()],
                color=STAGE_COLOURS[i + 1],
                fmt=MARKERS[i],
                markersize=3,
                elinewidth=0.7,
                label={DIRECT: "direct", "paper": "U-CAPC"}.get(stage, stage),
            )
        axes.set_yticks(range(len(methods)), [stage_name(method, DIRECT) for method in methods])
        axes.set(xlim=(0, 1), xlabel="target Macro-F1")
        axes.grid(axis="x", linewidth=0.3)
        figure.legend(loc="outside upper center", ncols=1 + len(shared))
    where = f"{encoder_title(encoder)}, {place[0]}, {place[1]}"
    line = "; the dashed line is a guess among the devices" if chance else ""
    return Picture(path, f"{where}. Target Macro-F1 by method and stage, mean and standard deviation over runs{line}.")


def _chance(results: Results, place: tuple[str, str]) -> float | None:
    """One over the number of devices, where records have confusions to count them in."""
    runs = next(runs for key, runs in results.runs.items() if key[:2] == place)
    confusion = next(iter(runs.values())).stages[DIRECT].get("confusion")
    return 1 / len(confusion) if confusion else None
