"""Rows of other protocols and studies that belong into a table of methods: same scene, seed and revision.

Closed form and LDA were made on a CPU, on frames whose last digits differ: they are marked, and no paired difference is
given. The control was made as the networks beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from textwrap import fill
from typing import Any, NamedTuple

from benchmarks.report import RECORDS, RESULTS, read

from pages.sides import recorded
from pisa_capc.data.protocol import DIRECT, PAPER
from pisa_capc.data.scores import mean_and_spread
from pisa_capc.evidence.benchmark.render import cell_text
from pisa_capc.evidence.benchmark.results import Key, Mean, Values, mean, paired_difference
from pisa_capc.evidence.benchmark.tables import FULL
from pisa_capc.model.encoders import encoder_title

CONTROLS, CONTROL = "controls-place", "single-per-antenna"
CLOSED, LINEAR = "studies/closed-form.json", "studies/linear.json"
DIRECTION = "E2,E3 → E1"
WAVEFORMS = {"wifi": "Wi-Fi", "lora": "LoRa"}
RUNS = 9  # of an encoder
NOTE = (
    "Rows marked CPU are of the same scene and seed, on frames with another fingerprint ({fingerprints}): processors "
    "round differently, so no paired differences are given."
)
SOLVED = " The closed form has three splits and no epochs (`results/{closed}`)."
ALSO = " LDA sees the flaws that the closed form measures, or I and Q as received (`results/{linear}`)."


def lines(dataset: str, scene: str, direction: str, encoders: Sequence[str]) -> list[dict[str, str]]:
    """Closed form, LDA and Single per antenna, by the headings of a table."""
    if direction != DIRECTION:
        return []
    return [*_solved(scene), *(line for encoder in encoders for line in _control(dataset, encoder))]


def note(scene: str) -> str:
    """What these rows are."""
    found = NOTE.format(fingerprints=_linear(scene).get("dataset") or "not recorded") + SOLVED.format(closed=CLOSED)
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
        title = f"{encoder_title(encoder)}: Single per antenna"
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


def section(table: Any) -> str:
    """What one encoder for all antennas gains, by itself and with attention across them; the same pairs of seeds."""
    if not compared():
        return ""
    rows = [
        [
            title,
            *(cell_text(mean(values)) for values in (one.single, one.control, one.calibrated, one.pisa)),
            *(cell_text(paired_difference(*pair)) for pair in ((one.control, one.single), (one.pisa, one.control))),
        ]
        for title, one in compared().items()
    ]
    heads = ["", "Single", "control", "control with U-CAPC", "PISA", "control − Single", "PISA − control"]
    return f"""## One encoder for all antennas

Single, like every other baseline, sees the antennas stacked as channels. PISA does not: one encoder hears one antenna
at a time. A control does only that, and averages the features over the antennas (`single-per-antenna`). Macro-F1 in
E1, full size, {RUNS} runs each:

{table(heads, rows)}

{_verdict()}
The array's geometry has [no decided effect](tables.md#component-ablation). Differences are of paired runs on the same
frames, device and precision, with 95 % confidence intervals. `pisa bench run controls-place`; records in
`results/records/controls-place/`."""


class Compared(NamedTuple):
    """Macro-F1 of the target by pair of seeds: Single, the control, the same after U-CAPC, and PISA."""

    single: Values
    control: Values
    calibrated: Values
    pisa: Values


@cache
def compared() -> dict[str, Compared]:
    """By waveform and encoder; runs of one fingerprint, device and precision alone."""
    if not any((RECORDS / CONTROLS).glob("*.json")):
        return {}
    found: dict[str, Compared] = {}
    for key in recorded(CONTROLS).runs:
        own, control = recorded(f"{key.dataset}-place"), recorded(CONTROLS)
        single, pisa = (key._replace(method=method) for method in ("single", "pisa"))
        conditions = {record.conditions for k in (single, pisa) for record in own.runs[k].values()}
        assert conditions == {record.conditions for record in control.runs[key].values()}, key
        title = f"{WAVEFORMS[key.dataset]}, {encoder_title(key.encoder)}"
        found[title] = Compared(
            own.f1(single, DIRECT), control.f1(key, DIRECT), control.f1(key, PAPER), own.f1(pisa, DIRECT)
        )
        assert all(len(values) == RUNS for values in found[title]), key
    return dict(sorted(found.items(), reverse=True))


def _verdict() -> str:
    """Where attention and PISA's objective add to the control, and where not, by the sign of whole intervals."""
    rest = {title: paired_difference(one.pisa, one.control) for title, one in compared().items()}
    decided = {
        "PISA is better than the control with": [t for t, d in rest.items() if d is not None and d.low > 0],
        "the control is better than PISA with": [t for t, d in rest.items() if d is not None and d.high < 0],
        "the difference is undecided with": [t for t, d in rest.items() if d is not None and d.low <= 0 <= d.high],
    }
    said = "; ".join(f"{words} {' and '.join(titles)}" for words, titles in decided.items() if titles)
    gains = [mean(one.control).mean - mean(one.single).mean for one in compared().values()]  # type: ignore[union-attr]
    words = (
        f"One encoder for all antennas brings {min(gains):.2f} to {max(gains):.2f} of Macro-F1 over Single. What "
        f"attention across the antennas and PISA's objective add to it depends on the encoder: {said}. With LoRa and a "
        "Transformer some runs of PISA [never learn](tables.md#runs-that-did-not-learn), and none of the control's."
    )
    return fill(words, 120, break_long_words=False, break_on_hyphens=False)


def finding() -> str:
    """One encoder for all antennas, as a finding."""
    parts = "; ".join(
        f"{title} {', '.join(f'{mean(v).mean:.3f}' for v in (one.single, one.control, one.pisa))}"  # type: ignore[union-attr]
        for title, one in compared().items()
    )
    return f"""- With a Transformer, what PISA gains over Single is one encoder for all antennas: a control has it, and
  neither attention, geometry nor PISA's objective. With a CNN these add much (Single, control, PISA:
  {parts};
  [`records/controls-place`](place.md#one-encoder-for-all-antennas))."""
