"""The section of the results page on scenes whose channel is the place's: from records, limits and a study."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.report import RECORDS, read

from pages import controls
from pages.against_paper import chosen, scenes
from pages.against_paper import markdown_table as table
from pages.against_paper import section as beside_the_paper
from pages.sides import SHARED, recorded
from pisa_capc.data.protocol import DIRECT, PAPER, SAFE
from pisa_capc.evidence.benchmark.protocols import read_protocol
from pisa_capc.evidence.benchmark.render import cell_text
from pisa_capc.evidence.benchmark.results import Difference, Key, Mean, Results, mean, not_recorded, paired_difference
from pisa_capc.evidence.benchmark.tables import BIMODAL, FULL, stage_name
from pisa_capc.evidence.figures.protocol import method_scores, three_stage_bars
from pisa_capc.model.encoders import encoder_title
from pisa_capc.model.methods import method_title

NAMES = {"wifi-place": "wifi", "lora-place": "lora"}  # protocol: scene
COLUMNS = (
    ("single", DIRECT),
    ("pisa", DIRECT),
    ("pisa", PAPER),
    ("pisa", SAFE),
    ("pisa-equalised", DIRECT),
    ("pisa-equalised", PAPER),
)
CARRY_OVER = ("pisa-equalised", "eada", "equalised", "pisa")  # to the new place, on Wi-Fi
METHODS = {"single": "Single", "sigmix": "SigMix", "eada": "EADA", "pisa": "PISA", "pisa-capc": "PISA-CAPC"}


def section() -> str:
    """The paper's three stages where devices share the channel of their place."""
    probe = read("studies/placement-probe.json")["rows"]
    return f"""## The channel of the place

[The tables](tables.md) are of scenes in which every device has a channel of its own, so that in training the room
itself gives the device away (`wifi-own-place`, `lora-own-place`). The paper describes it differently: environment and
capture control the channel, and it fades from frame to frame. The scenes `wifi` and `lora` follow the paper: the rays
belong to the place, each device is placed again with its own phases, and the scattered part moves with people and, in
capture M, the walk.

{scenes()}

The probe had five variants (three runs each, Transformer; Macro-F1 in E1):

{_probe(probe)}

{_table("wifi-place")}

{_table("lora-place")}

{_lora_source()}

[The tables](tables.md) include the component and calibration ablations on these sets (`wifi`, `lora`).

{controls.section(table)}

{_order()}

{beside_the_paper("baselines-place", RECORDS)}

{_schedules()}

{beside_the_paper("complementary-place", RECORDS)}
"""


SCHEDULES = "baselines-schedules"


def in_full() -> dict[tuple[str, str], tuple[Mean | None, Mean | None, Difference]]:
    """Source validation, E1 and its difference from Single, by set and method of the comparison with full searches."""
    results = recorded(SCHEDULES)
    found = {}
    for key in results.runs:
        f1, single = results.f1(key, DIRECT), results.f1(key._replace(method="single"), DIRECT)
        change = paired_difference(f1, single)
        assert change is not None, key
        found[key.dataset, key.method] = results.mean(key, results.source_f1(key)), results.mean(key, f1), change
    return found


def _schedules() -> str:
    """Methods whose first search was short, searched as long as they are trained."""
    found, search = in_full(), read_protocol(SCHEDULES).search
    assert search is not None
    methods = dict.fromkeys(method for _, method in found if method not in ("single", "pisa"))
    rows = [
        [
            *(SHARED[place], method_title(method), cell_text(source), cell_text(f1)),
            "–" if method == "single" else cell_text(change),
        ]
        for place in SHARED
        for method in ("single", *methods, "pisa")
        for source, f1, change in [found[place, method]]
    ]
    gained = [
        f"{method_title(method)} on {SHARED[place]}"
        for (place, method), (_, _, change) in found.items()
        if method in methods and change.low > 0
    ]
    verdict = f"Ahead of Single by a decided difference: {', '.join(gained) or 'none'}"
    return f"""## Searched in full

DANN and GAD, whose short search chose a weight of zero, and RFFCC once more: {search.epochs} epochs for every point
of the search, as many as the runs have, and means of {len(search.seeds)} seeds; DANN's weight rises over the training
as published, and RFFCC's two weights are both searched.

{table(["set", "method", "source validation", "E1", "against Single"], rows)}

{verdict}. Differences are of paired runs, with 95 % confidence intervals.

{chosen(search, RECORDS / f"{SCHEDULES}-search.json")}
Command: `pisa bench select {SCHEDULES}`, `pisa bench run {SCHEDULES}`; records in `results/records/{SCHEDULES}/`."""


class Ranked:
    """The methods of the comparison on one set by direct inference, best first, and what paired runs decide of it.

    same: methods whose every run scores as Single's, because the search gave what they add a weight of zero. They are
    Single once more, and stand in no pair.
    """

    def __init__(self, found: Results, place: tuple[str, str]) -> None:
        own = {key: score.mean for key in found.runs if key[:2] == place and (score := mean(found.f1(key, DIRECT)))}
        [single] = [found.f1(key, DIRECT) for key in own if key.method == "single"]
        self.same = [key for key in own if key.method != "single" and found.f1(key, DIRECT) == single]
        own = {key: score for key, score in own.items() if key not in self.same}
        keys = sorted(own, key=own.__getitem__, reverse=True)
        pairs = [paired_difference(found.f1(a, DIRECT), found.f1(b, DIRECT)) for a, b in combinations(keys, 2)]
        self.dataset = place[0]
        self.scores = {key.method: own[key] for key in keys}
        self.pairs = len(pairs)
        self.decided = sum(pair is not None and pair.low > 0 for pair in pairs)


def ranked() -> list[Ranked]:
    found = recorded("baselines-place")
    return [Ranked(found, place) for place in found.places()]


def finding() -> str:
    """The comparison of methods with shared channels, as a finding."""
    by_dataset = {found.dataset: found for found in ranked()}
    wifi, lora = by_dataset["wifi"], by_dataset["lora"]
    others = max(score for method, score in wifi.scores.items() if method not in CARRY_OVER)
    led = ", ".join(f"{method_title(method)} {wifi.scores[method]:.3f}" for method in CARRY_OVER)
    [control] = [mean(one.control) for title, one in controls.compared().items() if title == "Wi-Fi, Transformer"]
    assert control is not None
    gains = "; ".join(
        f"{method_title(method)} "
        + ", ".join(f"{SHARED[place]} {cell_text(in_full()[place, method][2])}" for place in SHARED)
        for method in ("dann", "gad", "rffcc")
    )
    return f"""- Where devices share the channel of their place the comparison does decide: on Wi-Fi {led}, all others
  at most
  {others:.3f}; intervals decide {wifi.decided} of {wifi.pairs} pairs, on LoRa {lora.decided} of {lora.pairs}
  ([`records/baselines-place`](place.md#which-method-carries-over)). The control, which is none of these methods, has
  {control.mean:.3f} on Wi-Fi.
- DANN, GAD and RFFCC, searched on Wi-Fi with as many epochs as they are trained and three seeds, gain nothing that is
  decided over Single ({gains};
  [`records/baselines-schedules`](place.md#searched-in-full))."""


def _order() -> str:
    """What the comparison of methods decides, pair by pair."""

    def said(found: Ranked) -> str:
        listed = ",\n".join(f"{method_title(method)} {score:.3f}" for method, score in found.scores.items())
        return (
            f"Methods on the set `{found.dataset}` (E1, direct inference), best first:\n{listed}.\n"
            f"The 95 % interval of the paired difference decides {found.decided} of {found.pairs} pairs. "
            f"{_same(found)}"
        )

    return "## Which method carries over\n\n" + "\n\n".join(map(said, ranked()))


def _same(found: Ranked) -> str:
    """Which methods are Single once more."""
    names = " and ".join(method_title(key.method) for key in found.same)
    return (
        f"{names}, whose search chose a weight of zero, equal Single exactly and are not counted; "
        "[searched in full](#searched-in-full) they gain nothing that is decided."
    )


def _table(name: str) -> str:
    """One protocol: three stages by encoder, and the limit."""
    protocol, found = read_protocol(name), recorded(name)
    [place] = found.places()
    rows = []
    for encoder in protocol.encoders:
        columns = [(Key(*place, method, FULL, encoder), stage) for method, stage in COLUMNS]
        cells = [found.mean(key, found.f1(key, stage)) for key, stage in columns]
        rows.append([encoder_title(encoder), *map(cell_text, cells)])
    record = f"studies/limit-{NAMES[name]}.json"
    limit = read(record)
    captures = ", ".join(f"{capture} {own['macro_f1']:.3f}" for capture, own in limit["per_capture"].items())
    limited = ["Limit", f"{limit['macro_f1']:.3f}", *[""] * (len(COLUMNS) - 1)]
    missing = not_recorded(protocol, found, place)
    note = f"\n{BIMODAL}\n" if any("collapsed" in cell for row in rows for cell in row) else ""
    headings = ["Encoder", *(stage_name(method, stage) for method, stage in COLUMNS)]
    return f"""### {protocol.title}

Macro-F1 in E1, trained in E2 and E3, mean ± standard deviation over nine runs:

{table(headings, [*rows, limited])}
{note}
The limit, an informed receiver that knows each device's hardware and estimates the channel (`pisa limit`), is taken on
{limit["frames"]} frames of each recording of E1 ({captures}).
The gap to this limit is information that is in the frames and that no network here uses.

{_said(found, place, protocol.encoders)}
{"Not run yet: " + "; ".join(missing) + "." if missing else ""}

![Macro-F1 by encoder and stage](../{name}-stages.png)

Commands: `pisa bench run {name}`; `pisa limit DATASET --environment E1 --frames {limit["frames"]} --json`, record
`results/{record}`."""


def _lora_source() -> str:
    """Why networks hardly learn their source on LoRa frames as received."""
    trials = read("studies/lora-source.json")["trials"]

    def row(name: str, trial: dict[str, Any]) -> list[str]:
        validation = ", ".join(f"{value:.2f}" for value in trial["validation"])
        return [name, f"{fmean(trial['validation']):.3f} ({validation})", f"{fmean(trial['target']):.3f}"]

    def validation(step: str, **what: Any) -> float:
        usual = {"method": "single", "encoder": "transformer", "samples": 320, "epochs": 30, "precision": "auto"}
        wanted = {**usual, "learning_rate": 1e-3, "step": step, **what}
        [found] = [t for t in trials.values() if all(t[key] == value for key, value in wanted.items())]
        return fmean(found["validation"])

    received, aligned = "as received", "without phase"
    return f"""### Why networks miss the devices on LoRa

Single hardly learns even its *source* on these frames, and PISA with a Transformer only in some runs, although the
limit shows that the devices can be separated. A study removes known effects from every frame, step by step, and
retrains the same network (three runs each; Macro-F1 on the source's held-out frames, mean and each run, and in E1):

{table(["frames and network", "source validation", "E1"], [row(name, trial) for name, trial in trials.items()])}

**The cause is the phase.** A chirp carries its sender's fingerprint as a mirror image and a tone some 35 dB below it,
in a fixed relation to it. The phase of the whole differs from frame to frame and hides this relation. Rotating each
antenna to the phase of the known preamble, and nothing else, takes Single's source validation from
{validation(received):.3f} to {validation(aligned):.3f} (Transformer) and from
{validation(received, encoder="cnn"):.3f} to {validation(aligned, encoder="cnn"):.3f} (CNN). It is not precision
(float32: {validation(received, precision="float32"):.3f}) and not the remaining frequency offset, whose removal adds
nothing ({validation("without phase and offset"):.3f}). For the Transformer it is a matter of time: with 120 epochs it
learns the relation by itself ({validation(received, epochs=120):.3f}). Whole symbols of 1,024 samples help too
({validation(received, samples=1024):.3f}; without phase and offset
{validation("without phase and offset", samples=1024):.3f}).
PISA's other encoders learn it within 30 epochs (table above); Single's do not.

Alignment is available beside the published model: methods `aligned` and `pisa-aligned` (`pisa train --method
pisa-aligned`). An equaliser (`pisa-equalised`) removes the phase together with the channel.

Command: `make study-lora_source ARGS="--device cuda"`; record: `results/studies/lora-source.json`."""


def _said(found: Results, place: tuple[str, str], encoders: tuple[str, ...]) -> str:
    """What Single knows of its source, what PISA gains over it, and what U-CAPC adds, run by run."""

    def keys(method: str) -> list[Key]:
        return [Key(*place, method, FULL, encoder) for encoder in encoders]

    def gains(after: str, stage: str, before: str) -> str:
        pairs = zip(keys(after), keys(before), strict=True)
        found_gains = [paired_difference(found.f1(a, stage), found.f1(b, DIRECT)) for a, b in pairs]
        known = [gain for gain in found_gains if gain is not None]
        sure = sum(gain.low > 0 for gain in known)
        low, high = min(gain.mean for gain in known), max(gain.mean for gain in known)
        return f"{low:.3f} to {high:.3f} (its 95 % interval is above zero for {sure} of {len(known)} encoders)"

    def source(method: str) -> str:
        scores = [own.mean for key in keys(method) if (own := mean(found.source_f1(key)))]
        return f"{min(scores):.2f} to {max(scores):.2f}"

    return (
        f"On held-out source frames Single scores {source('single')} by encoder, PISA {source('pisa')}: the room\n"
        f"no longer gives the device away. In E1 PISA gains over Single\n{gains('pisa', DIRECT, 'single')},\n"
        f"and U-CAPC adds to PISA\n{gains('pisa', PAPER, 'pisa')}."
    )


def _probe(rows: list[dict[str, float | str | None]]) -> str:
    def cell(value: float | str | None) -> str:
        return "–" if value is None else f"{value:.3f}"

    return table(
        ["rays of", *METHODS.values()], [[str(row["rays of"]), *(cell(row[name]) for name in METHODS)] for row in rows]
    )


def pictures(folder: Path) -> None:
    for name in NAMES:
        found = recorded(name)
        three_stage_bars(read_protocol(name), found, found.places()[0], folder / f"{name}-stages.png")
    protocol = read_protocol("baselines-place")
    found = recorded(protocol.name)
    for place in found.places():
        method_scores(protocol, found, place, protocol.encoders[0], folder / f"{place[0]}-methods.png")
