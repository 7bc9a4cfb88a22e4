"""The results page on devices enrolled without training, from the records of `studies.enrolment` at full size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.report import RESULTS, read
from studies.enrolment import CHOSEN, FRAMES
from studies.mixed import FRAMES as COUNTS
from studies.mixed import SHARES

from pages.against_paper import markdown_table as table
from pages.threats import wrapped
from pisa_capc.evidence.figures.style import COLOURS, PAGE_INCHES, canvas, score_axis
from pisa_capc.model.encoders import ENCODERS, encoder_names, encoder_title

FOLDER, PICTURE = "studies/enrolment-h200", "enrolment-encoders.png"
TITLES = {"wifi": "Wi-Fi", "lora": "LoRa"}
PEER = "LDA head"
MIXED = "studies/mixed.json"
KINDS = ("an enrolled device", "an unknown one")


def own_encoders() -> list[str]:
    """Those of the package: a plugin's are not missing."""
    return [name for name in encoder_names() if ENCODERS.origin(name) is None]


def found() -> dict[tuple[str, str], dict[str, Any]]:
    """What was recorded, by waveform and encoder, in the order of the package."""
    return {
        (waveform, encoder): read(f"{FOLDER}/{waveform}-{encoder}.json")
        for waveform in TITLES
        for encoder in own_encoders()
        if (RESULTS / FOLDER / f"{waveform}-{encoder}.json").is_file()
    }


def section() -> str:
    """Every encoder: scores of enrolled devices, and the cost for the others."""
    records = found()
    first = next(iter(records.values()))["settings"]
    every = len(TITLES) * len(own_encoders())
    chosen = [record["chosen"] for record in records.values()]
    return f"""As on [the page about enrolment](../enrolment.md), at full size: three of ten devices at a time are left
out of training ({first["method"]}, {first["epochs"]} epochs, devices share a channel), enrolled from 10, 50 or 200
frames in E2 or in E3, and identified among all ten in E1, which no model saw. `{CHOSEN}` is the row that `pisa enrol`
fits; `{PEER}` decides by all ten class means instead of the trained rows. Macro-F1 in E1 of the *new* devices and of
the *others* on their own frames. *Taken for another* is the share of recordings of a new device that `pisa enrol`
refuses because they resemble an enrolled device, unless `--anyway` is given.

{_table(records)}

![Macro-F1 of new devices and of the others, by encoder](../{PICTURE})

On the source, with each environment in turn the target of a model of the other, the best row is {_counted(chosen)}.
{_said(records)}
{"" if len(records) == every else f"**Incomplete:** {len(records)} of {every} encoders and waveforms are recorded."}

Command: `make study-enrolment ARGS="--waveform wifi --encoder cnn --seeds {first["seeds"]} --device cuda --out
results/{FOLDER}/wifi-cnn.json"`, and so on.
"""


def mixed() -> str:
    """Enrolments by a network's embeddings with another sender's frames among them."""
    record = read(MIXED)
    found, most = record["found"], record["refused of one sender, at most"]
    rows = []
    for share in map(float, SHARES):
        cells = [
            found.get(f"elsewhere, {kind}, {count}, {share:g}", {"refused": None})["refused"]
            for kind in KINDS
            for count in COUNTS
        ]
        rows.append([f"{share:.0%}", *("–" if one is None else f"{100 * one:.0f} %" for one in cells)])
    heads = ["foreign", *(f"{kind}, {count} frames" for kind in KINDS for count in COUNTS)]
    tried = min(one["tried"] for name, one in found.items() if name.startswith("elsewhere"))
    text = f"""Enrolments refused, in places that the model never saw: PISA with a CNN of the study below, devices that
      it was not trained on, and among their frames those of an enrolled device or of an unknown one, {tried} of each.
      The limit is what {1 - most:.0%} of as many frames of one trained device stay below, on the source's validation
      frames; but the ratio was chosen, among others, with these places in sight, so this is not a blind test.
      Command: `make study-mixed ARGS="--out results/{MIXED}"`."""
    return table(heads, rows) + "\n\n" + wrapped(text)


def _table(records: dict[tuple[str, str], dict[str, Any]]) -> str:
    headings = [
        "",
        *(f"new, {n}" for n in FRAMES),
        f"{PEER}: new, {FRAMES[-1]}",
        "trained with all: new",
        "others before",
        f"others after, {FRAMES[-1]}",
        f"{PEER}: others",
        "taken for another",
    ]
    rows = []
    for (waveform, encoder), record in records.items():
        met = record["target"]
        own, peer, most = met["rows"][CHOSEN], met["rows"][PEER], str(FRAMES[-1])
        values = [*(own[str(n)]["new"] for n in FRAMES), peer[most]["new"], met["anew"]["new"], met["before"]]
        values += [own[most]["kept"], peer[most]["kept"]]
        title = f"{TITLES[waveform]}, {encoder_title(encoder)}"
        rows.append([title, *(f"{value:.3f}" for value in values), f"{100 * met['alike']['new']:.0f} %"])
    return table(headings, rows)


def _counted(names: list[str]) -> str:
    counts = {name: names.count(name) for name in dict.fromkeys(names)}
    return ", ".join(f"`{name}` for {count} of {len(names)}" for name, count in counts.items())


def _said(records: dict[tuple[str, str], dict[str, Any]]) -> str:
    most = str(FRAMES[-1])
    met = [record["target"] for record in records.values()]
    short = [one["anew"]["new"] - one["rows"][CHOSEN][most]["new"] for one in met]
    cost = [one["before"] - one["rows"][CHOSEN][most]["kept"] for one in met]
    return (
        f"In E1 the row of `pisa enrol` is {min(short):.3f} to {max(short):.3f} behind a training with all ten for\n"
        f"the new devices, and costs the others {min(cost):.3f} to {max(cost):.3f}."
    )


def picture(folder: Path) -> None:
    """New devices enrolled and trained, and the others before and after, a group of bars for each encoder."""
    records, most = found(), str(FRAMES[-1])
    kinds = ("new, enrolled", "new, trained with all", "others, after", "others, before")
    with canvas(folder / PICTURE, PAGE_INCHES, 2.4) as figure:
        axes = figure.subplots()
        for i, (kind, colour) in enumerate(zip(kinds, COLOURS, strict=False)):
            values = []
            for record in records.values():
                met = record["target"]
                own = met["rows"][CHOSEN][most]
                values.append((own["new"], met["anew"]["new"], own["kept"], met["before"])[i])
            axes.bar(np.arange(len(values)) + 0.2 * (i - 1.5), values, 0.2, color=colour, label=kind)
        titles = [f"{TITLES[waveform]}\n{encoder_title(encoder)}" for waveform, encoder in records]
        axes.set_xticks(range(len(titles)), titles, fontsize=6)
        score_axis(axes, upright=True)
        axes.set_ylabel("Macro-F1 in E1")
        figure.legend(loc="outside upper center", ncols=len(kinds))
