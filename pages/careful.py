"""The section of the results pages on the careful calibration, from the record of `studies.calibrations`."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from textwrap import fill
from typing import Any

import numpy as np
from benchmarks.report import read

from pages.against_paper import markdown_table as table
from pisa_capc.decide.calibration import Careful
from pisa_capc.evidence.figures.style import PAGE_INCHES, canvas
from pisa_capc.model.encoders import encoder_title

RECORD = "studies/calibrations.json"
SWITCHED = "studies/careful-switch.json"
STREAMED, IN_A_ROW = "studies/careful-streams.json", "one after the other"
PICTURE, CURVE = "careful-deployments.png", "careful-switch.png"
WAVEFORMS = {"wifi": "Wi-Fi", "lora": "LoRa"}
TITLES = {"ucapc": "U-CAPC", "without-prior": "no prior"}
BALANCED = ("balanced", "captures-32", "captures-128", "captures-512")
LARGEST = 0.1  # change that has the deepest colour
WORST, WORST_OF_ONE, BEHIND = -0.005, -0.01, 0.01  # the targets
SMALL = """\
Where the worst cell is `small-skewed`, 32 frames of ten devices drawn unevenly, some such captures look even by chance,
and no signal that was tried separates them from captures that are even."""
MISSED_ONE = """\
With one source environment Wi-Fi misses its target, the distance to the best calibration of every cell: far from the
source the LDA head alone, or BD-CSPN, does better than panels in which the classifier votes. A rule that gives LDA
more votes where it disagrees with the classifier gained there on the source, and lost more than allowed on LoRa, so it
was rejected. (These trials are not in the record.)"""
LITTLE = 0.005  # change of the worst cell by one model that is said
HEAD = 0.005  # change of another head that counts


def of_kind(sources: int, strangers: bool = False) -> list[dict[str, Any]]:
    """The tables of models of so many source environments, one for each waveform."""
    return [t for t in read(RECORD)["tables"] if (t["sources"], t["strangers"]) == (sources, strangers)]


def gains(found: dict[str, Any], method: str) -> list[float]:
    """Mean change of Macro-F1 in every cell."""
    return [scores[method]["gain"] for scores in found["cells"].values()]


def compared(found: dict[str, Any], some: bool = False) -> list[str]:
    """The calibrations that all models of a table have, or `some`; careful is the last."""
    first = next(iter(found["cells"].values()))
    peers = [name for name in first if name not in ("direct", "careful") and (some or "models" not in first[name])]
    return [*peers, "careful"]


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
    tables = of_kind(2)
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


def curve(folder: Path) -> None:
    """What careful gains and loses on source environments as its switch moves; never is drawn at one."""
    tables = read(SWITCHED)["tables"]
    with canvas(folder / CURVE, PAGE_INCHES, 2.2) as figure:
        panels = figure.subplots(1, len(tables), squeeze=False)[0]
        for axes, found in zip(panels, tables, strict=True):
            names = [name for name in compared(found) if name not in ("careful", "ucapc")]
            at = [1.0 if name == "never" else float(name.removeprefix("from ")) for name in names]
            for label, values in (
                ("mean over the cells", [fmean(gains(found, name)) for name in names]),
                ("worst encoder and cell", [worst_of(found, name) for name in names]),
            ):
                axes.plot(at, values, marker=".", linewidth=0.8, label=label)
            axes.axvline(Careful.even, color="grey", linewidth=0.6)
            axes.axhline(WORST, color="grey", linewidth=0.6, linestyle=":")
            axes.set_xlabel("evenness from which a balance is believed")
            axes.set_title(f"{WAVEFORMS[found['waveform']]}, {found['models']} models of E2 in E3")
        panels[0].set_ylabel("change of Macro-F1")
        panels[0].legend(fontsize=6, loc="lower right")


def worst_of(found: dict[str, Any], method: str) -> float:
    """The least mean change of an encoder in a cell."""
    return min(float(scores[method]["worst"][0]) for scores in found["cells"].values())


def section() -> str:
    """Every calibration on the scenes whose devices share a channel, and careful with one source environment."""
    record = read(RECORD)
    two, one, strangers = of_kind(2), of_kind(1), of_kind(2, strangers=True)
    return f"""## Careful: what suits a capture

Models of PISA on the scenes where [devices share a channel](place.md), trained in E2 and E3 and met in E1.
[Careful](../calibration.md#careful) has its numbers from source environments: from
models of one source environment tested in the other, and from models of both tested on held-out frames. **It was not
made blind.** E1 was looked at more than once in between: an earlier version, with one signal and other panels, was
known to lose there in captures of few devices or frames, and the vote of the LDA head for few frames was added after
the first look, based on the source. [Its switch](#how-soon-a-balance-is-believed) shows what the source alone
supports. Cells are as above with fewer frames, because 128 per device are kept: 256 where shares are skewed. New cells
are `bursts` (a correlated stream: 128 frames of six bursts), `stays` (devices come and go), `joined` (two captures
taken for one, or one that drifts from the first to the second; the order of frames is not used), `small-skewed` (32
frames, Dirichlet 1) and `mixed` (half of the frames are from the source). Where identifiers are `withheld`, groups are
found without carrier offsets. Frames of unknown radios are below; all radios of these sets are enrolled. Nine runs of
an encoder are three splits of the source with three seeds each; careful was settled when only the first split had been
trained. The guard of `safe` comes from rehearsals with models of one environment, which the first split has; `joint`
and `gated`, which take as long as all others together, were scored for its first seed. These rows have fewer models,
as shown.

![Change of Macro-F1 by calibration and deployment](../{PICTURE})

Mean over the cells of the change in Macro-F1 from direct inference; the lowest mean of an encoder in a cell; the share
of captures that lost more than {record["lost"]:g}:

{_table(two)}

{chr(10).join(_said(found) for found in two)}

### How soon a balance is believed

Two targets conflict: the sooner careful assumes that devices send equally often, the more it keeps of the published
gain, and the more it loses in captures that only look balanced. The curve shows source environments as the evenness
threshold moves (at one: never balanced; vertical line: the chosen value; dotted: the target for the worst cell; one
seed, so the worst is a single model's):

![Mean gain and worst encoder and cell as the switch moves](../{CURVE})

Command: `python -m studies.calibrations --switch --only E2-2026.2026 --work work/switch --out results/{SWITCHED}`.

### One source environment

The same models trained in E2 alone, or in E3 alone, and tested in E1. There is no second environment to rehearse on, so
`safe` does nothing. Careful needs none.

{_table(one)}

{chr(10).join(_said(found) for found in one)}

{SMALL}

{MISSED_ONE}

### On streams

The same models of E2 and E3, one seed, deciding [frame by frame](../streams.md) with groups found automatically: the
devices of a capture in turn, one after the other, or in turn with shares from a Dirichlet distribution (0.3), captures
of E1 one after the other; and a stream that begins in E2, which the models know. Mean change in Macro-F1, for careful
also the worst model and its alarms per 10,000 frames:

{_streams()}

{_said_of_streams()}

Command: `python -m studies.careful_streams`.

### Unknown radios in a capture

Models of 15 or 20 of 40 radios (equalised PISA, Transformer, E2 and E3), captures of 512 frames in E1 with 0, 10 or
30 % more frames of radios that are not enrolled. These are calibrated with the others and not scored;
[rejection](../openset.md) is not used. Change in Macro-F1:

{_strangers(strangers)}

{_said_of_strangers(strangers)}

### Another head

{_heads(record["heads"])}

Command: `python -m studies.calibrations --target E1 --out results/{RECORD}`, on embeddings that
`python -m studies.embeddings --splits 2026,2027,2028` keeps of the models, and with `--source E2 --source E3` of those
of one environment.
"""


def _table(tables: list[dict[str, Any]]) -> str:
    names = [name for name in compared(tables[0], some=True) if all(name in compared(t, some=True) for t in tables)]
    headings = ["calibration"]
    rows = [[_row_title(name, tables)] for name in names]
    for found in tables:
        headings += [f"{WAVEFORMS[found['waveform']]}: mean", "worst", "lost"]
        leader = aims(found)["leader"]
        for row, name in zip(rows, names, strict=True):
            mean = f"{fmean(gains(found, name)):+.3f}"
            lost = fmean(scores[name]["lost"] for scores in found["cells"].values())
            row += [f"**{mean}**" if name == leader else mean, f"{worst_of(found, name):+.3f}", f"{100 * lost:.0f} %"]
    return table(headings, rows)


def _row_title(name: str, tables: list[dict[str, Any]]) -> str:
    """With the number of models that it was scored for, where that is not all."""
    first = [next(iter(found["cells"].values()))[name] for found in tables]
    some = " and ".join(str(own["models"]) for own in first if "models" in own)
    return TITLES.get(name, name) + (f" ({some} models)" if some else "")


def _streamed() -> dict[str, dict[str, list[dict[str, Any]]]]:
    """By waveform and kind of stream what each model scored."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {name: {} for name in WAVEFORMS}
    for model, streams in read(STREAMED)["models"].items():
        for kind, own in streams.items():
            found[model.split("-")[0]].setdefault(kind, []).append(own)
    return found


def _streams() -> str:
    names = ("U-CAPC", "no prior", "careful")
    rows = [
        [
            f"{WAVEFORMS[waveform]}, {kind}",
            *(f"{fmean(one[name] for one in own):+.3f}" for name in names),
            f"{min(one['careful'] for one in own):+.3f}",
            f"{10_000 * sum(one['alarms'] for one in own) / sum(one['frames'] for one in own):.1f}",
        ]
        for waveform, kinds in _streamed().items()
        for kind, own in kinds.items()
    ]
    return table(["stream", *names, "worst model", "alarms"], rows)


def _said_of_streams() -> str:
    every = [one for kinds in _streamed().values() for own in kinds.values() for one in own]
    worst, published = (min(one[name] for one in every) for name in ("careful", "U-CAPC"))
    wifi = {name: fmean(one[name] for one in _streamed()["wifi"][IN_A_ROW]) for name in ("careful", "no prior")}
    text = (
        f"At worst a model lost {-min(worst, 0.0):.3f} by careful and {-min(published, 0.0):.3f} by U-CAPC online. "
        "Prototypes and class potentials only approximate a decision, so streams gain less than whole captures. Where "
        "devices send one after the other, what was learnt from one is wrong for the next: careful changes Wi-Fi by "
        f"{wifi['careful']:+.3f}, no prior by {wifi['no prior']:+.3f}. Only there does its alarm go off. "
        "`--set calibration.prior=none` suits such streams."
    )
    return fill(text, 118)


def _strangers(tables: list[dict[str, Any]]) -> str:
    names = ("without-prior", "lda", "stata", "bd-cspn", "ucapc", "careful")
    rows = [
        [f"{WAVEFORMS[found['waveform']]}, {cell}", *(f"{scores[name]['gain']:+.3f}" for name in names)]
        for found in tables
        for cell, scores in found["cells"].items()
    ]
    return table([f"{tables[0]['models']} models each", *(TITLES.get(name, name) for name in names)], rows)


def _said_of_strangers(tables: list[dict[str, Any]]) -> str:
    def of(cell: str, name: str) -> str:
        return " and ".join(f"{found['cells'][cell][name]['gain']:+.3f}" for found in tables)

    text = (
        f"A balance counts unknown devices among the enrolled: with 30 % of them U-CAPC changes Macro-F1 by "
        f"{of('unknown-0.3', 'ucapc')}, careful by {of('unknown-0.3', 'careful')} ({_waveforms(tables)})."
    )
    return fill(text, 118)


def _waveforms(tables: list[dict[str, Any]]) -> str:
    return ", ".join(WAVEFORMS[found["waveform"]] for found in tables)


def _said(found: dict[str, Any]) -> str:
    """The targets, and whether they are met."""
    of, aim = aims(found), WORST if found["sources"] == 2 else WORST_OF_ONE
    peer, best = max((v, k) for k, v in of["means"].items() if k != "careful")[::-1]
    worst, encoder, cell = of["worst"]
    models = f"{found['models']} models: {len(found['encoders'])} encoders, {len(found['runs'])} runs"
    kept = (
        "" if of["kept"] is None else f"{100 * of['kept']:.0f} % of the published gain in balanced cells (aim 90 %), "
    )
    said = (
        f"- **{WAVEFORMS[found['waveform']]}** ({models}): in the mean over the cells careful "
        f"{of['means']['careful']:+.3f}, the best of the others, {TITLES.get(peer, peer)}, {best:+.3f}; {kept}"
        f"{of['behind']:.3f} behind the best calibration of every cell (aim {BEHIND:g}: "
        f"{_verdict(of['behind'] <= BEHIND)}), worst encoder and cell "
        f"{worst:+.3f} ({encoder_title(encoder)}, {cell}; aim {aim:g}: {_verdict(worst >= aim)}). "
        f"{100 * of['lost']['careful']:.0f} % of captures lost more than 0.02, of U-CAPC's "
        f"{100 * of['lost']['ucapc']:.0f} %.{_weakest(found['weakest'], worst)}"
    )
    return fill(said, 118, subsequent_indent="  ")


def _weakest(found: dict[str, Any], worst: float) -> str:
    """A model that has hardly learnt its source, where it alone makes the worst cell what it is."""
    without, encoder = found["worst_without"]["careful"]
    if round(without - worst, 3) < LITTLE:
        return ""
    return (
        f" Without the weakest model ({found['model']}, {found['direct']:.3f} by direct inference) the worst is "
        f"{without:+.3f} ({encoder_title(encoder)})."
    )


def _verdict(met: bool) -> str:
    return "met" if met else "**missed**"


def _heads(found: list[dict[str, Any]]) -> str:
    """Whether full training leaves a gain to another head."""
    said = []
    for of in found:
        where = f"{WAVEFORMS[of['waveform']]}, {of['sources']} source environment{'s' * (of['sources'] > 1)}"
        chosen = f", and {of['chosen']:+.3f} in E1 for these" if "chosen" in of else ""
        between = f", in the other source environment {of['between']:+.3f}" if "between" in of else ""
        said.append(
            f"{of['target']:+.3f} ({where}; on source validation {of['validation']:+.3f}, better there for "
            f"{of['better']} of {of['models']} models{chosen}{between})"
        )
    least = {name: min(of["target"] for of in found if of["waveform"] == name) for name in WAVEFORMS}
    gaining = [title for name, title in WAVEFORMS.items() if least[name] > HEAD]
    left = f"a gain on {' and '.join(gaining)}" if gaining else "no gain"
    text = (
        "Replacing the trained head by the nearest class mean in the source's LDA space, without calibration, "
        f"changes Macro-F1 in E1 by {'; '.join(said)}. After full training it has {left} (changes from {HEAD:g} count)."
    )
    return fill(text, 118)
