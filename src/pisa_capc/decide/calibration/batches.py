"""Groups of frames as padded batches, so that one operation serves many captures at once.

Groups of similar size are stacked to (G, n): n is the largest group's size, and a smaller group repeats its last frame
with weight zero. Thousands of small captures then cost few operations, and a GPU is given enough to do. A group too
large for one block is cut along n.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from pisa_capc.decide.calibration.blocks import Blocks
from pisa_capc.decide.calibration.inputs import Groups, Inputs

# Elements (frames × (features + classes)) of one block: on a CPU what stays in cache, on a GPU what fills it.
BLOCK_ELEMENTS = {"cpu": 2**21, "cuda": 2**25}
_PADDING_AT_MOST = 1.5


@dataclass(frozen=True)
class Rows:
    """A block of row numbers `index` (G, b) and `present` (G, 1, b): one for a frame, zero for padding."""

    index: Tensor
    present: Tensor

    @cached_property
    def span(self) -> slice | None:
        """The rows of one group that lie one after the other, in memory of a CPU: they need not be gathered."""
        groups, width = self.index.shape
        if groups > 1 or self.index.device.type != "cpu":
            return None
        first, last = int(self.index[0, 0]), int(self.index[0, -1])  # they rise
        return slice(first, last + 1) if last - first == width - 1 else None


def batches(inputs: Inputs) -> list[list[int]]:
    """Group numbers, batched: large first, little padding, one block each unless a single group exceeds it."""
    limit, counts = block_rows(inputs), inputs.groups.counts
    chosen: list[list[int]] = []
    longest = frames = 0
    for group in sorted(range(len(counts)), key=lambda r: (-counts[r], r)):
        padded = longest * (len(chosen[-1]) + 1) if chosen else 0
        if chosen and padded <= limit and padded <= _PADDING_AT_MOST * (frames + counts[group]):
            chosen[-1].append(group)
            frames += counts[group]
        else:
            chosen.append([group])
            longest = frames = counts[group]
    return chosen


def block_rows(inputs: Inputs) -> int:
    """How many frames one block holds on the input's device."""
    elements = BLOCK_ELEMENTS.get(inputs.logits.device.type, BLOCK_ELEMENTS["cpu"])
    return max(1, elements // (inputs.embedding.shape[1] + inputs.classes))


def row_blocks(groups: Groups, batch: list[int], width: int, keep: bool) -> Blocks[Rows]:
    """The rows of the groups of one batch in blocks of at most `width` frames per group."""
    device = groups.order.device
    starts = torch.tensor([groups.starts[r] for r in batch], device=device).unsqueeze(1)
    counts = torch.tensor([groups.counts[r] for r in batch], device=device).unsqueeze(1)
    longest = max(groups.counts[r] for r in batch)

    def make(number: int) -> Rows:
        place = torch.arange(number * width, min((number + 1) * width, longest), device=device)
        index = groups.order[starts + torch.minimum(place, counts - 1)]
        return Rows(index, (place < counts).to(torch.float64).unsqueeze(1))

    return Blocks(make, -(-longest // width), keep, threads=device.type == "cpu")
