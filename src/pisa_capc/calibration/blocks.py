"""Row blocks: how a calibration walks over more frames than fit in memory.

An iterative calibration reads the same rows many times. `Blocks` is a sequence of row blocks that can be walked any
number of times; where it fits in memory each block is made once and kept, where it does not each block is made anew on
every walk. The mathematics above it is written once and does not know which.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from pisa_capc.errors import DataError
from pisa_capc.store.files import bytes_text

T = TypeVar("T")
U = TypeVar("U")


class Blocks(Generic[T]):
    """Blocks 0 … count−1 of something, made by `make(number)`; `keep` holds on to them after the first walk."""

    def __init__(self, make: Callable[[int], T], count: int, keep: bool) -> None:
        self._make = make
        self._count = count
        self._kept: list[T] | None = [] if keep else None

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
        while len(self._kept) <= number:
            self._kept.append(self._make(len(self._kept)))
        return self._kept[number]

    def map(self, function: Callable[..., U], *others: Blocks[Any], keep: bool) -> Blocks[U]:
        """Blocks of `function(block, *blocks of others)`."""
        return Blocks(lambda i: function(self[i], *(other[i] for other in others)), self._count, keep)


def spilled(blocks: Blocks[Tensor], dtype: torch.dtype = torch.float64) -> Blocks[Tensor]:
    """The same blocks, made once and read back from a temporary file on later walks; walk them in order.

    For blocks that do not fit in memory and cost more to make than to read; they are stored as `dtype`.
    """
    file = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the blocks do)
    places: list[tuple[int, torch.Size, torch.device]] = []

    @cache
    def mapped(written: int) -> Tensor:  # where they are: a copy of every block costs more than what is done with it
        return torch.from_numpy(np.memmap(file, dtype=np.uint8, mode="r+")).view(dtype)

    def make(number: int) -> Tensor:
        if number < len(places):
            first, shape, device = places[number]
            return mapped(len(places))[first : first + math.prod(shape)].view(shape).to(device)
        block = blocks[number].to(dtype)
        try:
            first = file.seek(0, 2) // dtype.itemsize
            block.cpu().contiguous().numpy().tofile(file)
            file.flush()
        except OSError as error:
            raise DataError(
                f"{tempfile.gettempdir()}: no room for the {bytes_text(block.nbytes * len(blocks))} that this "
                f"calibration lays aside ({error}). Point TMPDIR to a larger disk, or calibrate smaller groups."
            ) from error
        places.append((first, block.shape, block.device))
        return block

    return Blocks(make, len(blocks), keep=False)
