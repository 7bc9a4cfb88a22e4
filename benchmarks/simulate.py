"""Speed and memory of the simulators against Sionna, two single-threaded processes each, in turn in one run.

`make bench-simulate`. The peer needs `make setup-bench` once; without it the table has our rows only. Both sides make
frames in memory; then the whole Wi-Fi set is written to disk. `sionna` applies the taps with Sionna's own block,
`sionna-matmul` with the fastest plain torch we found. Prints a table and, as its last line, one JSON object.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

from benchmarks.report import of_what
from pisa_capc.signal.simulation.capture import prepare, render
from pisa_capc.signal.simulation.generate import generate
from pisa_capc.signal.simulation.scene import load_scene
from pisa_capc.signal.waveforms import WAVEFORMS

PROCESSES = 2
CASES = {"wifi": 320, "lora": 8192}
HEAD = {"wifi": 400, "lora": 9216}  # samples that the peer is given to send
PEER_BATCH = {"wifi": 64, "lora": 8}  # where the peer is fastest
PEER_PYTHON = Path(".venv-bench/bin/python")


def work(kind: str, seconds: float) -> None:
    """One of our workers: frames of one capture after the other until the time is over."""
    scene = load_scene(kind, samples=CASES[kind])
    layout = itertools.cycle(replace(spec, frames=min(spec.frames, 2**23 // CASES[kind])) for spec in scene.layout())
    with threadpool_limits(1):
        for _ in render(prepare(scene, 0, next(layout))):
            break
        print("ready", flush=True)
        sys.stdin.readline()
        frames, started, cpu = 0, time.perf_counter(), time.process_time()
        while time.perf_counter() - started < seconds:
            frames += sum(len(piece) for piece in render(prepare(scene, 0, next(layout))))
    elapsed, used = time.perf_counter() - started, time.process_time() - cpu
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"frames": frames, "seconds": elapsed, "cpu_seconds": used, "peak_mb": peak_mb}), flush=True)


def race(command: list[str]) -> dict[str, float]:
    """Start the processes, let them begin together, and add up what they did."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    workers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(PROCESSES)
    ]
    try:
        for worker in workers:
            if worker.stdout.readline().strip() != "ready":
                raise SystemExit(f"benchmark: a worker did not start: {' '.join(command)}")
        for worker in workers:
            worker.stdin.write("\n")
            worker.stdin.flush()
        found = [json.loads(worker.stdout.readline()) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    return {
        "frames_per_s": sum(f["frames"] / f["seconds"] for f in found),
        "frames_per_cpu_s": sum(f["frames"] for f in found) / sum(f["cpu_seconds"] for f in found),
        "peak_mb": max(f["peak_mb"] for f in found),
    }


def commands(kind: str, seconds: float, peer_python: Path, folder: Path) -> dict[str, list[str]]:
    """What to run for each contestant."""
    out = {"pisa": [sys.executable, "-m", "benchmarks.simulate", "--work", kind, "--seconds", str(seconds)]}
    if peer_python.is_file():
        scene = load_scene(kind, samples=CASES[kind])
        np.save(folder / f"{kind}.npy", WAVEFORMS[kind].head(HEAD[kind]))
        settings = (
            CASES[kind],
            scene.waveform.sample_rate_hz,
            scene.waveform.carrier_hz,
            scene.environments["E2"].delay_spread_s.mean,
            PEER_BATCH[kind],
            seconds,
        )
        script = Path(__file__).with_name("sionna_peer.py")
        for name, by in (("sionna", "block"), ("sionna-matmul", "matmul")):
            out[name] = [str(peer_python), str(script), by, str(folder / f"{kind}.npy"), *map(str, settings)]
    return out


def measure(seconds: float, rounds: int, peer_python: Path) -> dict[str, dict[str, float]]:
    """The median of several rounds, contestants in turn so that they meet the same state of the machine."""
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in CASES:
            contestants = commands(kind, seconds, peer_python, Path(folder))
            runs = [{name: race(command) for name, command in contestants.items()} for _ in range(rounds)]
            for name in contestants:
                results[f"{kind} {name}"] = {key: median(run[name][key] for run in runs) for key in runs[0][name]}
    return results


def full_wifi_seconds(folder: str | None) -> float:
    """Wall-clock time of the whole Wi-Fi set, processes started and files written."""
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        started = time.perf_counter()
        generate("wifi", Path(temporary) / "wifi", workers=PROCESSES, show_progress=False)
        return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulate", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=4.0, help="length of one round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer-python", type=Path, default=PEER_PYTHON, help="interpreter that has Sionna")
    parser.add_argument("--folder", help="where the Wi-Fi set is written (a temporary folder by default)")
    parser.add_argument("--out", type=Path, help="also write the JSON object to this file")
    parser.add_argument("--work", choices=CASES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work, options.seconds)
        return
    results = measure(options.seconds, options.rounds, options.peer_python)
    seconds = full_wifi_seconds(options.folder)
    table = Table("waveform", "samples", "generator", "frames/s", "frames/CPU s", "peak MB", "speed-up")
    for key, row in results.items():
        kind, name = key.split()
        # In CPU time, which neighbours on a busy machine disturb less than time on the wall.
        gain = results[f"{kind} pisa"]["frames_per_cpu_s"] / row["frames_per_cpu_s"]
        ratio = "" if name == "pisa" else f"{gain:.1f}×"
        cells = (f"{row['frames_per_s']:,.0f}", f"{row['frames_per_cpu_s']:,.0f}", f"{row['peak_mb']:.0f}", ratio)
        table.add_row(kind, str(CASES[kind]), name, *cells)
    console = Console()
    console.print(table)
    console.print(f"The whole Wi-Fi set, 76,288 frames written to disk: {seconds:.1f} s")
    if not options.peer_python.is_file():
        console.print(f"Sionna was skipped: no {options.peer_python}. Install it with `make setup-bench`.")
    record = of_what() | {"processes": PROCESSES, "samples": CASES, "results": results, "full_wifi_seconds": seconds}
    if options.out:
        options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(record))


if __name__ == "__main__":
    main()
