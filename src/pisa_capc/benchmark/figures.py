"""Figures from the records of a protocol."""

from __future__ import annotations

from pathlib import Path

from pisa_capc.benchmark.protocols import Protocol
from pisa_capc.benchmark.results import Key, Results, mean
from pisa_capc.benchmark.tables import FULL, NAMES, STAGES
from pisa_capc.errors import DataError

# Okabe and Ito's colours, told apart with any colour vision; the shades differ in print without colour, too.
COLOURS = ("#999999", "#56B4E9", "#0072B2")
WIDTH_INCHES = 7.16  # two columns of an IEEE page


def three_stage_bars(protocol: Protocol, results: Results, place: tuple[str, str], path: Path) -> None:
    """Macro-F1 of Single, PISA and PISA-CAPC by encoder: bars with values, and the standard deviation over the runs.

    place: dataset and direction. The path's suffix chooses the format.
    """
    import matplotlib
    from matplotlib.figure import Figure

    encoders = [e for e in protocol.encoders if any(key[:2] == place and key.encoder == e for key in results.runs)]
    figure = Figure(figsize=(WIDTH_INCHES, 2.6), layout="constrained")
    axes = figure.subplots()
    top = 0.0
    for i, (name, method, stage) in enumerate(STAGES):
        found = {j: mean(results.f1(Key(*place, method, FULL, e), stage)) for j, e in enumerate(encoders)}
        bars = {j + 0.28 * (i - 1): value for j, value in found.items() if value is not None}
        heights, spreads = [v.mean for v in bars.values()], [v.std or 0.0 for v in bars.values()]
        axes.bar(list(bars), heights, 0.26, color=COLOURS[i], label=name, yerr=spreads, error_kw={"lw": 0.7})
        for x, height, spread in zip(bars, heights, spreads, strict=True):
            axes.text(x, height + spread + 0.01, f"{height:.3f}", ha="center", va="bottom", fontsize=6, rotation=90)
            top = max(top, height + spread)
    axes.set_xticks(range(len(encoders)), [NAMES.get(e, e) for e in encoders], fontsize=8)
    axes.set_ylabel("Macro-F1", fontsize=8)
    axes.set_ylim(0, 1.2 * top or 1)
    axes.tick_params(axis="y", labelsize=7)
    axes.set_title(f"{place[0]}, {place[1]}", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=len(STAGES), fontsize=7, frameon=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with matplotlib.rc_context({"pdf.fonttype": 42, "svg.fonttype": "none"}):  # text stays text
            figure.savefig(path, dpi=200)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: the figure cannot be written ({error}).") from error


def make_figures(protocol: Protocol, results: Results, folder: Path, format: str) -> list[Path]:
    """The three-stage bars of every dataset and direction, as files in `folder`."""
    if not {"single", "pisa"} <= {row.method for row in protocol.methods}:
        raise DataError(f"{protocol.name}: has no figure; the bars compare the methods single and pisa.")
    paths = []
    for i, place in enumerate(results.places(), 1):
        paths.append(folder / f"three-stages-{i}.{format}")
        three_stage_bars(protocol, results, place, paths[-1])
    return paths
