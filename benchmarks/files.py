"""How fast `pisa detect` and `pisa identify` go through a recording, from the start of Python to all that is written.

    make bench-files [ARGS="--seconds 13.4 --rounds 3"]

Four antennas at 20 MS/s in 16-bit integers, in the operating system's cache, with Wi-Fi frames a tenth of the time (the
traffic of `make bench-detect`, again and again). The model is a closed form of simulated devices, and the frames are of
none of them. M samples/s are complex samples of all antennas together, so that real time is 80; the time is that of the
whole command, by the clock, the median of the rounds. Cores: processor time of all processes for a second of it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bytecode import kept_bytecode
from benchmarks.detect import ANTENNAS, RATE_HZ, traffic
from benchmarks.report import begin, show
from pisa_capc import load
from pisa_capc.core.errors import DataError
from pisa_capc.data.protocol import split
from pisa_capc.model.training import Run, fit
from pisa_capc.signal.detection.wifi.detector import CHUNK
from pisa_capc.signal.simulation.generate import generate

DUTY = 0.1
PIECE = 16 * CHUNK  # samples of traffic that are repeated


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=13.4, help="of the recording, 640 MB each second (13.4)")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, kept_bytecode():
        path, sent = written(Path(folder), given.seconds)
        run = trained(Path(folder))
        recording = [str(path), "--sample-rate", str(RATE_HZ), "--antennas", str(ANTENNAS), "--json"]
        commands = {
            "pisa detect": ["detect", *recording],
            "pisa identify": ["identify", str(run), *recording],
        }
        samples = path.stat().st_size // 4
        rows = [timed(name, words, samples, sent, given.rounds) for name, words in commands.items()]
    show("A recording from the command line", rows, {"antennas": ANTENNAS, "on air": DUTY, "samples": samples})


def written(folder: Path, seconds: float) -> tuple[Path, int]:
    """A recording, and how many frames are in it."""
    iq, frames = traffic(DUTY, ANTENNAS, PIECE)
    repeated = max(1, round(seconds * RATE_HZ / PIECE))
    data = (32768 * iq.T.copy().view(np.float32)).clip(-32768, 32767).astype("<i2").tobytes()
    with (path := folder / "traffic.cs16").open("wb") as file:
        file.writelines(data for _ in range(repeated))
    return path, repeated * frames


def trained(folder: Path) -> Path:
    generate("wifi", folder / "wifi", scale=0.02, show_progress=False)
    part = split(load(folder / "wifi"), source=["E2", "E3"], target="E1", seed=2026)
    [model] = fit([Run(part, seed=2026)], method="closed-form", show=False)
    model.save(folder / "run")
    return folder / "run"


def timed(name: str, words: list[str], samples: int, sent: int, rounds: int) -> dict[str, Any]:
    """Of the rounds after a first one."""
    walls, cores = [], []
    for _ in range(rounds + 1):
        before, begun = os.times(), time.perf_counter()
        said = subprocess.run([sys.executable, "-m", "pisa_capc", *words], check=True, stdout=subprocess.PIPE).stdout
        walls.append(time.perf_counter() - begun)
        spent = [after - own for after, own in zip(os.times()[2:4], before[2:4], strict=True)]
        cores.append(sum(spent) / walls[-1])
    if (found := len(json.loads(said)["frames"])) != sent:
        raise DataError(f"{name}: {found:,} frames of {sent:,} that were sent.")
    wall = statistics.median(walls[1:])
    return {
        "command": name,
        "M samples/s": samples / 1e6 / wall,
        "times real time": samples / wall / (ANTENNAS * RATE_HZ),
        "frames": found,
        "seconds": wall,
        "least": min(walls[1:]),
        "most": max(walls[1:]),
        "cores": statistics.median(cores[1:]),
    }


if __name__ == "__main__":
    begin(main)
