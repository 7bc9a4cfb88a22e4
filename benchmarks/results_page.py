"""docs/results.md from the records in results/: `python -m benchmarks.results_page`."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from benchmarks.against_paper import LIMITS, section
from benchmarks.against_paper import markdown_table as table
from benchmarks.sides import Row, published

RESULTS = Path("results")
PAGE = Path("docs/results.md")


def read(name: str) -> Any:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def spread(values: list[float]) -> str:
    return f"{statistics.mean(values):.4f} ± {statistics.stdev(values):.4f}"


def first_grid() -> str:
    """PISA alone on some encoders, from the time before there were protocols."""
    record, printed = read("wifi-pisa.json"), published()["wifi-sim"].numbers
    rows, gains, means = [], [], {}
    for encoder, entry in record["encoders"].items():
        runs = entry["runs"]
        direct, paper = ([run[stage]["macro_f1"] for run in runs] for stage in ("direct", "paper"))
        gain = [b - a for a, b in zip(direct, paper, strict=True)]
        gains += gain
        means[encoder] = statistics.mean(direct)
        theirs = [printed[Row("E2,E3 → E1", "pisa", "full", encoder, stage)]["f1"] for stage in ("direct", "paper")]
        rows.append(
            [
                encoder,
                spread([run["validation_f1"] for run in runs]),
                spread(direct),
                spread(paper),
                f"{statistics.mean(gain):+.4f} ({min(gain):+.4f} … {max(gain):+.4f})",
                " → ".join(theirs),
                f"{entry['train_seconds']:.0f}",
            ]
        )
    headings = [
        "encoder",
        "source validation F1",
        "PISA direct F1",
        "PISA-CAPC F1",
        "paired gain (least … most)",
        "paper's own simulation",
        "seconds for nine runs",
    ]
    settings = record["settings"]
    counts = "{:,} training, {:,} validation, {:,} target frames".format(*settings["frames"])
    low, high = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
    return f"""## Wi-Fi simulation, PISA alone, E2,E3 → E1

Full size ({counts}), three splits × three seeds, {settings["epochs"]} epochs, on one
{record["machine"]["gpu"]}. Mean ± sample standard deviation of nine runs.

{table(headings, rows)}

U-CAPC gained in {sum(g > 0 for g in gains)} of {len(gains)} runs. PISA's means span {means[low]:.2f} ({low})
to {means[high]:.2f} ({high}).

Command: `python -m benchmarks.grid --data wifi --out results/wifi-pisa.json --encoders {",".join(record["encoders"])}`
"""


def train() -> str:
    record = read("bench-train-h200.json")
    rows = [
        [
            row["encoder"],
            f"{row['eager ms']:.1f}",
            f"{row['ours ms']:.3f} ± {row['± ms']:.4f}",
            f"{row['speed-up']:.0f}×",
            f"{row['GFLOP']:.1f}",
            f"{row['share of floor %']:.1f} %",
            f"{row['prepare s']:.0f}",
            f"{row['peak GiB']:.1f}",
        ]
        for row in record["rows"]
    ]
    quick = [row["encoder"] for row in record["rows"] if row["ours ms"] <= 0.5]
    slowest = max(row["ours ms"] for row in record["rows"])
    headings = ["encoder", "eager, one run", "nine stacked", "faster", "GFLOP", "of the FLOP floor", "prepare s", "GiB"]
    cpu = read("bench-train-2core.json")
    cpu_rows = [[r["encoder"], f"{r['eager ms']:.0f}", f"{r['ours ms']:.0f}"] for r in cpu["rows"]]
    rates = record["embed_frames_per_s"]
    return f"""## Training speed

Milliseconds per step of one run: PISA, batch 128, two views. {record["machine"]["gpu"]}, bfloat16,
torch {record["machine"]["torch"]}. The floor is the counted FLOP at the rate of a large matrix product there
({record["matmul_tflops"]:.0f} TFLOP/s).
`prepare` is compilation on a machine that has compiled nothing before.

{table(headings, rows)}

The aim of 0.5 ms is met by {", ".join(quick)} and missed by the others; the slowest takes
{slowest:.2f} ms. Where the time goes
(`python -m benchmarks.train --profile`): passes over activations in memory for the convolutional encoders, the
320 dependent steps of the GRU for CLDNN, attention and many small matrix products for the Transformer.

Two CPU cores, float32, one run: {"; ".join(f"{e} {a} ms eager, {b} ms ours" for e, a, b in cpu_rows)}.
`embed` with a Transformer: {cpu["embed_frames_per_s"]["cpu"]:,.0f} frames/s on two CPU cores,
{rates["cuda"]:,.0f} on the H200 machine (a short run, bound by reading and normalising the frames).

Command: `make bench-train`
"""


def calibrate() -> str:
    record = read("bench-calibrate-2core.json")
    rows = [[name, f"{row['ms']:,.1f}", f"{row['peak_mib']:.0f}"] for name, row in record["rows"].items()]
    large = []
    for path in sorted(RESULTS.glob("bench-calibrate-1*M-2core.json")):
        for name, row in read(path.name)["rows"].items():
            large.append(f"{name} in {row['ms'] / 1e3:,.0f} s with {row['peak_mib']:,.0f} MiB of its own")
    return f"""## Calibration speed

24,960 × 64 embeddings, ten classes, four captures, {record["threads"]} CPU threads; POT's rows are the same algorithm
on its log-domain Sinkhorn at equal iterations.

{table(["calibration", "ms", "peak MiB beyond input and output"], rows)}

Memory-mapped scores, four captures: {"; ".join(large)}.

Command: `make bench-calibrate`, `python -m benchmarks.calibrate --large`
"""


def simulate() -> str:
    record = read("bench-simulate-2core.json")
    rows = [
        [name, f"{row['frames_per_s']:,.0f}", f"{row['frames_per_cpu_s']:,.0f}", f"{row['peak_mb']:.0f}"]
        for name, row in record["results"].items()
    ]
    return f"""## Simulation speed

Two processes on two cores, four antennas, frames in memory; Sionna's block-static TDL-D with the same impairments in
plain torch as peer (`sionna` with its own channel block, `sionna-matmul` with the fastest plain torch we found).

{table(["generator", "frames/s", "frames per CPU second", "peak MB of a worker"], rows)}

Command: `make setup-bench bench-simulate`
"""


def main() -> None:
    head = "# Results\n\nMade from the records in `results/` by `python -m benchmarks.results_page`; do not edit.\n"
    tables = [section(name, RESULTS) for name in published()]
    parts = [head, LIMITS, *tables, first_grid(), train(), calibrate(), simulate()]
    PAGE.write_text("\n".join(parts), encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()
