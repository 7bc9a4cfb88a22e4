"""Transformer over patches of the waveform."""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pisa_capc.model.encoders.base import WIDTH, Encoder, register_encoder
from pisa_capc.model.stacked import (
    Dropout,
    LayerNorm,
    Linear,
    Sublayer,
    adaptive_tokens,
    sublayer_chain,
    train_in_blocks,
)

PATCH = 8
POSITIONS = 128
HEADS = 4
FEED_FORWARD = 128
DROPOUT = 0.1


class Layer(nn.Module):
    """Post-norm encoder layer: x ← LN(x + attention(x)), x ← LN(x + feed-forward(x)); dropout as in Vaswani et al."""

    def __init__(self, runs: int) -> None:
        super().__init__()
        self.qkv = Linear(WIDTH, 3 * WIDTH, runs)
        self.out = Linear(WIDTH, WIDTH, runs)
        self.up = Linear(WIDTH, FEED_FORWARD, runs)
        self.down = Linear(FEED_FORWARD, WIDTH, runs)
        self.norm_attention = LayerNorm(WIDTH, runs)
        self.norm_feed_forward = LayerNorm(WIDTH, runs)
        self.drop_weights, self.drop_attention, self.drop_hidden, self.drop_feed_forward = (
            Dropout(DROPOUT) for _ in range(4)
        )

    def sublayers(self) -> list[Sublayer]:
        return [
            Sublayer(self.qkv, self.out, self.norm_attention, self.drop_weights, self.drop_attention, HEADS),
            Sublayer(self.up, self.down, self.norm_feed_forward, self.drop_hidden, self.drop_feed_forward),
        ]

    def forward(self, x: Tensor) -> Tensor:
        for sublayer in self.sublayers():
            x = sublayer(x)
        return x


@register_encoder("transformer")
class Transformer(Encoder):
    """Convolutional patches (kernel and stride 8), learned positions, two encoder layers, final layer norm.

    A frame of more than 128 patches uses linearly interpolated positions.
    """

    title = "Transformer"
    skipping = True
    fusable = ("embed", "finish")

    def __init__(self, streams: int = 1, runs: int = 1) -> None:
        super().__init__()
        # A convolution whose stride is its kernel is a linear map of each patch.
        self.patch = Linear(2 * streams * PATCH, WIDTH, runs)
        self.position = nn.Parameter(torch.randn(runs, POSITIONS, WIDTH) * 0.02)
        self.layers = nn.Sequential(Layer(runs), Layer(runs))
        self.norm = LayerNorm(WIDTH, runs)

    def embed(self, x: Tensor) -> Tensor:
        """Patches with their positions: (R, N, T, channels) → (R, N, T/8, WIDTH)."""
        if x.shape[2] < PATCH:
            x = F.pad(x, (0, 0, 0, PATCH - x.shape[2]))
        count = x.shape[2] // PATCH
        patches = x[:, :, : count * PATCH].unflatten(2, (count, PATCH)).flatten(-2)
        position = self.position[:, :count]
        if count > POSITIONS:
            position = F.interpolate(self.position.mT, size=count, mode="linear", align_corners=True).mT
        y: Tensor = self.patch(patches) + position[:, None]
        return y

    def finish(self, x: Tensor, tokens: int | None) -> Tensor:
        y: Tensor = self.norm(x)
        return y if tokens is None else adaptive_tokens(y, tokens)

    def sublayers(self) -> list[Sublayer]:
        """Of all layers; none if other code replaces any of ours."""
        ours = type(self).finish is Transformer.finish and type(self.norm) is LayerNorm
        if not (ours and type(self.layers) is nn.Sequential and all(type(layer) is Layer for layer in self.layers)):
            return []
        return [sublayer for layer in cast(list[Layer], self.layers) for sublayer in layer.sublayers()]

    def forward(self, x: Tensor, tokens: int | None = None, present: Tensor | None = None) -> Tensor:
        x = self.part("embed")(x)
        sublayers = self.sublayers()
        if train_in_blocks(x, sublayers):
            return sublayer_chain(x, sublayers, self.norm, tokens, present)
        y: Tensor = self.part("finish")(self.layers(x), tokens)
        return y
