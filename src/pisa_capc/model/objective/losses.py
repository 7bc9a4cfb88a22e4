"""The terms of the source objective (Section III-F). All return one value per run: (R,)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

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
