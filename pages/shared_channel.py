"""The section of the results page on the scene whose channel is the place's: from its records, and the limit."""

from __future__ import annotations

from pathlib import Path

from benchmarks.report import RECORDS, read

from pages.against_paper import markdown_table as table
from pages.against_paper import spread
from pisa_capc.benchmark.protocols import read_protocol
from pisa_capc.benchmark.results import Key, Results, load_results, mean, not_recorded, paired_difference
from pisa_capc.benchmark.tables import FULL, stage_name
from pisa_capc.encoders import encoder_title
from pisa_capc.figures.bars import three_stage_bars
from pisa_capc.protocol import DIRECT, PAPER, SAFE

NAME = "wifi-place"
COLUMNS = (
    ("single", DIRECT),
    ("pisa", DIRECT),
    ("pisa", PAPER),
    ("pisa", SAFE),
    ("pisa-equalised", DIRECT),
    ("pisa-equalised", PAPER),
)
METHODS = {"single": "Single", "sigmix": "SigMix", "eada": "EADA", "pisa": "PISA", "pisa-capc": "PISA-CAPC"}


def results() -> Results:
    return load_results(read_protocol(NAME), RECORDS / NAME)


def section() -> str:
    """What became of the paper's three stages where devices share the channel of their place."""
    protocol, found = read_protocol(NAME), results()
    [place] = found.places()
    rows = []
    for encoder in protocol.encoders:
        cells = [mean(found.f1(Key(*place, method, FULL, encoder), stage)) for method, stage in COLUMNS]
        rows.append([encoder_title(encoder), *map(spread, cells)])
    limit = read("studies/limit-wifi.json")
    captures = ", ".join(f"{name} {own['macro_f1']:.3f}" for name, own in limit["per_capture"].items())
    probe = read("studies/placement-probe.json")["rows"]
    missing = "; ".join(not_recorded(protocol, found, place))
    headings = ["Encoder", *(stage_name(method, stage) for method, stage in COLUMNS)]
    return f"""## {protocol.title}

The tables above are of scenes in which every device has a channel of its own, so that in training the room itself
names the device (`wifi-own-place`, `lora-own-place`). The paper words it otherwise: environment and capture control the
channel, and it fades from frame to frame. The scenes `wifi` and `lora` follow that: rays of the place, each device put
down anew with phases of its own, and the scattered part moved by people and, in capture M, by the walk. Their values
are from the literature and were fixed before anything was trained on them. **That the channel is the place's was
decided knowing a probe** of five ways to do it (three runs each, Transformer; these runs are not kept):

{_probe(probe)}

Macro-F1 in E1, trained in E2 and E3, mean ± standard deviation over nine runs:

{table(headings, rows)}

**The limit**, an informed receiver that knows each device's hardware and estimates the channel (`pisa limit`), has
{limit["macro_f1"]:.3f} on {limit["frames"]} frames of each recording of E1
({captures}). What is missing to it is in the frames and was not found.

{_said(found, place, protocol.encoders)}
Not run yet on this scene: {missing}; the other methods, the component ablation, the other directions,
and LoRa (`pisa bench run lora-place`).

![Macro-F1 by encoder and stage](wifi-place-stages.png)

Command: `pisa bench run {NAME}`; the limit: `pisa limit DATASET --environment E1 --json`, record
`results/studies/limit-wifi.json`; the probe's figures: `results/studies/placement-probe.json`.
"""


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
        f"On held-out frames of its own source Single has {source('single')} by encoder, PISA {source('pisa')}: the\n"
        f"room no longer names the device there. In E1 PISA gains over Single\n{gains('pisa', DIRECT, 'single')},\n"
        f"and U-CAPC adds to PISA\n{gains('pisa', PAPER, 'pisa')}."
    )


def _probe(rows: list[dict[str, float | str | None]]) -> str:
    def cell(value: float | str | None) -> str:
        return "–" if value is None else f"{value:.3f}"

    return table(
        ["rays of", *METHODS.values()], [[str(row["rays of"]), *(cell(row[name]) for name in METHODS)] for row in rows]
    )


def picture(folder: Path) -> None:
    found = results()
    three_stage_bars(read_protocol(NAME), found, found.places()[0], folder / f"{NAME}-stages.png")
