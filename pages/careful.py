"""The section of the results pages on the careful calibration, from the record of `studies.calibrations`."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from textwrap import fill
from typing import Any

import numpy as np
from benchmarks.report import read

from pages.against_paper import markdown_table as table
from pisa_capc.encoders import encoder_title
from pisa_capc.figures.style import PAGE_INCHES, canvas

RECORD = "studies/calibrations.json"
PICTURE = "careful-deployments.png"
WAVEFORMS = {"wifi": "Wi-Fi", "lora": "LoRa"}
TITLES = {"ucapc": "U-CAPC", "without-prior": "no prior"}
BALANCED = ("balanced", "captures-32", "captures-128", "captures-512")
HEADS = ("direct", "lda")  # no calibration
LARGEST = 0.1  # change that has the deepest colour
WORST, WORST_OF_ONE, BEHIND = -0.005, -0.01, 0.01  # what was aimed at


def gains(found: dict[str, Any], method: str) -> list[float]:
    """Mean change of Macro-F1 in every cell."""
    return [scores[method]["gain"] for scores in found["cells"].values()]


def compared(found: dict[str, Any]) -> list[str]:
    """The calibrations that all models of a table have; careful is the last."""
    first = next(iter(found["cells"].values()))
    return [name for name in first if name not in (*HEADS, "careful")] + ["careful"]


def aims(found: dict[str, Any]) -> dict[str, Any]:
    """What careful keeps and loses beside the others."""
    cells, names = found["cells"], compared(found)
    means = {name: fmean(gains(found, name)) for name in names}
    best = fmean(max(scores[name]["gain"] for name in names) for scores in cells.values())
    published = sum(cells[cell]["ucapc"]["gain"] for cell in BALANCED)
    worst, encoder, cell = min((*scores["careful"]["worst"], cell) for cell, scores in cells.items())
    return {
        "means": means,
        "leader": max(means, key=means.__getitem__),
        "behind": best - means["careful"],
        "kept": sum(cells[cell]["careful"]["gain"] for cell in BALANCED) / published if published > 0 else None,
        "worst": (worst, encoder, cell),
        "lost": {name: fmean(scores[name]["lost"] for scores in cells.values()) for name in names},
    }


def picture(folder: Path) -> None:
    """Mean change of Macro-F1 against direct inference: deployments by row, calibrations by column."""
    tables = [t for t in read(RECORD)["tables"] if t["sources"] == 2]
    with canvas(folder / PICTURE, PAGE_INCHES, 0.9 + 0.2 * len(tables[0]["cells"])) as figure:
        panels = figure.subplots(1, len(tables), sharey=True, squeeze=False)[0]
        for axes, found in zip(panels, tables, strict=True):
            names = compared(found)
            shown = np.array([gains(found, name) for name in names]).T
            axes.imshow(shown, cmap="PuOr_r", vmin=-LARGEST, vmax=LARGEST, aspect="auto")
            for (i, j), value in np.ndenumerate(shown):
                ink = "white" if abs(value) > 2 / 3 * LARGEST else "black"
                axes.text(j, i, f"{value:+.2f}".replace("0.", "."), ha="center", va="center", fontsize=4.5, color=ink)
            axes.set_xticks(range(len(names)), [TITLES.get(n, n) for n in names], rotation=60, ha="right", fontsize=6)
            axes.set_yticks(range(len(shown)), list(found["cells"]), fontsize=6)
            axes.set_title(f"{WAVEFORMS[found['waveform']]}, {found['models']} models")
        figure.suptitle("Change of Macro-F1 against direct inference")


def section() -> str:
    """Every calibration on the scenes whose devices share a channel, and careful with one source environment."""
    record = read(RECORD)
    two, one = ([t for t in record["tables"] if t["sources"] == n] for n in (2, 1))
    return f"""## Careful: what suits a capture

Models of PISA on the scenes where [devices share a channel](place.md), trained in E2 and E3 and met in E1.
[Careful](../safe.md#careful-the-usual-calibration-without-a-guard) was chosen on source environments alone: on models
of one source environment that met the other one. E1 was looked at once, after. Cells as above, with fewer frames,
because 128 of a device are kept: 256 where shares are skewed. New are `bursts` (a correlated stream: 128 frames of
six bursts), `stays` (devices come and go), `joined` (two captures taken for one), `small-skewed` (32 frames,
Dirichlet 1) and `mixed` (half of the frames are of the source). Frames of unknown radios are not in it, nor are
withheld identifiers.

![Change of Macro-F1 by calibration and deployment](../{PICTURE})

Mean over the cells of the change of Macro-F1 against direct inference; the least mean of an encoder in a cell; the
share of captures that lost more than {record["lost"]:g}:

{_table(two)}

{chr(10).join(_said(found) for found in two)}

Where careful lost it was mostly in captures of few frames or of few devices. There the shares are told from little, or
from frames that the model confuses, and a wrong level costs more than a right one gains.

### One source environment

The same models trained in E2 alone, or in E3 alone, and met in E1: there is no second environment to rehearse on, and
`safe` does nothing. Careful needs none.

{chr(10).join(_said(found) for found in one)}

{_heads(two)}
Command: `python -m studies.calibrations --target E1 --out results/{RECORD}`, on embeddings that
`python -m studies.embeddings` keeps of the models.
"""


def _table(tables: list[dict[str, Any]]) -> str:
    names = [name for name in compared(tables[0]) if all(name in compared(t) for t in tables)]
    headings = ["calibration"]
    rows = [[TITLES.get(name, name)] for name in names]
    for found in tables:
        headings += [f"{WAVEFORMS[found['waveform']]}: mean", "worst", "lost"]
        leader, lost = aims(found)["leader"], aims(found)["lost"]
        for row, name in zip(rows, names, strict=True):
            mean = f"{fmean(gains(found, name)):+.3f}"
            worst = min(scores[name]["worst"][0] for scores in found["cells"].values())
            row += [f"**{mean}**" if name == leader else mean, f"{worst:+.3f}", f"{100 * lost[name]:.0f} %"]
    return table(headings, rows)


def _said(found: dict[str, Any]) -> str:
    """What was aimed at, and what came of it."""
    of, aim = aims(found), WORST if found["sources"] == 2 else WORST_OF_ONE
    peer, best = max((v, k) for k, v in of["means"].items() if k != "careful")[::-1]
    worst, encoder, cell = of["worst"]
    models = f"{found['models']} models: {len(found['encoders'])} encoders, seeds {', '.join(found['seeds'])}"
    kept = (
        "" if of["kept"] is None else f"{100 * of['kept']:.0f} % of the published gain in balanced cells (aim 90 %), "
    )
    said = (
        f"- **{WAVEFORMS[found['waveform']]}** ({models}): in the mean over the cells careful "
        f"{of['means']['careful']:+.3f}, the best of the others, {TITLES.get(peer, peer)}, {best:+.3f}; {kept}"
        f"{of['behind']:.3f} behind the best calibration of every cell (aim {BEHIND:g}), worst encoder and cell "
        f"{worst:+.3f} ({encoder_title(encoder)}, {cell}; aim {aim:g}: {'met' if worst >= aim else 'missed'}). "
        f"{100 * of['lost']['careful']:.0f} % of captures lost more than 0.02, of U-CAPC's "
        f"{100 * of['lost']['ucapc']:.0f} %."
    )
    return fill(said, 118, subsequent_indent="  ")


def _heads(tables: list[dict[str, Any]]) -> str:
    """Whether full training leaves a gain to another head."""
    known = [t for t in tables if "lda" in t["cells"]["balanced"]]
    changes = ", ".join(f"{WAVEFORMS[t['waveform']]} {t['cells']['balanced']['lda']['gain']:+.3f}" for t in known)
    if not known:
        return ""
    return f"""### Another head

The nearest class mean in the source's LDA space in the place of the trained head, nothing calibrated, changes Macro-F1
in E1 by {changes} (balanced).
"""
