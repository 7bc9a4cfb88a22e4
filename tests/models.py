"""Models for tests."""

from __future__ import annotations

import torch
from torch import nn

from pisa_capc.data.geometry import ArrayGeometry, square
from pisa_capc.model.networks import PISA, PisaConfig
from pisa_capc.model.stacked import Dropout


def random_pisa(
    encoder: str = "cnn",
    geometry: ArrayGeometry | None = None,
    config: PisaConfig | None = None,
    classes: int = 10,
    runs: int = 1,
    seed: int = 0,
) -> PISA:
    """A float64 model in eval mode whose every parameter and running statistic is random, none at its start."""
    geometry = geometry or square()
    torch.manual_seed(seed)
    model = PISA(classes, encoder, geometry, config, runs).double().eval()
    # The buffer was rounded to float32 before the model became float64.
    model.distances = torch.from_numpy(geometry.distances())
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "norm" in name or "modulator.last" in name:
                value.add_(0.2 * torch.randn_like(value))
        for name, value in model.named_buffers():
            # About what random inputs give, so that most channels are neither always on nor always off.
            if "running_mean" in name:
                value.copy_(0.1 * torch.randn_like(value))
            if "running_var" in name:
                value.copy_(0.1 + 0.2 * torch.rand_like(value))
    return model


def without_dropout(model: nn.Module) -> nn.Module:
    """The model in training mode, with batch statistics, and nothing dropped."""
    for layer in model.modules():
        if isinstance(layer, Dropout):
            layer.probability = 0.0
    return model.train()
