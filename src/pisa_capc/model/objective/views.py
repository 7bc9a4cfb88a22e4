"""What is drawn for an epoch: the order of the frames, and the perturbed view x̃ of each (Section III-F).

Everything is drawn on the CPU from the run's seed and the epoch, so a run sees the same batches on any device, alone
or in a stack, and after a restart.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pisa_capc.core.randomness import generator

SPANS = 8  # coarse temporal spans of a frame


class EpochPlan(NamedTuple):
    """Batches of one epoch of one run."""

    rows: NDArray[np.int64]  # (steps, B), positions among the training frames
    antenna_keep: NDArray[np.bool_]  # (steps, B, A)
    span_keep: NDArray[np.bool_]  # (steps, B, SPANS)


def draw_epoch(
    seed: int, epoch: int, frames: int, batch: int, antennas: int, antenna_drop: float, span_drop: float
) -> EpochPlan:
    """Batches of one epoch: a random order, topped up from its own start so that every batch is full."""
    random = generator(seed, "epoch", epoch)
    steps = -(-frames // batch)
    order = np.resize(random.permutation(frames), steps * batch).reshape(steps, batch)
    antenna_keep = random.random((steps, batch, antennas), dtype=np.float32) >= antenna_drop
    spared = random.integers(antennas, size=(steps, batch))
    none = ~antenna_keep.any(axis=2)
    antenna_keep[none, spared[none]] = True  # at least one antenna stays
    span_keep = random.random((steps, batch, SPANS), dtype=np.float32) >= span_drop
    return EpochPlan(order, antenna_keep, span_keep)


def drop_spans(iq: Tensor, span_keep: Tensor) -> Tensor:
    """Silence the dropped spans on all antennas: iq (R, B, A, T, 2), span_keep (R, B, SPANS)."""
    samples, spans = iq.shape[3], span_keep.shape[-1]
    keep = span_keep.to(iq.dtype)
    if samples % spans == 0:
        return (iq.unflatten(3, (spans, -1)) * keep[:, :, None, :, None, None]).flatten(3, 4)
    span = torch.arange(samples, device=iq.device) * spans // samples
    return iq * keep[:, :, span][:, :, None, :, None]
