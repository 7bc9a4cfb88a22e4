"""Triton kernels of the stacked layers. Shapes and mathematics are in `fused/`, which calls them.

Conventions: run axis first, channels last; M = N·T rows per run; row m = n·T + t. Partial sums are written per
program and added afterwards in a fixed order, so a kernel gives the same bits every time.
"""

from __future__ import annotations

import triton

from pisa_capc.model.stacked.kernels.adamw import adamw
from pisa_capc.model.stacked.kernels.attention import (
    attention,
    attention_heads_gradient,
    attention_input_gradient,
    attention_output_gradient,
)
from pisa_capc.model.stacked.kernels.chain import chain_convolve, chain_gradient
from pisa_capc.model.stacked.kernels.convolution import convolve, weight_gradient
from pisa_capc.model.stacked.kernels.feed_forward import feed_forward, feed_forward_gradient
from pisa_capc.model.stacked.kernels.normalisation import (
    norm_apply,
    norm_gradient_apply,
    norm_gradient_coefficients,
    norm_gradient_sums,
    norm_pool,
    norm_statistics,
)
from pisa_capc.model.stacked.kernels.recurrence import gru_backward, gru_forward
from pisa_capc.model.stacked.kernels.streams import distinct_streams
from pisa_capc.model.stacked.kernels.topology import (
    separations,
    topology,
    topology_heads_gradient,
    topology_rows_gradient,
)
from pisa_capc.model.stacked.kernels.window import window_apply, window_gradient, window_moments, window_sums

__all__ = [
    "adamw",
    "attention",
    "attention_heads_gradient",
    "attention_input_gradient",
    "attention_output_gradient",
    "chain_convolve",
    "chain_gradient",
    "convolve",
    "distinct_streams",
    "feed_forward",
    "feed_forward_gradient",
    "gru_backward",
    "gru_forward",
    "norm_apply",
    "norm_gradient_apply",
    "norm_gradient_coefficients",
    "norm_gradient_sums",
    "norm_pool",
    "norm_statistics",
    "padded",
    "power_of_two",
    "separations",
    "tiles",
    "topology",
    "topology_heads_gradient",
    "topology_rows_gradient",
    "weight_gradient",
    "window_apply",
    "window_gradient",
    "window_moments",
    "window_sums",
]


def tiles(rows: int, block: int) -> int:
    """How many blocks cover the rows."""
    return int(triton.cdiv(rows, block))


def power_of_two(size: int) -> int:
    """The next power of two."""
    return int(triton.next_power_of_2(size))


def padded(size: int) -> int:
    """The next power of two that a matrix unit accepts as an inner size."""
    return max(16, power_of_two(size))
