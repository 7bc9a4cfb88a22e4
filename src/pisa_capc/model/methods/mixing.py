"""Mixtures of frames. Who is mixed with whom, and how much, depends on the run's key alone."""

from __future__ import annotations

import torch
from torch import Tensor

from pisa_capc.model.objective import frame_cross_entropy
from pisa_capc.model.stacked.noise import uniform

SITES = 1 << 16  # first place of the methods' draws, far from those of a model's dropouts


def of_partner(x: Tensor, partner: Tensor) -> Tensor:
    """x[r, partner[r, i]] for each run and frame: (R, B, …), (R, B) → (R, B, …)."""
    runs, frames = partner.shape
    first = frames * torch.arange(runs, device=x.device)[:, None]
    return x.flatten(0, 1).index_select(0, (first + partner).flatten()).unflatten(0, partner.shape)


def mix(x: Tensor, partner: Tensor, share: Tensor) -> Tensor:
    """λ x_i + (1 − λ) x_partner(i): x (R, B, …), λ = share (R, B)."""
    own = share.view(*share.shape, *(1,) * (x.ndim - 2)).to(x.dtype)
    return torch.lerp(of_partner(x, partner), x, own)


def mixed_cross_entropy(logits: Tensor, label: Tensor, partner: Tensor, share: Tensor) -> Tensor:
    """λ CE(ℓ, y_i) + (1 − λ) CE(ℓ, y_partner(i)), averaged over the batch: (R,)."""
    own, other = frame_cross_entropy(logits, label), frame_cross_entropy(logits, of_partner(label, partner))
    return (share * own + (1 - share) * other).mean(1)


def partner_of_same_device(label: Tensor, environment: Tensor, key: Tensor, site: int) -> Tensor:
    """For each frame (R, B) a random one of the same device.

    From another environment if the batch has one, else another frame of its own environment, else the frame itself.
    """
    same = label[:, :, None] == label[:, None, :]
    elsewhere = environment[:, :, None] != environment[:, None, :]
    itself = torch.eye(label.shape[1], dtype=torch.bool, device=label.device)
    rank = same.float() * (1 + 2 * elsewhere.float()) * (1 - itself.float())  # 3 elsewhere, 1 here, 0 other devices
    chance = uniform(key, site, (*label.shape, label.shape[1]))
    return (rank + chance * (rank > 0) + 0.5 * itself).argmax(-1)
