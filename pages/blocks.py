"""Parts of README and of pages in docs/ that are made from records.

A part stands between `<!-- name -->` and `<!-- end of name -->`, and `make results-page` writes it.
"""

from __future__ import annotations

import re
import statistics
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from benchmarks.report import read

from pages import enrolment, soak, threats
from pages.against_paper import markdown_table as table
from pages.sides import recorded
from pisa_capc.data.protocol import DIRECT, PAPER

PLACES = {"wifi-place": ("Wi-Fi", "wifi"), "lora-place": ("LoRa", "lora")}
STAGES = {
    "One network on all antennas (Single)": ("single", DIRECT),
    "PISA": ("pisa", DIRECT),
    "PISA-CAPC: PISA after calibration (U-CAPC)": ("pisa", PAPER),
    "PISA-CAPC on equalised frames": ("pisa-equalised", PAPER),
}


def demo() -> str:
    """The caption of the demo's picture."""
    found = read("studies/demo.json")
    scores = {stage: own["macro_f1"] for stage, own in found["stages"].items()}
    return _wrapped(f"""*`make demo`: five simulated radios, trained in two environments and identified in a third,
  where guessing gives 0.20. One network on all antennas (Single) scores {found["source_validation_f1"]["Single"]:.2f}
  on held-out frames of the environments it was trained in, and {scores["Single"]:.2f} in the third. PISA scores
  {scores["PISA"]:.2f} there, PISA-CAPC
{scores["PISA-CAPC"]:.2f}, and the closed form {scores["Closed form"]:.2f} (Macro-F1; record
`results/studies/demo.json`). One run of a small, easy set: it shows how the parts work together, not how well they do
in the field.*""")


def results() -> str:
    """What the methods reach in a place that no model saw."""
    rows = [["Chance", "0.10", "0.10", ""]]
    for title, (method, stage) in STAGES.items():
        rows.append([title, *(_range(protocol, method, stage) for protocol in PLACES), "`records/*-place/`"])
    control = [_range("controls-place", "single-per-antenna", DIRECT, scene) for _, scene in PLACES.values()]
    rows.insert(2, ["One encoder for all antennas, averaged (control)", *control, "`records/controls-place/`"])
    closed = read("studies/closed-form.json")["scenes"]
    main = "E2,E3→E1"
    own = [f"{statistics.mean(closed[scene]['macro_f1'][main]):.3f}" for _, scene in PLACES.values()]
    rows.append(["**Closed form**", *(f"**{score}**" for score in own), "`studies/closed-form.json`"])
    limits = [f"{read(f'studies/limit-{scene}.json')['macro_f1']:.3f}" for _, scene in PLACES.values()]
    rows.append(["Limit: a receiver that knows every device's hardware", *limits, "`studies/limit-*.json`"])
    grid = read("speed/pisa-grid-h200.json")
    above = """Macro-F1 in an environment that no model was trained in: ten simulated devices that share the channel of
  their place, full-size sets. Networks: the lowest and the highest of seven encoders (control: of
  two), means of nine runs; on LoRa some runs with a Transformer never learn."""
    below = f"""The simulator shares its physics with the closed form, so no scene could be kinder to it; the limit is
  taken on fewer frames. Two settings of the scenes were chosen knowing a probe of the target, E1. Training the
  {grid["runs"]} PISA runs of a table takes {grid["seconds"]:.0f} s on one H200 (`speed/pisa-grid-h200.json`)."""
    scores = table(["", *(title for title, _ in PLACES.values()), "record in `results/`"], rows)
    return f"{_wrapped(above)}\n\n{scores}\n\n{_wrapped(below)}"


def headline() -> str:
    """The result of the front page, in two sentences."""
    closed = read("studies/closed-form.json")["scenes"]
    own = " and ".join(
        f"{statistics.mean(closed[scene]['macro_f1']['E2,E3→E1']):.3f} on {title}" for title, scene in PLACES.values()
    )
    single, capc = (_range("wifi-place", method, stage) for method, stage in (("single", DIRECT), ("pisa", PAPER)))
    return _wrapped(f"""In a simulated room that it never saw, the closed form identifies ten devices with a Macro-F1 of
{own}. On Wi-Fi PISA-CAPC scores {capc} there, one network on all antennas {single}, and guessing 0.10.""")


def tour() -> str:
    """What the tour scores."""
    found = read("studies/tour.json")
    target, recording = found["target"], found["recording"]
    return _wrapped(f"""That takes {found["seconds"]} s on two cores ({found["seconds_of_computing"]} s of processor
  time). Guessing would give 0.20. One pass over a thousand frames of two places gives a Macro-F1 of
  {target["direct"]["macro_f1"]:.2f} in the third, and
{target["paper"]["macro_f1"]:.3f} after U-CAPC, which sees no label there ({target["careful"]["macro_f1"]:.3f} by
careful, the usual calibration). [examples/first_hour.sh](../examples/first_hour.sh) runs these lines and goes on: an
encoder of your own, a raw recording of the same radios
({recording["direct"]["macro_f1"]:.2f} direct, {recording["paper"]["macro_f1"]:.3f} after
U-CAPC, on the frames found in it), and a protocol of your own. Record:
[results/studies/tour.json](../results/studies/tour.json).""")


BLOCKS: Mapping[str, Mapping[str, Callable[[], str]]] = MappingProxyType(
    {
        "README.md": {"demo": demo, "results": results},
        "docs/enrolment.md": {"mixed": enrolment.mixed},
        "docs/index.md": {"headline": headline, "results": results},
        "docs/reliability.md": {"weeks": soak.weeks},
        "docs/security.md": {"threats": threats.measured},
        "docs/start.md": {"tour": tour},
    }
)


def filled(page: str) -> str:
    """The text of a page with its parts as the records have them now."""
    text = Path(page).read_text(encoding="utf-8")
    for name, made in BLOCKS[page].items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        written = f"{begin}\n{made()}\n\n{end}"
        text, count = re.subn(f"{re.escape(begin)}.*?{re.escape(end)}", lambda _, new=written: new, text, flags=re.S)
        if count != 1:
            raise ValueError(f"{page}: expected one part {begin.strip()} … {end}; found {count}.")
    return text


def write() -> None:
    for page in BLOCKS:
        Path(page).write_text(filled(page), encoding="utf-8")


def _wrapped(paragraph: str) -> str:
    return textwrap.fill(" ".join(paragraph.split()), 120, break_long_words=False, break_on_hyphens=False)


def _range(protocol: str, method: str, stage: str, dataset: str = "") -> str:
    found = recorded(protocol)
    keys = [key for key in found.runs if key.method == method and key.dataset in (dataset or key.dataset,)]
    own = [statistics.mean(found.f1(key, stage).values()) for key in keys]
    return f"{min(own):.2f}–{max(own):.2f}"
