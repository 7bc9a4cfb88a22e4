"""Loading speed of the native store against reading the same bytes with np.fromfile, in one run.

`make bench-load` writes a random set of the paper's size (119 captures, 76,288 frames, 781 MB) to a temporary folder.
The pages are in the operating system's cache after writing, so this measures the store, not the disk.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pisa_capc import load
from pisa_capc.geometry import square
from pisa_capc.store import CaptureSpec, Dataset, write_dataset


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="frames per capture, relative to the paper's set")
    scale = parser.parse_args().scale
    with tempfile.TemporaryDirectory() as name:
        folder, flat = Path(name) / "set", Path(name) / "flat.bin"
        write_random(folder, scale)
        frames = load(folder)
        frames.iq.tofile(flat)
        chosen = np.sort(np.random.default_rng(0).permutation(len(frames))[: len(frames) // 10])
        first = frames.where(environment=["E1"])
        rates = {
            "np.fromfile": best_rate(lambda: np.fromfile(flat, dtype=np.complex64)),
            "whole set": best_rate(lambda: frames.iq),
            "one environment": best_rate(lambda: first.iq),
            "random tenth": best_rate(lambda: frames.select(chosen).iq),
        }
    print(f"{'what':<18}{'MB/s':>8}{'of np.fromfile':>16}")
    for what, rate in rates.items():
        print(f"{what:<18}{rate:>8.0f}{rate / rates['np.fromfile']:>16.2f}")
    print(json.dumps({"frames": len(frames), "megabytes_per_second": {k: round(v) for k, v in rates.items()}}))


def best_rate(read: Callable[[], np.ndarray], repeats: int = 3) -> float:
    """MB/s of the fastest of a few reads; the array's own bytes count, not what is read to get them."""
    times, size = [], 0
    for _ in range(repeats):
        start = time.perf_counter()
        size = read().nbytes
        times.append(time.perf_counter() - start)
    return size / 1e6 / min(times)


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
    main()
