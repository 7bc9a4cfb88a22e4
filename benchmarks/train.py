"""Training speed: milliseconds per step of one run, each encoder, plain eager against the stacked trainer.

    make bench-train                                  # PISA with every encoder, and every method with the Transformer
    make bench-train ARGS="--methods single,sigmix,difex --encoders cnn"                     # each against the first

The frames are random numbers: speed does not depend on what they say.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.report import begin, show
from pisa_capc import Frames
from pisa_capc.core.process import keep_freed_memory
from pisa_capc.data.protocol import Split, split
from pisa_capc.model.encoders import encoder_names
from pisa_capc.model.inference import SourceStatistics, TrainedModel, embed
from pisa_capc.model.methods import METHODS, Setup, build_method, method_names
from pisa_capc.model.runs import ModelRun
from pisa_capc.model.stacked.layers import plain_layers
from pisa_capc.model.training.bank import Bank, union
from pisa_capc.model.training.fitting import choose_device
from pisa_capc.model.training.stack import Stack


def random_frames(per_group: int, seed: int = 0) -> Frames:
    """Ten devices in three environments with one capture each, random I/Q and CFO."""
    random = np.random.default_rng(seed)
    count = 30 * per_group
    iq = random.standard_normal((count, 4, 640), dtype=np.float32).view(np.complex64)
    group = np.arange(count) // per_group
    return Frames.from_arrays(
        iq,
        device=[f"D{g % 10 + 1:02d}" for g in group],
        environment=[f"E{g // 10 + 1}" for g in group],
        cfo_hz=random.normal(0, 1000, (count, 4)),
    )


def make_stack(splits: Sequence[Split], method: str, encoder: str, bank: Bank, **options: Any) -> Stack:
    train = splits[0].train
    environments = tuple(np.unique(train.environment).tolist())
    setup = Setup(10, encoder, train.geometry, environments, train.samples, train.sample_rate_hz)
    return Stack(
        build_method(method, setup),
        bank,
        [bank.position(s.train) for s in splits],
        [bank.position(s.validation) for s in splits],
        list(range(len(splits))),
        batch=128,
        learning_rate=1e-3,
        weight_decay=1e-4,
        **options,
    )


def time_steps(stack: Stack, seconds: float) -> tuple[float, float]:
    """Median and spread (standard deviation of five repeats) of milliseconds per stacked step."""
    synchronise = torch.cuda.synchronize if stack.device.type == "cuda" else lambda: None

    def block(steps: int) -> float:
        stack.draw(0)
        synchronise()
        started = time.perf_counter()
        for _ in range(steps):
            stack.step()
        synchronise()
        return (time.perf_counter() - started) / steps * 1e3

    stack.model.train()
    once = block(2)
    steps = min(max(int(seconds * 200 / once), 1), stack.steps)
    repeats = [block(steps) for _ in range(5)]
    return statistics.median(repeats), statistics.stdev(repeats)


def print_profile(stack: Stack, title: str, steps: int = 5) -> None:
    """The kernels of a step by their share of its time."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    gpu = stack.device.type == "cuda"
    stack.draw(0)
    with profile(activities=[ProfilerActivity.CUDA if gpu else ProfilerActivity.CPU]) as found:
        for _ in range(steps):
            stack.step()
        if gpu:
            torch.cuda.synchronize()
    events = [(e.self_device_time_total if gpu else e.self_cpu_time_total, e) for e in found.key_averages()]
    if gpu:  # not the calls that launched them
        events = [(spent, e) for spent, e in events if e.device_type == DeviceType.CUDA]
    total = sum(spent for spent, _ in events)
    print(f"{title}: {total / steps / 1e3:.2f} ms per stacked step in kernels")
    for spent, e in sorted(events, key=lambda pair: -pair[0])[:30]:
        print(f"  {spent / total:6.1%} {spent / steps:9.1f} us {e.count / steps:5.0f}×  {e.key[:90]}")


def step_flop(stack: Stack) -> float:
    """Floating-point operations of one step of one run, counted by PyTorch's dispatcher."""
    counter = FlopCounterMode(display=False)
    with plain_layers(), counter:
        stack._one_step()
    return float(counter.get_total_flops())


def matmul_rate(device: torch.device) -> float:
    """FLOP/s of one large matrix product: bfloat16 on a GPU, float32 on a CPU."""
    size, dtype = (8192, torch.bfloat16) if device.type == "cuda" else (1024, torch.float32)
    a = torch.randn(size, size, device=device, dtype=dtype)
    for _ in range(3):
        a @ a
    if device.type == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(10):
        a @ a
    if device.type == "cuda":
        torch.cuda.synchronize()
    return 20 * size**3 / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoders", default=",".join(encoder_names()))
    parser.add_argument("--methods", help="names, or 'all'; each is compared with the first")
    parser.add_argument("--runs", type=int, default=None, help="stacked runs; 9 on a GPU, 1 on a CPU")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seconds", type=float, default=1.0, help="time per measurement")
    parser.add_argument("--no-eager", action="store_true")
    parser.add_argument("--profile", action="store_true", help="also print which kernels the step's time goes to")
    options = parser.parse_args()
    device = choose_device(options.device)
    gpu = device.type == "cuda"
    runs = options.runs or (9 if gpu else 1)
    frames = random_frames(320 if gpu else 64)
    splits = [split(frames, ["E2", "E3"], "E1", seed) for seed in range(runs)]
    bank = Bank(union([splits[0].train, splits[0].validation]), device)
    rate = matmul_rate(device)
    rows: list[dict[str, Any]] = []
    encoders = options.encoders.split(",")
    every = ["single", *(name for name in method_names() if name != "single" and METHODS[name].in_epochs)]
    methods = options.methods.split(",") if options.methods not in (None, "all") else every
    wanted = list(product(encoders, methods))
    against_eager = wanted
    if options.methods is None:
        against_eager = [(encoder, "pisa") for encoder in encoders]
        with_methods = [encoder for encoder in encoders if encoder == "transformer"]
        wanted = against_eager + [row for row in product(with_methods, methods) if row not in against_eager]
    counted, eager = {}, {}  # all of plain eager first: what the trainer does to the process would quicken it too
    for encoder, method in wanted:
        with plain_layers():
            plain = make_stack(splits[:1], method, encoder, bank, fused=False)
            counted[encoder, method] = step_flop(plain)
            if not options.no_eager and (encoder, method) in against_eager:
                eager[encoder, method] = time_steps(plain, options.seconds)[0]
        del plain
    if not gpu:
        keep_freed_memory()
    for encoder, method in wanted:
        row: dict[str, Any] = {"encoder": encoder, "method": method}
        flop = counted[encoder, method]
        if (encoder, method) in eager:
            row["eager ms"] = eager[encoder, method]
        if gpu:
            gc.collect()  # what was captured for the row before holds memory until then
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        started = time.perf_counter()
        ours = make_stack(splits, method, encoder, bank, precision="bfloat16" if gpu else "float32")
        row["prepare s"] = time.perf_counter() - started
        median, spread = time_steps(ours, options.seconds)
        row |= {"ours ms": median / runs, "± ms": spread / runs}
        if "eager ms" in row:
            row["speed-up"] = row["eager ms"] / row["ours ms"]
        row["GFLOP"] = flop / 1e9
        row["share of floor %"] = 100 * (flop / rate * 1e3) / row["ours ms"]
        row["peak GiB"] = torch.cuda.max_memory_allocated() / 2**30 if gpu else None
        rows.append(row)
        print(", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{v}" for k, v in row.items()), flush=True)
        if options.profile:
            print_profile(ours, f"{method} {encoder}")
        del ours
    first = {row["encoder"]: row["ours ms"] for row in rows if row["method"] == methods[0]}
    for row in rows:
        if len(methods) > 1 and row["encoder"] in first:
            row[f"× {methods[0]}"] = row["ours ms"] / first[row["encoder"]]
    facts: dict[str, Any] = {
        "device": str(device),
        "stacked_runs": runs,
        "matmul_tflops": rate / 1e12,
        "embed_frames_per_s": embed_rates(splits[0], gpu),
    }
    for place, frames_per_s in facts["embed_frames_per_s"].items():
        print(f"embed with a Transformer on {place}: {frames_per_s:,.0f} frames/s")
    title = f"train: ms per step of one run, batch 128, {runs} stacked, {device}"
    show(title, rows, facts)


def embed_rates(one: Split, gpu: bool) -> dict[str, float]:
    """Frames per second of `embed` with a Transformer PISA."""
    return {device: embed_rate(one, "transformer", device) for device in (["cpu", "cuda"] if gpu else ["cpu"])}


def embed_rate(one: Split, encoder: str, device: str, precision: str = "float32") -> float:
    """Frames per second of `embed` with PISA."""
    setup = Setup(10, encoder, one.train.geometry)
    of = {"samples": 320, "sample_rate_hz": one.train.sample_rate_hz, "devices": one.devices}
    about = ModelRun(method="pisa", encoder="transformer", geometry=setup.geometry, **of)
    trained = TrainedModel(build_method("pisa", setup).build(1).eval(), about, SourceStatistics())
    embed(trained, one.target.select(np.arange(min(512, len(one.target)))), device, precision=precision)
    started = time.perf_counter()
    embed(trained, one.target, device, precision=precision)
    return len(one.target) / (time.perf_counter() - started)


if __name__ == "__main__":
    begin(main)
