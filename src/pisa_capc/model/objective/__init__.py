"""Terms of the source objective, and what is drawn for an epoch: the order of the frames, and the perturbed view x̃ of
each (Section III-F).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from pisa_capc.core.randomness import generator
from pisa_capc.model.stacked import at_least_float32


def frame_cross_entropy(logits: Tensor, label: Tensor) -> Tensor:
    """−log softmax(h(z_i))_{y_i} of each frame: logits (R, B, C), label (R, B) → (R, B)."""
    return F.cross_entropy(at_least_float32(logits).transpose(1, 2), label, reduction="none")


def cross_entropy(logits: Tensor, label: Tensor) -> Tensor:
    """Eq. (ce_loss): −1/B Σ_i log softmax(h(z_i))_{y_i}. logits: (R, B, C); label: (R, B)."""
    return frame_cross_entropy(logits, label).mean(1)


def prediction_consistency(clean: Tensor, perturbed: Tensor) -> Tensor:
    """KL(p(·|x) ‖ p(·|x̃)) of Eq. (topology_consistency), averaged over the batch; logits (R, B, C) each."""
    log_p, log_q = torch.log_softmax(at_least_float32(clean), -1), torch.log_softmax(at_least_float32(perturbed), -1)
    return (log_p.exp() * (log_p - log_q)).sum(-1).mean(1)


def supervised_contrastive(embedding: Tensor, label: Tensor, temperature: float) -> Tensor:
    """Supervised contrastive loss (Khosla et al., 2020, L_out) over all embeddings of a batch.

    −1/|P(i)| Σ_{p∈P(i)} log( exp(z_i·z_p/τ) / Σ_{a≠i} exp(z_i·z_a/τ) ), averaged over the anchors that have a
    positive; P(i): the others with the label of i. embedding: (R, M, D), normalised here; label: (R, M).
    """
    z = F.normalize(at_least_float32(embedding), dim=-1)
    similarity = z @ z.transpose(1, 2) / temperature
    itself = torch.eye(z.shape[1], dtype=torch.bool, device=z.device)
    log_probability = similarity - torch.logsumexp(similarity.masked_fill(itself, float("-inf")), -1, keepdim=True)
    positive = (label[:, :, None] == label[:, None, :]) & ~itself
    count = positive.sum(-1)
    per_anchor = -torch.where(positive, log_probability, 0.0).sum(-1) / count.clamp_min(1)
    return per_anchor.sum(1) / (count > 0).sum(1).clamp_min(1)


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
