"""The results page on growth with the number of devices, from the record of `studies.growth`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from studies.growth import ASYMPTOTIC, SIZES, SOURCE, STAGES, TARGET

from pages.against_paper import markdown_table as table
from pages.grown import (
    AHEAD,
    AS_FRAMES,
    RECORD,
    TITLES,
    TRAINED,
    Grown,
    ahead,
    filling,
    memory,
    recorded,
    seconds,
    together,
)
from pisa_capc.data.protocol import CAREFUL, DIRECT, PAPER
from pisa_capc.evidence.figures.style import (
    CALIBRATED_COLOUR,
    COLOURS,
    DIRECT_COLOUR,
    GREY,
    PAGE_INCHES,
    SAFE_COLOUR,
    canvas,
    score_axis,
)
from pisa_capc.model.encoders import encoder_title
from pisa_capc.model.methods import method_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PICTURE = "growth.png"
SCORES = {
    "validation": "held-out frames of the source",
    DIRECT: f"{TARGET}, direct",
    PAPER: f"{TARGET}, U-CAPC",
    CAREFUL: f"{TARGET}, careful",
}
LOOKS = {  # a calibration looks the same in both panels; embedding is what direct inference takes
    "simulate": (COLOURS[4], "o"),
    "prepare": (COLOURS[3], "D"),
    "epoch": (COLOURS[1], "P"),
    "embed": (DIRECT_COLOUR, "s"),
    PAPER: (CALIBRATED_COLOUR, "^"),
    CAREFUL: (SAFE_COLOUR, "v"),
    "validation": (GREY, "o"),
    DIRECT: (DIRECT_COLOUR, "s"),
}
HALF = 0.5  # of the score of the smallest size: below it, scores are broken


def section() -> str:
    """Nothing before it was measured."""
    record = recorded()
    return "" if record is None else written(record)


def written(record: dict[str, Any]) -> str:
    """The page of a record."""
    sizes, devices = record["sizes"], [size["devices"] for size in record["sizes"]]
    fitted = _wrapped(
        f"Amount ∝ devicesᵖ, p by least squares of the logarithms over {_numbers(devices[-ASYMPTOTIC:])} devices, and "
        "over the last two of them alone: where that is larger, what never grows still hides how fast the rest does, "
        "and p is too small. **The last column is an extrapolation**: the amount "
        f"at {devices[-1]:,} devices, carried on by p. It has not been measured."
    )
    return f"""{_measured(record)}

{verdict(record)}

![Seconds of the stages and Macro-F1 over the number of devices](../{PICTURE})

## Seconds

{_seconds_table(sizes)}

*prepare* is what of a training is not epochs: reading the frames, compiling, statistics of the source. *together* is
one simulation, one training with all its epochs, and every decision once.

## Memory

{_memory_table(sizes)}

MiB at the peak: of the GPU in the stage that needs most, which is named, and of the process beyond what it had before;
mapped files, as the frames on the disk, and the processes that simulate do not count. *statistics* is what the model
keeps of its source for calibration and rejection.

## Macro-F1

{_scores_table(sizes)}

{_scores_said(sizes)}

## How fast it grows

{fitted}

{_exponents_table(seconds(record), "seconds", devices[-1], "s")}

{_exponents_table(memory(record), "memory", devices[-1], "MiB")}

{_growth_said(record)}

Command: `make study-growth ARGS="--device {record["plan"]["device"]} --out results/{RECORD}"`
"""


def _measured(record: dict[str, Any]) -> str:
    """The measurement and its machine."""
    sizes, plan, where = record["sizes"], record["plan"], record["machine"]
    each = sizes[0]["frames"]["all"] / sizes[0]["devices"]
    gpu = f"{where['gpu']}, " if "gpu" in where else ""
    return _wrapped(
        f"{_numbers([size['devices'] for size in sizes])} simulated Wi-Fi devices; a larger size begins with the "
        f"devices of the smaller ones. Every device has {each:,.0f} frames in every size: frames grow as devices do. "
        f"{method_title(plan['method'])}, {encoder_title(plan['encoder'])}, is trained in {_listed(SOURCE)} for "
        f"{plan['epochs']} epochs, or for as many as make {plan['fewest_steps']:,} steps, and decides in {TARGET}, "
        f"which it did not see. One training of each size: small differences mean little. Measured on "
        f"{gpu}{where['cores']} cores, torch {where['torch']}, each size in a process of its own"
        f"{_taken(record)}.{_missing(sizes)}"
    )


def _taken(record: dict[str, Any]) -> str:
    """What is particular about how this record was made."""
    return f" ({record['taken']})" if "taken" in record else ""


def _missing(sizes: Sequence[dict[str, Any]]) -> str:
    """Sizes without a record."""
    missing = sorted({*SIZES} - {size["devices"] for size in sizes})
    return f" **Not measured yet: {_numbers(missing)} devices.**" if missing else ""


def verdict(record: dict[str, Any]) -> str:
    """What breaks first: scores, if they do within the measured range, the GPU, or else what outgrows the frames."""
    first, last = record["sizes"][0], record["sizes"][-1]
    start, end = first["macro_f1"][DIRECT], last["macro_f1"][DIRECT]
    fastest = max([*seconds(record).values(), *memory(record).values()], key=lambda grown: grown.exponent)
    power = f"devices to the power of {fastest.exponent:.2f}"
    broken = next((size for size in record["sizes"] if size["macro_f1"][DIRECT] < HALF * start), None)
    if broken is not None:
        return _wrapped(
            f"**The scores break first**: at {broken['devices']:,} devices direct Macro-F1 is "
            f"{broken['macro_f1'][DIRECT]:.3f}, less than half of the {start:.3f} at {first['devices']:,}. Of what is "
            f"paid for, fastest grows the {fastest.said}, as {power}."
        )
    kept = f"direct Macro-F1 goes from {start:.3f} at {first['devices']:,} devices to {end:.3f} at {last['devices']:,}"
    if (full := filling(record)) is not None:
        stage, devices = full
        when = " to ".join(dict.fromkeys(f"{float(f'{count:.2g}'):,.0f}" for count in devices))
        return _wrapped(
            f"**The {stage.said} breaks first**: carried on by its exponents below, it fills the "
            f"{record['machine']['gpu']} at about {when} devices. Fastest grows the {fastest.said}, as {power}, while "
            f"{kept}."
        )
    if fastest.exponent > AS_FRAMES:
        return _wrapped(f"**The {fastest.said} breaks first**: it grows as {power}, while {kept}.")
    return _wrapped(
        f"**Nothing breaks up to {last['devices']:,} devices**: {kept}, and nothing grows faster than the "
        f"{fastest.said}, which grows as {power}."
    )


def _seconds_table(sizes: Sequence[dict[str, Any]]) -> str:
    rows = [
        [
            f"{size['devices']:,}",
            f"{size['frames']['all']:,}",
            str(size["epochs"]),
            *(_short(size["stages"][name]["seconds"]) for name in STAGES),
            _short(together(size)),
        ]
        for size in sizes
    ]
    return table(["devices", "frames", "epochs", *(TITLES[name] for name in STAGES), "together"], rows)


def _memory_table(sizes: Sequence[dict[str, Any]]) -> str:
    rows = [
        [
            f"{size['devices']:,}",
            _most_of_gpu(size["stages"]),
            f"{size['mib']:,.0f}",
            _short(size["statistics_mib"]),
            f"{size['parameters']:,}",
        ]
        for size in sizes
    ]
    return table(["devices", "GPU", "process", "statistics", "parameters of the model"], rows)


def _most_of_gpu(stages: dict[str, dict[str, float]]) -> str:
    on_gpu = {name: own["gpu_mib"] for name, own in stages.items() if "gpu_mib" in own}
    if not on_gpu:
        return "–"
    most = max(on_gpu, key=on_gpu.__getitem__)
    return f"{on_gpu[most]:,.0f} ({TRAINED[most][0] if most in TRAINED else TITLES[most]})"


def _scores_table(sizes: Sequence[dict[str, Any]]) -> str:
    rows = [
        [
            f"{size['devices']:,}",
            f"{1 / size['devices']:.3g}",
            *(f"{size['macro_f1'][name]:.3f}" for name in SCORES),
            f"{size['macro_f1'][DIRECT] * size['devices']:,.0f}×",
        ]
        for size in sizes
    ]
    return table(["devices", "chance", *SCORES.values(), "direct over chance"], rows)


def _scores_said(sizes: Sequence[dict[str, Any]]) -> str:
    first, last = sizes[0], sizes[-1]
    falls = "; ".join(
        f"{title} from {first['macro_f1'][n]:.3f} to {last['macro_f1'][n]:.3f}" for n, title in SCORES.items()
    )
    best = max((DIRECT, PAPER, CAREFUL), key=last["macro_f1"].__getitem__)
    named = "direct inference" if best == DIRECT else TITLES[best]
    said = _wrapped(
        f"From {first['devices']:,} to {last['devices']:,} devices: {falls}. At {last['devices']:,} the best in "
        f"{TARGET} is {named}. Beside direct inference"
    )
    return said + "\n\n" + "\n".join(f"- {TITLES[name]} {_change(sizes, name)}" for name in (PAPER, CAREFUL))


def _change(sizes: Sequence[dict[str, Any]], name: str) -> str:
    """Where a calibration adds to direct inference and where it costs."""
    gains = {size["devices"]: size["macro_f1"][name] - size["macro_f1"][DIRECT] for size in sizes}
    parts = []
    for verb, own in (
        ("adds", {n: gain for n, gain in gains.items() if gain >= 0}),
        ("costs", {n: -gain for n, gain in gains.items() if gain < 0}),
    ):
        if own:
            parts.append(f"{verb} " + ", ".join(f"{gain:.3f} at {n:,}" for n, gain in own.items()))
    return "; ".join(parts) + "."


def _exponents_table(grown: dict[str, Grown], what: str, largest: int, unit: str) -> str:
    ordered = sorted(grown.values(), key=lambda one: one.exponent, reverse=True)
    rows = [
        [
            one.title,
            f"{one.exponent:.2f}",
            f"{one.last_exponent:.2f}",
            f"{_short(one.amounts[-1])} {unit}",
            f"{_short(one.at(AHEAD))} {unit}",
        ]
        for one in ordered
    ]
    return table([what, "p", "of the last two", f"{largest:,} devices", f"{AHEAD:,} by p"], rows)


def _growth_said(record: dict[str, Any]) -> str:
    times, room, last = seconds(record), memory(record), record["sizes"][-1]
    then = ahead(record)
    longest = max(then, key=then.__getitem__)
    fullest = max(room.values(), key=lambda one: one.at(AHEAD))
    faster = [one for one in (*times.values(), *room.values()) if one.exponent > AS_FRAMES]
    named = _listed([f"{one.said} ({one.exponent:.2f})" for one in faster]) if faster else "nothing"
    part = "the epochs of the training" if longest == "epoch" else TITLES[longest]
    return _wrapped(
        f"Faster than the frames, p above {AS_FRAMES:g}, grows: {named}. With {last['epochs']} epochs all of it took "
        f"{_time(together(last))} for {last['devices']:,} devices and would take {_time(sum(then.values()))} for "
        f"{AHEAD:,} by these exponents; the longest of it would be {part}, {_time(then[longest])}. The most memory "
        f"would be the {fullest.said}, {fullest.at(AHEAD) / 1024:,.1f} GiB."
    )


def _short(amount: float) -> str:
    """Three digits that count.

    >>> _short(0.01234), _short(5.678), _short(12345.6)
    ('0.0123', '5.68', '12,346')
    """
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:.3g}"


def _time(amount: float) -> str:
    """Seconds, for people.

    >>> _time(12.34), _time(345), _time(7200)
    ('12.3 s', '5.8 min', '2.0 h')
    """
    if amount < 90:
        return f"{amount:.3g} s"
    return f"{amount / 60:.1f} min" if amount < 90 * 60 else f"{amount / 3600:.1f} h"


def _wrapped(text: str) -> str:
    return fill(text, 120, break_on_hyphens=False)


def _numbers(values: Sequence[int]) -> str:
    return _listed([f"{value:,}" for value in values])


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def picture(folder: Path) -> None:
    """Seconds of the stages, and Macro-F1, over the number of devices; nothing before it was measured."""
    record = recorded()
    if record is not None:
        draw(record, folder / PICTURE)


def draw(record: dict[str, Any], path: Path) -> None:
    devices = [size["devices"] for size in record["sizes"]]
    with canvas(path, PAGE_INCHES, 3.1) as figure:
        times, scores = figure.subplots(1, 2)
        for name, grown in seconds(record).items():
            _line(times, name, devices, grown.amounts, f"{grown.title}, p = {grown.exponent:.2f}")
        fitted = devices[-ASYMPTOTIC:]
        times.axvspan(fitted[0], fitted[-1], color=GREY, alpha=0.12, linewidth=0, label="sizes that p is fitted to")
        times.set(yscale="log", ylabel="seconds", title="Time by stage")
        times.yaxis.set_major_formatter("{x:g}")
        for name, title in SCORES.items():
            _line(scores, name, devices, [size["macro_f1"][name] for size in record["sizes"]], title)
        between = np.geomspace(devices[0], devices[-1])
        scores.plot(between, 1 / between, color="black", linewidth=0.7, linestyle=":", zorder=0, label="chance")
        score_axis(scores, upright=True)
        scores.set(ylabel="Macro-F1", title="Scores")
        for axes in (times, scores):
            axes.set(xscale="log", xlabel="devices")
            axes.set_xticks(devices, [f"{n:,}" for n in devices])
            axes.set_xticks([], minor=True)
            axes.grid(alpha=0.2)
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2)


def _line(axes: Axes, name: str, devices: Sequence[int], values: Sequence[float], label: str) -> None:
    colour, marker = LOOKS[name]
    axes.plot(devices, values, color=colour, marker=marker, markersize=3.5, clip_on=False, label=label)
