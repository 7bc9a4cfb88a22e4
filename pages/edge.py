"""The section of the results page on exported models: one core, beside PyTorch, and what eight bits cost."""

from __future__ import annotations

from typing import Any

from benchmarks.report import RESULTS, read

from pages.against_paper import markdown_table as table
from pisa_capc.encoders import encoder_title
from pisa_capc.methods import method_title

RECORD, EIGHT_BITS = "speed/edge-1core.json", "speed/edge-int8-1core.json"
OTHER = "speed/edge-1core-other.json"  # the same on an earlier machine, which did not note its processor
SPEED, MEMORY_MB, START_S = 3000, 100, 1.0  # what was aimed at
COST = 0.005  # of Macro-F1 that eight bits would be let pass with


def section() -> str:
    """Nothing before it was measured."""
    if not (RESULTS / RECORD).exists():
        return ""
    record = read(RECORD)
    rows = record["rows"]
    cells = [
        [
            f"{method_title(row['method'])}, {encoder_title(row['encoder'])}",
            f"{row['frames/s']:,.0f}",
            f"{row['one by one']:,.0f}",
            f"{row['start s']:.2f}",
            f"{row['memory MB']:.0f}",
            f"{row['file kB']:.0f}",
            f"{row['PyTorch frames/s']:,.0f}",
            f"{row['PyTorch start s']:.1f}",
            f"{row['PyTorch MB']:.0f}",
            f"{row['speed-up']:.2f}×",
        ]
        for row in rows
    ]
    headings = ["model", "frames/s", "one by one", "start s", "MB", "file kB"]
    headings += ["PyTorch frames/s", "start s", "MB", "faster"]
    return f"""## On the edge

[An exported model](../edge.md) on one core: frames a second in the blocks that suit it best and one frame at a time,
start to the first decision, peak memory of the process; PyTorch beside it in the same run. Four antennas, 320 samples,
ten devices; processor time of {record["machine"]["processor"]}.
The aims were {SPEED:,} frames/s, which {_reached(rows)}, {MEMORY_MB} MB, which
{_all(rows, "memory MB", MEMORY_MB)}, and a start under a second, which {_all(rows, "start s", START_S)}.

{table(headings, cells)}

{_elsewhere(read(OTHER)["rows"])}
{_eight_bits()}
Command: `make bench-edge`
"""


def _reached(rows: list[dict[str, Any]]) -> str:
    quick = [row for row in rows if row["frames/s"] >= SPEED]
    names = ", ".join(f"{method_title(row['method'])} with the {encoder_title(row['encoder'])}" for row in quick)
    return f"{len(quick)} of {len(rows)} reach ({names})" if quick else "none reaches"


def _elsewhere(rows: list[dict[str, Any]]) -> str:
    """How much of it is the processor."""
    quick = sum(row["frames/s"] >= SPEED for row in rows)
    slowest, fastest = (choose(row["frames/s"] for row in rows if row["method"] == "pisa") for choose in (min, max))
    return (
        f"On an earlier, slower machine, whose processor was not noted, {quick} of {len(rows)} reached it: PISA had "
        f"{slowest:,.0f} to\n{fastest:,.0f} frames/s there."
    )


def _all(rows: list[dict[str, Any]], what: str, most: float) -> str:
    inside = sum(row[what] <= most for row in rows)
    return "all keep" if inside == len(rows) else f"{inside} of {len(rows)} keep"


def _eight_bits() -> str:
    if not (RESULTS / EIGHT_BITS).exists():
        return ""
    [row] = read(EIGHT_BITS)["rows"]
    own, other = (row[f"int8 costs, {domain}"] for domain in ("source", "target"))
    gain = row["int8 frames/s"] / row["float32 frames/s"]
    return f"""
Eight bits are {"worth it" if offered(row) else "not offered"}: convolutions of eight bits, with ranges from source
frames, change Macro-F1 by {-own:+.4f} on the source's validation frames and by {-other:+.4f} in the new place
({row["float32 source"]:.3f} and {row["float32 target"]:.3f} before; up to {COST} would be let pass), and run at
{gain:.2f} times the speed (PISA of `make demo`, CNN; `make bench-edge ARGS="--int8 demo/pisa demo/wifi"`).
"""


def offered(row: dict[str, Any]) -> bool:
    """Whether eight bits cost little enough in both domains."""
    return bool(max(row["int8 costs, source"], row["int8 costs, target"]) < COST)
