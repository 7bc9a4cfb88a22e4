"""Rows of other protocols and studies that belong into a table of methods: same scene, seed and revision, but made on a
CPU, on frames whose last digits differ. So they are marked, and no paired difference is given.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from benchmarks.report import RECORDS, RESULTS, read

from pages.sides import recorded
from pisa_capc.data.protocol import DIRECT, PAPER
from pisa_capc.data.scores import mean_and_spread
from pisa_capc.evidence.benchmark.render import cell_text
from pisa_capc.evidence.benchmark.results import Key, Mean, Record, mean
from pisa_capc.evidence.benchmark.tables import FULL
from pisa_capc.model.encoders import encoder_title

CONTROLS, CONTROL = "controls-place", "single-per-antenna"
CLOSED, LINEAR = "studies/closed-form.json", "studies/linear.json"
DIRECTION = "E2,E3 → E1"
NOTE = (
    "Rows marked CPU are of the same scene and seed, networks in float32, on frames with another fingerprint "
    "({fingerprints}): processors round differently, so no paired differences are given."
)
SOLVED = " The closed form has three splits and no epochs (`results/{closed}`)."
ALSO = " LDA sees the flaws that the closed form measures, or I and Q as received (`results/{linear}`)."


def lines(dataset: str, scene: str, direction: str, encoders: Sequence[str]) -> list[dict[str, str]]:
    """Closed form, LDA and Single per antenna, by the headings of a table."""
    if direction != DIRECTION:
        return []
    return [*_solved(scene), *(line for encoder in encoders for line in _control(dataset, encoder))]


def note(dataset: str, scene: str) -> str:
    """What these rows are."""
    prints = {record.conditions.dataset for _, record in _runs(dataset)} | {_linear(scene).get("dataset", "")}
    listed = ", ".join(sorted(filter(None, prints))) or "not recorded"
    found = NOTE.format(fingerprints=listed) + SOLVED.format(closed=CLOSED)
    return found + (ALSO.format(linear=LINEAR) if _linear(scene) else "")


def _solved(scene: str) -> Iterator[dict[str, str]]:
    closed = read(CLOSED)["scenes"][scene]["macro_f1"]["E2,E3→E1"]
    linear = _linear(scene).get("macro_f1", {})
    rows = {"Closed form": closed, "LDA on flaws": linear.get("flaws"), "LDA on samples": linear.get("samples")}
    for name, values in rows.items():
        if values:
            f1 = cell_text(Mean(*mean_and_spread(values)))
            yield {"": f"{name} (CPU)", "runs": str(len(values)), "F1": f1, "direct F1": f1}


def _linear(scene: str) -> dict[str, Any]:
    found: dict[str, Any] = read(LINEAR)["scenes"][scene] if (RESULTS / LINEAR).is_file() else {}
    return found


def _control(dataset: str, encoder: str) -> Iterator[dict[str, str]]:
    """Single with one encoder for all antennas, where it is recorded."""
    if found := control(dataset, encoder):
        title = f"{encoder_title(encoder)}: Single per antenna (CPU)"
        yield {"": title, **{name: cell_text(value) for name, value in found.items()}}


def control(dataset: str, encoder: str) -> dict[str, Any]:
    """Runs, scores on source and target, and after U-CAPC, of the control; empty where it is not recorded."""
    if not any((RECORDS / CONTROLS).glob("*.json")):
        return {}
    results, key = recorded(CONTROLS), Key(dataset, DIRECTION, CONTROL, FULL, encoder)
    f1 = results.f1(key, DIRECT)
    if not f1:
        return {}
    return {
        "runs": len(f1),
        "source val F1": mean(results.source_f1(key)),
        "F1": mean(f1),
        "direct F1": mean(f1),
        "AUROC": mean(results.auroc(key, DIRECT)),
        "after U-CAPC": mean(results.f1(key, PAPER)),
    }


@cache
def _runs(dataset: str) -> list[tuple[str, Record]]:
    """The recorded runs of the control by encoder."""
    if not any((RECORDS / CONTROLS).glob("*.json")):
        return []
    found = recorded(CONTROLS).runs.items()
    return [(key.encoder, record) for key, runs in found if key.dataset == dataset for record in runs.values()]


def section(table: Any) -> str:
    """What one encoder for all antennas gains, by itself and with attention across them; same pair of seeds."""
    rows = []
    for encoder, record in _runs("wifi"):
        own = recorded("wifi-place")

        def beside(method: str, stage: str = DIRECT, encoder: str = encoder, seeds: Any = record.seeds) -> str:
            return f"{own.f1(Key('wifi', DIRECTION, method, FULL, encoder), stage)[seeds]:.3f}"  # noqa: B023

        scores = [record.stages[stage]["macro_f1"] for stage in (DIRECT, PAPER)]
        seeds = f"{record.seeds[0]}, {record.seeds[1]}"
        rows.append(
            [
                encoder_title(encoder),
                seeds,
                beside("single"),
                *(f"{score:.3f}" for score in scores),
                beside("pisa"),
                beside("pisa", PAPER),
            ]
        )
    if not rows:
        return ""
    heads = ["encoder", "split and training seed", "Single", "per antenna", "with U-CAPC", "PISA", "PISA-CAPC"]
    gain = [float(row[3]) - float(row[2]) for row in rows]
    rest = [float(row[5]) - float(row[3]) for row in rows]
    share = [own / (own + more) for own, more in zip(gain, rest, strict=True)]
    verdict = "most" if min(share) > 0.5 else "part"
    return f"""## One encoder for all antennas

Single, like every other baseline, sees the antennas stacked as channels. PISA does not: one encoder hears one antenna
at a time. A control does only that, and averages the features over the antennas (`single-per-antenna`). Macro-F1 in
E1, Wi-Fi, full size:

{table(heads, rows)}

One encoder for all antennas explains {verdict} of PISA's gain over Single, {min(share):.0%} to {max(share):.0%}: it
brings {_ranged(gain)} of Macro-F1, attention across the antennas and PISA's objective {_ranged(rest)} more.
The array's geometry has
[no decided effect](tables.md#component-ablation). The control was trained on a CPU in float32, {len(rows)} of the
planned 36 runs; the others on a GPU in bfloat16 on the same scene and seed, so levels can be compared and not digits.
[What waits for a GPU](speed.md#waiting-for-a-gpu) has the rest. `pisa bench run controls-place`; records in
`results/records/controls-place/`."""


def finding() -> str:
    """One encoder for all antennas, as a finding."""
    own = recorded("wifi-place")
    parts = []
    for encoder, record in _runs("wifi"):
        keys = (Key("wifi", DIRECTION, method, FULL, encoder) for method in ("single", "pisa"))
        single, pisa = (own.f1(key, DIRECT)[record.seeds] for key in keys)
        parts.append(f"{encoder_title(encoder)} {single:.3f}, {record.direct_f1:.3f}, {pisa:.3f}")
    return f"""- Most of PISA's gain over Single is one encoder for all antennas: a control has it, and neither
  attention, geometry nor PISA's objective (Single, control, PISA on Wi-Fi with shared channels, one run each:
  {"; ".join(parts)}; [control](place.md#one-encoder-for-all-antennas))."""


def _ranged(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"
