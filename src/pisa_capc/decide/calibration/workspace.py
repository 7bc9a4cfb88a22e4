"""What a calibration works on: a batch of capture groups as padded blocks, kept in memory as far as they fit.

U-CAPC walks over its frames about 25 times a pass. Scores, kernel and assignment are walked most and are kept first,
then embeddings and logits; what does not fit is made anew on every walk, and the Sinkhorn kernel goes to a file.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pisa_capc.core.process import keep_freed_memory
from pisa_capc.decide.calibration.batches import Rows, block_rows, row_blocks
from pisa_capc.decide.calibration.blocks import Blocks
from pisa_capc.decide.calibration.inputs import Inputs
from pisa_capc.decide.calibration.vectors import unit


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
