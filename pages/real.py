"""The results page on real cards, from the record of `studies.real`."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.report import RESULTS, read
from scipy.stats import t

from pages.against_paper import markdown_table as table
from pisa_capc.evidence.figures.det import det_axes, draw_det
from pisa_capc.evidence.figures.style import PAGE_INCHES, canvas

RECORD, PICTURE, DET = "studies/real.json", "real-places.png", "real-det.png"
SETS = {"location-intel5300": "Intel 5300", "environment-nexmon": "Nexmon"}
ONE, OTHERS = "one", "others"
CLOSED, PISA, COMMON = "closed form", "pisa, antenna", "pisa, common"
ROWS = {  # method and stage of each row
    "Single, common front end": ("single, common", "direct"),
    "Single": ("single, antenna", "direct"),
    "PISA, common front end": (COMMON, "direct"),
    "PISA": (PISA, "direct"),
    "PISA with U-CAPC as published": (PISA, "u-capc"),
    "PISA with `careful`": (PISA, "careful"),
    "LDA": ("LDA", "direct"),
    "LDA, shrunk by 0.001": ("LDA, shrunk", "direct"),
    "**Closed form**": (CLOSED, "direct"),
}
SHORT = (
    "Single\ncommon",
    "Single",
    "PISA\ncommon",
    "PISA",
    "PISA\nU-CAPC",
    "PISA\ncareful",
    "LDA",
    "LDA\nshrunk",
    "closed\nform",
)
FROM = {ONE: "from one", OTHERS: "from all others"}
MEASURES = {"eer": "EER", "cllr": "Cllr (bits)", "min_cllr": "minimum Cllr"}
KINDS = {
    "balanced": "balanced",
    "dirichlet-1": "Dirichlet(1)",
    "dirichlet-0.3": "Dirichlet(0.3)",
    "one missing": "one device missing",
    "one alone": "one device alone",
}


@cache
def record() -> dict[str, Any]:
    found: dict[str, Any] = read(RECORD)
    return found


def by_place(name: str, how: str, method: str, stage: str = "direct", kind: str = "balanced") -> dict[str, float]:
    """Macro-F1 of each source place, in the mean over the others; or of each target place, from all others."""
    cells = record()["sets"][name]["cells"]
    return {
        cell.partition("/")[2]: float(np.mean([place[kind][stage] for place in own[method].values()]))
        for cell, own in cells.items()
        if cell.startswith(f"{how}/")
    }


def mean(name: str, how: str, method: str, stage: str = "direct", kind: str = "balanced") -> float:
    return float(np.mean([*by_place(name, how, method, stage, kind).values()]))


def with_interval(name: str, how: str, method: str, stage: str = "direct", kind: str = "balanced") -> str:
    """Mean and its 95 % interval, places being what varies."""
    values = np.array([*by_place(name, how, method, stage, kind).values()])
    half = float(t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))
    return f"{values.mean():.3f} ({max(0.0, values.mean() - half):.3f}–{min(1.0, values.mean() + half):.3f})"


def section() -> str:
    """The page behind its title; empty where nothing is recorded."""
    if not (RESULTS / RECORD).is_file():
        return ""
    own = record()
    return f"""{_what_they_show()}

![Macro-F1 by source place and method](../{PICTURE})

One row is a source place, and its score the mean over all other places, with balanced captures.

## Places that no method has seen

{_methods()}

Macro-F1, mean over places, with a 95 % interval over places (t distribution). "From one": each place in turn is the
only source, and all others are targets. "From all others": each place in turn is the only target. Every method learns
from the same {own["frames"]} frames of each device and is scored on the same {own["asked"]} in each target place.
Networks are CNNs, trained for {own["epochs"]} epochs with one seed. The front end removes gain, phase and slope of
each antenna, or, where "common" is written, one phase and slope of all antennas, as imports of earlier versions did.
LDA sees the values of the closed form; its covariance is shrunk by {own["lda_shrinkage"]["LDA"]:g}, as little as can be
inverted, or by {own["lda_shrinkage"]["LDA, shrunk"]:g}.

## Captures that are not balanced

{_captures()}

From one place. {own["draws"]} captures of {own["drawn_frames"]} frames are drawn from each target place; Macro-F1 over
the devices that are present. The Dirichlet distribution gives the shares of the devices. `careful` leaves a capture
uncalibrated where many of its frames resemble no known device.

## Claims

Every frame claims every device; the score is the log-likelihood ratio of the claimed device against the mean of the
others ([measures](../identify.md#how-well-claims-are-verified)). Means over places:

{_claims()}

{_calibrated()}

![DET curves of claims and of unknown devices](../{DET})

Each line is the mean of the misses over places at the same false accepts.

## Unknown devices

{_strangers()}

Closed form from all other places; each device in turn is left out. AUROC is by the distance from the nearest device.
Accepted: frames of unknown devices with a p-value above {own["nominal"]:.0%}. Rejected: frames of known devices below
it, nominally {own["nominal"]:.0%}. EER and Cllr are of the likelihood ratio of a known device against an unknown one.
A few places do not show how places differ, so in another one p-values and ratios are a guide, not a rate.
{_sessions()}
## Data and commands

The data stays in its repositories:

```
git clone https://github.com/YanDawei101/WiFi_device_fingerprint
git clone https://github.com/TUDA-wise/RF-Veil
make study-real DATA=FOLDER
```

`studies/real.py` says which files of them FOLDER holds. Intel: three antennas and 30 subcarriers, four devices, five
places. Nexmon: one antenna and 52 subcarriers, four devices, eleven places. Record: `results/{RECORD}`.{_networks()}
"""


def _networks() -> str:
    """Of when the networks are, where they were taken from an earlier record."""
    earlier = record().get("networks", {}).get("made")
    if not earlier:
        return ""
    return (
        f" Networks and\nphones are those of a run at commit `{earlier['commit'][:8]}`; closed form and LDA were "
        "computed again."
    )


def _what_they_show() -> str:
    """First of all, in a paragraph."""
    intel = next(iter(SETS))
    closed, network, common = ([mean(name, ONE, method) for name in SETS] for method in (CLOSED, PISA, COMMON))
    all_closed, all_network = ([mean(name, OTHERS, method) for name in SETS] for method in (CLOSED, PISA))
    lda = [max(mean(name, OTHERS, method) for method in ("LDA", "LDA, shrunk")) for name in SETS]
    calibrated = [mean(intel, ONE, PISA, "u-capc", kind) for kind in ("balanced", "one alone")]
    alone = mean(intel, ONE, PISA, kind="one alone")
    pairs = [*zip(closed, network, strict=True), *zip(all_closed, all_network, strict=True)]
    leads = "linear algebra beats the network without calibration"
    first = (
        leads if all(ours > theirs for ours, theirs in pairs) else "neither linear algebra nor the network always leads"
    )

    def each(values: list[float]) -> str:
        return " and ".join(f"{value:.3f}" for value in values)

    return (
        f"**On channel state of real cards, {first}.** Macro-F1 for four devices in places that no method has seen, on "
        f"the {' and the '.join(SETS.values())} set, learnt in one place: closed form {each(closed)}, PISA "
        f"{each(network)}. Learnt in all other places: closed form {each(all_closed)}, PISA {each(all_network)}, the "
        f"better LDA {each(lda)}. With the common front end, PISA from one place scores {each(common)}. U-CAPC as "
        f"published takes PISA on Intel from {network[0]:.3f} to {calibrated[0]:.3f} where captures are balanced, and "
        f"from {alone:.3f} to {calibrated[1]:.3f} where one device is alone."
    )


def finding() -> str:
    """One line of the findings."""
    if not (RESULTS / RECORD).is_file():
        return ""
    scores = "; ".join(
        f"{title}: closed form {mean(name, ONE, CLOSED):.3f}, PISA {mean(name, ONE, PISA):.3f}"
        for name, title in SETS.items()
    )
    return f"""- On channel state of real cards, from one place to all others
  ({scores}; [`studies/real.json`](real.md)).
"""


def _methods() -> str:
    heads = ["method", *(f"{title}, {how}" for title in SETS.values() for how in ("from one", "from all others"))]
    rows = [
        [title, *(with_interval(name, how, *which) for name in SETS for how in (ONE, OTHERS))]
        for title, which in ROWS.items()
    ]
    return table(heads, rows)


def _captures() -> str:
    rows = [
        [
            SETS[name],
            title.strip("*"),
            *(f"{mean(name, ONE, method, stage, kind):.3f}" for kind in KINDS),
        ]
        for name in SETS
        for title, (method, stage) in {
            "PISA": (PISA, "direct"),
            "PISA with U-CAPC as published": (PISA, "u-capc"),
            "PISA with `careful`": (PISA, "careful"),
            "Closed form": (CLOSED, "direct"),
            "Closed form with U-CAPC as published": (CLOSED, "u-capc"),
            "Closed form with `careful`": (CLOSED, "careful"),
        }.items()
    ]
    return table(["set", "method", *KINDS.values()], rows)


def _strangers() -> str:
    rows = []
    for name, title in SETS.items():
        own = [cell["strangers"] for cell in record()["sets"][name]["cells"].values() if "strangers" in cell]
        auroc = [one["auroc"] for one in own]
        accepted, rejected = (float(np.mean([one[key] for one in own])) for key in ("accepted", "rejected"))
        ratio = [f"{np.mean([one['ratio'][key] for one in own]):.3f}" for key in MEASURES]
        rows.append([title, f"{np.mean(auroc):.3f}", f"{min(auroc):.3f}", f"{accepted:.1%}", f"{rejected:.1%}", *ratio])
    return table(["set", "AUROC", "worst place", "accepted", "rejected", *MEASURES.values()], rows)


def _of_claims(name: str, how: str, method: str, measure: str) -> Any:
    """Mean over places of what verification measures."""
    cells = record()["sets"][name]["cells"]
    return np.mean([own["claims"][method][measure] for cell, own in cells.items() if cell.startswith(how)], axis=0)


def _claims() -> str:
    rows = [
        [
            SETS[name],
            FROM[how],
            title,
            *(f"{_of_claims(name, how, method, measure):.3f}" for measure in MEASURES),
        ]
        for name in SETS
        for how in FROM
        for title, method in {"LDA": "LDA", "LDA, shrunk by 0.001": "LDA, shrunk", "Closed form": CLOSED}.items()
    ]
    return table(["set", "learnt", "method", *MEASURES.values()], rows)


def _calibrated() -> str:
    """Whether the sizes of the ratios can be believed."""
    bad = [
        f"{SETS[name]} {FROM[how]} ({_of_claims(name, how, CLOSED, 'cllr'):.2f} bits, {least:.2f} at best)"
        for name in SETS
        for how in FROM
        if _of_claims(name, how, CLOSED, "cllr") > 2 * (least := _of_claims(name, how, CLOSED, "min_cllr"))
    ]
    if not bad:
        return "The ratios of the closed form cost at most twice what the best map of them would."
    return f"The ratios of the closed form are too large where they cost over twice their minimum: {'; '.join(bad)}."


def det(folder: Path) -> None:
    """Misses over false accepts: claims from one place and from all others, and unknown devices."""
    rates = np.array(record()["false_accepts"])
    with canvas(folder / DET, PAGE_INCHES, 3.75) as figure:
        panels = figure.subplots(1, len(SETS))
        for axes, (name, title) in zip(panels, SETS.items(), strict=True):
            det_axes(axes)
            lines = {
                f"{label}, {FROM[how]}": _of_claims(name, how, method, "miss")
                for label, method in (("closed form", CLOSED), ("LDA", "LDA"))
                for how in FROM
            }
            cells = record()["sets"][name]["cells"].values()
            lines["unknown devices"] = np.mean(
                [cell["strangers"]["ratio"]["miss"] for cell in cells if "strangers" in cell], axis=0
            )
            for number, (label, misses) in enumerate(lines.items()):
                draw_det(axes, (misses[::-1], rates[::-1]), label, number)
            axes.set_title(title)
        panels[0].legend(loc="upper right")


def _sessions() -> str:
    """Five phones in two sessions, where they were recorded."""
    if "sessions" not in record():
        return ""
    rows = []
    for session, parts in record()["sessions"].items():
        for where, own in parts.items():
            f1 = own["macro_f1"]
            rows.append(
                [
                    f"{session}, {where}",
                    f"{own['frames']:,}",
                    *(f"{f1[method]:.3f}" for method in (PISA, "LDA", CLOSED)),
                    f"{own['none that I know']:.1%}",
                    f"{own['p, median']:.2g}",
                ]
            )
    others = [parts["other session"] for parts in record()["sessions"].values()]
    best = max(value for own in others for value in own["macro_f1"].values())
    least = min(own["none that I know"] for own in others)
    heads = [
        "learnt in session, asked in",
        "frames",
        "PISA",
        "LDA",
        "closed form",
        "none that I know",
        "median p-value",
    ]
    return f"""
## What fails: phones in another session

{table(heads, rows)}

Five phones in two sessions under different conditions. Within a session, the first 70 % of each recording are learnt
and the rest is asked. In the other session no method scores more than {best:.2f}; guessing gives 0.20. There the closed
form's p-values answer "none that I know" (below {record()["nominal"]:.0%}) for at least {least:.1%} of the frames. PISA
needs more frames than session B has to learn anything in {record()["epochs"]} epochs.
"""


def ink(value: float) -> str:
    """Of a number on its shade."""
    return "white" if value > 0.75 else "black"


def picture(folder: Path) -> None:
    """Macro-F1 of each place and method as a shaded table, a panel for each set."""
    if not (RESULTS / RECORD).is_file():
        return
    det(folder)
    with canvas(folder / PICTURE, PAGE_INCHES, 4.6) as figure:
        counts = [len(record()["sets"][name]["about"]["places"]) for name in SETS]
        panels = figure.subplots(len(SETS), 1, height_ratios=counts)
        for axes, (name, title) in zip(panels, SETS.items(), strict=True):
            columns = [by_place(name, ONE, *which) for which in ROWS.values()]
            places = sorted(columns[0], key=lambda place: (len(place), place))
            values = np.array([[column[place] for column in columns] for place in places])
            axes.imshow(values, cmap="Blues", vmin=0.2, vmax=1.2, aspect="auto")
            for (row, column), value in np.ndenumerate(values):
                axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=6, color=ink(value))
            axes.set_xticks(range(len(ROWS)), SHORT)
            axes.set_yticks(range(len(places)), places)
            axes.set_ylabel("source place")
            axes.set_title(f"{title}: Macro-F1 in all other places")
            axes.tick_params(length=0)
            axes.spines[:].set_visible(False)
