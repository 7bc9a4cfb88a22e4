"""The streams of two views of a batch that differ from one another: the rest need not be computed again.

In the perturbed view (Section III-F) an antenna that is left out is silent, like every other one that is, and a frame
that loses no span has the streams of the clean view in all antennas that stay. With the paper's drops that is
(0.25 + 0.75 · 0.85⁸)/2 = 23 % of all streams.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from pisa_capc.model.stacked import Counts, in_kernels

# Of one size: streams that are used are filled up to a multiple of GRAIN, so that tiles of the kernels are whole; and
# there is room for a multiple of ROOM, as for all sizes that 16 divides Triton has one kernel.
GRAIN, ROOM = 8, 16
MOST = 2**14  # streams of a run for which one program of a kernel has room


class Distinct(NamedTuple):
    """U different ones of N streams; those of the second view are the last N/2."""

    first: Tensor  # (R, U): the first stream that is this one
    kind: Tensor  # (R, U): 2 where the same stream of the second view is this one too, 1 where it is not, 0 of silence
    place: Tensor  # (R, N): which of the U each stream is
    counts: Counts

    def of(self, streams: Tensor) -> Tensor:
        """Of streams (R, N, …), those that differ: (R, U, …)."""
        return _taken(streams, self.first)

    def spread(self, features: Tensor) -> Tensor:
        """Features (R, U, …) for all streams: (R, N, …). Those of silence must get no gradient."""
        spread: Tensor = _Spread.apply(features, self.first, self.kind, self.place)
        return spread


def distinct(mask: Tensor, unchanged: Tensor, of_one_size: bool) -> Distinct:
    """Which streams differ. mask: (R, 2B, A), antennas that are there in both views; unchanged: (R, B), frames that
    lost no span. Streams that are there once come first, then those that are there twice, then silence.

    of_one_size: U does not depend on how many they are, but only on N.
    """
    present = mask.flatten(1)
    runs, total = present.shape
    size = -(-(total + 1) // ROOM) * ROOM
    if of_one_size and in_kernels(mask) and size <= MOST:
        from pisa_capc.model.stacked import fused

        first, kind, place, each, used = fused.distinct_streams(mask, unchanged, size, GRAIN)
        return Distinct(first, kind, place, Counts(each, used, total, GRAIN))
    one, other = present.chunk(2, 1)
    both = one & other & unchanged.repeat_interleave(mask.shape[2], dim=1)
    twice = torch.cat([both, both], 1)
    once = present & ~twice
    singles, pairs = once.cumsum(1), both.cumsum(1)
    silence = singles[:, -1:] + pairs[:, -1:]
    place = torch.where(once, singles - 1, silence)
    place = torch.where(twice, singles[:, -1:] + torch.cat([pairs, pairs], 1) - 1, place)
    used = silence[:, 0] + 1
    if of_one_size:
        grain = GRAIN
        used = (used + GRAIN - 1) // GRAIN * GRAIN
    else:
        grain, size = 1, int(used.max())
    number = torch.arange(total, device=mask.device).expand(runs, -1)
    first = place.new_full((runs, size), total - 1).scatter_reduce_(1, place, number, "amin")
    each = torch.zeros(runs, size, device=mask.device).scatter_add_(
        1, place, torch.ones_like(place, dtype=torch.float32)
    )
    kind = (once.int() + 2 * twice.int()).gather(1, first) * (each > 0)
    return Distinct(first, kind, place, Counts(each, used.int(), total, grain))


def _taken(values: Tensor, which: Tensor) -> Tensor:
    """values[r, which[r, i]] of each run: (R, N, …) and (R, M) → (R, M, …)."""
    runs, count = values.shape[:2]
    start = torch.arange(runs, device=which.device)[:, None] * count
    return values.flatten(0, 1).index_select(0, (which + start).flatten()).unflatten(0, which.shape)


class _Spread(torch.autograd.Function):
    """See `Distinct.spread`. The way back is written out: sums into shared places would depend on their order."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, first: Tensor, kind: Tensor, place: Tensor) -> Tensor:
        ctx.save_for_backward(first, kind)
        return _taken(features, place)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        first, kind = ctx.saved_tensors
        total = gradient.shape[1]
        kind = kind.view(*kind.shape, *(1 for _ in gradient.shape[2:]))
        again = _taken(gradient, (first + total // 2) % total)
        own = torch.where(kind > 0, _taken(gradient, first), 0)
        return own + torch.where(kind > 1, again, 0), None, None, None
