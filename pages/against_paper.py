"""A protocol's records beside the paper's numbers, as a section of a results page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.report import RECORDS, read
from studies.placement import PROTOCOL, WAYS

from pages import controls
from pages.sides import Ours, Published, Row, published, recorded, reference
from pages.verdicts import NEAR_CHANCE, sentences
from pisa_capc.core.errors import DataError
from pisa_capc.data.protocol import DIRECT, PAPER
from pisa_capc.evidence.benchmark.plan import plan
from pisa_capc.evidence.benchmark.protocols import Protocol, Search, read_protocol
from pisa_capc.evidence.benchmark.records import read_records
from pisa_capc.evidence.benchmark.render import cell_text
from pisa_capc.evidence.benchmark.results import (
    Difference,
    Key,
    Results,
    load_results,
    mean,
    paired_difference,
)
from pisa_capc.evidence.benchmark.tables import BIMODAL, FULL, is_comparison, stage_name
from pisa_capc.model.encoders import encoder_title

NOTHING = "–"
NO_GAIN = "no gain found"  # of a method whose search chose to add nothing
CONSTANT_ANSWER = 0.03  # Macro-F1 of one device for all frames of ten is 0.018
# By dataset: what it was simulated from.
SCENES = {"wifi-sim": "wifi-own-place", "lora-sim": "lora-own-place", "wifi": "wifi", "lora": "lora"}
# Protocols that repeat one of the paper's on another set: that one's table is beside theirs.
REPEATED = {"baselines-place": "external-baselines", "complementary-place": "measured-complementary"}
LIMIT = "Limit: what a receiver has that knows each device's hardware and estimates the channel, `pisa limit`"
_PICTURES = {"wifi-sim": "stages", "lora-sim": "stages"} | dict.fromkeys(
    ("external-baselines", "baselines-place"), "methods"
)  # beside the page


def limits() -> str:
    """What the two sides do not share, and what was chosen with the target in view."""
    return f"""## What cannot be compared

The paper's simulation generator is not public; our scenes follow its description. {scenes()}

The paper's measured recordings are not available here either. Its ablations and its comparison of methods, which use
them, are run on our simulated sets, and its tables of all encoders on measured data have not been run (`--data`). The
numbers of the two sides come from different data, so a higher number means nothing. What can be compared is the order:
which stage, component or method is ahead, and the sign of a change. The paper does not give the encoders of the
external baselines, their hyperparameters, and the equations of some; `pisa methods` separates what is published from
our reading.

Nine runs are three splits × three seeds of one scene in one direction. The intervals cover other splits and seeds, not
other scenes. Runs that share a split are counted as independent, and there is no correction for multiple comparisons.

**What is known of the measured set.** By the paper it is the Wi-Fi set released with Xie et al.: ten commercial
transmitters, a USRP X310 with TwinRx (four antennas, 5.825 GHz, 20 MS/s), preambles of 320 × 4 complex
samples, synchronised, CFO-compensated and levelled by its provider; E1 and E2 are offices, E3 is a corridor, and E1 was
recorded five months before the others; L1 and L2 are in line of sight, L3 is not, M moves. The spacing of the antennas
is not given. The loader has met none of its files. It is tested on MAT files of this layout in every order of axes, in
MATLAB 7 and 7.3, and the split on a set of this size, which gives the paper's counts: 40,570 frames to train, 10,118 to
validate and 24,960 to test, with E3/D5/L1 absent.

**Neighbours.** Two papers, by their abstracts: arXiv 2412.07269 identifies ten real radios with four antennas by
spectral regrowth and CFO, 92.76 %; the paper's PISA-CAPC has a Macro-F1 of 0.9257 on its ten. Data and measures differ,
so neither is ahead of the other. arXiv 2603.29766 has the Fisher information of image and amplifier, which depends on
the waveform; our limit is the score of a receiver that knows each device's hardware, on our scenes and channels.
"""


def scenes() -> str:
    """How the scenes came to be: one text, for every page that says it."""
    probe = [row["pisa"] for row in read("studies/placement-probe.json")["rows"]]
    kept = load_results(again := read_protocol(str(PROTOCOL)), RECORDS / again.name)
    [direction] = again.directions
    cells = (Key(f"wifi-{way}", direction.name, "pisa", FULL, again.encoders[0]) for way in tuple(WAYS)[:3])
    repeated = [found.mean for cell in cells if (found := mean(kept.f1(cell, DIRECT)))]
    own, place, moving = (f"{before:.3f} ({after:.3f})" for before, after in zip(probe, repeated, strict=False))
    return f"""The scenes `wifi-own-place` and `lora-own-place` were fixed from the literature before any model
was trained on them. **In `wifi` and `lora` two things were changed knowing a probe of the target on Wi-Fi**: rays
belong to the place instead of the device, and all scattered power moves instead of a tenth (`moving_fraction` 0.1 →
1.0, with the spectrum of the TGn model). PISA with a Transformer had {own} in E1 before,
{place} with the first change and {moving} with both: most of the gain comes from the second.
The figures of the probe were entered by hand and its runs were not kept (`results/studies/placement-probe.json`); in
brackets the same from recorded runs (`results/records/placement/`). Nothing else differs between the two kinds of
scene."""


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(headings) + " |", "|---" * len(headings) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def section(name: str, folder: Path) -> str:
    """A protocol's part of the page. folder: of all records."""
    protocol, paper = read_protocol(name), published()[REPEATED.get(name, name)]
    planned = {run.cell for run in plan(protocol)}
    if name in REPEATED:
        own = {row: numbers for row, numbers in paper.numbers.items() if row[:4] in planned}
        paper = replace(paper, numbers=own)
    heading = f'## {protocol.title}\n\nIn the paper: "{paper.table}"\n(its numbers are of {paper.data}).\n'
    command = f"pisa bench run {name}" + ("" if protocol.dataset.simulate else " --data FOLDER")
    try:
        results = recorded(name) if folder == RECORDS else load_results(protocol, folder / name)
        others = len(results.others)
    except DataError:  # none of this protocol
        results, others = None, len(read_records(folder / name))
    left_out = f"{others} records are of other settings or code and are left out.\n" if others else ""
    if results is None:
        return f"{heading}\n**Not run yet:** no records. `{command}` makes them.\n{left_out}"
    places = [_place(protocol, results, paper, place) for place in results.places()]
    parts = [heading, f"{_made(results)}\n{left_out}", *places]
    if absent := [row for row in paper.numbers if row[:4] not in planned]:
        listed = ", ".join(
            dict.fromkeys(f"{encoder_title(row.encoder)} {stage_name(row.method, row.stage)}" for row in absent)
        )
        parts.append(f"{listed} of the paper is not of this protocol: see the tables of all encoders.\n")
    if protocol.search:
        parts.append(chosen(protocol.search, folder / f"{name}-search.json"))
    return "\n".join([*parts, f"Command: `{command}`; `pisa bench tables {name}` has the paired intervals.\n"])


def _made(results: Results) -> str:
    records = [record for runs in results.runs.values() for record in runs.values()]
    machines = sorted({record.machine.get("gpu") or record.machine.get("system", "unknown") for record in records})
    epochs = "/".join(map(str, sorted({record.run.training.epochs for record in records})))
    return f"{len(records)} runs of {epochs} epochs on {', '.join(machines)}. Mean ± sample standard deviation."


def _place(protocol: Protocol, results: Results, paper: Published, place: tuple[str, str]) -> str:
    dataset, direction = place
    ours = Ours(results, dataset)
    own = [row for row in paper.numbers if row.direction == direction]
    rows = sorted({*ours.rows(direction), *own}, key=_order(protocol))
    same = single_again(protocol, ours, rows)
    lines = _matrix(protocol, ours, paper, rows) if is_comparison(protocol) else _lines(protocol, ours, paper, rows)
    for row in same:
        own = [heading for heading in lines[0] if heading and heading != "runs" and not heading.startswith("paper")]
        lines = [line | dict.fromkeys(own, NO_GAIN) if line[""] == row.label else line for line in lines]
    limit = read(f"studies/limit-{SCENES[dataset]}.json") if dataset in SCENES and direction.endswith("→ E1") else None
    if limit is not None:
        lines.append(dict.fromkeys(lines[0], NOTHING) | _limited(limit))
        others = controls.lines(dataset, SCENES[dataset], direction, protocol.encoders)
        lines += [{heading: line.get(heading, NOTHING) for heading in lines[0]} for line in others]
    headings = [heading for heading in lines[0] if any(line[heading] != NOTHING for line in lines)]
    cells = [[line[heading] for heading in headings] for line in lines]
    counted = [row for row in rows if row._replace(stage=DIRECT) not in same]
    words = "\n".join(f"- {sentence}" for sentence in sentences(protocol, ours, paper, counted))
    if same:
        names = " and ".join(stage_name(row.method, DIRECT) for row in same)
        words += (
            f"\n- No gain found for {names}: the search chose a weight of zero, which is Single, and none is counted."
        )
    interval = (
        "whose intervals `pisa bench tables` has" if is_comparison(protocol) else "with its 95 % confidence interval"
    )
    about = f"Change: {_meaning(protocol)}. Ours is of paired runs, {interval}; the paper's is of its printed means."
    if any("% collapsed" in cell for line in cells for cell in line):
        about += f"\n{BIMODAL}"
    if limit is not None:
        about += f"\n{LIMIT} ({limit['frames']} frames of each recording)."
        about += f"\n{controls.note(SCENES[dataset])}" if direction == controls.DIRECTION else ""
    planned = sum(run.direction == direction for run in plan(protocol))
    recorded = sum(len(runs) for key, runs in results.runs.items() if key[:2] == place)
    if recorded < planned:
        words += f"\n\n**Incomplete:** {planned - recorded} of {planned} runs are not recorded yet."
    if apart := results.unrepeated(place):
        words += f"\n\n{apart}"
    if remark := results.remark(place):
        words += f"\n\n**{remark}** See the [erratum](erratum.md)."
    shown = (
        f"![{protocol.title}, {dataset}](../{dataset}-{_PICTURES[protocol.name]}.png)\n\n"
        if protocol.name in _PICTURES
        else ""
    )
    return f"### {dataset}, {direction}\n\n{shown}{markdown_table(headings, cells)}\n\n{about}\n\n{words}\n"


def single_again(protocol: Protocol, ours: Ours, rows: Sequence[Row]) -> list[Row]:
    """The methods of a comparison whose every run scores as Single's, because what they add has a weight of zero."""
    direct = [row for row in dict.fromkeys(row._replace(stage=DIRECT) for row in rows) if ours.f1(row)]
    single = {row.encoder: ours.f1(row) for row in direct if row.method == "single"}
    if not is_comparison(protocol):
        return []
    return [row for row in direct if row.method != "single" and ours.f1(row) == single.get(row.encoder)]


def _limited(limit: dict[str, Any]) -> dict[str, str]:
    """The line of the informed receiver; tables of all stages and of direct inference name the score differently."""
    f1, auroc = (f"{limit[name]:.4f}" for name in ("macro_f1", "macro_auroc"))
    return {"": "Limit", "F1": f1, "direct F1": f1, "AUROC": auroc}


def _lines(protocol: Protocol, ours: Ours, paper: Published, rows: Sequence[Row]) -> list[dict[str, str]]:
    """A line per row."""
    lines = []
    for row in rows:
        f1, printed = ours.f1(row), paper.numbers.get(row, {})
        before = reference(protocol, row)
        lines.append(
            {
                "": row.label,
                "runs": str(len(f1)),
                "source val F1": cell_text(ours.mean(row, ours.source(row))),
                "F1": cell_text(ours.mean(row, f1)),
                "AUROC": cell_text(mean(ours.auroc(row))),
                "change": difference(before and paired_difference(f1, ours.f1(before))),
                "paper: source val F1": printed.get("source", NOTHING),
                "paper: F1": printed.get("f1", NOTHING),
                "paper: AUROC": printed.get("auroc", NOTHING),
                "paper: change": _signed(None if before is None else paper.change(row, before)),
            }
        )
    return lines


def _matrix(protocol: Protocol, ours: Ours, paper: Published, rows: Sequence[Row]) -> list[dict[str, str]]:
    """A line per method, with all its stages beside each other: what is the training's doing and what U-CAPC's."""
    lines = []
    for row in dict.fromkeys(row._replace(stage=DIRECT) for row in rows):
        printed = paper.numbers.get(row, {})
        line = {
            "": row.label,
            "runs": str(len(ours.f1(row))),
            "source val F1": cell_text(ours.mean(row, ours.source(row))),
            "direct F1": _with_change(ours, row, reference(protocol, row)),
        }
        stages = [row._replace(stage=stage) for stage in protocol.calibration]
        line |= {f"after {_called(at)}": _with_change(ours, at, row) for at in stages}
        line |= {"paper: source val F1": printed.get("source", NOTHING), "paper: direct F1": printed.get("f1", NOTHING)}
        line |= {f"paper: after {_called(at)}": paper.numbers.get(at, {}).get("f1", NOTHING) for at in stages}
        lines.append(line)
    return lines


def _called(row: Row) -> str:
    return "U-CAPC" if row.stage == PAPER else f"U-CAPC, {row.stage}"


def _with_change(ours: Ours, row: Row, before: Row | None) -> str:
    """Macro-F1 and, in brackets, its change."""
    difference = before and paired_difference(ours.f1(row), ours.f1(before))
    return cell_text(ours.mean(row, ours.f1(row))) + (f" ({difference.mean:+.4f})" if difference else "")


def _meaning(protocol: Protocol) -> str:
    if any(len(row.variants) > 1 for row in protocol.methods):
        return "against the full model"
    calibrated = "a calibrated row against the same model's direct inference"
    if is_comparison(protocol):
        return "in brackets, direct inference against PISA's, a calibration against the same model's direct inference"
    return f"{calibrated}, a direct row against Single" if len(protocol.methods) > 1 else calibrated


def _order(protocol: Protocol) -> Callable[[Row], tuple[int, ...]]:
    """The order of a page's rows, each part in the order of the protocol. A comparison has its Group A first."""
    groups = is_comparison(protocol)
    known: dict[str, Sequence[str]] = {
        "encoder": protocol.encoders,
        "method": [row.method for row in protocol.methods] if groups else ["single", "pisa"],
        "variant": list(dict.fromkeys(variant for row in protocol.methods for variant in row.variants)),
        "stage": [DIRECT, *protocol.calibration],
    }
    parts = ("encoder", "stage", "method") if groups else ("encoder", "method", "variant", "stage")

    def position(row: Row) -> tuple[int, ...]:
        values = [(known[part], getattr(row, part)) for part in parts]
        return tuple(names.index(value) if value in names else len(names) for names, value in values)

    return position


def chosen(search: Search, path: Path) -> str:
    """Which hyperparameters were searched, and what was chosen."""
    if not path.is_file():
        return "Hyperparameters: no search is recorded; those without a published value are the code's defaults.\n"
    record: Any = json.loads(path.read_text(encoding="utf-8"))
    rows = []
    for method, found in record["methods"].items():
        best = max(found["points"], key=lambda point: point["mean"])
        by_environment = ", ".join(f"{name} {value:.4f}" for name, value in best["macro_f1"].items())
        settings = ", ".join(f"{key} {value}" for key, value in found["chosen"].items())
        rows.append([stage_name(method, DIRECT), str(len(found["points"])), settings, by_environment])
    table = markdown_table(["method", "points", "chosen", "F1 on the source environment left out"], rows)
    absent = ", ".join(stage_name(method, DIRECT) for method in search.grid if method not in record["methods"])
    table += f"\n\nNo search is recorded for {absent}: the value is the code's default." if absent else ""
    table += _edges(search, record["methods"]) + _collapsed(path.with_suffix(""))
    seeds = len(record.get("seeds", [record.get("seed")]))  # earlier records have one
    each = "one seed" if seeds == 1 else f"{seeds} seeds"
    return f"""Hyperparameters without a published value were chosen by leaving out one source environment at a time,
{record["epochs"]} epochs and {each} each, with {record["domains"]} as domains, on the set that the protocol names
(record `results/records/{path.name}`); other sets take the same values. Where all points are near chance the choice
says little:

{table}
"""


def _collapsed(folder: Path) -> str:
    """How many trainings of each method did not learn their source, whatever they score elsewhere."""
    found: dict[str, list[float]] = {}
    for one in read_records(folder) if folder.is_dir() else ():
        found.setdefault(one.run.method, []).append(one.validation_f1)
    lost = {method: sum(f1 < NEAR_CHANCE for f1 in own) for method, own in found.items()}
    listed = ", ".join(f"{stage_name(m, DIRECT)} {n} of {len(found[m])}" for m, n in lost.items() if n)
    if not listed:
        return ""
    never = ", ".join(stage_name(method, DIRECT) for method, n in lost.items() if n == len(found[method]))
    return (
        f"\n\nTrainings of the search that collapsed, their source validation near chance (below {NEAR_CHANCE}): "
        f"{listed}." + (f" All of {never} did, so its value says nothing." if never else "")
    )


def _edges(search: Search, methods: dict[str, Any]) -> str:
    """Where a better value may lie outside the grid, and where most of the grid was of no use."""
    ends = {
        (stage_name(method, DIRECT), found["chosen"][key])
        for method, found in methods.items()
        for key, values in search.grid.get(method, {}).items()
        if len(values) > 2 and found["chosen"][key] in (values[0], values[-1])
    }
    at_end = sorted(method for method, value in ends if value != 0)
    without = sorted(method for method, value in ends if value == 0)
    alone = [
        stage_name(method, DIRECT)
        for method, found in methods.items()
        if len(found["points"]) > 1 and sorted(point["mean"] for point in found["points"])[-2] < CONSTANT_ANSWER
    ]
    found = []
    if at_end:
        found.append(f"At an end of their grid, so that a better value may lie beyond: {', '.join(at_end)}.")
    if without:
        found.append(f"Chosen is nothing of what they add to Single, a weight of zero: {', '.join(without)}.")
    if alone:
        found.append(f"All other points of {', '.join(alone)} score as one answer for all.")
    return "\n\n" + " ".join(found) if found else ""


def difference(value: Difference | None) -> str:
    return f"{value.mean:+.4f} [{value.low:+.4f}, {value.high:+.4f}]" if value else NOTHING


def _signed(value: float | None) -> str:
    return NOTHING if value is None else f"{value:+.4f}"
