"""Speed and memory of every calibration: `python -m benchmarks.calibrate [--large]`.

The paper's size: 24,960 frames, 64 features, ten classes, four captures. U-CAPC runs beside the same algorithm built on
POT's log-domain Sinkhorn at equal iterations, and beside its peers. `--large` adds 10 million frames of ten classes and
1 million of 1,000 classes, from and to memory-mapped files. The last line is one JSON object with the same figures.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.memory import peak_memory
from benchmarks.report import of_what
from pisa_capc.core.randomness import generator
from pisa_capc.decide.calibration import UCAPC, SourceStatistics, calibrators
from pisa_capc.decide.calibration.blocks import Blocks
from pisa_capc.decide.calibration.ucapc import capture_prototypes, fuse_scores, prototype_scores

FRAMES, FEATURES, CLASSES, CAPTURES = 24_960, 64, 10, 4
LARGE = {"10M x 10": (10_000_000, 64, 10), "1M x 1000": (1_000_000, 64, 1000)}
CHUNK = 200_000


def make_scores(frames: int, features: int, classes: int, embedding: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """Fill float32 arrays with noisy classes behind a linear classifier; returns the classifier's rows (C, D)."""
    draw = generator(2026, "bench-calibrate", frames)
    centres = draw.normal(size=(classes, features)).astype(np.float32)
    weight = centres / np.sqrt(features / 4)
    for start in range(0, frames, CHUNK):
        stop = min(start + CHUNK, frames)
        label = np.arange(start, stop) % classes
        noise = draw.standard_normal((stop - start, features), dtype=np.float32)
        embedding[start:stop] = centres[label] + 1.5 * noise
        logits[start:stop] = embedding[start:stop] @ weight.T
    return weight


def ucapc_on_pot(
    embedding: torch.Tensor, logits: torch.Tensor, capture: torch.Tensor, backend: str = "torch"
) -> torch.Tensor:
    """The paper preset with POT's `sinkhorn_log` in place of ours; everything else is the same code.

    POT runs on the arrays it is given: `backend` is `torch` or, POT's default, `numpy`.
    """
    import ot

    probability = torch.empty_like(logits)
    for key in capture.unique().tolist():
        rows = capture == key
        unit = torch.nn.functional.normalize(embedding[rows].double(), dim=1)
        anchor = logits[rows].double()
        ones, mass = anchor.new_ones(len(anchor)), anchor.new_full((CLASSES,), len(anchor) / CLASSES)

        def transport(score: torch.Tensor, ones: torch.Tensor = ones, mass: torch.Tensor = mass) -> torch.Tensor:
            problem = (ones, mass, -torch.log_softmax(score, dim=1))
            given = problem if backend == "torch" else tuple(part.numpy() for part in problem)
            return torch.as_tensor(ot.bregman.sinkhorn_log(*given, 1.0, numItermax=20, stopThr=0, warn=False))

        score = anchor
        for _ in range(3):
            plan, z = transport(score).T.unsqueeze(0), unit.unsqueeze(0)
            prototypes = capture_prototypes(
                Blocks(lambda _, plan=plan: plan, 1, True), Blocks(lambda _, z=z: z, 1, True), top=512
            )
            score = fuse_scores(anchor, prototype_scores(z, prototypes)[0].T)
        probability[rows] = transport(score).to(logits.dtype)
    return probability


def measure(run: Callable[[], Any], device: str, repeats: int) -> dict[str, float]:
    """Peak memory of a first run, then the median milliseconds of `repeats` runs and frames per second."""

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    if device == "cuda":
        run()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        peak = torch.cuda.max_memory_allocated() - before
    else:
        with peak_memory(0.001) as watched:
            run()
        peak = watched.bytes
    times = []
    for _ in range(repeats):
        wait()
        start = time.perf_counter()
        run()
        wait()
        times.append(time.perf_counter() - start)
    seconds = float(np.median(times))
    return {
        "ms": 1e3 * seconds,
        "ms_best": 1e3 * min(times),
        "frames_per_s": FRAMES / seconds,
        "peak_mib": peak / 2**20,
    }


def paper_size(repeats: int) -> dict[str, dict[str, float]]:
    """Every calibration on the paper's size, U-CAPC first."""
    embedding, logits = np.empty((FRAMES, FEATURES), np.float32), np.empty((FRAMES, CLASSES), np.float32)
    weight = make_scores(FRAMES, FEATURES, CLASSES, embedding, logits)
    capture = generator(2026, "bench-captures").integers(0, CAPTURES, FRAMES)
    own = {"covariance": 2.25 * np.eye(FEATURES, dtype=np.float32), "confusion": np.eye(CLASSES)}
    source = SourceStatistics(weight=weight, class_mean=weight, **own)
    rows: dict[str, dict[str, float]] = {}
    for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        arrays = [torch.from_numpy(array).to(device) for array in (embedding, logits, capture)]
        rows[f"ucapc {device}"] = measure(partial(UCAPC().calibrate, *arrays), device, repeats)
        for backend in ("torch", "numpy") if device == "cpu" else ("torch",):
            if find_spec("ot") is None:
                print("POT is not installed, so its row is left out: pip install pot", file=sys.stderr)
                continue
            on_pot = partial(ucapc_on_pot, *arrays, backend=backend)
            assert torch.allclose(torch.as_tensor(UCAPC().calibrate(*arrays).probability), on_pot(), atol=1e-5)
            rows[f"ucapc on POT ({backend}) {device}"] = measure(on_pot, device, 3)
        for name, kind in calibrators().items():
            if name != "ucapc":
                rows[f"{name} {device}"] = measure(partial(kind().calibrate, *arrays, source=source), device, 3)
    return rows


def large(frames: int, features: int, classes: int, folder: Path) -> dict[str, float]:
    """U-CAPC from memory-mapped scores to memory-mapped results, one run."""

    def mapped(name: str, columns: int) -> np.ndarray:
        return np.lib.format.open_memmap(folder / f"{name}.npy", "w+", np.float32, (frames, columns))

    embedding, logits = mapped("embedding", features), mapped("logits", classes)
    make_scores(frames, features, classes, embedding, logits)
    out = {name: mapped(name, classes) for name in ("probability", "score")}
    capture = np.arange(frames) * CAPTURES // frames
    with peak_memory(0.02) as peak:
        start = time.perf_counter()
        result = UCAPC().calibrate(embedding, logits, capture, out=out)
        seconds = time.perf_counter() - start
    assert abs(float(result.probability[-1000:].sum()) / 1000 - 1) < 1e-4
    return {"ms": 1e3 * seconds, "frames_per_s": frames / seconds, "peak_mib": peak.bytes / 2**20}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--large", action="store_true", help="also 10M × 10 and 1M × 1000; needs 20 GiB of disk")
    parser.add_argument("--only-large", choices=sorted(LARGE), help="just this large case")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads (2)")
    parser.add_argument("--repeats", type=int, default=20, help="timed runs of U-CAPC (20)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = {} if options.only_large else paper_size(options.repeats)
    chosen = [options.only_large] if options.only_large else list(LARGE) if options.large else []
    for name in chosen:
        with tempfile.TemporaryDirectory() as folder:
            rows[f"ucapc {name} cpu"] = large(*LARGE[name], Path(folder))

    size = f"{FRAMES:,} × {FEATURES}, {CLASSES} classes, {CAPTURES} captures"
    table = Table(title=f"{size}; {options.threads} CPU threads")
    table.add_column("calibration")
    for column in ("ms (median)", "frames/s", "peak memory MiB"):
        table.add_column(column, justify="right")
    for name, row in rows.items():
        table.add_row(name, f"{row['ms']:,.2f}", f"{row['frames_per_s']:,.0f}", f"{row['peak_mib']:,.0f}")
    Console().print(table)
    speedup = {
        name: row["ms"] / rows[f"ucapc {name.rsplit(' ', 1)[1]}"]["ms"] for name, row in rows.items() if "POT" in name
    }
    print(json.dumps({**of_what(), "threads": options.threads, "rows": rows, "speedup_over": speedup}))


if __name__ == "__main__":
    main()
