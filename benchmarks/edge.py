"""An exported model on one core: frames a second, memory and start, by onnxruntime, against PyTorch in the same run.

    make bench-edge                                        # PISA with every encoder, Single with the CNN
    make bench-edge ARGS="--methods single --encoders cnn,transformer"

Each engine is measured in a process of its own, by its processor time: speed in blocks of the size that is best for the
engine, and one frame at a time; start from the start of the process to its first decision, of which memory is the peak.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

import torch

from benchmarks.report import begin, show
from pisa_capc.data.geometry import square
from pisa_capc.model.edge import export_model
from pisa_capc.model.encoders import encoder_names
from pisa_capc.model.inference import SourceStatistics, TrainedModel
from pisa_capc.model.inference.model import method_of
from pisa_capc.model.runs import ModelRun

BLOCKS = (1, 16, 64, 128)
SAMPLES = 320

MEASURE = """
import time
def best(decide, make):
    found = {}
    for block in BLOCKS:
        frames, times = make(block), []
        while len(times) < 5 or sum(times) < SECONDS:
            started = time.process_time()
            decide(frames)
            times.append(time.process_time() - started)
        found[block] = block / sorted(times)[len(times) // 2]
    return found
def say(decide, make):
    decide(make(1))
    started = time.process_time()
    with open("/proc/self/status") as file:  # not getrusage, which knows the process that this was forked from
        memory = next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024
    print(json.dumps({"frames/s": best(decide, make), "start s": started, "memory MB": memory}))
make = lambda block: np.random.default_rng(0).standard_normal((block, ANTENNAS, SAMPLES, 2), dtype=np.float32)
"""
ONNX = """
import json, sys, numpy as np, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads, options.log_severity_level = 1, 3
session = onnxruntime.InferenceSession(PATH, options, providers=["CPUExecutionProvider"])
say(lambda iq: session.run(["logits"], {"iq": iq}), make)
"""
TORCH = """
import json, sys, numpy as np, torch
from benchmarks.edge import untrained
from pisa_capc.core.process import keep_freed_memory
torch.set_num_threads(1)
keep_freed_memory()
network = untrained(METHOD, ENCODER).model
def decide(iq):
    with torch.inference_mode():
        network(torch.from_numpy(iq))
say(decide, make)
"""


def untrained(method: str, encoder: str) -> TrainedModel:
    """A model of ten devices that has learnt nothing: speed does not depend on it."""
    about = ModelRun(
        devices=tuple(f"D{i:02d}" for i in range(10)), geometry=square(), samples=SAMPLES, sample_rate_hz=20e6,
        method=method, encoder=encoder, source=("E2", "E3"), target=("E1",), split_seed=1, seed=1,
    )  # fmt: skip
    torch.manual_seed(0)
    return TrainedModel(method_of(about).build(1).eval(), about, SourceStatistics())


def in_own_process(code: str, seconds: float, **values: Any) -> dict[str, Any]:
    """What a program says of itself; these values are its constants."""
    given = {"BLOCKS": BLOCKS, "SECONDS": seconds, "SAMPLES": SAMPLES, "ANTENNAS": 4, **values}
    constants = "\n".join(f"{name} = {value!r}" for name, value in given.items())
    imports, rest = code.strip().split("\n", 1)
    program = "\n".join([imports, constants, MEASURE, rest])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    speeds = found.pop("frames/s")
    return {"frames/s": max(speeds.values()), "one by one": speeds["1"], **found}


def measured(method: str, encoder: str, seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        made = export_model(untrained(method, encoder), path)
        onnx = in_own_process(ONNX, seconds, PATH=str(path))
    eager = in_own_process(TORCH, seconds, METHOD=method, ENCODER=encoder)
    return {
        "method": method,
        "encoder": encoder,
        **onnx,
        "file kB": made.bytes / 1e3,
        "PyTorch frames/s": eager["frames/s"],
        "PyTorch start s": eager["start s"],
        "PyTorch MB": eager["memory MB"],
        "speed-up": onnx["frames/s"] / eager["frames/s"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", default="pisa,single")
    parser.add_argument("--encoders", help="of every method; unless told all of PISA, and the CNN of the others")
    parser.add_argument("--seconds", type=float, default=0.5, help="time per measurement")
    options = parser.parse_args()
    methods = options.methods.split(",")
    if options.encoders is not None:
        wanted = list(product(methods, options.encoders.split(",")))
    else:
        wanted = [(m, e) for m in methods for e in (encoder_names() if m == "pisa" else ["cnn"])]
    rows = []
    for method, encoder in wanted:
        rows.append(measured(method, encoder, options.seconds))
        print(", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{v}" for k, v in rows[-1].items()), flush=True)
    show("edge: one core, onnxruntime against PyTorch", rows, {"samples": SAMPLES, "antennas": 4})


if __name__ == "__main__":
    begin(main)
