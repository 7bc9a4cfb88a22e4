"""Macro-F1 of the three stages, by encoder."""

from __future__ import annotations

from pathlib import Path

from pisa_capc.evidence.benchmark.protocols import Protocol
from pisa_capc.evidence.benchmark.results import Key, Results, mean
from pisa_capc.evidence.benchmark.tables import FULL, stages_of
from pisa_capc.evidence.figures.style import PAGE_INCHES, Picture, canvas, mark_chance, score_axis, stage_colour
from pisa_capc.model.encoders import encoder_title


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
