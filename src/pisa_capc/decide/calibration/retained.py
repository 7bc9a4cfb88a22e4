"""The sums that prototypes are made of: of each class the frames with the largest assignments, weighted by them.

Blocks that are in memory are walked four times. If every walk computes them again, one walk keeps for each class
the frames that may be among its largest, those not below the `top`-th largest so far; where too many are tied for that
to be few, the blocks are walked after all.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pisa_capc.decide.calibration.blocks import Blocks, one_launch, total

# Assignments that differ by less than this, relatively, are tied: it is far above rounding and far below evidence.
_TIE = 1e-12
_LAID_ASIDE = 2**22  # values, of all classes together
_SMALLEST = torch.finfo(torch.float64).tiny


def retained_sums(assignment: Blocks[Tensor], embedding: Blocks[Tensor], top: int, kept: bool) -> Tensor:
    """Σ_{i∈I_k} Q_ik z_i (G, C, D), I_k the `top` frames with the largest Q_ik: blocks Q (G, C, b) and z (G, b, D).

    Where t frames are tied for the last m places each enters with weight m/t. kept: whether blocks are in memory.
    """
    found = None if kept else _sums_of_laid_aside(assignment, embedding, top)
    return _sums_by_walks(assignment, embedding, top) if found is None else found


def _sums_by_walks(assignment: Blocks[Tensor], embedding: Blocks[Tensor], top: int) -> Tensor:
    if len(assignment) == 1 and one_launch(assignment[0]):
        from pisa_capc.decide.calibration import kernels

        if kernels.retains(assignment[0]):
            return torch.bmm(kernels.retained_weights(assignment[0], top, _TIE), embedding[0])
    low, high = _tied(_last_retained(assignment, top))
    above = total(torch.count_nonzero(block > high, dim=-1) for block in assignment)
    reached = total(torch.count_nonzero(block >= low, dim=-1) for block in assignment)
    share = _share(top, above, reached)
    blocks = zip(assignment, embedding, strict=True)
    return total(torch.bmm(_weight(block, low, high, share), features) for block, features in blocks)


def _tied(last: Tensor) -> tuple[Tensor, Tensor]:
    """From where to where values are tied for the last place."""
    return last * (1 - _TIE), last * (1 + _TIE)


def _share(top: int, above: Tensor, reached: Tensor) -> Tensor:
    """m/t (…, 1) of the values tied for the last place; above, reached: how many (…) are above it and not below it."""
    return ((top - above).double() / (reached - above).clamp(min=1)).clamp(max=1.0).unsqueeze(-1)


def _weight(value: Tensor, low: Tensor, high: Tensor, share: Tensor) -> Tensor:
    """Values as they enter: those above the last place whole, those tied for it with their share, others not at all."""
    return torch.where(value > high, value, (value * share).mul_(value >= low))


def _last_retained(assignment: Blocks[Tensor], top: int) -> Tensor:
    """The `top`-th largest assignment of each class, (G, C, 1); zero where fewer frames than that are retained."""
    largest: Tensor | None = None
    for block in assignment:
        largest = block if largest is None else torch.cat((largest, block), dim=-1)
        if largest.shape[-1] > top:
            largest = _largest(largest, top)
    assert largest is not None
    smallest = largest.amin(dim=-1, keepdim=True)
    return smallest if largest.shape[-1] == top else torch.zeros_like(smallest)


def _largest(values: Tensor, top: int) -> Tensor:
    """The `top` largest values along the last axis, in no order."""
    if values.device.type != "cpu":
        return values.topk(top, dim=-1, sorted=False).values
    # NumPy selects with vector instructions, four times as quick as torch.topk on a CPU.
    return torch.from_numpy(np.partition(values.numpy(), -top, axis=-1)[..., -top:])


def _sums_of_laid_aside(assignment: Blocks[Tensor], embedding: Blocks[Tensor], top: int) -> Tensor | None:
    """As `_sums_by_walks`; none where so many values are tied that they cannot be laid aside."""
    first = assignment[0]
    groups, classes, width = first.shape
    aside = _LaidAside(groups * classes, top, width, first.device)
    for found in assignment.walk(lambda block: aside.find(block.reshape(groups * classes, -1))):
        if not aside.add(*found):
            return None
    row, frame, weight = aside.weighted()
    ends = torch.searchsorted(frame, width * torch.arange(len(embedding) + 1, device=frame.device)).tolist()
    parts = Blocks(lambda i: (i * width, slice(ends[i], ends[i + 1])), len(embedding), keep=False)

    def weighted(features: Tensor, part: tuple[int, slice]) -> tuple[Tensor, Tensor]:
        first, here = part
        return row[here], features[row[here] // classes, frame[here] - first].mul_(weight[here].unsqueeze(1))

    sums = weight.new_zeros(groups * classes, embedding[0].shape[2])
    for rows, own in embedding.walk(weighted, parts):
        sums.index_add_(0, rows, own)
    return sums.unflatten(0, (groups, classes))


class _LaidAside:
    """Of each of R rows the values that are not below the `top`-th largest when last looked, and their frames."""

    def __init__(self, rows: int, top: int, width: int, device: torch.device) -> None:
        room = max(2 * (top + width), _LAID_ASIDE // rows)
        self.top, self.width, self.seen = top, width, 0
        self.value = torch.zeros(rows, room, dtype=torch.float64, device=device)
        self.frame = torch.zeros(rows, room, dtype=torch.int32, device=device)
        self.count = torch.zeros(rows, dtype=torch.int64, device=device)
        self.last = torch.zeros(rows, 1, dtype=torch.float64, device=device)

    def find(self, values: Tensor) -> tuple[Tensor, Tensor, Tensor, int]:
        """Of the values (R, b) of a block those that may be among the largest: rows, places, values, and b."""
        row, place = (values >= self._least()).nonzero(as_tuple=True)
        return row, place, values[row, place], values.shape[1]

    def add(self, row: Tensor, place: Tensor, value: Tensor, width: int) -> bool:
        """Take what `find` found in the frames that follow; False where there is no room for what is tied.

        Blocks are looked through ahead of this: what has become too small since then is left out here.
        """
        large = value >= self._least()[row, 0]
        self._append(row[large], value[large], place[large] + self.seen)
        self.seen += width
        if self._full():
            self._look()
        return not self._full()

    def weighted(self) -> tuple[Tensor, Tensor, Tensor]:
        """Rows, frames in rising order, and the weights of these frames in these rows."""
        self._look()
        value = self._used()
        low, high = _tied(self.last)
        above = (value > high).sum(dim=1)
        reached = (value >= low).sum(dim=1)
        weight = _weight(value, low, high, _share(self.top, above, reached))
        row, place = weight.nonzero(as_tuple=True)
        frame, order = self.frame[row, place].long().sort()
        return row[order], frame, weight[row, place][order]

    def _least(self) -> Tensor:
        return (self.last * (1 - _TIE)).clamp(min=_SMALLEST)

    def _full(self) -> bool:
        return int(self.count.max()) + self.width > self.value.shape[1]

    def _look(self) -> None:
        """Let go of what is below the `top`-th largest."""
        used = self._used()
        self.last = _largest(used, self.top).amin(dim=1, keepdim=True)
        row, place = (used >= self._least()).nonzero(as_tuple=True)
        value, frame = used[row, place], self.frame[row, place]
        used.zero_()
        self.count.zero_()
        self._append(row, value, frame)

    def _used(self) -> Tensor:
        """The values up to the last that there is, and never fewer than `top`: zero where there is none."""
        return self.value[:, : max(int(self.count.max()), self.top)]

    def _append(self, row: Tensor, value: Tensor, frame: Tensor) -> None:
        """Rows come in rising order."""
        count = torch.bincount(row, minlength=len(self.count))
        first = self.count + count - count.cumsum(0)
        place = first[row] + torch.arange(len(row), device=row.device)
        self.value[row, place] = value
        self.frame[row, place] = frame.to(self.frame.dtype)
        self.count += count
