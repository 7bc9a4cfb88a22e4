"""CNN: three convolutions of kernel 3."""

from __future__ import annotations

from torch import nn

from pisa_capc.model.encoders.base import WIDTH, Convolutional
from pisa_capc.model.encoders.registry import register_encoder
from pisa_capc.model.stacked import ConvNorm


@register_encoder("cnn")
class CNN(Convolutional):
    """Three 1-D convolutions of kernel 3 with 32 channels, each with batch norm and ReLU."""

    title = "CNN"

    def __init__(self, streams: int = 1, runs: int = 1) -> None:
        super().__init__()
        self.blocks = nn.Sequential(ConvNorm(2 * streams, WIDTH, 3, runs), ConvNorm(WIDTH, WIDTH, 3, runs))
        self.last = ConvNorm(WIDTH, WIDTH, 3, runs)
