"""What a calibration works on: batches of capture groups as padded blocks, kept in memory as far as they fit.

Groups of similar size are stacked to (G, n): n is the largest group's size, and a smaller group repeats its last frame
with weight zero. Thousands of small captures then cost few operations, and a GPU is given enough to do. A group too
large for one block is cut along n.

U-CAPC walks over its frames about 25 times a pass. Scores, kernel and assignment are walked most and are kept first,
then embeddings and logits; what does not fit is computed again on every walk, and the Sinkhorn kernel goes to a file.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from pisa_capc.core.process import keep_freed_memory
from pisa_capc.decide.calibration.blocks import Blocks
from pisa_capc.decide.calibration.inputs import Groups, Inputs
from pisa_capc.decide.calibration.vectors import unit

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


@dataclass(frozen=True)
class Workspace:
    """G groups, padded to one length, in blocks of b frames; float64 and class-major."""

    rows: Blocks[Rows]
    present: Blocks[Tensor]  # (G, 1, b), one for a frame and zero for padding
    features: Blocks[Tensor]  # z (G, b, D), unit length
    logits: Blocks[Tensor]  # ℓ (G, C, b)
    keep: bool  # whether what is made of them, as large as the logits, may stay in memory


def workspace(inputs: Inputs, batch: list[int], mib: int) -> Workspace:
    """The groups `batch` of the input in about `mib` of memory, on a GPU what it has free, and a few blocks."""
    longest = max(inputs.groups.counts[r] for r in batch)
    frames, room = len(batch) * longest, room_bytes(mib, inputs.logits.device)
    score_bytes = 8 * frames * 4 * inputs.classes
    row_bytes = 8 * frames * (inputs.embedding.shape[1] + inputs.classes + 2)
    keep, keep_rows = score_bytes <= room, score_bytes + row_bytes <= room
    if not keep:
        keep_freed_memory(stores=1)
    width = block_rows(inputs) // len(batch)
    keep_index = keep or 16 * frames <= room  # next to nothing, and walked most
    rows = row_blocks(inputs.groups, batch, max(1, width), keep_index)
    return Workspace(
        rows,
        rows.map(lambda block: block.present, keep=False),
        rows.map(lambda block: read_embedding(inputs, block), keep=keep_rows),
        rows.map(lambda block: read_logits(inputs, block), keep=keep_rows),
        keep,
    )


def room_bytes(mib: int, device: torch.device) -> int:
    """What may be kept in memory: on a GPU more than asked for, because a file is hundreds of times as far away."""
    room = mib * 2**20
    return max(room, torch.cuda.mem_get_info(device)[0] // 2) if device.type == "cuda" else room


def read_embedding(inputs: Inputs, rows: Rows) -> Tensor:
    """Unit-length embeddings (G, b, D) of a block, float64."""
    return unit(_read(inputs.embedding, rows).to(torch.float64))


def read_logits(inputs: Inputs, rows: Rows) -> Tensor:
    """Logits (G, C, b) of a block, float64: transposed and converted in one walk."""
    columns = _read(inputs.logits, rows).transpose(1, 2)
    return columns.to(torch.float64, memory_format=torch.contiguous_format).contiguous()


def _read(values: Tensor, rows: Rows) -> Tensor:
    """Rows (G, b) of `values`, where they are or gathered: (G, b, columns)."""
    if (span := rows.span) is not None:
        return values[span].unsqueeze(0)
    return values.index_select(0, rows.index.reshape(-1)).reshape(*rows.index.shape, values.shape[1])
