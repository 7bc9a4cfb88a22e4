"""Row blocks: how a calibration walks over more frames than fit in memory.

An iterative calibration reads the same rows many times. `Blocks` is a sequence of row blocks that can be walked any
number of times; if it fits in memory each block is computed once and kept, otherwise each block is computed again on
every walk. The mathematics above it is written once and does not know which, nor how many threads walk.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import cache, reduce
from importlib.util import find_spec
from threading import Lock
from typing import IO, Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from pisa_capc.core.errors import DataError
from pisa_capc.core.process import return_freed_memory
from pisa_capc.core.threads import in_threads
from pisa_capc.data.store.files import bytes_text

T = TypeVar("T")
U = TypeVar("U")


class Blocks(Generic[T]):
    """Blocks 0 … count−1 of something, made by `make(number)`; `keep` holds on to them after the first walk.

    threads: whether a walk may be shared by the threads of a CPU, each with a block of its own.
    """

    def __init__(self, make: Callable[[int], T], count: int, keep: bool, threads: bool = False) -> None:
        self._make = make
        self._count = count
        self._kept: dict[int, T] | None = {} if keep else None
        self.threads = threads

    def __len__(self) -> int:
        return self._count

    @property
    def kept(self) -> bool:
        """Whether a walk after the first costs nothing."""
        return self._kept is not None

    def __iter__(self) -> Iterator[T]:
        for number in range(self._count):
            yield self[number]

    def __getitem__(self, number: int) -> T:
        if self._kept is None:
            return self._make(number)
        if number not in self._kept:
            self._kept[number] = self._make(number)
        return self._kept[number]

    def map(self, function: Callable[..., U], *others: Blocks[Any], keep: bool) -> Blocks[U]:
        """Blocks of `function(block, *blocks of others)`."""
        return Blocks(lambda i: function(self[i], *(other[i] for other in others)), self._count, keep, self.threads)

    def walk(self, function: Callable[..., U], *others: Blocks[Any]) -> Iterator[U]:
        """`function(block, *blocks of others)` of every block in turn, a few of them at a time where threads may."""
        results = self.map(function, *others, keep=False)
        shared = self.threads and self._count > 1
        return in_threads(results.__getitem__, range(self._count)) if shared else iter(results)


def total(parts: Iterable[Tensor]) -> Tensor:
    """The sum of what blocks gave, in their order."""
    return reduce(torch.add, parts)


def one_launch(block: Tensor) -> bool:
    """Whether one launch of our own may replace many; Triton comes with most of torch's builds for GPUs, not all."""
    return block.is_cuda and find_spec("triton") is not None


def spilled(
    blocks: Blocks[Tensor], dtype: torch.dtype = torch.float64, file: IO[bytes] | None = None
) -> Blocks[Tensor]:
    """The same blocks, made once and read back from a file on later walks.

    For blocks that do not fit in memory and cost more to make than to read; they are stored as `dtype`. file: to write
    over, whose space is given by the system already; by default a temporary one that lives as long as the blocks do.
    """
    return_freed_memory()  # of earlier walks: whoever lays blocks aside has none to spare
    file = file or tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the blocks do)
    end = 0
    places: dict[int, tuple[int, torch.Size, torch.device]] = {}
    writing = Lock()

    @cache
    def mapped(written: int) -> Tensor:  # where they are: a copy of every block costs more than what is done with it
        return torch.from_numpy(np.memmap(file, dtype=np.uint8, mode="r+")).view(dtype)

    def make(number: int) -> Tensor:
        nonlocal end
        if number in places:
            first, shape, device = places[number]
            return mapped(len(places))[first : first + math.prod(shape)].view(shape).to(device)
        block = blocks[number].to(dtype)
        try:
            with writing:
                first = file.seek(end) // dtype.itemsize
                block.cpu().contiguous().numpy().tofile(file)
                end = file.tell()
        except OSError as error:
            raise DataError(
                f"{tempfile.gettempdir()}: no room for the {bytes_text(block.nbytes * len(blocks))} that this "
                f"calibration lays aside ({error}). Point TMPDIR to a larger disk, or calibrate smaller groups."
            ) from error
        places[number] = first, block.shape, block.device
        return block

    return Blocks(make, len(blocks), keep=False, threads=blocks.threads)
