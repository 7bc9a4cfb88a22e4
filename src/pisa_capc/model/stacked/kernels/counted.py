"""Frames that stand for several, see `counts.Counts`."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def count_of_rows(counts, run, rows, length, m, live):
    """How often the frames of rows m count."""
    return tl.load(counts + run * (rows // length) + m // length, mask=live, other=0.0)
