"""Speed, latency and memory of `OnlineCalibrator`, which decides frames as they arrive, on one core.

    make bench-online

64 features and ten classes, frame by frame and 64 at a time; memory is that of the whole process over a million frames
of twelve captures, more than are remembered, that come and go. The last line is one JSON object with the same figures.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.report import begin, show
from pisa_capc.core.randomness import generator
from pisa_capc.decide.calibration import OnlineCalibrator

FEATURES, CLASSES, CAPTURES, CAPTURE_FRAMES = 64, 10, 12, 4000
SEED = 2026


def made_up(frames: int, batch: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Embeddings, logits and frequency offsets of captures that come again and again, `batch` frames at a time."""
    draw = generator(SEED, "bench-online")
    weight = draw.normal(size=(CLASSES, FEATURES))
    place = 0.5 * draw.normal(size=(CAPTURES, CLASSES, FEATURES))
    for start in range(0, frames, batch):
        when = np.arange(start, min(start + batch, frames))
        label, capture = when % CLASSES, when // CAPTURE_FRAMES % CAPTURES
        z = weight[label] + place[capture, label] + draw.normal(size=(len(when), FEATURES))
        yield z, z @ weight.T / 8, 5e3 * label + 100 * draw.normal(size=len(when))


def speed(frames: int, batch: int, with_cfo: bool) -> dict[str, Any]:
    """Frames per second, and microseconds from a call to its decisions.

    CPU time beside it leaves out what else the machine was doing.
    """
    stream = OnlineCalibrator(CLASSES, FEATURES, with_cfo)
    wall, cpu = [], []
    for z, logits, cfo_hz in made_up(frames, batch):
        started = time.perf_counter(), time.thread_time()
        stream.push(z, logits, cfo_hz if with_cfo else None)
        wall.append(time.perf_counter() - started[0])
        cpu.append(time.thread_time() - started[1])
    result: dict[str, Any] = {"frames at a time": batch, "CFO": "yes" if with_cfo else "no"}
    for kind, seconds in (("", wall), ("CPU ", cpu)):
        p50, p99, longest = 1e6 * np.percentile(seconds, [50, 99, 100])
        result |= {f"{kind}frames/s": frames / sum(seconds)}
        result |= {f"{kind}p50 µs": p50, f"{kind}p99 µs": p99, f"{kind}max µs": longest}
    return result


def memory(frames: int) -> dict[str, Any]:
    """Resident memory of the process after a tenth of the frames and after all of them."""
    stream = OnlineCalibrator(CLASSES, FEATURES)
    state, seen, start = stream.nbytes, 0, 0.0
    for z, logits, _ in made_up(frames, 64):
        stream.push(z, logits)
        seen += len(z)
        if not start and seen >= frames // 10:
            start = _resident_mib()
    assert stream.nbytes == state
    return {
        "frames": seen,
        "groups_opened": stream.finder.opened,
        "state_mib": state / 2**20,
        "rss_mib_start": start,
        "rss_mib_end": _resident_mib(),
    }


def _resident_mib() -> float:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=1_000_000, help="frames of the memory's run (1,000,000)")
    parser.add_argument("--timed", type=int, default=40_000, help="frames timed one at a time (40,000)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [speed(options.timed, batch, with_cfo) for batch in (1, 64) for with_cfo in (False, True)]
    show("streams: speed and latency", rows, {"memory": memory(options.frames)})


if __name__ == "__main__":
    begin(main)
