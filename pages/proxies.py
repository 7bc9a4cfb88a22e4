"""The part of the page on unknown devices about proxies, from the record of `studies.proxies`."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from pages.against_paper import markdown_table as table
from pages.strangers import KINDS, TICKS, TITLES, percent
from pisa_capc.evidence.figures.style import COLOURS, PAGE_INCHES, canvas

RECORD = Path("results/studies/strangers-proxies.json")
PICTURE = "strangers-proxies.png"
AT = "false accepts at 0.05"
PROXIES = {
    "never trained on": "not trained on",
    "taken out": "trained on, then taken out",
    "kept": "trained on, their sessions stay",
}
WAYS = {
    "as it is": "`session`, with the axes and covariances of all",
    "refused by proxies": "the same, refused where a proxy is nearer",
    "less a quarter of the nearest proxy": "the same, less ¼ of the distance to the nearest proxy",
    "none of them probable": "1 − the probability of the likeliest device that is enrolled, proxies being classes",
    "by own moves": "each device by how far its own sessions move",
    "z-norm": "z-norm",
    "t-norm": "t-norm",
    "s-norm": "s-norm",
    "less impostors": "less β times how far the cohort is from the session",
    "less cohort": "less β times how far the cohort is from the frame",
}


@cache
def record() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def plans() -> list[dict[str, dict[str, Any]]]:
    """Results in E1: for each number of proxies the waveforms by name."""
    found = [record()["waveforms"][name]["target"] for name in TITLES]
    return [dict(zip(TITLES, each, strict=True)) for each in zip(*found, strict=True)]


def section() -> str:
    """Whether devices that are trained on but not enrolled help to reject unknown ones, and how a score can use
    them."""
    first = plans()[0]["wifi"]
    enrolled, proxies = first["enrolled"], first["proxies"]
    weight, way = chosen()
    return f"""## Training on devices that are not enrolled

Does it help to train on devices that will not be enrolled, as *proxies* of unknown devices? {enrolled} devices are
enrolled in E2 and E3; in E1 they are mixed with {40 - enrolled - proxies} devices that no model was trained on. Models
of the {enrolled} are compared with models of {enrolled + proxies}, whose last {proxies} are proxies. Proxies are
removed again, as by `pisa enrol --remove`, or their sessions are kept: then axes and covariances of the score come
from all devices, but no frame is matched to a proxy. {len(first["models"]) // 2} seeds of each, {record()["frames"]}
frames per device and capture. Everything else is as above, where 20 are enrolled, which is harder.

{chr(10).join(_met(plan) for plan in plans())}
![Unknown frames accepted over known frames rejected, with proxies and without](../{PICTURE})

**It helps.** `session` accepts at 5 % rejected, in the order of the tables,
{_change("session", "false accepts at 0.05")} of the unknown frames; `crowd`
{_change("crowd", "false accepts at 0.05")}. With proxies a single frame reaches the targets for
{enrolled} devices, an AUROC of 0.95 and 20 %. The enrolled devices lose nothing: {_change("session", "accuracy")} of
their frames are correctly identified. More devices also mean more frames and training steps; the two effects were not
separated. So train on every device you have, and remove those that should not be enrolled with `pisa enrol --remove`.
Keeping their sessions gained on both waveforms on the source; in E1 it gains on Wi-Fi, and on LoRa next to nothing
with `session` and less than nothing with `crowd`. Models do not keep them. Proxies that a model was not trained on,
with sessions only, had almost no effect on the source: AUROC of one frame {_heard()}.

### Using proxies in a score

Chosen on the source alone: of the {enrolled} devices of a model five are the proxies, each five in turn; the next
five, which it never saw, are the unknown devices; E2 and E3 in turn are left out of the statistics. A *cohort* is a
set of sessions that a distance is compared with: of the proxies, of the enrolled, or of all. z-norm subtracts from the
logarithm of a distance the mean over the cohort's distances to the same session and divides by their spread; t-norm
uses the distances of the same frame to the cohort; s-norm is the mean of both, as in speaker verification. AUROC of
{" / ".join(KINDS.values())}; accepted at 5 % rejected, of one frame:

{_ways(weight)}

Comparing proxies with the enrolled devices does not help, nor does dividing by the spread of a cohort. Its mean alone
does. Best is *{WAYS[way]}*, β = {weight} of {_weights(way)}, and a cohort of the enrolled is as good as one of
proxies. In E1, where it was tried once, it harms on Wi-Fi:

{_cohort()}

So it is left out, as the rule above was: what is chosen by five unknown devices need not hold for the next. Likelihood
ratios against a background, several nearest of a cohort, and other powers of the distance were tried on the same
frames of the source and were no better; nor was a mean that grows with the number of frames, whose threshold no longer
serves ten frames. These trials are not in the record. E1 was used once, afterwards; since then only the way in which
proxies are removed was changed, to match the program.

Commands: those above, then `python -m studies.proxies`.

{_exposure()}
"""


def chosen() -> tuple[str, str]:
    """β and the way that the source chose."""
    weight, way = record()["chosen"].removesuffix(", all").split(" ", 1)
    return weight, way


def _met(plan: dict[str, dict[str, Any]]) -> str:
    """A table for each waveform."""
    return "\n".join(_waveform(title, plan[name]) for name, title in TITLES.items())


def _waveform(title: str, found: dict[str, Any]) -> str:
    rows = []
    for name, words in PROXIES.items():
        for score in ("session", "crowd"):
            own = found["scores"][name][score]
            for kind, of in ((kind, of) for kind, of in KINDS.items() if kind in own):
                cells = [f"{own[kind][metric]:.3f}" for metric in ("auroc", "oscr")]
                cells += [percent(own[kind][f"false accepts at {share}"]) for share in ("0.01", "0.05")]
                cells += [percent(value) for value in own[kind]["thresholds"]["0.05"].values()]
                rows.append([words, score, of, *cells])
    headings = ["proxies", "score", "of", "AUROC", "OSCR", "unknown accepted at 1 % rejected", "at 5 %"]
    shown = table([*headings, "source's threshold: known rejected", "unknown accepted"], rows)
    return f"**{title}**, {found['enrolled']} enrolled, {found['proxies']} proxies:\n\n{shown}\n"


def _change(score: str, metric: str) -> str:
    """Of single frames, the three kinds of models by waveform."""
    found = plans()[0]
    each = (
        f"{title} " + ", ".join(percent(found[name]["scores"][kind][score]["frame"][metric]) for kind in PROXIES)
        for name, title in TITLES.items()
    )
    return "; ".join(each)


def _heard() -> str:
    found = ((title, record()["waveforms"][name]["source"]["heard"]) for name, title in TITLES.items())
    return ", ".join(
        f"{title} {own['without']['frame']['auroc']:.3f} without and {own['with']['frame']['auroc']:.3f} with them"
        for title, own in found
    )


def _ways(weight: str) -> str:
    """Everything that was compared on the source, at one weight."""
    found = [record()["waveforms"][name]["source"] for name in TITLES]

    def cell(of: dict[str, dict[str, float]]) -> str:
        areas = " / ".join(f"{of[kind]['auroc']:.3f}" for kind in KINDS)
        return f"{areas}; {percent(of['frame']['false accepts at 0.05'])}"

    rows = [["`session`, proxies taken out", "", *(cell(own["without"]["as it is, all"]) for own in found)]]
    for name in found[0]["with"]:
        way, _, cohort = name.partition(", ")
        number, _, rest = way.partition(" ")
        weighted = rest in WAYS
        if weighted and number != weight:
            continue
        words = WAYS[rest if weighted else way]
        rows.append([words, cohort if weighted or "norm" in way else "", *(cell(own["with"][name]) for own in found)])
    return table(["score", "cohort", *TITLES.values()], rows)


def _weights(way: str) -> str:
    """Every weight of a way that was compared."""
    names = record()["waveforms"]["wifi"]["source"]["with"]
    return ", ".join(name.split(" ")[0] for name in names if name.endswith(f" {way}, all"))


def exposures() -> list[dict[str, Any]]:
    """The records of trainings with proxies in the loss, by waveform."""
    paths = (RECORD.parent / f"strangers-exposure-{name}.json" for name in TITLES)
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.is_file()]


def _exposure() -> str:
    """Whether proxies should be classes or unknown devices."""
    found = exposures()

    def cell(of: dict[str, dict[str, float]]) -> str:
        return " / ".join(f"{of[kind]['auroc']:.3f}" for kind in KINDS) + f"; {percent(of['frame'][AT])}"

    parts = ("taken out", "kept")
    headings = (f"{TITLES[own['waveform']]}, {PROXIES[part].split(', ')[-1]}" for own in found for part in parts)
    rows = [
        [name, *(cell(own["proxies"][name][part]) for own in found for part in parts)] for name in found[0]["proxies"]
    ]
    shown = table(["proxies are", *headings], rows)
    how = "; ".join(
        f"{TITLES[own['waveform']]} with {own['scale']:g} of the frames, {own['epochs']} epochs, seeds "
        + ", ".join(map(str, own["seeds"]))
        for own in found
    )
    return f"""### Proxies in the loss

Is it better to learn that proxies are none of the enrolled devices? In *uniform* models proxies are not classes: the
loss asks for equal probabilities of all enrolled devices on their frames (outlier exposure, Hendrycks et al., ICLR
2019, at its weight of
{found[0]["weight"]:g}). A small trial on the source: Single on equalised frames, Transformer, ten devices enrolled,
five proxies, five unknown devices ({how}). AUROC of `session`, {" / ".join(KINDS.values())}; accepted at 5 % rejected,
of one frame:

{shown}

So short a training of one seed does not settle the question: as classes, proxies help here on Wi-Fi and harm on LoRa,
unlike in the full models above. *Uniform* lies between classes and no proxies on both waveforms: outlier exposure has
no measurable effect on both. A single class for all proxies beats no proxies on both, and needs no other loss: give
the proxies one name in the training set. The study runs at full size on a GPU.

Commands: `python -m studies.exposure --waveform wifi`, the same for `lora`.
"""


def _cohort() -> str:
    """`session` and `crowd` as they are and in the way that was chosen: on the source and in E1."""

    def row(words: str, found: list[dict[str, float]]) -> list[str]:
        return [words, *(f"{own['auroc']:.3f}, {percent(own['false accepts at 0.05'])}" for own in found)]

    source = [record()["waveforms"][name]["source"]["without"] for name in TITLES]
    rows = [
        row("`session` on the source", [own["as it is, all"]["frame"] for own in source]),
        row("with its cohort on the source", [own[record()["chosen"]]["frame"] for own in source]),
    ]
    for name in ("never trained on", "kept"):
        for score in ("session", "crowd"):
            own = [plans()[0][waveform]["scores"][name] for waveform in TITLES]
            where = f"in E1, proxies {PROXIES[name]}"
            rows.append(row(f"`{score}` {where}", [of[score]["frame"] for of in own]))
            rows.append(row(f"with its cohort {where}", [of[f"{score}, cohort"]["frame"] for of in own]))
    return table(["AUROC of one frame, accepted at 5 % rejected", *TITLES.values()], rows)


def picture(folder: Path) -> None:
    """Unknown accepted over known rejected of single frames, with proxies and without."""
    with canvas(folder / PICTURE, PAGE_INCHES, 2.6) as figure:
        panels = figure.subplots(1, len(TITLES), sharey=True)
        for axes, (name, title) in zip(panels, TITLES.items(), strict=True):
            for i, (kind, words) in enumerate(PROXIES.items()):
                for score, style in (("session", "-"), ("crowd", "--")):
                    curve = plans()[0][name]["scores"][kind][score]["frame"]["curve"]
                    label = f"{score}, {words}"
                    axes.plot(record()["curve"], curve, style, label=label, color=COLOURS[i], linewidth=1.0)
            axes.set(xscale="log", title=f"{title}, one frame", ylim=(0, 1), xlabel="known rejected")
            axes.set_xticks(TICKS, [f"{100 * share:g} %" for share in TICKS])
            axes.grid(alpha=0.2)
        panels[0].set_ylabel("unknown accepted")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(PROXIES))
