"""Which streams of two views of a batch differ, see `model/networks/streams.py`."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def distinct_streams(
    mask, unchanged, first, kind, place, each, used, antennas, total, size,
    GRAIN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One run. Streams that are there once, then those that are there twice, then silence for all that are not there.

    mask: (R, total), the first half of which are those of the first view. unchanged: (R, total/2/antennas). first, kind
    and each: (R, size), of what differs; place: (R, total), where each stream is among these.
    """
    run = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    half = total // 2
    own = i % half
    there = tl.load(mask + run * total + i, mask=i < total, other=0) != 0
    one = tl.load(mask + run * total + own) != 0
    other = tl.load(mask + run * total + half + own) != 0
    same = tl.load(unchanged + run * (half // antennas) + own // antennas) != 0
    both = one & other & same & (i < total)
    once = there & ~both
    pair = both & (i < half)  # its twin is half of all further on
    absent = ~there & (i < total)
    singles = tl.cumsum(once.to(tl.int32), 0)
    pairs = tl.cumsum(pair.to(tl.int32), 0) + tl.sum(once.to(tl.int32), 0)
    silence = tl.sum(once.to(tl.int32), 0) + tl.sum(pair.to(tl.int32), 0)
    place += run * total
    tl.store(place + i, singles - 1, mask=once)
    tl.store(place + i, pairs - 1, mask=pair)
    tl.store(place + half + i, pairs - 1, mask=pair)
    tl.store(place + i, silence, mask=absent)
    first, kind, each = first + run * size, kind + run * size, each + run * size
    slot = tl.where(once, singles, pairs) - 1
    tl.store(first + slot, i, mask=once | pair)
    tl.store(kind + slot, tl.where(once, 1, 2), mask=once | pair)
    tl.store(each + slot, tl.where(once, 1.0, 2.0), mask=once | pair)
    # Silence is in the slot behind these, if anything is silent, and nothing is behind it.
    earliest = tl.min(tl.where(absent, i, total - 1), 0)
    tl.store(first + i, tl.where(i == silence, earliest, total - 1), mask=(i >= silence) & (i < size))
    tl.store(kind + i, tl.zeros((BLOCK,), tl.int32), mask=(i >= silence) & (i < size))
    silent = tl.sum(absent.to(tl.int32), 0).to(tl.float32)
    tl.store(each + i, tl.where(i == silence, silent, 0.0), mask=(i >= silence) & (i < size))
    tl.store(used + run, (silence + GRAIN) // GRAIN * GRAIN)
