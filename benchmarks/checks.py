"""What it costs to compare samples with their digests, in CPU time: of a bare read, and of what a training loads.

`make bench-checks` writes a random set of the paper's size to a temporary folder, which the page cache then holds, and
reads it a few times, each in a new process, as a training does. The time within the comparison is taken by itself, so
that a busy machine does not hide it; the median counts. A training loads the frames of two environments: it reads them,
brings each to unit power and computes the descriptors of its CFO. Beside it, how fast the digest is, and those of the
standard library on the same block.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import tempfile
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import h5py  # noqa: F401  (the package imports it where it is used; that is no part of a reading)
import numpy as np
import torch

from benchmarks.load import write_random
from benchmarks.report import begin, show
from pisa_capc import load
from pisa_capc.core.process import keep_freed_memory
from pisa_capc.data.store.digests import BLOCK, CaptureDigests, block_digest
from pisa_capc.model.training.bank import Bank

DIGESTS: dict[str, Callable[[Any], Any]] = {
    "this digest": block_digest,
    "CRC-32": zlib.crc32,
    "SHA-256": lambda block: hashlib.sha256(block.data).digest(),
    "BLAKE2b": lambda block: hashlib.blake2b(block.data).digest(),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="frames per capture, relative to the paper's set")
    parser.add_argument("--repeats", type=int, default=7)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "set"
        write_random(folder, given.scale)
        rows = [compared(what, folder, given.repeats) for what in READS]
    show("Checks", rows, {"GB/s": speeds()})


def bare(folder: Path) -> object:
    return load(folder).iq


def training(folder: Path) -> object:
    return Bank(load(folder).where(["E2", "E3"]), torch.device("cpu"), resident=True)


READS = {"a bare read": bare, "what a training loads": training}


def compared(what: str, folder: Path, repeats: int) -> dict[str, Any]:
    """CPU time of a read, that of the comparison in it, and what it adds to the rest."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, max_tasks_per_child=1) as new_processes:
        times = np.array(list(new_processes.map(once, [what] * repeats, [folder] * repeats)))
    whole, checks = np.median(times, axis=0).tolist()
    added = np.median(times[:, 1] / (times[:, 0] - times[:, 1]))
    return {"what": what, "CPU s": whole, "of it checks": checks, "added": float(added)}


def once(what: str, folder: Path) -> tuple[float, float]:
    """CPU time of a read, and of the comparison in it."""
    torch.set_num_threads(1)
    keep_freed_memory()  # as a training on a CPU does
    check, spent_s = CaptureDigests.check, list[float]()

    def timed(*arguments: Any) -> None:
        begun = time.thread_time()
        check(*arguments)
        spent_s.append(time.thread_time() - begun)

    with mock.patch.object(CaptureDigests, "check", timed):
        return cpu_s(lambda: READS[what](folder)), sum(spent_s)


def cpu_s(read: Callable[[], object]) -> float:
    """CPU time of all threads, in s."""
    begun = time.process_time()
    read()
    return time.process_time() - begun


def speeds(repeats: int = 50) -> dict[str, float]:
    """GB/s of each digest, over a block that is next to the core."""
    block = np.random.default_rng(0).integers(1 << 63, size=BLOCK // 8, dtype=np.uint64)

    def speed(digest: Callable[[Any], Any]) -> float:
        return BLOCK / 1e9 / min(cpu_s(lambda: digest(block)) for _ in range(repeats))

    return {name: speed(digest) for name, digest in DIGESTS.items()}


if __name__ == "__main__":
    begin(main)
