"""docs/results/ and the parts of other pages that are made from the records in results/: `make results-page`."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from benchmarks.report import RECORDS, begin, read

from pages import (
    blocks,
    careful,
    closed_form,
    controls,
    edge,
    enrolment,
    growth,
    poison,
    proxies,
    radios,
    real,
    receivers,
    rechecks,
    room,
    shared_channel,
    speeds,
    strangers,
    study,
    threats,
)
from pages.against_paper import limits, section
from pages.against_paper import markdown_table as table
from pages.sides import PLACES, SHARED, published, recorded
from pisa_capc.data.protocol import DIRECT, PAPER
from pisa_capc.data.scores import Scores
from pisa_capc.evidence.benchmark.protocols import read_protocol
from pisa_capc.evidence.benchmark.results import Key
from pisa_capc.evidence.figures.confusion import plot_confusions
from pisa_capc.evidence.figures.protocol import deployment_changes, method_scores, three_stage_bars
from pisa_capc.model.encoders import encoder_title

FOLDER = Path("docs/results")  # pictures go into the folder above, where README finds them
MADE = "Made from the records in `results/` by `make results-page`; do not edit."
EQUALISED = ("eada", "equalised", "pisa-equalised")
BALANCED = {"paper": "U-CAPC", "bd-cspn": "BD-CSPN", "pt-map": "PT-MAP"}
CALIBRATIONS = {**BALANCED, "safe": "U-CAPC under the guard"}


def summary() -> str:
    """A table, a picture, and one claim a line; a test holds the words to the records."""
    components, methods = _means("component-ablation"), _means("external-baselines")
    after = _means("external-baselines", "paper")
    lora = {name: f1 for (place, name), f1 in components.items() if place == "lora-sim"}
    consistency = lora["pisa"] - lora["no-topology-consistency"]

    def parts(variant: str, sets: Mapping[str, str] = PLACES) -> str:
        return ", ".join(f"{title} {components[place, variant]:.3f}" for place, title in sets.items())

    shared = partial(parts, sets=SHARED)
    ordered, broken = _in_order()
    single = max(
        statistics.mean(found.f1(key, DIRECT).values())
        for found in map(recorded, PLACES)
        for key in found.runs
        if key.method == "single"
    )

    def each(scores: Mapping[tuple[str, str], float], method: str) -> str:
        return ", ".join(f"{title} {scores[place, method]:.3f}" for place, title in PLACES.items())

    rest = max(f1 for (_, name), f1 in methods.items() if name not in ("pisa", *EQUALISED))
    studies = study.studied()
    aims = [study.aims(models) for models in studies.values()]
    beyond = {
        name: -min(found["worst - direct, not rehearsed"][name][0] for found in aims) for name in ("safe", "paper")
    }
    peers = "; ".join(
        f"{title}: "
        + ", ".join(f"{name} {models.mean(models.deployments[0], key):.3f}" for key, name in BALANCED.items())
        for models, title in zip(studies.values(), PLACES.values(), strict=True)
    )
    over = [found["mean over cells"] for found in aims]
    first = [max(means, key=means.__getitem__) for means in over]
    leaders = ", ".join(
        f"{CALIBRATIONS.get(name, name)} on {title} ({means[name]:.3f})"
        for name, means, title in zip(first, over, PLACES.values(), strict=True)
    )
    guarded = " and ".join(f"{means['safe']:.3f}" for means in over)
    return f"""{blocks.results()}

![Wi-Fi, channel of the place: Macro-F1 by encoder and stage, nine runs each](../wifi-place-stages.png)

*Wi-Fi scene whose devices share the channel of their place, trained in E2 and E3, scored in E1: mean and standard
deviation of nine runs. `pisa bench run wifi-place`; records in `results/records/wifi-place/`.*

## Findings

Models are trained in E2 and E3 and scored in E1 unless a line names another direction. Scores are Macro-F1. A link has
the name of the record in `results/` that a sentence is made from, and leads to the page that shows it.

**Closed form**

- Measured flaws identify ten devices nearly as well as a receiver that knows the hardware
  ({_closed("wifi")}; [`studies/closed-form.json`, `studies/limit-wifi.json`](closed-form.md)).
{real.finding()}
**The paper's claims**

- Single < PISA < PISA-CAPC holds for all seven encoders on both waveforms, with channels of each device and with shared
  channels. One of the 56 steps is undecided: PISA over Single, Transformer on `lora-place`
  ([`records/*-sim`](tables.md), [`records/*-place`](place.md)).
- The order does not hold in every direction: it does in {sum(ordered.values())} of {len(ordered)} rows;
  {broken} ([`records/complementary-place`](place.md#complementary-directions-channel-of-the-place)).
- Single falls further than in the paper: at most {single:.3f} where each device has a channel of its own
  ([`records/*-sim`](tables.md)).
- The topology pathway is what transfers. The contextual pathway alone is at chance: {parts("contextual-only")}
  ([`records/component-ablation`](tables.md#component-ablation)). On LoRa it hardly learns its source, and in some runs
  [not at all](tables.md#runs-that-did-not-learn).
- The array's geometry has no decided effect: without the topology prior, or without token refinement, the interval of
  the change holds zero on all four sets ([`records/component-ablation`](tables.md#component-ablation)).
{controls.finding()}
- The topology consistency is worth {consistency:.3f} on LoRa with channels of each device, and is undecided on the
  other three sets ([`records/component-ablation`](tables.md#component-ablation)).
- The CFO dynamics cost more than they bring where each device has a channel of its own: {parts("pisa")} with them,
  {parts("no-cfo-dynamics")} without. With shared channels the change is undecided: {shared("pisa")} with,
  {shared("no-cfo-dynamics")} without; on LoRa some runs of either never learn
  ([`records/component-ablation`](tables.md#component-ablation)). In the paper every part helps.
- So does the contextual pathway on LoRa with channels of each device: {lora["pisa"]:.3f} with it,
  {lora["topology-only"]:.3f} without ([`records/component-ablation`](tables.md#component-ablation)).

{rechecks.finding()}

**Other methods**

- Where each device has a channel of its own, every method without an equaliser, PISA aside, is near chance (at most
  {rest:.3f}), so their ranking is meaningless ([`records/external-baselines`](tables.md#external-baselines)).
- EADA's gain is its equaliser: Single with the same equaliser, without the critic, scores
  {each(methods, "equalised")}; EADA scores {each(methods, "eada")}, PISA {each(methods, "pisa")}
  ([`records/external-baselines`](tables.md#external-baselines)).
- PISA on equalised frames has the highest mean of all networks: {each(methods, "pisa-equalised")}, and after U-CAPC
  {each(after, "pisa-equalised")} ([`records/external-baselines`](tables.md#external-baselines)).
{shared_channel.finding()}

**Calibration**

- U-CAPC has stronger peers where captures are balanced ({peers}; mean over all PISA models;
  [`records/calibration-study`](calibration.md)).
- Over all kinds of deployment the best mean is that of {leaders}; under the guard it is {guarded}
  ([`records/calibration-study`](calibration.md#where-calibration-helps-and-where-it-harms)).
- Careful gains as much as U-CAPC under a guard, which costs further trainings
  ([`studies/guard-trained.json`](calibration.md#careful-or-the-guard)).
- In captures of one or two devices the guard costs an encoder at most {beyond["safe"]:.3f}; U-CAPC as published costs
  {beyond["paper"]:.3f} ([`records/calibration-study`](calibration.md)).
- An attacker's far point in a tenth of a capture changes U-CAPC as published by {poison.far("ucapc"):+.3f} and careful,
  which finds such captures, by {poison.far("careful"):+.3f}
  ([`studies/poison.json`](calibration.md#poisoned-captures)).

## What limits these findings

- **Why most networks fail with channels of each device.** A device then stands in its own place, in training and in
  validation frames alike (this is the published split), so the channel itself names it. Source validation says little
  about the target, selection by it rewards the shortcut, and nothing in two environments separates the radio from the
  room ([room effects](room.md)). The comparison methods see the antennas stacked, as Single does; PISA encodes them one
  by one and attends across them. With shared channels and a Transformer the first alone explains PISA's gain; with a
  CNN it does not ([`records/controls-place`](place.md#one-encoder-for-all-antennas)).
- **Not chosen blind.** E1 had been looked at before PISA on equalised frames was made, and more than once
  [while careful was](calibration.md#careful-what-suits-a-capture), so their scores in E1 are not those of an untouched
  target. Source validation, which sees no target, also ranks PISA on equalised frames above PISA: {_by_source()}.
  Methods and calibrations are now chosen on the source alone.
- **Kind scenes.** The equaliser meets no interference, frames begin where they should, and the LoRa channel is almost
  flat over its bandwidth.
- **EADA** is our reading of its name; in the paper it is far behind PISA. In the paper U-CAPC also throws the CLDNN on
  LoRa below Single.
"""


def _closed(scene: str) -> str:
    found = read("studies/closed-form.json")["scenes"][scene]["macro_f1"]["E2,E3→E1"]
    limit = read(f"studies/limit-{scene}.json")["macro_f1"]
    return f"{PLACES[scene + '-sim']} {statistics.mean(found):.3f}, limit {limit:.3f}"


def _in_order() -> tuple[dict[Key, bool], str]:
    """Whether Single < PISA < PISA-CAPC in each row of the other directions; and in words where it is not so."""
    found = recorded("complementary-place")
    ordered: dict[Key, bool] = {}
    broken = []
    for key in (key for key in found.runs if key.method == "pisa"):
        direct, after = found.f1(key, DIRECT), found.f1(key, PAPER)
        single = statistics.mean(found.f1(key._replace(method="single"), DIRECT).values())
        means = [single, statistics.mean(direct.values()), statistics.mean(after.values())]
        ordered[key] = means == sorted(means)
        if not ordered[key]:
            ahead = sum(after[run] > direct[run] for run in direct)
            broken.append(
                f"on {SHARED[key.dataset]}, {key.direction}, {encoder_title(key.encoder)}, U-CAPC takes PISA from "
                f"{means[1]:.4f} to {means[2]:.4f}\n  and gains in {ahead} of {len(direct)} runs"
            )
    return ordered, "; ".join(broken)


def _by_source() -> str:
    """Source validation of PISA on equalised frames beside that of PISA, in both comparisons."""
    pairs = []
    for protocol, sets in (("external-baselines", PLACES), ("baselines-place", SHARED)):
        found = recorded(protocol)
        for place, title in sets.items():
            own = {
                key.method: statistics.mean(found.source_f1(key).values()) for key in found.runs if key.dataset == place
            }
            pairs.append(f"{title} {own['pisa-equalised']:.3f} against {own['pisa']:.3f}")
    return (
        f"{', '.join(pairs[:2])} (`records/external-baselines`),\n  {', '.join(pairs[2:])} (`records/baselines-place`)"
    )


def _means(protocol: str, stage: str = "direct") -> dict[tuple[str, str], float]:
    """Mean Macro-F1 of a stage by dataset and method, or variant where the method is the same."""
    found: dict[tuple[str, str], list[float]] = {}
    for key, runs in recorded(protocol).runs.items():
        name = key.variant if key.variant != "full" else key.method
        found[key.dataset, name] = [record.stages[stage]["macro_f1"] for record in runs.values()]
    return {key: statistics.mean(values) for key, values in found.items()}


def pictures(folder: Path) -> None:
    """What the pages and README show beside their tables."""
    demo = {name: Scores.from_json(values) for name, values in read("studies/demo.json")["stages"].items()}
    plot_confusions(folder / "demo-confusion.png", demo)
    for name in PLACES:
        protocol = read_protocol(name)
        results = recorded(name)
        three_stage_bars(protocol, results, results.places()[0], folder / f"{name}-stages.png")
    shared_channel.pictures(folder)
    room.pictures(folder)
    protocol = read_protocol("external-baselines")
    results = recorded(protocol.name)
    for place in results.places():
        method_scores(protocol, results, place, protocol.encoders[0], folder / f"{place[0]}-methods.png")
    for name, models in study.studied().items():
        deployment_changes(models, folder / f"{name}-deployments.png")
    careful.picture(folder)
    careful.curve(folder)
    strangers.picture(folder)
    proxies.picture(folder)
    enrolment.picture(folder)
    growth.picture(folder)
    closed_form.picture(folder)
    threats.picture(folder)
    real.picture(folder)
    radios.picture(folder)


def pages() -> dict[str, list[str]]:
    """The parts of every page, by its name; the title first. A page without measurements is left out."""
    found = {
        "findings": ["# Findings\n", summary(), limits()],
        "tables": [
            "# The paper's tables\n",
            *(section(name, RECORDS) for name in published()),
            rechecks.unlearnt(),
            rechecks.repeats(),
            rechecks.precision(),
        ],
        "closed-form": ["# Closed form\n", closed_form.section()],
        "real": ["# Real cards\n", real.section(), radios.section()],
        "place": ["# Shared channels\n", shared_channel.section()],
        "room": ["# Room effects\n", room.section()],
        "calibration": ["# Calibration results\n", study.section(), careful.section(), poison.guard(), poison.poison()],
        "strangers": ["# Unknown devices in a new place\n", strangers.section(), proxies.section()],
        "enrolment": ["# Adding devices, by encoder\n", enrolment.section()],
        "growth": ["# Number of devices\n", growth.section()],
        "speed": [
            "# Speed\n",
            speeds.grids(),
            speeds.waiting(),
            speeds.train(),
            speeds.measure(),
            speeds.calibrate(),
            speeds.simulate(),
            *filter(None, (receivers.detect(), receivers.listen(), edge.section(), speeds.starts(), speeds.machines())),
        ],
        "erratum": ["# Erratum\n", rechecks.erratum()],
    }
    return {name: [title, *parts] for name, (title, *parts) in found.items() if any(parts)}


CONTENTS = {  # of the findings: the other pages, and what each answers
    "tables": "every table of the paper beside our runs: what agrees and what does not",
    "closed-form": "how well measured flaws identify devices and reject unknown ones, and what breaks them",
    "real": "channel state of real Wi-Fi cards: who is identified in places, and sessions, never seen",
    "place": "the same comparison where devices share the channel of their place, beside the limit",
    "room": "when source validation misleads, and when structure anchoring pays",
    "calibration": "where U-CAPC and its peers help, and where they harm",
    "strangers": "how well unknown devices are rejected, per frame and per sender",
    "enrolment": "how well a device is identified that was added without retraining",
    "growth": "time, memory and scores from 10 to 1,000 devices, and what breaks first",
    "speed": "training, calibration, simulation, detection and listening",
    "erratum": "what earlier versions of these pages had wrong",
}


def texts() -> dict[str, str]:
    """Every page by the name of its file."""
    found = pages()
    there = [name for name in CONTENTS if name in found]
    rows = [[f"[{found[name][0].removeprefix('# ').strip()}]({name}.md)", CONTENTS[name]] for name in there]
    tree = "\n".join(["```{toctree}", ":hidden:", "", *there, "```"])
    found["findings"].append(f"## All results\n\n{table(['page', 'what it answers'], rows)}\n\n{tree}\n")
    return {f"{name}.md": "\n".join([title, f"{MADE}\n", *parts]) for name, (title, *parts) in found.items()}


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in texts().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    blocks.write()
    pictures(FOLDER.parent)
    print(FOLDER)


if __name__ == "__main__":
    begin(main)
