"""Statistics of each source environment in a batch.

Shapes are static: a frame that is not of an environment counts there with weight zero, and an environment that is not
in the batch takes no part in an average over environments or pairs of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pisa_capc.model.stacked import at_least_float32, full_precision


def membership(environment: Tensor, environments: Sequence[int]) -> Tensor:
    """(R, B, E) booleans: whether a frame (R, B) is of a source environment."""
    return torch.stack([environment == e for e in environments], dim=-1)


def domain_label(member: Tensor) -> Tensor:
    """(R, B) position of each frame's environment among the source environments."""
    return member.long().argmax(-1)


def environment_mean(value: Tensor, member: Tensor) -> Tensor:
    """Mean of (R, B) over the frames of each environment, (R, E); zero where there are none."""
    weight = member.to(value.dtype)
    return (value[..., None] * weight).sum(1) / weight.sum(1).clamp_min(1)


def moments(z: Tensor, member: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (R, E, D) and unbiased covariance (R, E, D, D) of z (R, B, D) in each environment."""
    with full_precision(z):
        z = at_least_float32(z)
        weight = member.to(z.dtype).mT[..., None]  # (R, E, B, 1)
        count = weight.sum(2)
        mean = (weight * z[:, None]).sum(2) / count.clamp_min(1)
        centred = weight * (z[:, None] - mean[:, :, None])
        return mean, centred.mT @ centred / (count[..., None] - 1).clamp_min(1)


def mean_over_pairs(distance: Tensor, present: Tensor) -> Tensor:
    """Mean of (R, E, E) over the pairs i < j of environments that are both `present` (R, E): (R,); zero without any."""
    pair = (present[:, :, None] & present[:, None, :]).triu(1)
    return torch.where(pair, distance, 0.0).sum((1, 2)) / pair.sum((1, 2)).clamp_min(1)


def coral_distance(z: Tensor, member: Tensor) -> Tensor:
    """Mean over pairs of environments of mean_d (μ_i − μ_j)² + mean_{d,d'} (C_i − C_j)²: (R,).

    z: (R, B, D). An environment with fewer than two frames in the batch has no covariance and is left out.
    """
    mean, covariance = moments(z, member)
    of_means = (mean[:, :, None] - mean[:, None]).square().mean(-1)
    of_covariances = (covariance[:, :, None] - covariance[:, None]).square().mean((-1, -2))
    return mean_over_pairs(of_means + of_covariances, member.sum(1) >= 2)
