"""The sections of the results page on speed."""

from __future__ import annotations

from typing import Any

from benchmarks.report import RESULTS, read
from benchmarks.train_cpu import EMBEDDED

from pages.against_paper import markdown_table as table
from pisa_capc.evidence.benchmark.tables import stage_name
from pisa_capc.signal.waveforms import WAVEFORMS

MEASURE_AIMS = {"wifi": 100_000, "lora": 250_000}  # frames/s
EMBED_AIM = 10_000  # frames/s on two CPU cores


def grids() -> str:
    """How long the two simulation tables take."""
    record, runner, ray = read("speed/grid-h200.json"), read("speed/runner-2core.json"), read("speed/ray-h200.json")
    pisa, again = read("speed/pisa-grid-h200.json"), read("speed/pisa-grid-warm-h200.json")
    encoders = [[row["encoder"], f"{row['seconds']:.0f}", f"{row['source validation F1']:.3f}"] for row in pisa["rows"]]
    return f"""## Time of the simulation tables

{record["runs"]} runs (Wi-Fi and LoRa, seven encoders, Single and PISA, three splits × three seeds, 30 epochs; training,
calibration and scores) in {record["seconds"] / 60:.1f} minutes on one {record["gpu"]} ({record["taken"]}).
That is {record["seconds"] / 120:.0f} minutes for a table, where fifteen were the aim and thirty the bar; it was before
the safe stage, for whose guard every PISA job now trains two models more, so that today's command takes longer. The
runner itself costs {runner["overhead_percent"]:+.1f} % over the same run in plain Python (CPU time of a small run, two
cores).

The {pisa["runs"]} PISA runs of a table ({pisa["training_frames"]:,} training frames, {pisa["epochs"]} epochs each, with
compiling, validation after every epoch and writing of models) in **{pisa["seconds"]:.0f} s** on one
{pisa["machine"]["gpu"]}, nothing compiled before but Python's own modules; the aim of 300 s
{_met(pisa["seconds"] <= 300)}. Nine runs of an encoder are stacked, and {pisa["workers"]} encoders were trained at a
time, so that the seconds of the encoders add up to more than those of all. Again, {again["workers"]} at a time and
with all compiled, in
**{again["seconds"]:.0f} s**; the aim of 240 s {_met(again["seconds"] <= 240)}. Of the first time:

{table(["encoder", "seconds", "mean Macro-F1 on held-out source frames"], encoders)}

On Ray, with a share of {ray["share"]:g} of the GPU for a job, {ray["runs"]} runs in {ray["jobs"]} stacked jobs ended
after {ray["seconds"]} s; {ray["processes_on_the_gpu_at_once"]} processes were on the GPU at once
({ray["epochs"]} epochs instead of 30, compiling included, which is most of it).

Commands: `{record["command"]}`; `make bench-runner`; `{pisa["command"]}`; `{again["command"]}`;
`{ray["command"]}`
"""


def waiting() -> str:
    """Full-size trainings of many networks that a CPU has no time for, with an estimate from what is recorded."""
    pisa = read("speed/pisa-grid-h200.json")
    cell = pisa["seconds"] / len(pisa["rows"]) / 60  # minutes of nine runs of one encoder, seven at a time
    noise, block = (f"all encoders and `pisa-equalised` in a copy of {name}" for name in ("noise-place", "block-place"))
    again = "`pisa bench run PROTOCOL --data lora --results NEW`, all protocols with `--only encoder=transformer`"
    search = "30 epochs and three seeds in the search of a copy of baselines-place"
    rows = {  # what: command, cells of nine runs
        "LoRa (channel of the place) with the Transformer, kernels by rule: the tables' runs are of before": (
            again,
            31,
        ),
        "Searches of the other six methods at full epochs, three seeds": (search, 36),
        "Wi-Fi with noise of the place: what noise-place leaves out": (noise, 17),
        "Wi-Fi, validation by blocks of time: what block-place leaves out": (block, 17),
        "ε from 0.05 to 10 at full size": ("`pisa bench run`, one stage for each ε", 14),
    }
    cells = [[what, how, f"{9 * count}", f"{cell * count:.0f} min"] for what, (how, count) in rows.items()]
    return f"""## Waiting for a GPU

Runs that no page has yet. The time is an estimate for one {pisa["machine"]["gpu"]}, from the {pisa["runs"]} PISA runs
above ({cell:.1f} minutes for nine runs of an encoder):

{table(["what", "command", "runs", "about"], cells)}

Records that do not say their machine ([below](#machines)) and wait for it, too: `calibrate-h200`
(`make bench-calibrate` there, about 2 min) and `grid-h200` ({read("speed/grid-h200.json")["seconds"] / 60:.0f} min).
"""


def _met(reached: bool) -> str:
    return "is reached" if reached else "is missed"


def train() -> str:
    record = read("speed/train-h200.json")
    encoders = [row for row in record["rows"] if "eager ms" in row]
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
        for row in encoders
    ]
    quick = [row["encoder"] for row in encoders if row["ours ms"] <= 0.5]
    slowest = max(row["ours ms"] for row in encoders)
    headings = ["encoder", "eager, one run", "nine stacked", "faster", "GFLOP", "of the FLOP floor", "prepare s", "GiB"]
    cores = read("speed/train-cpu.json")
    cpu_rows = [
        [
            row["encoder"],
            str(row["threads"]),
            *(f"{row[kind]:.0f}" for kind in ("eager", "before", "now")),
            f"{row['× eager']:.1f}×",
            f"{row['× before']:.1f}×",
            *((f"{row['bfloat16']:.0f}", f"{row['bfloat16 × before']:.1f}×") if "bfloat16" in row else ("–", "–")),
            f"{row['side by side']:.0f}" if "side by side" in row else "–",
        ]
        for row in cores["rows"]
    ]
    cpu_headings = ["encoder", "threads", "eager", "before", "now", "× eager", "× before"]
    cpu_headings += ["bfloat16", "× before", "side by side"]
    most = [row for row in cores["rows"] if row["threads"] == cores["cores"]]
    twice = ", ".join(row["encoder"] for row in most if row["× before"] >= 2) or "none"
    twice_mixed = ", ".join(row["encoder"] for row in most if row.get("bfloat16 × before", 0) >= 2) or "none"
    twice_beside = ", ".join(row["encoder"] for row in most if row["side by side"] >= 2 * row["before"]) or "none"
    slower = ", ".join(row["encoder"] for row in most if row["× eager"] < 1) or "none"
    other = read("speed/train-cpu-other.json")
    other_rows = [
        [row["encoder"], *(f"{row[kind]:.0f}" for kind in ("eager", "before", "now", "bfloat16", "side by side"))]
        + [f"{row[kind]:.2f}×" for kind in ("× eager", "× before", "bfloat16 × before")]
        for row in other["rows"]
        if row["threads"] == other["cores"]
    ]
    other_headings = ["encoder", "eager", "before", "now", "bfloat16", "side by side"]
    other_headings += ["× eager", "× before", "bfloat16 × before"]
    other_twice, other_mixed = (
        ", ".join(r["encoder"] for r in other["rows"] if r["threads"] == other["cores"] and r[kind] >= 2) or "none"
        for kind in ("× before", "bfloat16 × before")
    )
    other_embed, earlier_embed = _listed(other["embed"]), _listed(cores["embed_before"])
    rates = record["embed_frames_per_s"]
    embed_rows = [
        [f"{cores['cores']} CPU cores", f"{_embed_rate(cores, 'transformer', 'float32'):,.0f}"],
        ["one H200", f"{rates['cuda']:,.0f}"],
    ]
    block_rows = [[e["encoder"], e["precision"], f"{e['frames_per_s']:,.0f}"] for e in cores["embed"]]
    measured = read("speed/train-methods-h200.json")
    methods = [(stage_name(r["method"], "direct"), r["ours ms"], r["× single"], r["GFLOP"]) for r in measured["rows"]]
    method_rows = [[name, f"{ms:.3f}", f"{times:.2f}", f"{gflop:.1f}"] for name, ms, times, gflop in methods]
    over = ", ".join(f"{name} ({times:.2f})" for name, _, times, _ in methods if times > 3)
    return f"""## Training speed

Milliseconds per step of one run: PISA, batch 128, two views. {record["machine"]["gpu"]}, bfloat16,
torch {record["machine"]["torch"]}. The floor is the counted FLOP at the rate of a large matrix product there
({record["matmul_tflops"]:.0f} TFLOP/s).
`prepare` is the start with the compiler's caches filled, the start of the processes that would compile included; the
first start on a machine is [below](#starts).
These are {record["taken"]}.

{table(headings, rows)}

Faster: a step of one run alone in plain PyTorch against a ninth of a step of nine runs stacked. So much is gained where
nine runs are wanted, as in every table here, not by one run.
The aims were 0.5 ms for CNN and Transformer and 1.2 ms for all. At most 0.5 ms: {", ".join(quick)}; the slowest takes
{slowest:.2f} ms. Where the time goes
(`python -m benchmarks.train --profile`): passes over activations in memory for the convolutional encoders, the
320 dependent steps of the GRU for CLDNN, and for the Transformer two thirds in the kernels of its layers, bound by the
latency of small products rather than by their number.

The methods, nine stacked, same encoder (Transformer) and batch. The aims for comparison methods were three times
Single, and five for adversarial and teacher methods. Above three: {over}. PISA encodes every antenna by itself in two
views, SigMix three batches for Single's one. These are {measured["taken"]}.

{table(["method", "ms", "× Single", "GFLOP"], method_rows)}

One run on a CPU, float32, PISA, in frames a second. Before: plain layers, with memory that is kept from step to step.
Now: in blocks that stay in the cache. bfloat16: `--precision bfloat16`, mixed as on a GPU, on a processor that has it;
unless asked for, a CPU trains in float32, so that its results do not depend on that. Side by side: {cores["cores"]}
float32 runs together, a thread each. These are {cores["taken"]}.

{table(cpu_headings, cpu_rows)}

The aim was twice what was before with {cores["cores"]} threads, which these reach in float32: {twice}; in bfloat16:
{twice_mixed}; side by side in float32: {twice_beside}. Slower than eager there in float32: {slower}.
Dropout masks are computed from the run's seed and the step, which makes a run the same in every stack and after every
stop, and costs more on a CPU than drawing them; a Transformer has one for every weight of its attention.

An earlier version, whose Transformer took more passes and silent antennas too, {other["cores"]} threads, on a slower
processor
({other["machine"]["processor"]}, on a busy host: small differences say little):

{table(other_headings, other_rows)}

Twice in float32: {other_twice}; in bfloat16: {other_mixed}. `embed` has {other_embed} frames/s there.

`embed` with a Transformer (on the GPU, reading and normalising the frames is what takes the time):

{table(["machine", "frames/s"], embed_rows)}

On the machine of the table of one run, with all its cores, {EMBEDDED:,} frames, also as
`embed(…, precision="bfloat16")`:

{table(["encoder", "precision", "frames/s"], block_rows)}

The aim on two cores was {EMBED_AIM:,}, which these reach: {embed_reach(cores["embed"])}.
The same code on the same kind of processor, on a day when it was quicker: {earlier_embed}; which reach it:
{embed_reach(cores["embed_before"])}.
The time that recording the network takes is in it; of few frames it is not recorded.

Command: `make bench-train`, `make bench-train_cpu`;
`python -m benchmarks.train --no-eager --encoders transformer --methods single,…` for the methods
"""


def _listed(rows: list[dict[str, Any]]) -> str:
    return ", ".join(f"{e['frames_per_s']:,.0f} ({e['encoder']}, {e['precision']})" for e in rows)


def _embed_rate(record: dict[str, Any], encoder: str, precision: str) -> float:
    [rate] = [
        row["frames_per_s"] for row in record["embed"] if (row["encoder"], row["precision"]) == (encoder, precision)
    ]
    return float(rate)


def embed_reach(rows: list[dict[str, Any]]) -> str:
    """With which encoders, in which precision, `embed` has the frames a second that were the aim."""
    reached = [row for row in rows if row["frames_per_s"] >= EMBED_AIM]
    return ", ".join(f"{row['encoder']} in {row['precision']}" for row in reached) or "none"


def calibrate() -> str:
    record = read("speed/calibrate-2core.json")
    rows = [[name, f"{row['ms']:,.1f}", f"{row['peak_mib']:.0f}"] for name, row in record["rows"].items()]
    large = []
    for path in sorted(RESULTS.glob("speed/calibrate-1*M-2core.json")):
        for name, row in read(f"speed/{path.name}")["rows"].items():
            large.append(f"{name} in {row['ms'] / 1e3:,.0f} s with {row['peak_mib']:,.0f} MiB of its own")
    gpu = read("speed/calibrate-h200.json")["rows"]
    rows += [[name.replace("cuda", "H200"), f"{row['ms']:,.1f}", "–"] for name, row in gpu.items() if "cuda" in name]
    return f"""## Calibration speed

24,960 × 64 embeddings, ten classes, four captures, {record["threads"]} CPU threads or one H200. POT's rows are the same
calibration with POT's log-domain Sinkhorn (`sinkhorn_log`) at equal iterations. Ours scales a kernel whose exponentials
are taken once, so that part of the difference is the form of the algorithm: this is no comparison of like with like.
The aims were 60 ms on the CPU, which is
{"reached" if record["rows"]["ucapc cpu"]["ms"] <= 60 else "missed"}, and 3 ms on the GPU, which is
{"reached" if gpu["ucapc cuda"]["ms"] <= 3 else "missed"}.

{table(["calibration", "ms", "peak MiB beyond input and output"], rows)}

Memory-mapped scores, four captures: {"; ".join(large)}.

Command: `make bench-calibrate`, `python -m benchmarks.calibrate --large`
"""


def measure() -> str:
    record = read("speed/measure-2core.json")
    rows = [[WAVEFORMS[row["waveform"]].title, row["way"], f"{row['frames/s']:,.0f}"] for row in record["rows"]]
    quick = {row["waveform"]: row["frames/s"] for row in record["rows"] if row["way"] == "closed form"}
    aims = ", ".join(
        f"{aim:,} for {WAVEFORMS[name].title}, which {_met(quick[name] >= aim)}" for name, aim in MEASURE_AIMS.items()
    )
    return f"""## Measuring speed

Frames a second from samples in memory to logits of ten devices: {record["antennas"]} antennas, {record["samples"]}
samples, {record["frames"]:,} frames, {record["threads"]} threads ({record["machine"]["processor"]}). Plain NumPy
measures the same flaws and gives no logits. The aims for the closed form were {aims}.

{table(["waveform", "way", "frames/s"], rows)}

Command: `make bench-measure`
"""


def simulate() -> str:
    record = read("speed/simulate-2core.json")
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


START_AIMS = {"pisa --help": 0.3, "import pisa_capc": 0.3}  # seconds; of a first step on a GPU:
FIRST_STEP_AIM = 30.0


def starts() -> str:
    """The command line, the import and, where a GPU was measured, the first step."""
    machines = {name: read(f"speed/start-{name}.json") for name in ("2core", "h200") if _recorded(f"start-{name}.json")}
    rows = []
    for name, record in machines.items():
        for row in record["rows"]:
            aim = START_AIMS.get(row["what"], FIRST_STEP_AIM if "gpu" in record["machine"] else None)
            rows.append([name, row["what"], f"{row['seconds']:.2g}", *_against(row["seconds"], aim)])
    if not rows:
        return ""
    taken = " ".join(f"{record['taken']}." for record in machines.values() if "taken" in record)
    return f"""## Starts

Seconds from the start of Python until it is done: the median of several, and of a first training step (PISA, one run,
batch 128) one start with no kernel compiled; Python's own modules are, as in an installation that was started before.
{taken}

{table(["machine", "what", "s", "aim", ""], rows)}

Command: `make bench-start`
"""


def machines() -> str:
    """What each record on speed was made on."""
    rows = []
    for path in sorted(RESULTS.glob("speed/*.json")):
        record = read(f"speed/{path.name}")
        found = [own for own in (record, *record.get("parts", {}).values()) if "machine" in own]
        machine = found[0]["machine"] if found else {}
        what = machine.get("gpu") or machine.get("processor") or ("not told" if found else "**no record**")
        when = found[0].get("made", {}).get("time", "–")[:10] if found else "–"
        rows.append([path.stem, what, str(machine.get("cores", "–")), machine.get("torch", "–"), when])
    return f"""## Machines

What each record in `results/speed/` was made on. Not told: the record has versions and cores, and no processor.
`make speed-records` makes those of two cores that are without, where nothing else runs on the machine.

{table(["record", "GPU or processor", "cores", "torch", "made"], rows)}
"""


def _against(value: float, aim: float | None) -> tuple[str, str]:
    return ("–", "") if aim is None else (f"{aim:g}", "is reached" if value <= aim else "is missed")


def _recorded(name: str) -> bool:
    return (RESULTS / "speed" / name).is_file()
