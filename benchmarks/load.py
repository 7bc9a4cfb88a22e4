"""Loading speed of the native store against reading the same bytes with np.fromfile, in one run.

`make bench-load` writes a random set of the paper's size (119 captures, 76,288 frames, 781 MB) to a temporary folder.
The pages are in the operating system's cache after writing, so this measures the store; the rows 'from the disk' come
after the pages were given up, and read as a set is read that is larger than the memory. What a process reads for the
first time is compared with its digests; the row 'checked' is such a reading, with the opening of all files, and the
others come after it. `bench-checks` measures the comparison alone.

Streamed batches are those of a training in two environments whose frames do not fit on the device: 128 random frames
for each run of a stack, at unit power, through `Bank.stream`. Nothing else happens meanwhile, so the rate is that of
the reader, and a training that needs fewer batches per second never waits for it.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.report import begin, show
from pisa_capc import Frames, load
from pisa_capc.core.process import keep_freed_memory
from pisa_capc.data.geometry import square
from pisa_capc.data.store import CaptureSpec, Dataset, native, write_dataset
from pisa_capc.model.training.bank import Bank

BATCH = 128
STEPS = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="frames per capture, relative to the paper's set")
    scale = parser.parse_args().scale
    keep_freed_memory()  # as a training on a CPU does
    with tempfile.TemporaryDirectory() as name:
        folder, flat = Path(name) / "set", Path(name) / "flat.bin"
        write_random(folder, scale)
        frames = load(folder)
        frames.iq.tofile(flat)
        source = frames.where(environment=["E2", "E3"])
        chosen = np.sort(np.random.default_rng(0).permutation(len(frames))[: len(frames) // 10])
        reads: dict[str, Callable[[], int]] = {
            "np.fromfile": lambda: np.fromfile(flat, dtype=np.complex64).nbytes,
            "whole set, checked": lambda: load(folder).iq.nbytes,
            "whole set": lambda: frames.iq.nbytes,
            "one environment": lambda: frames.where(environment=["E1"]).iq.nbytes,
            "random tenth": lambda: frames.select(chosen).iq.nbytes,
        }
        rows = [timed(what, read) for what, read in reads.items()]
        rows += [streamed(f"streamed, {runs} run{'s' * (runs > 1)}", source, runs) for runs in (1, 9)]
        os.sync()  # what is not on the disk yet cannot be given up
        native.MAPPED = 0
        rows.append(timed("np.fromfile, from the disk", reads["np.fromfile"], before=lambda: give_up(Path(name))))
        rows.append(streamed("streamed, 9 runs, from the disk", load(folder).where(["E2", "E3"]), 9, Path(name)))
    show("Loading", rows, {"frames": len(frames), "batch": BATCH})


def timed(
    what: str, read: Callable[[], int], repeats: int = 3, before: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """MB/s and CPU time of the fastest of a few reads; the bytes of the result count, not what is read to get them."""
    rates, cpu_s = [], []
    for _ in range(repeats):
        before()
        start, begun_s = time.perf_counter(), time.process_time()
        size = read()
        rates.append(size / 1e6 / (time.perf_counter() - start))
        cpu_s.append(time.process_time() - begun_s)
    return {"what": what, "MB/s": max(rates), "CPU s": min(cpu_s)}


def streamed(what: str, frames: Frames, runs: int, evicted: Path | None = None) -> dict[str, Any]:
    """Batches of a stack of runs, streamed; from the disk where the pages of a folder are given up before."""
    bank = Bank(frames, torch.device("cpu"), resident=False)
    steps = max(1, min(STEPS, len(frames) // (4 * runs * BATCH))) if evicted else STEPS  # few pages are read twice
    plan = np.random.default_rng(0).integers(len(frames), size=(steps, runs, BATCH))
    row = timed(
        what,
        lambda: sum(iq.nbytes for iq in bank.stream(plan)),
        before=lambda: None if evicted is None else give_up(evicted),
    )
    size = runs * BATCH * frames.antennas * frames.samples * 8 / 1e6
    return row | {"batches/s": row["MB/s"] / size, "ms a batch": size / row["MB/s"] * 1e3}


def give_up(folder: Path) -> None:
    """Have the operating system forget what it keeps of the files of a folder."""
    for path in folder.rglob("*.*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def write_random(folder: Path, scale: float) -> None:
    """The layout of the paper's set; every capture holds the same noise."""
    captures = tuple(
        CaptureSpec(e, f"D{d:02d}", c, max(1, round(scale * (1024 if c == "M" else 512))))
        for e in ("E1", "E2", "E3")
        for d in range(1, 11)
        for c in ("L1", "L2", "L3", "M")
        if (e, d, c) != ("E3", 5, "L1")
    )
    noise = np.random.default_rng(0).normal(size=(max(c.frames for c in captures), 4, 640)).astype(np.float32)
    iq = noise.view(np.complex64)
    cfo_hz = np.zeros((len(iq), 4))
    dataset = Dataset(square(), 20e6, 5.825e9, 320, captures, {"command": "benchmark"})
    write_dataset(folder, dataset, ((c, iq[: c.frames], cfo_hz[: c.frames]) for c in captures))


if __name__ == "__main__":
    begin(main)
