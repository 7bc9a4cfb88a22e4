"""Training speed on a CPU: frames a second of PISA with every encoder, batch 128, two views, one run.

    make bench-train_cpu                              # with one thread, and with one for every core
    make bench-train_cpu ARGS="--encoders cnn --repeats 3"

eager: plain PyTorch layers in a process as PyTorch leaves it. before: the same with memory that is kept from step to
step, which is how this package trained at first. now: in blocks that stay in the cache. bfloat16: the same in mixed
precision, where the processor has it. Steps of the last three take turns, so that whatever else the machine does meets
all. side by side: as many runs of one thread as there are cores, together. At the end `embed`, with all cores: the
median of three processes of its own. The frames are random numbers: speed does not depend on what they say.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from benchmarks.report import begin, show
from benchmarks.train import embed_rate, make_stack, random_frames
from pisa_capc.core.process import keep_freed_memory
from pisa_capc.core.threads import cpu_threads
from pisa_capc.data.protocol import split
from pisa_capc.model.encoders import encoder_names
from pisa_capc.model.inference.devices import has_bfloat16
from pisa_capc.model.stacked.layers import plain_layers
from pisa_capc.model.training.bank import Bank, union
from pisa_capc.model.training.stack import Stack

BATCH = 128  # of make_stack
EMBEDDED = 24_960  # frames, as many as the paper tests on


def stacks() -> Callable[..., Stack]:
    """What makes the training of one run with an encoder, in some precision."""
    one = split(random_frames(64), ["E2", "E3"], "E1", 0)
    bank = Bank(union([one.train, one.validation]), torch.device("cpu"))
    return lambda encoder, precision="float32": make_stack([one], "pisa", encoder, bank, precision=precision)


def seconds_of_step(stack: Stack, plain: bool) -> float:
    stack.model.train()
    stack.draw(0)
    with plain_layers() if plain else nullcontext():
        started = time.perf_counter()
        stack.step()
        return time.perf_counter() - started


def rate(seconds: list[float]) -> float:
    """Frames a second at the median step; the first step of several is left out."""
    return BATCH / statistics.median(seconds[1:] or seconds)


def in_processes(count: int, *arguments: str) -> float:
    """The sum of the rates that so many processes of this benchmark print, together."""
    command = [sys.executable, "-m", "benchmarks.train_cpu", *arguments]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    return sum(float(json.loads(process.communicate()[0])) for process in started)


def side_by_side(encoder: str, repeats: int, cores: int) -> float:
    """Frames a second of `cores` trainings together, each in a process of its own with one thread."""
    return in_processes(cores, "--alone", "--encoders", encoder, "--repeats", str(repeats))


def embed_alone(encoder: str, precision: str) -> float:
    """Frames a second of `embed`, alone in a process as the command is, of as many frames as the paper tests on."""
    many = split(random_frames(EMBEDDED // 20 + 16), "E2", ["E1", "E3"], 0)  # 16 of each of 20 groups are set aside
    assert len(many.target) == EMBEDDED
    return embed_rate(many, encoder, "cpu", precision)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoders", default=",".join(encoder_names()))
    parser.add_argument("--repeats", type=int, default=6, help="steps of each, the first of which is not counted")
    parser.add_argument("--alone", action="store_true", help="only print the rate of one encoder with one thread")
    parser.add_argument("--embed", metavar="PRECISION", help="only print the rate of `embed` with one encoder")
    options = parser.parse_args()
    encoders, steps = options.encoders.split(","), range(options.repeats)
    if options.embed:
        print(embed_alone(encoders[0], options.embed))
        return
    training = stacks()
    if options.alone:
        torch.set_num_threads(1)
        keep_freed_memory()
        stack = training(encoders[0])
        print(rate([seconds_of_step(stack, plain=False) for _ in steps]))
        return
    cores = os.cpu_count() or 1
    threads = sorted({1, cores})
    eager = {}  # all of plain eager first: what the trainer does to the process would quicken it too
    for encoder in encoders:
        stack = training(encoder)
        for count in threads:
            with cpu_threads(count):
                eager[encoder, count] = rate([seconds_of_step(stack, plain=True) for _ in range(3)])
    keep_freed_memory()
    rows: list[dict[str, Any]] = []
    for encoder in encoders:
        stack = training(encoder)
        ways = [(stack, True), (stack, False)]
        ways += [(training(encoder, "bfloat16"), False)] if has_bfloat16() else []
        for count in threads:
            with cpu_threads(count):
                turns = [[seconds_of_step(*way) for way in ways] for _ in steps]
            before, now, *mixed = (rate(list(seconds)) for seconds in zip(*turns, strict=True))
            row: dict[str, Any] = {"encoder": encoder, "threads": count, "eager": eager[encoder, count]}
            row |= {"before": before, "now": now, "× eager": now / row["eager"], "× before": now / before}
            row |= {"bfloat16": mixed[0], "bfloat16 × before": mixed[0] / before} if mixed else {}
            if count == cores > 1:
                row["side by side"] = side_by_side(encoder, options.repeats, cores)
            rows.append(row)
            print(", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()), flush=True)
    precisions = ["float32", *(["bfloat16"] if has_bfloat16() else [])]
    embeds = [
        (e, p, statistics.median(in_processes(1, "--embed", p, "--encoders", e) for _ in range(3)))
        for e in ("transformer", "cnn")
        for p in precisions
    ]
    facts = {"cores": cores, "embed": [{"encoder": e, "precision": p, "frames_per_s": r} for e, p, r in embeds]}
    show("train_cpu: frames/s of one run, PISA, batch 128, two views", rows, facts)


if __name__ == "__main__":
    begin(main)
