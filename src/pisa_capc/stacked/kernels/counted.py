"""Frames that stand for several, see `counts.Counts`. COUNTED: whether any do; else all are used and count once."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def filled_rows(used, run, rows, length, COUNTED: tl.constexpr):
    """Rows of a run that belong to frames that are used."""
    return tl.load(used + run) * length if COUNTED else rows


@triton.jit
def count_of_rows(counts, run, rows, length, m, live, COUNTED: tl.constexpr):
    """How often the frames of rows m count."""
    if COUNTED:
        count = tl.load(counts + run * (rows // length) + m // length, mask=live, other=0.0)
    else:
        count = tl.full(m.shape, 1.0, tl.float32)
    return count
