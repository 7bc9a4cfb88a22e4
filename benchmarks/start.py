"""How long it takes until something happens: the command line, the import, and the first training step.

    make bench-start [ARGS="--encoders cnn,transformer"]

Each is a process of its own, of an installation that has been started before: see `bytecode.py`. The command line and
the import are the median of several after a first one; the aim is 0.3 s. A first step is that of PISA, one run with
batch 128, from the start of Python to the end of the step, with what the compilers keep in a new folder, so that no
kernel is compiled when it begins; where there is a GPU, the aim is 30 s. `again` is the next start, with that folder
filled.
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
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from benchmarks.bytecode import kept_bytecode
from benchmarks.report import begin, show
from pisa_capc.core.progress import progress
from pisa_capc.model.encoders import build_encoder, encoder_names

STARTS = {"pisa --help": ["-m", "pisa_capc", "--help"], "import pisa_capc": ["-c", "import pisa_capc"]}
CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


def first_step(encoder: str) -> None:
    """One step in this process; prints seconds since it was started."""
    import torch

    from benchmarks.train import make_stack, random_frames
    from pisa_capc.data.protocol import split
    from pisa_capc.model.inference.devices import choose_device, choose_precision
    from pisa_capc.model.stacked import load_compiler
    from pisa_capc.model.stacked.compilers import compilers
    from pisa_capc.model.training.bank import Bank, union

    device = choose_device("auto")
    gpu = device.type == "cuda"
    with compilers() if gpu else nullcontext() as running:
        if gpu:
            load_compiler()  # as `fit` does
        if running is not None:
            running.expect()
        part = split(random_frames(16), ["E2", "E3"], "E1", 0)
        bank = Bank(union([part.train, part.validation]), device)
        stack = make_stack([part], "pisa", encoder, bank, precision=choose_precision("auto", device))
        stack.step()
        if gpu:
            torch.cuda.synchronize()


def seconds_of(arguments: list[str], environment: Mapping[str, str] | None = None) -> float:
    """From the start of Python to its end."""
    started = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env=environment)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoders", default=",".join(encoder_names()))
    parser.add_argument("--repeats", type=int, default=9, help="starts of the command line (9)")
    parser.add_argument("--first-step", metavar="ENCODER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.first_step:
        return first_step(options.first_step)
    encoders = options.encoders.split(",")
    for name in encoders:
        build_encoder(name)  # says so where there is none of that name
    rows: list[dict[str, Any]] = []
    with kept_bytecode(), progress("starts", len(STARTS) + len(encoders)) as bar:
        for name, arguments in STARTS.items():
            taken = starts(arguments, options.repeats)
            rows.append({"what": name, "seconds": statistics.median(taken), "least": min(taken)})
            bar.advance(1)
        for encoder in encoders:
            rows.append({"what": f"first step, {encoder}", **first_steps(encoder)})
            print(json.dumps(rows[-1]), flush=True)
            bar.advance(1)
    show("Starts", rows)


def starts(arguments: list[str], repeats: int) -> list[float]:
    """Seconds of so many starts after a first one."""
    return [seconds_of(arguments) for _ in range(1 + repeats)][1:]


def first_steps(encoder: str) -> dict[str, float]:
    """With nothing compiled, and again."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, **{name: str(Path(folder) / name.lower()) for name in CACHES}}
        command = ["-m", "benchmarks.start", "--first-step", encoder]
        return {"seconds": seconds_of(command, environment), "again": seconds_of(command, environment)}


if __name__ == "__main__":
    begin(main)
