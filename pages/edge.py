"""The section of the results page on exported models: one core, beside PyTorch, and what eight bits gained."""

from __future__ import annotations

from typing import Any

from benchmarks.report import RESULTS, read

from pages.against_paper import markdown_table as table
from pisa_capc.model.encoders import encoder_title
from pisa_capc.model.methods import method_title

RECORD, EIGHT_BITS = "speed/edge-1core.json", "speed/edge-int8-1core.json"
OTHER = "speed/edge-1core-other.json"  # of an earlier version, on another machine
SPEED, MEMORY_MB, START_S = 3000, 100, 1.0  # what was aimed at


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

{_elsewhere(read(OTHER))}
{_eight_bits()}
Command: `make bench-edge`
"""


def _reached(rows: list[dict[str, Any]]) -> str:
    quick = [row for row in rows if row["frames/s"] >= SPEED]
    names = ", ".join(f"{method_title(row['method'])} with the {encoder_title(row['encoder'])}" for row in quick)
    return f"{len(quick)} of {len(rows)} reach ({names})" if quick else "none reaches"


def _elsewhere(record: dict[str, Any]) -> str:
    """How much of it is the processor."""
    rows = record["rows"]
    quick = sum(row["frames/s"] >= SPEED for row in rows)
    pisa = {row["encoder"]: row for row in rows if row["method"] == "pisa"}
    slowest, fastest = (choose(row["frames/s"] for row in pisa.values()) for choose in (min, max))
    cldnn = pisa["cldnn"]
    return f"""On a slower processor ({record["machine"]["processor"]}) PISA had {slowest:,.0f} to {fastest:,.0f}
frames/s, and {quick} of {len(rows)} reached {SPEED:,}. That was the version before, whose CLDNN took every step's
inputs by themselves: {cldnn["frames/s"]:,.0f} frames/s, {cldnn["speed-up"]:.1f} times what PyTorch had."""


def _all(rows: list[dict[str, Any]], what: str, most: float) -> str:
    inside = sum(row[what] <= most for row in rows)
    return "all keep" if inside == len(rows) else f"{inside} of {len(rows)} keep"


def _eight_bits() -> str:
    record = read(EIGHT_BITS)
    rows = [
        [
            f"{row['dataset']}, {encoder_title(row['encoder'])}",
            f"{row['float32 source']:.4f} → {row['int8 source']:.4f}",
            f"{row['float32 target']:.4f} → {row['int8 target']:.4f}",
            f"{row['float32 frames/s']:,.0f} → {row['int8 frames/s']:,.0f}",
            f"{row['float32 kB']:.0f} → {row['int8 kB']:.0f}",
            "any" if row["portable"] else "ARM, or VNNI",
        ]
        for row in record["rows"]
    ]
    headings = ["set and encoder", "Macro-F1, held-out source", "in the new place", "frames/s", "kB", "processor"]
    return f"""
Convolutions of eight bits were an option of an earlier version (`--int8`). It was removed: the CNN gained
{_gain(record, "cnn")}, and the MSCNN {_gain(record, "mscnn")}, right on some processors only, and still
slower than the plain CNN. With PISA; {record["runs"]}:

{table(headings, rows)}

Commands, of that version: `{record["command"]}`
"""


def _gain(record: dict[str, Any], encoder: str) -> str:
    """Frames per second more than in float32, over the sets."""
    rows = [row for row in record["rows"] if row["encoder"] == encoder]
    gains = sorted({f"{row['int8 frames/s'] / row['float32 frames/s'] - 1:.0%}" for row in rows})
    return " to ".join(gains)
