"""The page on what the room gives away: five ways to place the devices, from the records of `make study-placement`."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.report import RECORDS, RESULTS, read
from studies.placement import PROTOCOL, WAVEFORMS, WAYS

from pages.against_paper import markdown_table as table
from pages.sides import recorded
from pisa_capc.data.protocol import DIRECT, PAPER
from pisa_capc.evidence.benchmark.protocols import read_protocol
from pisa_capc.evidence.benchmark.render import cell_text
from pisa_capc.evidence.benchmark.results import Key, Results, load_results, mean
from pisa_capc.evidence.benchmark.tables import BIMODAL, FULL
from pisa_capc.evidence.figures.style import COLOURS, PAGE_INCHES, canvas
from pisa_capc.model.encoders import encoder_title
from pisa_capc.model.methods import method_title

TITLES = {"wifi": "Wi-Fi", "lora": "LoRa"}
NOISE = "studies/noise.json"
SPLITS = {"random": "random frames", "block": "blocks of time"}
SAID = {
    "device": "of each device",
    "place-device-phases": "of the place, phases of the device",
    "place-device-phases-moving": "of the place, phases of the device, every scattered ray moves",
    "place": "of the place, phases too",
    "place-moving": "of the place, phases too, every scattered ray moves",
}
CHECKED = (  # ways of the study of `pisa check`
    "own place",
    "rays of the place, phases of the device, still",
    "rays of the place, phases of the device, moving (the scene)",
)


class Room:
    """Scores by way and method: source validation, E1 directly and after U-CAPC; None where nothing is recorded."""

    def __init__(self) -> None:
        self.protocol = read_protocol(str(PROTOCOL))
        self.results: Results = load_results(self.protocol, RECORDS / self.protocol.name)
        self.methods = [row.method for row in self.protocol.methods]

    def key(self, waveform: str, way: str, method: str) -> Key:
        [direction] = self.protocol.directions
        return Key(f"{waveform}-{way}", direction.name, method, FULL, self.protocol.encoders[0])

    def validation(self, waveform: str, way: str, method: str) -> float | None:
        own = mean(self.results.source_f1(self.key(waveform, way, method)))
        return own and own.mean

    def target(self, waveform: str, way: str, method: str, stage: str = DIRECT) -> float | None:
        own = mean(self.results.f1(self.key(waveform, way, method), stage))
        return own and own.mean

    def missing(self) -> int:
        planned = len(WAVEFORMS) * len(WAYS) * len(self.methods)
        return planned - len(self.results.runs)


def section() -> str:
    room = Room()
    device, phases, moving, place = (_pair(room, way) for way in tuple(WAYS)[:4])
    rows = {row["way"]: row["preamble"] for row in read("studies/check.json")["rows"] if row["waveform"] == "wifi"}
    own, still, later = (rows[way]["later"] for way in CHECKED)
    following = rows[CHECKED[-1]]["next"]
    keeps = {method: _range(room, "wifi", method) for method in ("equalised", "pisa-equalised")}
    lora = {method: _range(room, "lora", method) for method in ("single", "aligned")}
    before, after = (_number(room.target("wifi", "place-device-phases", "pisa", stage)) for stage in (DIRECT, PAPER))
    missing = f"Not run yet: {room.missing()} of the tables' cells.\n" if room.missing() else ""
    return f"""A network trained on frames of ten devices learns whatever separates them. If every device stands in its
  own spot, the channel does, and it does so in validation frames too, which are other frames of the same recordings.
  So **the source score measures knowledge of the room, unless all devices share it.** One protocol, the same hardware,
  five ways to place it; Transformer, three runs of each:

{_table(room, "wifi")}

{_table(room, "lora")}

Each cell: Macro-F1 on held-out frames of the source → in E1, where nothing was trained. Rows name the owner of the
rays and phases; the first row is the scene `*-own-place`. Where not every scattered ray moves, a tenth of the
scattered power does.

![Macro-F1 on the source and in a new place, by owner of the channel](../placement.png)

## When source validation misleads

On Wi-Fi Single falls from {device["single"]} where each device has its own channel, from {phases["single"]} where only
the phases are its own, and from {moving["single"]} where these fade. The source score *falls* as that of the new place
rises: the model knew the room. PISA follows: from {device["pisa"]}, then {phases["pisa"]}, then {moving["pisa"]}.
Phases alone are enough: a device that is put down by hand has phases of its own for as long as nothing moves.

`pisa check` detects such recordings before training: it identifies devices from channel estimates alone, at the other
end of a recording. On Wi-Fi it identifies {own["accuracy"]:.2f} of the devices with their own channels,
{still["accuracy"]:.2f} with their own phases, and {later["accuracy"]:.2f} in the scene `wifi`; chance is
{later["chance"]:.2f}. Even there the channel *one frame later* identifies {following["accuracy"]:.2f} of them, so
validation on a random split stays optimistic ([dataset checks](../check.md)).

## When structure anchoring pays

On Wi-Fi PISA gains {device["gain"]} over Single in the new place if the channel belongs to the device,
{phases["gain"]} if only the phases do, {moving["gain"]} if these fade and {place["gain"]} if they belong to the place.
It relies on what the antennas share, but cannot ignore a static channel. U-CAPC adds most in between, where the phases
belong to the device ({before} to
{after}).

**A known preamble matters more than the architecture.** On equalised Wi-Fi frames Single keeps {keeps["equalised"]} in
all five placements, PISA {keeps["pisa-equalised"]}. On LoRa, where the channel is flat, only the phase has to be
removed: Single scores
{lora["aligned"]} on frames aligned to their preamble and {lora["single"]} on frames as received
([why](place.md#why-networks-miss-the-devices-on-lora)).

For your own recordings: let all devices send from the same spots, or let them move; evaluate models only
where they were not trained; take the channel off where the preamble is known.

{_noise()}
{missing}Command: `make study-placement ARGS="--device cuda --workers 2"`; records: `results/records/placement`.
The scenes `wifi` and `lora` were changed knowing [a probe of the target](place.md#the-channel-of-the-place) by these
ways.
"""


def _noise() -> str:
    """What the noise of a recording gives away; empty where nothing is recorded."""
    if not (RESULTS / NOISE).is_file():
        return ""
    found = read(NOISE)
    alone = {(row["noise"], row["held_out"]): row for row in found["descriptor"]}
    before, after = alone["device", "random"], alone["place", "block"]
    rows = [
        [f"{row['noise']}", SPLITS[row["held_out"]], f"{row['validation_f1']:.3f}", f"{row['target_f1']:.3f}"]
        for row in found["descriptor"]
    ]
    nets = [
        [
            row["noise"],
            SPLITS[row["held_out"]],
            row["variant"],
            *(f"{row[k]:.3f}" for k in ("validation_f1", "target_f1")),
        ]
        for row in found["networks"]
    ]
    heads = ["noise of the", "validation"]
    networks = (
        f"""
PISA with a {encoder_title(found["encoder"])} on {found["scale"]:.0%} of the frames, {found["epochs"]} epochs, one seed,
which is far from its level at full size:

{table([*heads, "variant", "source validation", "E1"], nets)}

{_of_networks(found["networks"])}
"""
        if nets
        else ""
    )
    return f"""
## Noise gives devices away, too

The scenes draw SNR and CFO jitter for each device in each capture. They stay over a recording as hardware does, and the
CFO descriptor measures the jitter over 32 frames. Random validation frames lie in the windows of training frames. So
the descriptor's four numbers alone, in a random forest, have a Macro-F1 of {before["validation_f1"]:.3f} on the
source's validation frames and {before["target_f1"]:.3f} in E1, where guessing gives 0.10. With the same noise for all
devices of a place (`propagation: {{noise: place}}`) and validation by blocks of time (`--held-out block`) little is
left: {after["validation_f1"]:.3f}.

{table([*heads, "source validation", "E1"], rows)}
{networks}
{_full_size()}

The scenes of the tables keep their noise, so that records stay comparable; `pisa check` reports it as
`cfo-descriptor`. Command: `make study-noise`; record: `results/{NOISE}`.
"""


FULL_SIZE = {  # protocol: noise of the, validation
    "wifi-place": ("device", "random"),
    "noise-place": ("place", "random"),
    "block-place": ("device", "block"),
}


def _full_size() -> str:
    """The same at full size, beside the networks of the tables; differences of paired seeds."""
    rows = []
    for encoder, method, variant in product(("cnn", "transformer"), ("single", "pisa"), (FULL, "no-cfo-dynamics")):
        if (method, variant) == ("single", "no-cfo-dynamics"):
            continue
        for name, (noise, held_out) in FULL_SIZE.items():
            found = recorded("component-ablation" if variant != FULL and name == "wifi-place" else name)
            keys = [k for k in found.runs if k[2:] == (method, variant, encoder) and k.dataset.startswith("wifi")]
            key = next((k for k in keys if k.dataset != "wifi-sim"), None)
            if key is not None:
                scores = (found.mean(key, values) for values in (found.source_f1(key), found.f1(key, DIRECT)))
                label = f"{encoder_title(encoder)}: {method_title(method)}" + " without CFO dynamics" * (
                    variant != FULL
                )
                rows.append([label, noise, SPLITS[held_out], *map(cell_text, scores)])
    return f"""At full size, nine runs each (`wifi-place`, `component-ablation`, `noise-place`, `block-place`):

{table(["", "noise of the", "validation", "source validation", "E1"], rows)}

{BIMODAL}

Neither the noise nor the choice of validation frames moves a score in E1 by more than runs differ, one collapsed run
apart; but random validation frames and noise of the device make the source look better than it is. Sets or splits
differ from row to row, so no paired differences are given."""


SEEN = 0.05  # of Macro-F1: other seeds were not tried, so that a smaller change says nothing


def _of_networks(rows: list[dict[str, Any]]) -> str:
    """What changes the source validation of the networks, and by how much."""
    known = {(row["noise"], row["held_out"], row["variant"]): row["validation_f1"] for row in rows}

    def change(after: tuple[str, str, str]) -> float:
        return known[after] - known["device", "random", FULL]

    parts = {
        "without CFO dynamics": change(("device", "random", "no-cfo-dynamics")),
        "with noise of the place": change(("place", "random", FULL)),
        "by blocks of time": change(("device", "block", FULL)),
    }
    listed = ", ".join(f"{value:+.3f} {name}" for name, value in parts.items())
    seen = [name for name, value in parts.items() if abs(value) >= SEEN]
    verdict = f"{SEEN} or more: {', '.join(seen) or 'none'}"
    return f"Source validation against noise of the device and random frames: {listed}. Changed by {verdict}."


def _pair(room: Room, way: str) -> dict[str, str]:
    """Of Wi-Fi, in words: Single and PISA on their source and in E1, and what PISA gains there."""
    met = {method: room.target("wifi", way, method) for method in ("single", "pisa")}
    words = {m: f"{_number(room.validation('wifi', way, m))} to {_number(value)}" for m, value in met.items()}
    known = met["single"] is not None and met["pisa"] is not None
    return words | {"gain": _number(met["pisa"] - met["single"] if known else None)}  # type: ignore[operator]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _range(room: Room, waveform: str, method: str) -> str:
    scores = [score for way in WAYS if (score := room.target(waveform, way, method)) is not None]
    return f"{min(scores):.3f} to {max(scores):.3f}"


def _table(room: Room, waveform: str) -> str:
    def cell(way: str, method: str) -> str:
        return f"{_number(room.validation(waveform, way, method))} → {_number(room.target(waveform, way, method))}"

    rows = [[SAID[way], *(cell(way, method).replace("– → –", "–") for method in room.methods)] for way in WAYS]
    return table([f"{TITLES[waveform]}, rays", *map(method_title, room.methods)], rows)


def pictures(folder: Path) -> None:
    """For every way and method a line from source validation (hollow) to E1 (full)."""
    room = Room()
    with canvas(folder / "placement.png", PAGE_INCHES, 5.0) as figure:
        panels = figure.subplots(1, len(WAVEFORMS), sharey=True)
        step = len(room.methods) + 1.5
        for axes, waveform in zip(panels, WAVEFORMS, strict=True):
            for i, way in enumerate(WAYS):
                for j, (method, colour) in enumerate(zip(room.methods, COLOURS, strict=False)):
                    seen, met = room.validation(waveform, way, method), room.target(waveform, way, method)
                    if seen is None or met is None:
                        continue
                    y = i * step + j
                    axes.plot([seen, met], [y, y], color=colour, linewidth=1.4)
                    axes.plot(seen, y, "o", color=colour, markerfacecolor="white", markersize=4, clip_on=False)
                    label = method_title(method) if (waveform, i) == (WAVEFORMS[0], 0) else None
                    axes.plot(met, y, "o", color=colour, markersize=4, clip_on=False, label=label)
            axes.axvline(0.1, color="black", linewidth=0.7, linestyle=":", zorder=0)
            axes.set(
                xlim=(0, 1), title=TITLES[waveform], xlabel="Macro-F1: ○ held-out frames of the source, ● new place"
            )
        middle = (len(room.methods) - 1) / 2
        words = [SAID[way].replace(", ", ",\n") for way in WAYS]
        panels[0].set_yticks([i * step + middle for i in range(len(WAYS))], words)
        panels[0].set_ylim(len(WAYS) * step - 1, -1.5)
        panels[0].text(0.11, -1.1, "chance", fontsize=6)
        figure.legend(loc="outside lower center", ncols=len(room.methods))
